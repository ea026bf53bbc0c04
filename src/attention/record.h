// WEFT_RECORD=DIR: every run leaves a folder with all that it was given and what it made of it.
//
//   DIR/PID-N/call.json    spec, scalars of plan (which plan.bin holds too) and of run, type and shape of every tensor
//             plan.bin     the plan as it lay in the workspace
//             q.bin k.bin v.bin tensor.NAME.bin    row-major, as numpy.fromfile reads them
//             o.bin lse.bin                        once the run has ended
//
// The folder appears whole before the run starts, so that a run which ends the process is recorded too.
// `weft replay` runs it again (src/cli/recorded_call.h reads it).
#pragma once

#include <string>

#include "attention/kernel.h"

namespace weft {

// The new folder, or nothing where WEFT_RECORD is not set. Throws Error(io_error), and then leaves no folder.
std::string record_call(const AttentionKernel::Impl& kernel, const Workspace& workspace,
                        const AttentionTensors& tensors, float sm_scale, Stream stream);
void record_result(const std::string& folder, const AttentionKernel::Impl& kernel, const AttentionTensors& tensors,
                   Stream stream);

}  // namespace weft
