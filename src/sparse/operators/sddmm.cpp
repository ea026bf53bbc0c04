// O = A * (X Y^T) where A stores something.
#include <algorithm>

#include "base/check.h"
#include "base/format_tensor.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/format_loops.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
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

std::string sddmm_format_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch,
                                  int64_t group) {
  const std::vector<FormatLoops> parts = loops_of_formats("sddmm", formats);
  int64_t widest = 1;
  for (const FormatLoops& part : parts) widest = std::max(widest, part.width);
  std::string text = fmt::format("decompose_format(sddmm, A, {})\nlower()\n", to_text(formats));
  for (size_t p = 0; p < parts.size(); ++p) {
    const FormatLoops& part = parts[p];
    const std::string sums = two_stages(feat, unit, part.iteration, fmt::format("ko_{}", p), fmt::format("ki_{}", p));
    text += sums;
    if (!sums.empty() && prefetch > 0)
      text += fmt::format("annotate({}.{}, prefetch, {})\n", part.iteration, part.elements, prefetch);
    text += group == 0 ? fmt::format("parallel({}.{})\n", part.iteration, part.outer())
                       : fmt::format("rows_{0}, row_{0} = split({1}.{2}, {3})\nparallel(rows_{0})\n", p, part.iteration,
                                     part.outer(), group * widest / part.width);
  }
  return text + "parallel(sddmm_gather.i)\n";
}

void sddmm(const Structure& a, const TensorView& values, const TensorView& x, const TensorView& y,
           const TensorView& out, const SparseOptions& options, Stream stream) {
  check(x.rank() == 2, ErrorCode::invalid_shape, "x: has shape {}; [m, feat] is expected", x);
  const int64_t feat = x.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"x", &x}, {"y", &y}, {"out", &out}});
  const Device device = device_of(x);
  const GatherCall call{.feat = feat,
                        .element_bytes = bits_of(dtype) / 8,
                        .keeps_values = options.values_unchanged,
                        .workers = workers_of(device, stream),
                        .device = device,
                        .op = GatherOperator::sddmm};
  const FormatChoice choice = options.format == "auto"
                                  ? choice_of(data_of(a, "a"), call)
                                  : FormatChoice{formats_for(options.format, a), default_prefetch(feat)};
  gather_operator(call.op, choice, feat, dtype, device)
      .run({.structures = {{"J", a}},
            .buffers = {{"A", values}, {"X", x}, {"Y", y}, {"O", out}},
            .values_unchanged = options.values_unchanged},
           stream);
}

}  // namespace weft::sparse
