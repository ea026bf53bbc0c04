// Phases as functions of a shared object, run one after another by the team.
#include <future>
#include <vector>

#include "base/check.h"
#include "jit/host/module.h"
#include "loop/codegen/c_family.h"
#include "loop/codegen/printers.h"
#include "sparse/loaded.h"

namespace weft::sparse {
namespace {

class LoadedOnCpu : public Loaded {
 public:
  explicit LoadedOnCpu(const Compilation& made)
      : preprocess_(made.preprocess3.function), compute_(made.compute3.function) {
    // Each is a module of its own, compiled beside the other: compiling is most of the way from a text to a call.
    std::future<std::shared_ptr<const Module>> preprocess;
    if (!preprocess_.body.empty())
      preprocess = std::async(module_of, std::cref(made.stage1.name), "preprocess ", std::cref(preprocess_));
    if (!compute_.body.empty()) compute_module_ = module_of(made.stage1.name, "", compute_);
    if (preprocess.valid()) preprocess_module_ = preprocess.get();
    preprocess_phases_ = phases_of(preprocess_, preprocess_module_.get());
    compute_phases_ = phases_of(compute_, compute_module_.get());
  }
  void preprocess(const Bound& bound, Stream stream) const override {
    run(preprocess_, preprocess_phases_, bound, stream.team());
  }
  void compute(const Bound& bound, Stream stream) const override {
    run(compute_, compute_phases_, bound, stream.team());
  }

 private:
  struct Phase {
    void (*call)(void* const* buffers, const long long* scalars, int worker, int workers) = nullptr;
    bool parallel = false;
  };

  static std::shared_ptr<const Module> module_of(const std::string& program, const char* part,
                                                 const loop::Function& function) {
    const Isa isa = current_isa();
    return jit::host_module({.name = fmt::format("sparse {} {}{}", program, part, to_string(isa)),
                             .text = loop::cpp_module({function}),
                             .target = jit::host_target(isa)})
        .module;
  }

  static std::vector<Phase> phases_of(const loop::Function& function, const Module* module) {
    std::vector<Phase> result;
    if (module == nullptr) return result;
    const std::vector<loop::Phase> phases = loop::split_phases(function);
    for (size_t i = 0; i < phases.size(); ++i) {
      const std::string name = loop::phase_name(function, i);
      void* symbol = module->symbol(name.c_str());
      ensure(symbol != nullptr, "the module of {} has no '{}'", function.name, name);
      result.push_back({reinterpret_cast<decltype(Phase::call)>(symbol), phases[i].parallel() != nullptr});
    }
    return result;
  }

  static void run(const loop::Function& function, const std::vector<Phase>& phases, const Bound& bound,
                  WorkerTeam& team) {
    std::vector<void*> buffers;
    std::vector<long long> scalars;
    for (const loop::Buffer& buffer : function.buffers) buffers.push_back(bound.pointers.at(buffer.name));
    for (const std::string& scalar : function.scalars) scalars.push_back(bound.numbers.scalars.at(scalar));
    for (const Phase& phase : phases) {
      if (phase.parallel)
        team.run([&](int worker) { phase.call(buffers.data(), scalars.data(), worker, team.num_workers()); });
      else
        phase.call(buffers.data(), scalars.data(), 0, 1);
    }
  }

  loop::Function preprocess_, compute_;
  std::shared_ptr<const Module> preprocess_module_, compute_module_;  // null: nothing to run
  std::vector<Phase> preprocess_phases_, compute_phases_;
};

}  // namespace

std::unique_ptr<const Loaded> load_on_cpu(const Compilation& made) { return std::make_unique<LoadedOnCpu>(made); }

}  // namespace weft::sparse
