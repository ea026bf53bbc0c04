// The layers of a model on one device, and what a step does with them.
//
//   MadeLayers made = make_layers(config, read_sources(file), options, sequences);
//   made.layers->run(step, {.logits = logits});            // [step.wanted, vocab]
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "decode/forward.h"
#include "decode/sequences.h"
#include "decode/step.h"
#include "decode/weights.h"
#include "weft/model.h"

namespace weft::decode {

class Layers {
 public:
  virtual ~Layers() = default;

  // Keys and values go into the sequences' pages, what is wanted of rows to host memory; both are there when it
  // returns.
  virtual void run(const Step& step, const StepOutput& output) = 0;
  // Rows of a step that runs in the form, at most: whoever has more makes several steps of them. 0: none runs so.
  virtual int64_t most_rows(StepForm form) const {
    return form == StepForm::fused ? 0 : std::numeric_limits<int64_t>::max();
  }
  // Whether it knows how to leave ids alone, greedy and drawn ones; else logits are asked for.
  virtual bool has_greedy() const { return false; }
  // The last step's layers so many times more, one after another, on what lies there: seconds of each.
  virtual double replay(const Step& step, const StepOutput& output, int count) = 0;

  // Where the time of fused steps goes, a line for each phase of a layer and the head (fused/cuda/phase_times.h). The
  // last step runs once more; "": none.
  virtual std::string trace(const Step&, const StepOutput&) { return ""; }
  // For measurements: the form of steps of few rows from now on, where there are two, false where there are not; and
  // whether fused steps copy nothing of a phase before its input is there.
  virtual bool choose(StepForm) { return false; }
  virtual void hold_back(bool) {}

  virtual size_t weight_bytes() const = 0;         // read once for a token
  virtual const StepSeconds& seconds() const = 0;  // of the last step
};

struct MadeLayers {
  std::unique_ptr<Layers> layers;
  std::string form;  // in words: how steps run, and why not otherwise
};
// On options.device, in the form that options.step asks for. Throws Error(unsupported) where the forward pass does not
// run there or has not that form, and what reading weights throws. Config, options and sequences outlive it.
MadeLayers make_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                       const Sequences& sequences);

}  // namespace weft::decode
