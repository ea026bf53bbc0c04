// tune_spmm: formats and schedules of SpMM.
#include <algorithm>

#include "base/check.h"
#include "sparse/operators/kept.h"
#include "sparse/tune/results.h"
#include "sparse/tune/search.h"
#include "sparse/tune/spmm.h"

namespace weft::sparse {
namespace {

// What candidates are measured with.
struct Problem {
  const Structure& a;
  SpmmCall call;
  Stream stream;
  Workspace values, b, c;

  Problem(const Structure& structure, const SpmmCall& spmm, Stream on) : a(structure), call(spmm), stream(on) {
    values = ones(a.nnz()), b = ones(a.num_cols() * call.feat), c = ones(a.num_rows() * call.feat);
  }
  void run(const SpmmChoice& choice) const {
    const auto view = [&](const Workspace& w, int64_t rows) {
      return TensorView(w.data(), DType::fp32, {rows, call.feat});
    };
    spmm_operator(choice, call.feat, DType::fp32)
        .run({.structures = {{"J", a}},
              .buffers = {{"A", {values.data(), DType::fp32, {a.nnz()}}},
                          {"B", view(b, a.num_cols())},
                          {"C", view(c, a.num_rows())}},
              .values_unchanged = call.keeps_values},
             stream);
  }
};

}  // namespace

Tuned tune_spmm(const Structure& a, int64_t feat, const TuneOptions& options, Stream stream) {
  check(feat >= 1 && feat <= INT32_MAX, ErrorCode::invalid_argument, "feat: is {}; 1 to {} are allowed", feat,
        INT32_MAX);
  const Structure::Data& data = data_of(a, "a");
  const SpmmCall call{.feat = feat, .keeps_values = options.values_unchanged, .workers = stream.team().num_workers()};
  const RowLengths rows = row_lengths(data, call);
  const Problem problem(a, call, stream);
  std::vector<Candidate> candidates;
  for (const SpmmChoice& choice : spmm_candidates(rows, call)) {
    candidates.push_back({to_text(choice), [&problem, choice] { problem.run(choice); }});
  }
  const Tuned tuned = search(results_key(data, to_text(call)), candidates, options.seconds);
  keep_choice(data, call, parse_choice(tuned.choice));
  return tuned;
}

}  // namespace weft::sparse
