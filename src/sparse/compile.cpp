// The whole compiler on one screen: every pass, in order.
#include "sparse/compile.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/names.h"
#include "loop/codegen/printers.h"
#include "loop/passes.h"
#include "loop/regions.h"
#include "loop/threads.h"
#include "sparse/stage1/specialise.h"
#include "sparse/stage2/bound_loops.h"

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

// Every access of a buffer lies within it: proven here, or by what is checked when a structure is made.
void check_bounds(const Context& c) {
  c.made.bounds = loop::check_bounds(c.made.compute3.function);
  const loop::BoundsReport& report = c.made.bounds;
  check(!c.options.prove_bounds || report.others.empty(), ErrorCode::unsupported,
        "prove_bounds: {} of {} accesses are not proven, the first {}; required: conditions that say where it lies",
        report.others.size(), report.total, report.others.empty() ? "" : report.others[0]);
}

std::string cuda_text(const std::vector<loop::Launches>& kernels) {
  return loop::cuda_head(kernels).text + loop::cuda_module(kernels);
}

struct Pass {
  const char* name;
  void (*run)(const Context& c);
  bool needed = true;    // else it may be skipped
  bool of_card = false;  // runs where stop_after names one of these
};

const Pass kPasses[] = {
    // Stage I: coordinates.
    {"specialise",
     [](const Context& c) {
       c.made.source = specialise(std::move(c.made.source), c.options.set, c.options.set_reals);
     }},
    {"schedule stage I", [](const Context& c) { c.made.schedule.run_stage1(c.made.stage1 = c.made.source); }},
    {"split preprocess", [](const Context& c) { c.made.parts = split_preprocess(c.made.stage1); }},

    // Stage II: positions. Equations 3.1 to 3.5.
    {"materialise auxiliaries",
     [](const Context& c) {
       if (c.has_preprocess()) c.made.preprocess2 = materialise_auxiliaries(c.made.parts.preprocess);
       c.made.compute2 = materialise_auxiliaries(c.made.parts.compute);
     }},
    {"lower iterations",
     [](const Context& c) {
       if (c.has_preprocess()) lower_iterations(c.made.parts.preprocess, c.made.preprocess2);
       lower_iterations(c.made.parts.compute, c.made.compute2, c.made.schedule.named_axes_of_one(c.made.parts.compute));
     }},
    {"schedule stage II",
     [](const Context& c) {
       default_schedule(c.made.preprocess2);
       if (c.made.schedule.has_stage2_lines())
         c.made.schedule.run_stage2(c.made.compute2);
       else
         default_schedule(c.made.compute2);
     }},
    {"find regions",
     [](const Context& c) {
       loop::find_regions(c.made.preprocess2.body);
       loop::find_regions(c.made.compute2.body);
     },
     false},

    // Stage III: flat loops. Equations 3.6 to 3.8.
    {"lower buffers",
     [](const Context& c) {
       if (c.has_preprocess()) c.made.preprocess3 = lower_buffers(c.made.preprocess2);
       c.made.compute3 = lower_buffers(c.made.compute2);
     }},
    {"simplify", [](const Context& c) { c.each_function([](loop::Function& f) { loop::simplify(f); }); }, false},
    {"peel tails", [](const Context& c) { c.each_function([](loop::Function& f) { loop::peel_tails(f); }); }, false},
    {"simplify again", [](const Context& c) { c.each_function([](loop::Function& f) { loop::simplify(f); }); }, false},
    {"join phases", [](const Context& c) { c.each_function([](loop::Function& f) { loop::join_phases(f); }); }, false},
    {"check bounds", check_bounds},

    // Devices: what is started at once, by a team of workers or on a card.
    {"split launches",
     [](const Context& c) {
       c.made.launches.clear();
       c.each_function([&](const loop::Function& f) { c.made.launches.push_back(loop::split_launches(f)); });
     }},

    // Code.
    {"generate", [](const Context& c) { c.made.code = loop::cpp_module(c.made.launches); }},
    {"split threads", [](const Context& c) { c.made.kernels = kernels_of(c.made); }, true, true},
    {"generate cuda", [](const Context& c) { c.made.cuda = cuda_text(c.made.kernels); }, true, true},
};

void verify_phases(const loop::Launches& launches, loop::Function function) {
  for (const loop::Phase& phase : launches.phases) {
    function.body = phase.body;
    loop::verify(function);
  }
}

// What holds after every pass.
void verify_all(const Context& c) {
  verify(c.made.stage1);
  if (!c.made.compute2.body.empty()) verify(c.made.compute2);
  if (!c.made.compute3.function.body.empty()) c.each_function([](loop::Function& f) { loop::verify(f); });
  for (const loop::Launches& launches : c.made.launches) verify_phases(launches, launches.function);
  for (const loop::Launches& kernels : c.made.kernels) {
    loop::Function of_thread = kernels.function;
    for (const char* axis : {"blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"})
      of_thread.scalars.emplace_back(axis);
    verify_phases(kernels, of_thread);
  }
}

bool is_of_card(const std::string& name) {
  return std::any_of(std::begin(kPasses), std::end(kPasses),
                     [&](const Pass& pass) { return pass.of_card && pass.name == name; });
}

}  // namespace

Compilation run_passes(const ParsedProgram& program, const CompileOptions& options) {
  const std::vector<std::string> names = pass_names();
  const bool known =
      options.stop_after.empty() || std::find(names.begin(), names.end(), options.stop_after) != names.end();
  check(known, ErrorCode::invalid_argument, "stop_after: '{}' is no pass{}", options.stop_after,
        did_you_mean(options.stop_after, names));
  for (const std::string& name : options.skip) {
    const Pass* found =
        std::find_if(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return p.name == name; });
    check(found != std::end(kPasses), ErrorCode::invalid_argument, "skip: '{}' is no pass{}", name,
          did_you_mean(name, names));
    check(!found->needed, ErrorCode::invalid_argument,
          "skip: '{}' is needed; allowed are passes that only make code faster or explain it", name);
  }
  Compilation made{.source = program.stage1,
                   .stage1 = program.stage1,
                   .schedule = ScheduleRunner(program.schedule, program.formats),
                   .parts = {},
                   .preprocess2 = {},
                   .compute2 = {},
                   .preprocess3 = {},
                   .compute3 = {}};
  const Context context{made, options};
  for (const Pass& pass : kPasses) {
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end()) continue;
    if (pass.of_card && !is_of_card(options.stop_after)) continue;
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

std::vector<loop::Launches> kernels_of(const Compilation& made) {
  std::vector<loop::Launches> kernels;
  for (const loop::Launches& launches : made.launches) kernels.push_back(loop::split_threads(launches));
  check_bound_loops(made.compute2);
  return kernels;
}

std::string cuda_text(const Compilation& made) { return made.cuda.empty() ? cuda_text(kernels_of(made)) : made.cuda; }

}  // namespace weft::sparse
