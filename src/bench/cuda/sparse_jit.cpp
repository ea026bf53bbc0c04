#include "bench/cuda/sparse_jit.h"

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "bench/stop.h"
#include "bench/timing.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/long_rows.h"
#include "sparse/operators/relation_groups.h"
#include "sparse/tune/chosen.h"

namespace weft::bench {
namespace {

struct Program {
  std::string name;
  sparse::ReadyProgram ready;
};

std::vector<Program> programs_of(Device device) {
  using sparse::GatherOperator;
  const auto gather = [&](GatherOperator op, const char* formats, int64_t feat) {
    return sparse::gather_program(op, {.formats = sparse::parse_formats(formats)}, feat, DType::fp32, device);
  };
  const sparse::RelationGroupsForm relations{
      .slots = 32, .feat_in = 64, .feat_out = 64, .dtype = DType::fp32, .is_gathered = true};
  return {{"sddmm F128", sparse::gather_program(GatherOperator::sddmm, {}, 128, DType::fp32, device)},
          {"spmm F128, rows in pieces", sparse::row_groups_program({.feat = 128}, false)},
          {"spmm F64, hyb(1, 5)", gather(GatherOperator::spmm, "hyb(1, 5)", 64)},
          {"rgms F64, tensor cores", sparse::relation_groups_program(relations)}};
}

}  // namespace

void measure_sparse_jit(const BenchOptions& options, BenchReport& report) {
  static const auto process = std::random_device()();
  for (const Program& program : programs_of(options.device)) {
    const std::string name = fmt::format("text to callable, {}", program.name);
    if (name.find(options.only) == name.npos) continue;
    const auto& [text, schedule, set] = program.ready;
    const size_t begin = text.find('(');
    std::vector<double> passes, cold;
    for (int i = 0; i < (options.quick ? 3 : 5); ++i) {
      stop_if_asked();
      // Another name, in every process: kernels that are loaded are kept, and NVRTC keeps what it made.
      const std::string other = text.substr(0, begin) + fmt::format("_{}_{}", process, i) + text.substr(begin);
      const auto compile = [&](Device device, const char* stop_after) {
        return sparse::compile(sparse::parse(other), schedule, device, {.set = set, .stop_after = stop_after});
      };
      passes.push_back(seconds_of([&] { compile(Device::cpu(), "generate cuda"); }));
      cold.push_back(seconds_of([&] { compile(options.device, ""); }));
    }
    report.add({"jit", name + ": cold", "time", median(cold) * 1e3, "ms"});
    report.add({"jit", name + ": passes alone", "time", median(passes) * 1e3, "ms"});
  }
}

}  // namespace weft::bench
