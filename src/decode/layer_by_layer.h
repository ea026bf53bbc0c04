// Layers whose operations a device runs one after another, as the program lists them; those that it fuses run as one.
//
//   LayerByLayer layers(make_program(config), make_executor(config, read_sources(file), options, sequences));
//   layers.run(step, {.logits = logits});
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "decode/executor.h"
#include "decode/layers.h"
#include "decode/program.h"

namespace weft::decode {

class LayerByLayer : public Layers {
 public:
  LayerByLayer(Program program, std::unique_ptr<Executor> executor);

  void run(const Step& step, const StepOutput& output) override;
  bool has_greedy() const override { return executor_->has_greedy(); }
  double replay(const Step& step, const StepOutput& output, int count) override;
  size_t weight_bytes() const override { return executor_->weight_bytes(); }
  const StepSeconds& seconds() const override { return seconds_; }

 private:
  void enqueue(const Step& step, const StepOutput& output);
  void walk(const Step& step);

  Program program_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::span<const Operation>> fused_;  // of program_
  StepSeconds seconds_;
};

// The program's operations in their order, cut into those that run as one. The last attend stands alone: what a step
// computes changes before and behind it.
std::vector<std::span<const Operation>> fuse(const Program& program, const Executor& executor);

}  // namespace weft::decode
