// tune_spmm and tune_sddmm: formats and schedules.
#include <map>
#include <memory>
#include <optional>

#include "base/check.h"
#include "sparse/backend.h"
#include "sparse/operators/long_rows.h"
#include "sparse/tune/card_choice.h"
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
      : a(structure), call(gathers), stream(on), values(ones(a.nnz(), call.device)) {
    cols = ones(a.num_cols() * call.feat, call.device);
    rows = ones(a.num_rows() * call.feat, call.device);
    if (call.op == GatherOperator::sddmm) out = ones(a.nnz(), call.device);
  }
  TensorView of_rows(const Workspace& w, int64_t count) const {
    return {w.data(), DType::fp32, {count, call.feat}, call.device};
  }
  TensorView of_elements(const Workspace& w) const { return {w.data(), DType::fp32, {a.nnz()}, call.device}; }
  void run(const Operator& op) const {
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
    op.run(arguments, stream);
  }
};

// A candidate on a card, whose operators hold its formats there, and all that graphs ran: as long as it is measured.
class OnCard {
 public:
  OnCard(const Problem& problem, const FormatChoice& choice) : problem_(problem), choice_(choice) {}
  void run() {
    const GatherCall& call = problem_.call;
    if (call.op == GatherOperator::sddmm || !cuts_rows(choice_))
      return problem_.run(
          made({}, [&] { return gather_program(call.op, choice_, call.feat, DType::fp32, call.device); }));
    const TensorView values = problem_.of_elements(problem_.values);
    const TensorView b = problem_.of_rows(problem_.cols, problem_.a.num_cols());
    const TensorView c = problem_.of_rows(problem_.rows, problem_.a.num_rows());
    sum_long_rows(problem_.a, {.values = values, .b = b, .c = c}, problem_.stream, card_cut(choice_),
                  [&](LongRowsPart part, const LongRowsForm& form) -> const Operator& {
                    return made(part, [&] { return long_rows_program(part, form); });
                  });
  }
  void forget() { operators_.clear(); }

 private:
  template <class Program>
  const Operator& made(std::optional<LongRowsPart> key, const Program& program) {
    const auto found = operators_.find(key);
    if (found != operators_.end()) return found->second;
    const ReadyProgram ready = program();
    return operators_.emplace(key, compile(parse(ready.text), ready.schedule, problem_.call.device, {.set = ready.set}))
        .first->second;
  }
  const Problem& problem_;
  const FormatChoice choice_;
  std::map<std::optional<LongRowsPart>, Operator> operators_ = {};
};

std::vector<Candidate> candidates_of(const Problem& problem, const Structure::Data& data) {
  const GatherCall& call = problem.call;
  std::vector<Candidate> candidates;
  if (!call.is_on_card()) {
    for (const FormatChoice& choice : candidates_of(row_lengths(data, call), call))
      candidates.push_back({to_text(choice), [&problem, &call, choice] {
                              problem.run(gather_operator(call.op, choice, call.feat, DType::fp32));
                            }});
    return candidates;
  }
  for (const FormatChoice& choice : candidates_on_card(data, call)) {
    const auto candidate = std::make_shared<OnCard>(problem, choice);
    candidates.push_back({to_text(choice), [candidate] { candidate->run(); }, [candidate] { candidate->forget(); }});
  }
  return candidates;
}

Tuned tune(const Structure& a, int64_t feat, GatherOperator op, const TuneOptions& options, Stream stream) {
  check(feat >= 1 && feat <= INT32_MAX, ErrorCode::invalid_argument, "feat: is {}; 1 to {} are allowed", feat,
        INT32_MAX);
  const Structure::Data& data = data_of(a, "a");
  check_is_csr(data, to_string(op));
  const Device device = stream.device();
  const Backend& backend = backend_of(device, op == GatherOperator::sddmm ? "tune_sddmm" : "tune_spmm");
  const std::unique_ptr<const Stopwatch> stopwatch = backend.stopwatch(device, stream);
  const GatherCall call{.feat = feat,
                        .keeps_values = options.values_unchanged,
                        .workers = workers_of(device, stream),
                        .device = device,
                        .op = op};
  const Problem problem(a, call, stopwatch->stream());
  const Tuned tuned =
      search(results_key(data, to_text(call), device), candidates_of(problem, data), options.seconds, *stopwatch);
  if (call.is_on_card())
    keep_results(likeness_key(likeness_of(data), to_text(call), device), {{tuned.choice, tuned.seconds}});
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
