// The whole compiler on one screen: every pass, in order.
#include "sparse/compile.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/names.h"
#include "loop/codegen/printers.h"
#include "loop/passes.h"
#include "sparse/stage1/specialise.h"

namespace weft::sparse {
namespace {

struct Context {
  Compilation& made;
  const CompileOptions& options;
  bool has_preprocess() const { return !made.parts.preprocess.iterations.empty(); }
  // Both programs of flat loops.
  template <class Work>
  void each_function(const Work& work) const {
    if (has_preprocess()) work(made.preprocess3.function);
    work(made.compute3.function);
  }
};

struct Pass {
  const char* name;
  void (*run)(const Context& c);
};

const Pass kPasses[] = {
    // Stage I: coordinates.
    {"specialise", [](const Context& c) { c.made.source = specialise(std::move(c.made.source), c.options.set); }},
    {"schedule stage I", [](const Context& c) { c.made.schedule.run_stage1(c.made.stage1 = c.made.source); }},
    {"split preprocess", [](const Context& c) { c.made.parts = split_preprocess(c.made.stage1); }},

    // Stage II: positions. Equations 3.1 to 3.5.
    {"lower iterations",
     [](const Context& c) {
       if (c.has_preprocess()) c.made.preprocess2 = lower_iterations(c.made.parts.preprocess);
       c.made.compute2 = lower_iterations(c.made.parts.compute);
     }},
    {"schedule stage II",
     [](const Context& c) {
       default_schedule(c.made.preprocess2);
       if (c.made.schedule.has_stage2_lines())
         c.made.schedule.run_stage2(c.made.compute2);
       else
         default_schedule(c.made.compute2);
     }},

    // Stage III: flat loops. Equations 3.6 to 3.8.
    {"lower buffers",
     [](const Context& c) {
       if (c.has_preprocess()) c.made.preprocess3 = lower_buffers(c.made.preprocess2);
       c.made.compute3 = lower_buffers(c.made.compute2);
     }},
    {"simplify", [](const Context& c) { c.each_function([](loop::Function& f) { loop::simplify(f); }); }},
    {"peel tails", [](const Context& c) { c.each_function([](loop::Function& f) { loop::peel_tails(f); }); }},
    {"simplify again", [](const Context& c) { c.each_function([](loop::Function& f) { loop::simplify(f); }); }},
    {"check bounds", [](const Context& c) { c.made.bounds = loop::check_bounds(c.made.compute3.function); }},

    // Code.
    {"generate",
     [](const Context& c) {
       std::vector<loop::Function> functions;
       c.each_function([&](loop::Function& f) { functions.push_back(f); });
       c.made.code = loop::cpp_module(functions);
     }},
};

// What holds after every pass.
void verify_all(const Context& c) {
  verify(c.made.stage1);
  if (!c.made.compute2.body.empty()) verify(c.made.compute2);
  if (!c.made.compute3.function.body.empty()) c.each_function([](loop::Function& f) { loop::verify(f); });
}

}  // namespace

Compilation run_passes(const ParsedProgram& program, const CompileOptions& options) {
  const std::vector<std::string> names = pass_names();
  const bool known =
      options.stop_after.empty() || std::find(names.begin(), names.end(), options.stop_after) != names.end();
  check(known, ErrorCode::invalid_argument, "stop_after: '{}' is no pass{}", options.stop_after,
        did_you_mean(options.stop_after, names));
  Compilation made{.source = program.stage1,
                   .stage1 = program.stage1,
                   .schedule = ScheduleRunner(program.schedule),
                   .parts = {},
                   .preprocess2 = {},
                   .compute2 = {},
                   .preprocess3 = {},
                   .compute3 = {}};
  const Context context{made, options};
  for (const Pass& pass : kPasses) {
    const auto start = std::chrono::steady_clock::now();
    pass.run(context);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    made.times.push_back({pass.name, took.count()});
    made.done = pass.name;
    verify_all(context);
    if (options.stop_after == pass.name) break;
  }
  return made;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

std::string cuda_text(const Compilation& made) { return loop::cuda_module({made.compute3.function}); }

}  // namespace weft::sparse
