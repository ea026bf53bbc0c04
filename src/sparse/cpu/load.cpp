// Phases as functions of a shared object, run one after another by the team.
#include <vector>

#include "base/check.h"
#include "jit/host/module.h"
#include "loop/codegen/c_family.h"
#include "sparse/loaded.h"

namespace weft::sparse {
namespace {

class LoadedOnCpu : public Loaded {
 public:
  explicit LoadedOnCpu(const Compilation& made)
      : preprocess_(made.preprocess3.function), compute_(made.compute3.function) {
    const Isa isa = current_isa();
    module_ = jit::host_module({.name = fmt::format("sparse {} {}", made.stage1.name, to_string(isa)),
                                .text = made.code,
                                .target = jit::host_target(isa)})
                  .module;
    preprocess_phases_ = phases_of(preprocess_);
    compute_phases_ = phases_of(compute_);
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

  std::vector<Phase> phases_of(const loop::Function& function) const {
    std::vector<Phase> result;
    const std::vector<loop::Phase> phases = loop::split_phases(function);
    for (size_t i = 0; i < phases.size(); ++i) {
      const std::string name = loop::phase_name(function, i);
      void* symbol = module_->symbol(name.c_str());
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
  std::shared_ptr<const Module> module_;
  std::vector<Phase> preprocess_phases_, compute_phases_;
};

}  // namespace

std::unique_ptr<const Loaded> load_on_cpu(const Compilation& made) { return std::make_unique<LoadedOnCpu>(made); }

}  // namespace weft::sparse
