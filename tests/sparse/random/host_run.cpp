#include "tests/sparse/random/host_run.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/codegen/printers.h"
#include "loop/threads.h"
#include "sparse/operator.h"
#include "tests/simt/host/compile.h"
#include "tests/simt/machine/machine.h"
#include "tests/simt/sparse/card_shape.h"

namespace weft::sparse::random {
namespace {

using Kernel = void (*)(const long long* arguments);

// The text as the host's compiler takes it, with a function for each kernel that has its arguments in a list.
std::string host_text(const std::vector<loop::Launches>& kernels) {
  std::string text = loop::cuda_module(kernels);
  const std::string of_card = "extern __shared__ double2 memory[];\n  return (unsigned char*)memory;";
  const size_t at = text.find(of_card);
  ensure(at != text.npos, "the prelude gives shared memory otherwise");
  text.replace(at, of_card.size(), "return weft::simt::shared_memory();");
  text = "#include \"tests/simt/sparse/card_words.h\"\n" + text;
  for (const loop::Launches& launches : kernels)
    for (size_t p = 0; p < launches.phases.size(); ++p) {
      const std::string name = loop::phase_name(launches.function, p);
      text += fmt::format(
          "extern \"C\" __attribute__((no_sanitize(\"thread\"))) void call_{0}(const long long* arguments) {{\n"
          "  WeftCall<{0}>::run(arguments);\n}}\n",
          name);
    }
  return text;
}

// Launches that a kernel with these loops has to be right in.
std::vector<simt::CardShape> shapes_of(const loop::Body& body) {
  std::set<std::string> axes;
  visit(body, [&](const Stmt& stmt) {
    if (!stmt.thread.empty()) axes.insert(stmt.thread);
  });
  simt::CardShape small, large;
  large.ctas[0] = 3;
  if (axes.contains("blockIdx.y")) large.ctas[1] = 2;
  if (axes.contains("blockIdx.z")) large.ctas[2] = 2;
  if (axes.contains("threadIdx.y")) large.threads[1] = 2;
  if (axes.contains("threadIdx.z")) large.threads[2] = 2;
  if (!axes.contains("threadIdx.y") && !axes.contains("threadIdx.z")) large.threads[0] = 64;
  return {small, large};
}

struct Loaded {
  const loop::Function* function;
  loop::Body body;    // with the loops that are bound
  loop::Body thread;  // what each thread runs
  Kernel call;
};

Problem run_case(const Case& c, const Operator& op, const std::vector<Loaded>& kernels) {
  const Results want = results_of(c.program);
  simt::Memory memory;
  Bench bench(c, op, [&](const std::string& name, size_t bytes) { return memory.make<char>(name, bytes).data(); });
  // Sums that threads add to in any order round in that order, so each order is compared for itself.
  using simt::Order;
  const bool adds_in_any_order = c.has("atomic");
  const std::vector<Order> orders =
      adds_in_any_order ? std::vector{Order::up, Order::down, Order::random} : std::vector{Order::up};
  for (size_t way = 0; way < 2 * orders.size(); ++way) {
    const bool is_large = way % 2 == 1;
    bench.restore();
    for (const Loaded& kernel : kernels) {
      std::vector<long long> arguments;
      for (void* buffer : bench.buffers_of(*kernel.function)) arguments.push_back(reinterpret_cast<long long>(buffer));
      for (const long long scalar : bench.scalars_of(*kernel.function)) arguments.push_back(scalar);
      if (!loop::failures_of(*kernel.function).empty())
        arguments.push_back(reinterpret_cast<long long>(bench.failures_of(*kernel.function)));
      const simt::CardShape shape = shapes_of(kernel.body)[is_large ? 1 : 0];
      simt::card_shape = shape;
      simt::Launch launch;
      launch.ctas = static_cast<int>(shape.ctas[0] * shape.ctas[1] * shape.ctas[2]);
      launch.threads = static_cast<int>(shape.threads[0] * shape.threads[1] * shape.threads[2]);
      launch.shared_bytes = static_cast<size_t>(loop::shared_bytes(kernel.thread));
      launch.order = orders[way / 2];
      const auto call = [&] { kernel.call(arguments.data()); };
      try {
        adds_in_any_order ? run(memory, launch, call) : run_in_all_orders(memory, launch, call);
      } catch (const simt::Fault& fault) {
        return {"fault", fault.what()};
      }
    }
    if (Problem problem = bench.problem_of(want)) return problem;
  }
  return {};
}

}  // namespace

std::vector<Problem> run_on_host_machine(const std::vector<Case>& cases) {
  std::vector<Problem> problems(cases.size());
  std::vector<std::unique_ptr<Operator>> ops(cases.size());
  std::vector<std::vector<loop::Launches>> kernels(cases.size());
  std::vector<loop::Launches> all;
  for (size_t i = 0; i < cases.size(); ++i) {
    problems[i] = accepted(cases[i], &ops[i]);
    if (problems[i]) continue;
    problems[i] = tried([&]() -> Problem {
      ops[i]->text("cuda");  // what it refuses, it refuses here
      for (const loop::Launches& launches : ops[i]->impl().made.launches)
        if (!launches.function.body.empty()) kernels[i].push_back(loop::split_threads(launches));
      return {};
    });
    if (!problems[i]) all.insert(all.end(), kernels[i].begin(), kernels[i].end());
  }
  std::string failed;
  void* module = simt::compile(host_text(all), "", failed);
  if (module == nullptr && cases.size() == 1) return {{"does not compile", failed}};
  if (module == nullptr) {  // one of them alone is found by its half
    const auto middle = cases.begin() + static_cast<std::ptrdiff_t>(cases.size() / 2);
    problems = run_on_host_machine({cases.begin(), middle});
    const std::vector<Problem> rest = run_on_host_machine({middle, cases.end()});
    problems.insert(problems.end(), rest.begin(), rest.end());
    return problems;
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    if (problems[i]) continue;
    std::vector<Loaded> own;
    const auto& launches = ops[i]->impl().made.launches;
    for (size_t f = 0, k = 0; f < launches.size(); ++f) {
      if (launches[f].function.body.empty()) continue;
      for (size_t p = 0; p < launches[f].phases.size(); ++p) {
        const std::string name = "call_" + loop::phase_name(launches[f].function, p);
        own.push_back({&launches[f].function, launches[f].phases[p].body, kernels[i][k].phases[p].body,
                       reinterpret_cast<Kernel>(dlsym(module, name.c_str()))});
      }
      ++k;
    }
    problems[i] = tried([&] { return run_case(cases[i], *ops[i], own); });
  }
  return problems;
}

}  // namespace weft::sparse::random
