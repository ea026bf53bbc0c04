// Steps of few rows through one form of the layers, the fused one, all others through another. Both write the same
// cache.
//
//   LayersByRows layers(std::move(fused), std::move(layered), StepForm::automatic);
#pragma once

#include <limits>
#include <memory>
#include <utility>

#include "base/log.h"
#include "decode/layers.h"
#include "weft/error.h"

namespace weft::decode {

// The form decides. `automatic`: steps of few rows are fused, but for rows that share pages or want the same bits
// beside any others, which are better layered, where sharing saves bytes and every number of rows is cut alike; and for
// steps for which the fused form finds no memory. What it needs grows with contexts, so it is asked again by a step of
// fewer tokens, as there is one once a request has ended.
// `fused`: only the number of rows counts, and what wants the same bits goes to those of few rows whatever it is, who
// may refuse it. `layered`: none is fused.
class LayersByRows : public Layers {
 public:
  LayersByRows(std::unique_ptr<Layers> few, std::unique_ptr<Layers> many, StepForm form)
      : few_(std::move(few)), many_(std::move(many)), form_(form) {}

  void run(const Step& step, const StepOutput& output) override {
    try {
      of(step).run(step, output);
      if (last_ == few_.get()) too_many_ = kNone;
      return;
    } catch (const Error& error) {
      if (form_ != StepForm::automatic || last_ != few_.get() || error.code() != ErrorCode::out_of_memory) throw;
      too_many_ = step.kv_tokens();
      if (!std::exchange(has_told_, true)) log::warn("steps without memory to be fused run layered: {}", error.what());
    }
    last_ = many_.get();
    last_->run(step, output);
  }
  int64_t most_rows(StepForm form) const override {
    return form == StepForm::fused ? most_few_ : many_->most_rows(form);
  }
  bool has_greedy() const override { return few_->has_greedy() && many_->has_greedy(); }
  double replay(const Step& step, const StepOutput& output, int count) override {
    return of(step).replay(step, output, count);
  }
  std::string trace(const Step& step, const StepOutput& output) override { return of(step).trace(step, output); }
  bool choose(StepForm form) override {
    form_ = form;
    return true;
  }
  void hold_back(bool holds) override { few_->hold_back(holds); }
  size_t weight_bytes() const override { return last_->weight_bytes(); }
  const StepSeconds& seconds() const override { return last_->seconds(); }

 private:
  Layers& of(const Step& step) { return *(last_ = is_fused(step) ? few_.get() : many_.get()); }
  bool is_fused(const Step& step) const {
    const bool has_few = step.rows() <= most_few_;
    switch (form_) {
      case StepForm::layered: return false;
      case StepForm::fused: return has_few || step.invariant;
      case StepForm::automatic:
        return has_few && !step.has_prefixes() && !step.invariant && step.kv_tokens() < too_many_;
    }
    return false;
  }

  std::unique_ptr<Layers> few_, many_;
  const int64_t most_few_ = few_->most_rows(StepForm::fused);
  StepForm form_;
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t too_many_ = kNone;  // tokens: of the last step that found no memory, until a fused one runs
  Layers* last_ = few_.get();
  bool has_told_ = false;
};

}  // namespace weft::decode
