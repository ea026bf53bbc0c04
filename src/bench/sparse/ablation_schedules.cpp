// Schedules of SpMM and SDDMM, a line more in each candidate; phases that are joined, and sums that may meet.
#include <fmt/format.h>

#include "bench/sparse/candidates.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/vector_unit.h"

namespace weft::bench {
namespace {

void add_candidate(Ablation& ablation, const std::string& name, const char* program, const std::string& schedule,
                   const std::vector<std::string>& skip = {}) {
  ablation.candidates.push_back(
      candidate_of(name, {program, schedule, {{"feat", ablation.feat}}, skip}, arguments_of(ablation)));
}

}  // namespace

Ablation schedules_of_spmm(const SparseCase& a, int64_t feat) {
  Ablation ablation = spmm_ablation(fmt::format("ablation schedules of spmm {} F{}", a.name, feat), a, feat);
  const sparse::VectorUnit unit = sparse::vector_unit(current_isa());
  const auto add = [&](const std::string& name, const std::string& schedule) {
    add_candidate(ablation, name, sparse::kSpmmProgram, schedule);
  };
  add("rows in parallel", "lower()\nparallel(csrmm.i)\n");
  add("and vectors",
      fmt::format("lower()\nko, ki = split(csrmm.k, {})\nvectorize(ki)\nparallel(csrmm.i)\n", unit.lanes));
  add("and sums in registers", sparse::spmm_schedule(feat, {}, unit, 0));
  add("and rows prefetched", sparse::spmm_schedule(feat, {}, unit, sparse::default_prefetch(feat)));
  return ablation;
}

Ablation schedules_of_sddmm(const SparseCase& a, int64_t feat) {
  Ablation ablation = sddmm_ablation(fmt::format("ablation schedules of sddmm {} F{}", a.name, feat), a, feat);
  const sparse::VectorUnit unit = sparse::vector_unit(current_isa());
  const auto add = [&](const std::string& name, const std::string& schedule) {
    add_candidate(ablation, name, sparse::kSddmmProgram, schedule);
  };
  add("rows in parallel", "lower()\nparallel(sddmm.i)\n");
  const std::string fused = "sparse_fuse(sddmm, I, J)\nlower()\nparallel(sddmm.i_j)\n";
  add("one loop over elements", fused);
  add("and rows from an array", fused + "materialise_rows(sddmm.i_j)\n");
  add("sums in a register", "lower()\ncache_write(sddmm.j, register)\nparallel(sddmm.i)\n");
  add("sums of lanes, then of those", sparse::sddmm_schedule(feat, DType::fp32, unit, 0));
  add("and rows prefetched", sparse::sddmm_schedule(feat, DType::fp32, unit, sparse::default_prefetch(feat)));
  return ablation;
}

Ablation joined_phases(const SparseCase& a, int64_t feat, int64_t k) {
  const std::string format = fmt::format("hyb(1, {})", k);
  Ablation ablation = spmm_ablation(fmt::format("ablation phases of spmm {} F{} {}", a.name, feat, format), a, feat);
  const std::string schedule =
      sparse::spmm_schedule(feat, sparse::parse_formats(format), sparse::vector_unit(current_isa()), 0);
  add_candidate(ablation, "one for each bucket", sparse::kSpmmProgram, schedule, {"join phases"});
  add_candidate(ablation, "joined", sparse::kSpmmProgram, schedule);
  return ablation;
}

Ablation atomic_sums(const SparseCase& a, int64_t feat, int64_t c, int64_t k) {
  const std::string format = fmt::format("hyb({}, {})", c, k);
  Ablation ablation = spmm_ablation(fmt::format("ablation sums of spmm {} F{} {}", a.name, feat, format), a, feat);
  const std::string decomposed = fmt::format("decompose_format(csrmm, A, {})\nlower()\n", format);
  add_candidate(ablation, "in order", sparse::kSpmmProgram, decomposed + "parallel(csrmm.i)\n");
  add_candidate(ablation, "atomic", sparse::kSpmmProgram, decomposed + "atomic(csrmm)\nparallel(csrmm.i)\n");
  add_candidate(ablation, "in order, in registers", sparse::kSpmmProgram,
                sparse::spmm_schedule(feat, sparse::parse_formats(format), sparse::vector_unit(current_isa()), 0));
  return ablation;
}

}  // namespace weft::bench
