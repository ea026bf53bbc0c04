// tune_spmm and tune_sddmm: formats and schedules.
#include <algorithm>

#include "base/check.h"
#include "sparse/tune/chosen.h"
#include "sparse/tune/results.h"
#include "sparse/tune/search.h"

namespace weft::sparse {
namespace {

// What candidates are measured with: the dense rows of both sides, and the values of the elements.
struct Problem {
  const Structure& a;
  GatherCall call;
  Stream stream;
  Workspace values, rows, cols, out;

  Problem(const Structure& structure, const GatherCall& gathers, Stream on)
      : a(structure), call(gathers), stream(on), values(ones(a.nnz())), cols(ones(a.num_cols() * call.feat)) {
    rows = ones(a.num_rows() * call.feat);
    if (call.op == GatherOperator::sddmm) out = ones(a.nnz());
  }
  void run(const FormatChoice& choice) const {
    const auto of_rows = [&](const Workspace& w, int64_t count) {
      return TensorView(w.data(), DType::fp32, {count, call.feat});
    };
    const auto of_elements = [&](const Workspace& w) { return TensorView(w.data(), DType::fp32, {a.nnz()}); };
    RunArguments arguments{.structures = {{"J", a}}, .values_unchanged = call.keeps_values};
    arguments.buffers["A"] = of_elements(values);
    if (call.op == GatherOperator::sddmm) {
      arguments.buffers["X"] = of_rows(rows, a.num_rows());
      arguments.buffers["Y"] = of_rows(cols, a.num_cols());
      arguments.buffers["O"] = of_elements(out);
    } else {
      arguments.buffers["B"] = of_rows(cols, a.num_cols());
      arguments.buffers["C"] = of_rows(rows, a.num_rows());
    }
    gather_operator(call.op, choice, call.feat, DType::fp32).run(arguments, stream);
  }
};

Tuned tune(const Structure& a, int64_t feat, GatherOperator op, const TuneOptions& options, Stream stream) {
  check(feat >= 1 && feat <= INT32_MAX, ErrorCode::invalid_argument, "feat: is {}; 1 to {} are allowed", feat,
        INT32_MAX);
  const Structure::Data& data = data_of(a, "a");
  const GatherCall call{
      .feat = feat, .keeps_values = options.values_unchanged, .workers = stream.team().num_workers(), .op = op};
  const RowLengths rows = row_lengths(data, call);
  const Problem problem(a, call, stream);
  std::vector<Candidate> candidates;
  for (const FormatChoice& choice : candidates_of(rows, call))
    candidates.push_back({to_text(choice), [&problem, choice] { problem.run(choice); }});
  const Tuned tuned = search(results_key(data, to_text(call)), candidates, options.seconds);
  keep_choice(data, call, parse_choice(tuned.choice));
  return tuned;
}

}  // namespace

Tuned tune_spmm(const Structure& a, int64_t feat, const TuneOptions& options, Stream stream) {
  return tune(a, feat, GatherOperator::spmm, options, stream);
}

Tuned tune_sddmm(const Structure& a, int64_t feat, const TuneOptions& options, Stream stream) {
  return tune(a, feat, GatherOperator::sddmm, options, stream);
}

}  // namespace weft::sparse
