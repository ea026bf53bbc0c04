// Gradients of SpMM and SDDMM, from those of what they computed.
#include "base/check.h"
#include "sparse/backend.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/card.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/long_rows.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

// D = (A * G)^T X by columns of A; Order says where A and G hold what the transpose stores. WEIGHT is A's element, or
// A's and G's.
constexpr const char* kTransposed = R"(program transposed_spmm(m, n, nnz, feat):
  J = dense_fixed(n)
  I = sparse_variable(J, m, nnz, indptr=i_indptr, indices=i_indices)
  E = dense_fixed(nnz)
  I_ = dense_fixed(m)
  K = dense_fixed(feat)
  Order = buffer(J, I): int32
  A = buffer(E): fp32
  G = buffer(E): fp32
  X = buffer(I_, K): fp32
  D = buffer(J, K): fp32
  iterate spmm(J, I, K) "SRS" as (j, i, k):
    init:
      D[j, k] = 0.0
    D[j, k] = D[j, k] + WEIGHT * X[i, k]
)";

// D = (A * G) Y.
constexpr const char* kWeighted = R"(program weighted_spmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  G = buffer(I, J): fp32
  Y = buffer(J_, K): fp32
  D = buffer(I, K): fp32
  iterate spmm(I, J, K) "SRS" as (i, j, k):
    init:
      D[i, k] = 0.0
    D[i, k] = D[i, k] + A[i, j] * G[i, j] * Y[j, k]
)";

std::string rows_schedule(int64_t feat, const std::string& row, const std::string& reduction, const VectorUnit& unit) {
  if (unit.is_of_card)
    return "lower()\n" + card_rows({.iteration = "spmm", .cta = row, .reductions = {reduction}, .feat = feat});
  return "lower()\n" +
         tiled({.block = "spmm", .feat = feat, .within = {reduction}, .around = "spmm." + row, .unit = unit}) +
         fmt::format("parallel(spmm.{})\n", row);
}

void check_fp32(const std::vector<std::pair<const char*, const TensorView*>>& tensors) {
  for (const auto& [name, tensor] : tensors)
    check(!*tensor || tensor->dtype() == DType::fp32, ErrorCode::invalid_dtype, "{}: is of {}; gradients are of fp32",
          name, to_string(tensor->dtype()));
}

// Where the device reads it. On a card it is what transposed() has found.
TensorView order_on(const Transposed& at, Device device) {
  const auto count = static_cast<int64_t>(at.order.size());
  if (device == Device::cpu()) return {at.order.data(), DType::int32, {count}};
  const Structure::Data& data = data_of(at.structure, "a_transposed");
  // Element by element once for each array: calls take less time than that.
  const bool is_same =
      data.order.size() == at.order.size() && (data.compared == at.order.data() || data.order == at.order);
  check(is_same, ErrorCode::unsupported,
        "a_transposed: required on {}: the order that transposed() has made with this structure", to_string(device));
  data.compared = at.order.data();
  return {backend_of(device, "a_transposed").array_of(data, data.order, device), DType::int32, {count}, device};
}

bool sums_long_rows(const Structure& a, const char* name, int64_t feat, Device device) {
  return device != Device::cpu() && runs_in_groups(data_of(a, name), feat, DType::fp32);
}

// c = a^T x of elements, and of what multiplies them, or none.
void transposed_spmm(const Transposed& at, const TensorView& values, const TensorView& weights, const TensorView& x,
                     const TensorView& d, Stream stream) {
  const int64_t feat = last_extent(x);
  const Device device = device_of(x);
  const TensorView order = order_on(at, device);
  if (sums_long_rows(at.structure, "a_transposed", feat, device))
    return sum_long_rows(at.structure, {.values = values, .weights = weights, .order = order, .b = x, .c = d}, stream);
  RunArguments arguments{.structures = {{"I", at.structure}},
                         .buffers = {{"Order", order}, {"A", values}, {"X", x}, {"D", d}}};
  if (weights) arguments.buffers["G"] = weights;
  kept_operator(transposed_spmm_program(feat, static_cast<bool>(weights), vector_unit(device)), device)
      .run(arguments, stream);
}

}  // namespace

ReadyProgram transposed_spmm_program(int64_t feat, bool weighted, const VectorUnit& unit) {
  std::string text = replaced(kTransposed, "WEIGHT", weighted ? "A[Order[j, i]] * G[Order[j, i]]" : "A[Order[j, i]]");
  if (!weighted) text = replaced(text, "  G = buffer(E): fp32\n", "");
  return {text, rows_schedule(feat, "j", "i", unit), {{"feat", feat}}};
}

ReadyProgram weighted_spmm_program(int64_t feat, const VectorUnit& unit) {
  return {kWeighted, rows_schedule(feat, "i", "j", unit), {{"feat", feat}}};
}

ReadyProgram edge_dots_program(int64_t feat, const VectorUnit& unit) {
  std::string text = replaced(kSddmmProgram, "A[i, j] * (X[i, k] * Y[j, k])", "X[i, k] * Y[j, k]");
  text = replaced(text, "  A = buffer(I, J): fp32\n", "");
  return {replaced(text, "program sddmm(", "program edge_dots("),
          unit.is_of_card ? card_edges({.iteration = "sddmm", .feat = feat})
                          : sddmm_schedule(feat, DType::fp32, unit, default_prefetch(feat)),
          {{"feat", feat}}};
}

Transposed transposed(const Structure& a) {
  const Coordinates at = coordinates_of(data_of(a, "a"));
  const Converted columns =
      csc_from_coo({.num_rows = at.num_rows, .num_cols = at.num_cols, .rows = at.rows, .cols = at.cols});
  auto data = std::make_shared<Structure::Data>(data_of(columns.structure, "a").levels);
  data->order.assign(columns.order.begin(), columns.order.end());
  Transposed result{.order = data->order};
  result.structure = Structure(std::move(data));
  return result;
}

void spmm_backward(const Structure& a, const Transposed& a_transposed, const TensorView& values, const TensorView& b,
                   const TensorView& d_c, const SpmmGradients& gradients, Stream stream) {
  check_rank(d_c, "d_c", 2, "[m, feat]");
  check_fp32({{"values", &values}, {"b", &b}, {"d_c", &d_c}, {"d_values", &gradients.values}, {"d_b", &gradients.b}});
  const int64_t feat = last_extent(d_c);
  const Device device = device_of(d_c);
  if (gradients.values)
    kept_operator(edge_dots_program(feat, vector_unit(device)), device)
        .run({.structures = {{"J", a}}, .buffers = {{"X", d_c}, {"Y", b}, {"O", gradients.values}}}, stream);
  if (gradients.b) transposed_spmm(a_transposed, values, {}, d_c, gradients.b, stream);
}

void sddmm_backward(const Structure& a, const Transposed& a_transposed, const TensorView& values, const TensorView& x,
                    const TensorView& y, const TensorView& d_out, const SddmmGradients& gradients, Stream stream) {
  check_rank(x, "x", 2, "[m, feat]");
  check_fp32({{"values", &values},
              {"x", &x},
              {"y", &y},
              {"d_out", &d_out},
              {"d_values", &gradients.values},
              {"d_x", &gradients.x},
              {"d_y", &gradients.y}});
  const int64_t feat = last_extent(x);
  const Device device = device_of(x);
  if (gradients.values) sddmm(a, d_out, x, y, gradients.values, {}, stream);
  if (gradients.x && sums_long_rows(a, "a", feat, device))
    sum_long_rows(a, {.values = values, .weights = d_out, .b = y, .c = gradients.x}, stream);
  else if (gradients.x)
    kept_operator(weighted_spmm_program(feat, vector_unit(device)), device)
        .run({.structures = {{"J", a}}, .buffers = {{"A", values}, {"G", d_out}, {"Y", y}, {"D", gradients.x}}},
             stream);
  if (gradients.y) transposed_spmm(a_transposed, values, d_out, x, gradients.y, stream);
}

}  // namespace weft::sparse
