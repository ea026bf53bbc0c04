// What a compilation makes on its way, and the passes that make it.
//
//   Compilation compilation = run_passes(parse_program(text), options);
//   compilation.compute3;        // the flat loops
#pragma once

#include <string>
#include <vector>

#include "loop/passes.h"
#include "sparse/schedule.h"
#include "sparse/stage2/lower_buffers.h"
#include "weft/sparse.h"

namespace weft::sparse {

struct Compilation {
  Stage1 source;  // as it was given, with parameters specialised
  Stage1 stage1;  // after its schedule
  ScheduleRunner schedule;
  SplitProgram parts;  // what runs once for new values, and what runs always
  Stage2 preprocess2, compute2;
  Stage3 preprocess3, compute3;
  loop::BoundsReport bounds = {};
  std::vector<loop::Launches> launches = {};  // of both functions, what is started one after another
  std::vector<loop::Launches> kernels = {};   // and what each thread of a card runs of it
  std::string code = {};                      // C++
  std::string cuda = {};
  std::string done = {};  // the last pass that ran
  std::vector<PassTime> times = {};
};

// Those for a card run where stop_after names one of them; they throw Error(unsupported) as loop/threads.h and
// loop/codegen/printers.h say.
Compilation run_passes(const ParsedProgram& program, const CompileOptions& options);
std::vector<std::string> pass_names();
// What each thread of a card runs of both functions, of a compilation that came to its end. Throws Error(unsupported)
// naming the schedule's line.
std::vector<loop::Launches> kernels_of(const Compilation& compilation);
// Text of CUDA of all that runs, first what runs once for new values, of a compilation that came to its end.
std::string cuda_text(const Compilation& compilation);

}  // namespace weft::sparse
