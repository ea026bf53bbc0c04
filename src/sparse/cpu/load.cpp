#include "sparse/cpu/load.h"

#include <bit>
#include <future>
#include <vector>

#include "base/check.h"
#include "jit/host/module.h"
#include "loop/codegen/c_family.h"
#include "loop/codegen/printers.h"
#include "sparse/failures.h"

namespace weft::sparse {
namespace {

class LoadedOnCpu : public Loaded {
 public:
  explicit LoadedOnCpu(const Compilation& made)
      : declared_(made.stage1), preprocess_(made.preprocess3.function), compute_(made.compute3.function) {
    // Each is a module of its own, compiled beside the other: compiling is most of the way from a text to a call.
    std::future<std::shared_ptr<const Module>> preprocess;
    if (!preprocess_.function.body.empty())
      preprocess = std::async(module_of, std::cref(made.stage1.name), "preprocess ", std::cref(preprocess_.function));
    if (!compute_.function.body.empty()) compute_.take(module_of(made.stage1.name, "", compute_.function));
    if (preprocess.valid()) preprocess_.take(preprocess.get());
  }
  void preprocess(const Bound& bound, Stream stream) const override { run(preprocess_, bound, stream.team()); }
  void compute(const Bound& bound, Stream stream) const override { run(compute_, bound, stream.team()); }

 private:
  struct Phase {
    void (*call)(void* const* buffers, const long long* scalars, int worker, int workers) = nullptr;
    bool parallel = false;
  };
  struct Part {
    explicit Part(const loop::Function& flat) : function(flat), failures(loop::failures_of(flat)) {}
    void take(std::shared_ptr<const Module> loaded) {
      module = std::move(loaded);
      phases = phases_of(function, *module);
    }
    loop::Function function;
    std::vector<loop::Failure> failures;
    std::shared_ptr<const Module> module = {};  // null: nothing to run
    std::vector<Phase> phases = {};
  };

  static std::shared_ptr<const Module> module_of(const std::string& program, const char* part,
                                                 const loop::Function& function) {
    const Isa isa = current_isa();
    return jit::host_module({.name = fmt::format("sparse {} {}{}", program, part, to_string(isa)),
                             .text = loop::cpp_module({loop::split_launches(function)}),
                             .target = jit::host_target(isa)})
        .module;
  }

  static std::vector<Phase> phases_of(const loop::Function& function, const Module& module) {
    std::vector<Phase> result;
    const std::vector<loop::Phase> phases = loop::split_phases(function);
    for (size_t i = 0; i < phases.size(); ++i) {
      const std::string name = loop::phase_name(function, i);
      void* symbol = module.symbol(name.c_str());
      ensure(symbol != nullptr, "the module of {} has no '{}'", function.name, name);
      result.push_back({reinterpret_cast<decltype(Phase::call)>(symbol), phases[i].parallel() != nullptr});
    }
    return result;
  }

  void run(const Part& part, const Bound& bound, WorkerTeam& team) const {
    constexpr uint64_t kNone = UINT64_MAX;
    std::vector<uint64_t> failed(part.failures.size(), kNone);
    std::vector<void*> buffers;
    std::vector<long long> scalars;
    for (const loop::Buffer& buffer : part.function.buffers) buffers.push_back(bound.pointers.at(buffer.name));
    for (const std::string& scalar : part.function.scalars) scalars.push_back(bound.numbers.scalars.at(scalar));
    for (const std::string& real : part.function.reals)
      scalars.push_back(std::bit_cast<long long>(bound.numbers.reals.at(real)));
    buffers.push_back(failed.data());
    for (const Phase& phase : part.phases) {
      if (phase.parallel)
        team.run([&](int worker) { phase.call(buffers.data(), scalars.data(), worker, team.num_workers()); });
      else
        phase.call(buffers.data(), scalars.data(), 0, 1);
    }
    FailureLog log(declared_, bound.numbers);
    for (size_t f = 0; f < failed.size(); ++f)
      if (failed[f] != kNone) log.add(part.failures[f], failed[f]);
    log.raise();
  }

  Declarations declared_;
  Part preprocess_, compute_;
};

}  // namespace

std::unique_ptr<const Loaded> load_on_cpu(const Compilation& made) { return std::make_unique<LoadedOnCpu>(made); }

}  // namespace weft::sparse
