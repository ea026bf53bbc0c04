#include "tests/sparse/random/compiled.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/host/module.h"
#include "loop/codegen/c_family.h"
#include "loop/codegen/printers.h"
#include "sparse/operator.h"
#include "tests/sparse/random/watched.h"
#include "tests/support/guarded_arrays.h"
#include "weft/error.h"

namespace weft::sparse::random {
namespace {

using Call = void (*)(void* const* buffers, const long long* scalars, int worker, int workers);

struct Team {
  int workers;
  bool backwards;
};
constexpr Team kTeams[] = {{1, false}, {3, false}, {3, true}};

// In memory that ends at a guard.
class GuardedMemory {
 public:
  char* make(size_t bytes) {
    const testing::GuardedArrays guards;
    arrays_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    return arrays_.back().get();
  }

 private:
  std::vector<std::unique_ptr<char[]>> arrays_;
};

void run_phases(Bench& bench, const Module& module, const Team& team) {
  for (const loop::Function* function : bench.functions()) {
    std::vector<void*> buffers = bench.buffers_of(*function);
    buffers.push_back(bench.failures_of(*function));
    const std::vector<long long> scalars = bench.scalars_of(*function);
    const std::vector<loop::Phase> phases = loop::split_phases(*function);
    for (size_t p = 0; p < phases.size(); ++p) {
      const auto call = reinterpret_cast<Call>(module.symbol(loop::phase_name(*function, p).c_str()));
      const int workers = phases[p].parallel() == nullptr ? 1 : team.workers;
      for (int w = 0; w < workers; ++w)
        call(buffers.data(), scalars.data(), team.backwards ? workers - 1 - w : w, workers);
    }
  }
}

Problem run_case(const Case& c, const Operator& op, const Module& module) {
  const Results want = results_of(c.program);
  GuardedMemory memory;
  Bench bench(c, op, [&](const std::string&, size_t bytes) { return memory.make(bytes); });
  for (const Team& team : kTeams) {
    bench.restore();
    const std::string end = watched([&] { run_phases(bench, module, team); });
    if (!end.empty()) return {"crash", end};
    if (Problem problem = bench.problem_of(want)) return problem;
  }
  return {};
}

std::shared_ptr<const Module> module_of(const std::vector<loop::Launches>& launches) {
  const Isa isa = current_isa();
  return jit::host_module({.name = "random schedules " + std::string(to_string(isa)),
                           .text = loop::cpp_module(launches),
                           .target = jit::host_target(isa)})
      .module;
}

}  // namespace

std::vector<Problem> run_compiled(const std::vector<Case>& cases) {
  std::vector<Problem> problems(cases.size());
  std::vector<std::unique_ptr<Operator>> ops(cases.size());
  std::vector<loop::Launches> launches;
  for (size_t i = 0; i < cases.size(); ++i) {
    problems[i] = accepted(cases[i], &ops[i]);
    if (ops[i] == nullptr) continue;
    for (const loop::Launches& own : ops[i]->impl().made.launches)
      if (!own.function.body.empty()) launches.push_back(own);
  }
  std::shared_ptr<const Module> module;
  try {
    module = module_of(launches);
  } catch (const Error& error) {
    if (cases.size() == 1) {
      problems[0] = {"does not compile", error.what()};
      return problems;
    }
    // One of them alone, which is found by its half.
    const auto middle = cases.begin() + static_cast<std::ptrdiff_t>(cases.size() / 2);
    problems = run_compiled({cases.begin(), middle});
    const std::vector<Problem> rest = run_compiled({middle, cases.end()});
    problems.insert(problems.end(), rest.begin(), rest.end());
    return problems;
  }
  for (size_t i = 0; i < cases.size(); ++i)
    if (ops[i] != nullptr) problems[i] = tried([&] { return run_case(cases[i], *ops[i], *module); });
  return problems;
}

}  // namespace weft::sparse::random
