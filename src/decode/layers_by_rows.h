// Steps of few rows through one form of the layers, the fused one, all others through another. Both write the same
// cache.
//
//   LayersByRows layers(std::move(fused), std::move(layered), FewRows::where_better);
#pragma once

#include <memory>

#include "decode/layers.h"

namespace weft::decode {

// Rows that share pages or want the same bits beside any others are better layered, where sharing saves bytes and every
// number of rows is cut alike. `always`: only the number of rows counts, and what wants the same bits goes to those of
// few rows whatever it is, who may refuse it.
enum class FewRows : uint8_t { where_better, always };

class LayersByRows : public Layers {
 public:
  LayersByRows(std::unique_ptr<Layers> few, std::unique_ptr<Layers> many, FewRows when)
      : few_(std::move(few)), many_(std::move(many)), when_(when) {}

  void run(const Step& step, const StepOutput& output) override { of(step).run(step, output); }
  int64_t most_rows(StepForm form) const override {
    return form == StepForm::fused ? most_few_ : many_->most_rows(form);
  }
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
  Layers& of(const Step& step) {
    if (chosen_ == StepForm::layered) return *(last_ = many_.get());
    const bool has_few = step.rows() <= most_few_;
    const bool is_few =
        when_ == FewRows::always ? has_few || step.invariant : has_few && !step.has_prefixes() && !step.invariant;
    last_ = is_few ? few_.get() : many_.get();
    return *last_;
  }

  std::unique_ptr<Layers> few_, many_;
  const int64_t most_few_ = few_->most_rows(StepForm::fused);
  FewRows when_;
  StepForm chosen_ = StepForm::automatic;
  Layers* last_ = few_.get();
};

}  // namespace weft::decode
