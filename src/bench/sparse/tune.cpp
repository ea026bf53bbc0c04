// `weft bench sparse-tune`: what "auto" takes of SpMM and SDDMM beside the best that a search finds, what hyb(1, k)
// stores beside the elements, and how long searching, converting and compiling take. Nothing is known of any matrix
// before.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "bench/measure.h"
#include "bench/own_cache.h"
#include "bench/sparse/candidates.h"
#include "bench/sparse/cases.h"
#include "bench/sparse/rows.h"
#include "bench/timing.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"

namespace weft::bench {
namespace {

void add(SparseBench& bench, const std::string& name, const char* metric, double value, const char* unit,
         double ceiling = 0) {
  bench.report.add(
      {.bench = "sparse-tune", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
}

using Search = decltype(&sparse::tune_spmm);
const struct {
  const char* op;
  Search search;
} kSearches[] = {{"spmm", sparse::tune_spmm}, {"sddmm", sparse::tune_sddmm}};

std::string search_name(const char* op, const std::string& matrix, int64_t feat) {
  return fmt::format("{} {} F{}", op, matrix, feat);
}

void measure_search(SparseBench& bench, const SparseCase& a, const std::string& name, Search search) {
  const int64_t feat = bench.options.features;
  sparse::Tuned tuned;
  const double seconds = seconds_of([&] {
    tuned = search(a.structure, feat, {.seconds = bench.options.seconds, .values_unchanged = true}, bench.stream);
  });
  const double flops = 2. * static_cast<double>(a.nnz() * feat);
  bench.report.note(fmt::format("{}: auto takes {}; the fastest of {} is {}", name, tuned.likely_choice,
                                tuned.num_tried, tuned.choice));
  add(bench, name, "auto by the search's best", flops / tuned.likely_seconds / 1e9, "GFLOP/s",
      flops / tuned.seconds / 1e9);
  add(bench, name, "search", seconds, "s");
  add(bench, name, "candidates left", tuned.num_left, "of them");
}

void measure_padding(SparseBench& bench, const SparseCase& a) {
  for (const Hyb format : {Hyb{1, middle_k(a)}, Hyb{1, 5}})
    add(bench, fmt::format("{} of {}", format.text(), a.name), "padding of its places", 100 * padding_of(a, format),
        "%");
}

// Its structure made and its values filled.
void measure_conversion(SparseBench& bench, const SparseCase& a) {
  const std::string format = Hyb{1, middle_k(a)}.text();
  add(bench, fmt::format("{} to {}", a.name, format), "conversion", Conversion(format).seconds(a, bench.stream) * 1e3,
      "ms");
}

// A program that nobody has compiled before, again and again.
void measure_compiling(SparseBench& bench) {
  const int64_t feat = bench.options.features;
  const std::string name = fmt::format("text to callable: spmm hyb(1, 5) F{}, cold", feat);
  if (name.find(bench.options.only) == std::string::npos) return;
  const std::string schedule =
      sparse::spmm_schedule(feat, sparse::parse_formats("hyb(1, 5)"), sparse::vector_unit(current_isa()), 0);
  std::vector<double> whole, compiler;
  for (int i = 0; i < (bench.options.quick ? 3 : 9); ++i) {
    const std::string text = sparse::replaced(sparse::kSpmmProgram, "program spmm", fmt::format("program spmm_{}", i));
    stop_if_asked();
    whole.push_back(seconds_of([&] {
      const sparse::Operator op =
          sparse::compile(sparse::parse(text), schedule, Device::cpu(), {.set = {{"feat", feat}}});
      compiler.push_back(op.passes().back().milliseconds / 1e3);
    }));
  }
  add(bench, name, "time", median(whole) * 1e3, "ms", median(compiler) * 1e3);
}

}  // namespace

void measure_sparse_tune(const BenchOptions& options, BenchReport& report) {
  const OwnCache cache("bench sparse-tune");
  WorkerTeam team(options.threads);
  SparseBench bench{options, report, team};
  report.note(fmt::format(
      "{} threads, fp32, {} features, values that stay; ceilings: of auto, the fastest of a search of up to {:g} s; of "
      "compiling, the C++ compiler alone",
      team.num_workers(), options.features, options.seconds));
  measure_compiling(bench);
  struct Named {
    std::string name;
    std::function<SparseCase()> make;
  };
  std::vector<Named> cases;
  const auto is_wanted = [&](const char* op, const std::string& matrix) {
    return search_name(op, matrix, options.features).find(options.only) != std::string::npos;
  };
  double searches = 0;  // of all cases
  const auto add_case = [&](const std::string& name, const std::function<SparseCase()>& make) {
    const auto wanted =
        std::count_if(std::begin(kSearches), std::end(kSearches), [&](const auto& s) { return is_wanted(s.op, name); });
    if (wanted > 0) cases.push_back({name, make});
    searches += static_cast<double>(wanted);
  };
  add_case("uniform 32k degree 16", [] { return uniform_case(32768, 16); });
  const int64_t nnz = options.quick ? 300000 : 1500000;
  add_case(options.quick ? "power law 100k nnz 300k" : "power law 100k nnz 1.5M",
           [nnz] { return power_law_case(100000, nnz); });
  for (const MatrixFile& file : matrix_files_of(options))
    add_case(file.name, [&options, file] { return file_case(options, file); });
  for (const Named& named : cases) {
    stop_if_asked();
    const SparseCase a = named.make();
    if (named.name.find(options.only) != std::string::npos) {
      measure_padding(bench, a);
      measure_conversion(bench, a);
    }
    for (const auto& [op, search] : kSearches) {
      if (!is_wanted(op, named.name)) continue;
      const std::string name = search_name(op, named.name, options.features);
      stop_if_asked();
      report.progress(fmt::format("{}, for {:g} s; about {:.0f} s are left", name, options.seconds,
                                  searches-- * (options.seconds + 1)));
      measure_search(bench, a, name, search);
    }
  }
}

}  // namespace weft::bench
