// O = A * (X Y^T) where A stores something.
#include <algorithm>

#include "base/check.h"
#include "base/format_tensor.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/kept.h"
#include "sparse/schedule.h"
#include "sparse/tune/search.h"

namespace weft::sparse {

const char* const kSddmmProgram = R"(program sddmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  X = buffer(I, K): fp32
  Y = buffer(J_, K): fp32
  O = buffer(I, J): fp32
  iterate sddmm(I, J, K) "SSR" as (i, j, k):
    init:
      O[i, j] = 0.0
    O[i, j] = O[i, j] + A[i, j] * (X[i, k] * Y[j, k])
)";

// Two stages of reduction: a partial sum a lane, then the sum of the lanes. Sums are in fp32 whatever the tensors are.
std::string sddmm_schedule(int64_t feat, DType dtype, const VectorUnit& unit, int64_t prefetch, int64_t group) {
  std::string text = "lower()\n";
  const RowTiles tiles = row_tiles(feat, unit);
  const bool two_stages = tiles.lanes > 1 && feat > tiles.lanes;
  if (two_stages) {
    text += fmt::format("ko, ki = split(sddmm.k, {})\nrfactor(ki, register)\n", tiles.lanes);
    text += "vectorize(sddmm_zero.ki)\nvectorize(ki)\nvectorize(sddmm_sum.ki_sum)\n";
    if (feat / tiles.lanes <= unit.registers) text += "unroll(ko)\n";
    if (prefetch > 0) text += fmt::format("annotate(sddmm.j, prefetch, {})\n", prefetch);
  }
  if (dtype == DType::bf16)
    text += two_stages ? "cache_write(sddmm_sum.j, register)\n" : "cache_write(sddmm.j, register)\n";
  if (group == 0) return text + "parallel(sddmm.i)\n";
  return text + fmt::format("rows, row = split(sddmm.i, {})\nparallel(rows)\n", group);
}

namespace {

// The outermost loop over a format that has more than one iteration.
std::string outer_loop(const FormatRewriteRule& rule) {
  for (const std::string& name : rule.buffer_axes) {
    const auto is_it = [&](const Axis& a) { return a.name == name; };
    if (loop::is_literal(std::find_if(rule.axes.begin(), rule.axes.end(), is_it)->length, 1)) continue;
    if (const auto named = rule.iterators.find(name); named != rule.iterators.end()) return named->second;
    const std::vector<std::string>& rows = rule.axis_map.at("I");
    return std::find(rows.begin(), rows.end(), name) != rows.end() ? "i" : "j";
  }
  fail(ErrorCode::unsupported, "sddmm: format {} has no loop to share", rule.name);
}

}  // namespace

std::string sddmm_format_schedule(int64_t feat, const std::string& formats, const VectorUnit& unit) {
  const std::string decompose = fmt::format("decompose_format(sddmm, A, {})\n", formats);
  std::string text = decompose + "lower()\n";
  const RowTiles tiles = row_tiles(feat, unit);
  if (tiles.lanes > 1 && feat > tiles.lanes)
    text += fmt::format("ko, ki = split(sddmm.k, {})\nrfactor(ki, register)\nvectorize(ki)\n", tiles.lanes);
  const MatrixAxes matrix{
      .row = "I", .col = "J", .num_rows = loop::variable("m"), .num_cols = loop::variable("n"), .num_stored = 0};
  const ScheduleLine line = parse_schedule(decompose)[0];
  for (size_t f = 2; f < line.operands.size(); ++f)
    for (const FormatRewriteRule& rule : rules_of(line.operands[f], matrix, {}))
      text += fmt::format("parallel(sddmm_{}.{})\n", rule.name, outer_loop(rule));
  return text + "parallel(sddmm_gather.i)\n";
}

std::string sddmm_call(int64_t feat, DType dtype, int64_t workers) {
  return fmt::format("sddmm {} {} {}", feat, to_string(dtype), workers);
}

Operator sddmm_operator(int64_t feat, DType dtype, const std::string& candidate) {
  VectorUnit unit = vector_unit(current_isa());
  if (const int64_t lanes = number_in(candidate, "lanes", 0); lanes > 0) unit.lanes = std::min(unit.lanes, lanes);
  const int64_t prefetch = number_in(candidate, "prefetch", default_prefetch(feat));
  return kept_operator(replaced(kSddmmProgram, "fp32", std::string(to_string(dtype))),
                       sddmm_schedule(feat, dtype, unit, prefetch, number_in(candidate, "group", 0)), {{"feat", feat}});
}

void sddmm(const Structure& a, const TensorView& values, const TensorView& x, const TensorView& y,
           const TensorView& out, const SparseOptions& options, Stream stream) {
  check(x.rank() == 2, ErrorCode::invalid_shape, "x: has shape {}; [m, feat] is expected", x);
  const int64_t feat = x.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"x", &x}, {"y", &y}, {"out", &out}});
  const bool is_plain = options.format == "auto" || options.format == "csr";
  const std::string call = sddmm_call(feat, dtype, stream.team().num_workers());
  const Operator op =
      is_plain ? sddmm_operator(feat, dtype, options.format == "csr" ? "" : tuned_candidate(data_of(a, "a"), call))
               : kept_operator(replaced(kSddmmProgram, "fp32", std::string(to_string(dtype))),
                               sddmm_format_schedule(feat, with_bucket(options.format, a), vector_unit(current_isa())),
                               {{"feat", feat}});
  op.run({.structures = {{"J", a}},
          .buffers = {{"A", values}, {"X", x}, {"Y", y}, {"O", out}},
          .values_unchanged = options.values_unchanged},
         stream);
}

}  // namespace weft::sparse
