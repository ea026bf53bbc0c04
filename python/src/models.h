// What models and serving share.
#pragma once

#include <nanobind/stl/function.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "callback.h"
#include "objects.h"
#include "weft/model.h"

namespace weft::python {

using OnLoad = nb::typed<nb::callable, void(double)>;

// The options of weft.ForwardPass by their names. The callback, if any, is asked for what it threw when all is loaded.
struct PyForwardOptions {
  ForwardOptions options = {};
  std::shared_ptr<WorkerTeam> team = {};
  std::optional<Callback> on_load = {};

  void rethrow() const {
    if (on_load) on_load->rethrow();
  }
};
inline PyForwardOptions forward_options(Precision precision, Device device, int64_t max_tokens, int max_sequences,
                                        int page_size, int64_t max_rows, std::optional<DType> kv_dtype,
                                        PlanMode plan_mode, int fixed_split_size, StepForm step, bool levels,
                                        std::shared_ptr<WorkerTeam> team, const std::optional<OnLoad>& on_load) {
  PyForwardOptions made;
  made.options = {.precision = precision,
                  .device = device,
                  .max_tokens = max_tokens,
                  .max_sequences = max_sequences,
                  .page_size = page_size,
                  .max_rows = max_rows,
                  .kv_dtype = kv_dtype,
                  .plan_mode = plan_mode,
                  .fixed_split_size = fixed_split_size,
                  .step = step,
                  .levels = levels,
                  .team = team.get()};
  made.team = std::move(team);
  if (on_load) made.options.on_load = made.on_load.emplace(*on_load);
  return made;
}

}  // namespace weft::python
