// O = A * (X Y^T) where A stores something.
#include <algorithm>

#include "base/check.h"
#include "base/format_tensor.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/kept.h"
#include "sparse/schedule.h"
#include "sparse/tune/chosen.h"

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

namespace {

// Two stages of reduction: a partial sum a lane, then the sum of the lanes; "" where a row has no vectors. `ko` and
// `ki` name the loops.
std::string two_stages(int64_t feat, const VectorUnit& unit, const std::string& iteration = "sddmm",
                       const std::string& ko = "ko", const std::string& ki = "ki") {
  const RowTiles tiles = row_tiles(feat, unit);
  if (tiles.lanes == 1 || feat == tiles.lanes) return {};
  return fmt::format(
             "{1}, {2} = split({0}.k, {3})\nrfactor({2}, register)\n"
             "vectorize({0}_zero.{2})\nvectorize({2})\nvectorize({0}_sum.{2}_sum)\n",
             iteration, ko, ki, tiles.lanes) +
         (feat / tiles.lanes <= unit.registers ? fmt::format("unroll({})\n", ko) : "");
}

}  // namespace

// Sums are in fp32 whatever the tensors are.
std::string sddmm_schedule(int64_t feat, DType dtype, const VectorUnit& unit, int64_t prefetch, int64_t group) {
  const std::string sums = two_stages(feat, unit);
  std::string text = "lower()\n" + sums;
  if (!sums.empty() && prefetch > 0) text += fmt::format("annotate(sddmm.j, prefetch, {})\n", prefetch);
  if (dtype == DType::bf16)
    text += sums.empty() ? "cache_write(sddmm.j, register)\n" : "cache_write(sddmm_sum.j, register)\n";
  if (group == 0) return text + "parallel(sddmm.i)\n";
  return text + fmt::format("rows, row = split(sddmm.i, {})\nparallel(rows)\n", group);
}

namespace {

// The loops over a format that have more than one iteration: the outermost one, and the one over elements or blocks.
struct FormatLoops {
  std::string outer = {}, elements = {};
  int64_t width = 1;  // elements of a row, where all have as many
};

FormatLoops loops_over(const FormatRewriteRule& rule) {
  FormatLoops loops;
  bool is_stored = false;  // `elements` is a loop over what the structure stores
  for (const std::string& name : rule.buffer_axes) {
    const Axis& axis = *std::find_if(rule.axes.begin(), rule.axes.end(), [&](const Axis& a) { return a.name == name; });
    const bool is_counted = axis.is_sparse && !axis.is_variable;
    if (is_counted) loop::is_integer(axis.nnz, &loops.width);
    if (loop::is_literal(is_counted ? axis.nnz : axis.length, 1)) continue;
    const std::vector<std::string>& rows = rule.axis_map.at("I");
    const auto named = rule.iterators.find(name);
    const std::string loop = named != rule.iterators.end()                             ? named->second
                             : std::find(rows.begin(), rows.end(), name) != rows.end() ? "i"
                                                                                       : "j";
    if (loops.outer.empty()) loops.outer = loop;
    const bool stores = axis.is_sparse || axis.is_variable;
    if (stores || !is_stored) loops.elements = loop;
    is_stored |= stores;
  }
  check(!loops.outer.empty(), ErrorCode::unsupported, "sddmm: format {} has no loop to share", rule.name);
  return loops;
}

}  // namespace

std::string sddmm_format_schedule(int64_t feat, const std::string& formats, const VectorUnit& unit, int64_t prefetch,
                                  int64_t group) {
  const std::string decompose = fmt::format("decompose_format(sddmm, A, {})\n", formats);
  const MatrixAxes matrix{
      .row = "I", .col = "J", .num_rows = loop::variable("m"), .num_cols = loop::variable("n"), .num_stored = 0};
  const ScheduleLine line = parse_schedule(decompose)[0];
  std::vector<std::string> names;
  std::vector<FormatLoops> loops;
  int64_t widest = 1;
  for (size_t f = 2; f < line.operands.size(); ++f)
    for (const FormatRewriteRule& rule : rules_of(line.operands[f], matrix, {})) {
      names.push_back("sddmm_" + rule.name);
      loops.push_back(loops_over(rule));
      widest = std::max(widest, loops.back().width);
    }
  std::string text = decompose + "lower()\n";
  for (size_t p = 0; p < names.size(); ++p) {
    const std::string sums = two_stages(feat, unit, names[p], fmt::format("ko_{}", p), fmt::format("ki_{}", p));
    text += sums;
    if (!sums.empty() && prefetch > 0)
      text += fmt::format("annotate({}.{}, prefetch, {})\n", names[p], loops[p].elements, prefetch);
    const std::string outer = names[p] + "." + loops[p].outer;
    text += group == 0 ? fmt::format("parallel({})\n", outer)
                       : fmt::format("rows_{0}, row_{0} = split({1}, {2})\nparallel(rows_{0})\n", p, outer,
                                     group * widest / loops[p].width);
  }
  return text + "parallel(sddmm_gather.i)\n";
}

void sddmm(const Structure& a, const TensorView& values, const TensorView& x, const TensorView& y,
           const TensorView& out, const SparseOptions& options, Stream stream) {
  check(x.rank() == 2, ErrorCode::invalid_shape, "x: has shape {}; [m, feat] is expected", x);
  const int64_t feat = x.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"x", &x}, {"y", &y}, {"out", &out}});
  const GatherCall call{.feat = feat,
                        .element_bytes = bits_of(dtype) / 8,
                        .keeps_values = options.values_unchanged,
                        .workers = stream.team().num_workers(),
                        .op = GatherOperator::sddmm};
  const FormatChoice choice = options.format == "auto"
                                  ? choice_of(data_of(a, "a"), call)
                                  : FormatChoice{with_bucket(options.format, a), default_prefetch(feat)};
  gather_operator(call.op, choice, feat, dtype)
      .run({.structures = {{"J", a}},
            .buffers = {{"A", values}, {"X", x}, {"Y", y}, {"O", out}},
            .values_unchanged = options.values_unchanged},
           stream);
}

}  // namespace weft::sparse
