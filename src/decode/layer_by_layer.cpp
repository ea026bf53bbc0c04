#include "decode/layer_by_layer.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace weft::decode {

std::vector<std::span<const Operation>> fuse(const Program& program, const Executor& executor) {
  const std::span<const Operation> all = program.operations;
  std::vector<std::span<const Operation>> fused;
  for (size_t begin = 0, i = 1; i <= all.size(); ++i) {
    const bool may_fuse = i < all.size() && i != program.last_attend && i != program.last_attend + 1;
    if (may_fuse && executor.fuses(all[i - 1], all[i])) continue;
    fused.push_back(all.subspan(begin, i - begin));
    begin = i;
  }
  return fused;
}

LayerByLayer::LayerByLayer(Program program, std::unique_ptr<Executor> executor)
    : program_(std::move(program)), executor_(std::move(executor)), fused_(fuse(program_, *executor_)) {}

void LayerByLayer::run(const Step& step, const StepOutput& output) {
  seconds_ = {.plan = seconds_of([&] { executor_->plan(step); }),
              .upload = seconds_of([&] { executor_->upload(step); }),
              .enqueue = seconds_of([&] { enqueue(step, output); }),
              .wait = seconds_of([&] { executor_->synchronize(); })};
}

double LayerByLayer::replay(const Step& step, const StepOutput& output, int count) {
  return seconds_of([&] {
           for (int i = 0; i < count; ++i) enqueue(step, output);
           executor_->synchronize();
         }) /
         count;
}

void LayerByLayer::enqueue(const Step& step, const StepOutput& output) {
  executor_->enqueue(step, output, [&] { walk(step); });
}

void LayerByLayer::walk(const Step& step) {
  const Operation* last_attend = program_.operations.data() + program_.last_attend;
  const bool attends = program_.last_attend < program_.operations.size();
  ensure(attends || step.rows() == static_cast<int64_t>(step.wanted.size()),
         "a step of {} rows through layers without attention gives logits of {}", step.rows(), step.wanted.size());
  for (const std::span<const Operation> fused : fused_) {
    const bool is_last_attend = fused.data() == last_attend;
    if (is_last_attend && step.wanted.empty()) return;
    executor_->run(fused);
    if (is_last_attend) executor_->keep(step.wanted);
  }
}

}  // namespace weft::decode
