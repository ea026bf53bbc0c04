// Steps of few rows through one form of the layers, all others through another. Both write the same cache.
#pragma once

#include <memory>

#include "decode/layers.h"

namespace weft::decode {

class LayersByRows : public Layers {
 public:
  LayersByRows(std::unique_ptr<Layers> few, int64_t most_few, std::unique_ptr<Layers> many)
      : few_(std::move(few)), many_(std::move(many)), most_few_(most_few) {}

  void run(const Step& step, const StepOutput& output) override { of(step).run(step, output); }
  bool has_greedy() const override { return few_->has_greedy() && many_->has_greedy(); }
  double replay(const Step& step, const StepOutput& output, int count) override {
    return of(step).replay(step, output, count);
  }
  std::string trace(const Step& step, const StepOutput& output) override { return of(step).trace(step, output); }
  bool choose(StepForm form) override {
    chosen_ = form;
    return true;
  }
  void hold_back(bool holds) override { few_->hold_back(holds); }
  size_t weight_bytes() const override { return last_->weight_bytes(); }
  const StepSeconds& seconds() const override { return last_->seconds(); }

 private:
  // Rows that share pages or want the same bits beside any others go layered, where sharing saves bytes and every
  // number of rows is cut alike.
  Layers& of(const Step& step) {
    const bool is_few =
        chosen_ != StepForm::layered && step.rows() <= most_few_ && !step.has_prefixes() && !step.invariant;
    last_ = is_few ? few_.get() : many_.get();
    return *last_;
  }

  std::unique_ptr<Layers> few_, many_;
  int64_t most_few_;
  StepForm chosen_ = StepForm::automatic;
  Layers* last_ = few_.get();
};

}  // namespace weft::decode
