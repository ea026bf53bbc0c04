// Attention along the edges of a graph: SDDMM, softmax over each row, SpMM, one row after another.
#include <cmath>

#include "base/check.h"
#include "sparse/machine.h"
#include "sparse/operators/card.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/chosen.h"

namespace weft::sparse {
namespace {

// Scores are scaled before the largest one is known, and kept so: a product beside the difference would be contracted
// with it, and keep digits of a huge score that the largest one has lost.
constexpr const char* kAttentionProgram = R"(program graph_attention(m, n, nnz, feat, feat_v, scale: real):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  L = dense_fixed(feat_v)
  Q = buffer(I, K): DTYPE
  Keys = buffer(J_, K): DTYPE
  V = buffer(J_, L): DTYPE
  P = temporary(I, J): fp32
  Largest = temporary(I): fp32
  Sum = temporary(I): fp32
  Weighted = temporary(I, L): fp32
  O = buffer(I, L): DTYPE
  iterate scores(I, J, K) "SSR" as (i, j, k):
    init:
      P[i, j] = 0.0
    P[i, j] = P[i, j] + Q[i, k] * Keys[j, k]
  iterate scaled(I, J) "SS" as (i, j):
    P[i, j] = P[i, j] * scale
  iterate largest(I, J) "SR" as (i, j):
    init:
      Largest[i] = -inf
    Largest[i] = max(Largest[i], P[i, j])
  iterate exponentials(I, J) "SS" as (i, j):
    P[i, j] = exp(P[i, j] - Largest[i])
  iterate sums(I, J) "SR" as (i, j):
    init:
      Sum[i] = 0.0
    Sum[i] = Sum[i] + P[i, j]
  iterate inverse(I) "S" as (i):
    Sum[i] = select(Sum[i] == 0.0, 0.0, 1.0 / Sum[i])
  iterate values(I, J, L) "SRS" as (i, j, l):
    init:
      Weighted[i, l] = 0.0
    Weighted[i, l] = Weighted[i, l] + P[i, j] * V[j, l]
  iterate quotients(I, L) "SS" as (i, l):
    O[i, l] = Weighted[i, l] * Sum[i]
)";

// One nest over rows: what a row needs between its steps stays in registers and the nearest cache. The largest score is
// found behind the gathers of the next ones.
constexpr const char* kOneNest = R"(compute_at(inverse, values.i)
compute_at(sums, values.i)
compute_at(exponentials, values.i)
compute_at(largest, values.i)
compute_at(scaled, largest.j)
compute_at(scores, largest.j)
reverse_compute_at(quotients, values.i)
set_scope(Largest, register)
set_scope(Sum, register)
set_scope(Weighted, register)
)";
// Scores of all rows, then their softmax, then sums of values.
constexpr const char* kApart = R"(compute_at(sums, inverse.i)
compute_at(exponentials, inverse.i)
compute_at(scaled, largest.j)
compute_at(scores, largest.j)
reverse_compute_at(quotients, values.i)
set_scope(Weighted, register)
parallel(largest.i)
parallel(inverse.i)
)";

// On a card: scores edge by edge; the softmax of a row in a warp; values row by row.
std::string on_cards(int64_t feat, int64_t feat_v, DType dtype) {
  return card_edges({.iteration = "scores", .feat = feat, .dtype = dtype}) +
         "compute_at(sums, inverse.i)\ncompute_at(exponentials, inverse.i)\ncompute_at(largest, inverse.i)\n"
         "compute_at(scaled, inverse.i)\nset_scope(Largest, register)\n"
         "rows, row = split(inverse.i, 8)\nbind(rows, blockIdx.x)\nbind(row, threadIdx.y)\n"
         "bind(scaled.j, threadIdx.x)\nbind(largest.j, threadIdx.x)\nbind(exponentials.j, threadIdx.x)\n"
         "bind(sums.j, threadIdx.x)\n" +
         card_rows(
             {.iteration = "values", .cta = "i", .reductions = {"j"}, .feature = "l", .feat = feat_v, .dtype = dtype}) +
         card_elements("quotients", "i", "l");
}

}  // namespace

ReadyProgram attention_program(int64_t feat, int64_t feat_v, DType dtype, const VectorUnit& unit,
                               const AttentionForm& form) {
  if (unit.is_of_card)
    return {with_dtype(kAttentionProgram, dtype), on_cards(feat, feat_v, dtype), {{"feat", feat}, {"feat_v", feat_v}}};
  std::string text = "lower()\n";
  text += partial_sums("scores", feat, unit);
  // Apart, a row of values is as wide as SpMM has it: nothing else of the row waits in registers.
  text += tiled({.block = "values",
                 .loop = "l",
                 .feat = feat_v,
                 .within = {"j"},
                 .around = "values.i",
                 .unit = unit,
                 .most_vectors = form.is_apart ? unit.registers / 2 : 4});
  if (has_vectors(feat_v, unit.lanes)) {
    text += fmt::format("quotients_lo, quotients_li = split(quotients.l, {})\nvectorize(quotients_li)\n", unit.lanes);
    if (feat_v > unit.lanes && feat_v <= unit.lanes * unit.registers) text += "unroll(quotients_lo)\n";
  }
  const auto fetched = [&](const char* loop, int64_t ahead) {
    if (ahead > 0) text += fmt::format("annotate({}, prefetch, {})\n", loop, ahead);
  };
  fetched("largest.j", form.keys_ahead.value_or(default_prefetch(feat)));
  if (!form.same) fetched("values.j", form.values_ahead.value_or(default_prefetch(feat_v)));
  text += form.is_apart ? kApart : kOneNest;
  return {with_dtype(kAttentionProgram, dtype), text + "parallel(values.i)\n", {{"feat", feat}, {"feat_v", feat_v}}};
}

// What one nest saves is the second gather of a row that is key and value. Where it saves nothing, because values are
// rows of their own, or little, because a core's second cache holds the keys, it costs: a row waits for its largest
// score before it weighs a value, and two dense matrices share the caches.
bool attention_runs_apart(int64_t key_bytes, bool same) { return !same || key_bytes <= machine().l2_bytes; }

void graph_attention(const Structure& graph, const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& o, float scale, Stream stream) {
  check_rank(q, "q", 2, "[m, feat]");
  check_rank(k, "k", 2, "[n, feat]");
  check_rank(v, "v", 2, "[n, feat_v]");
  check(std::isfinite(scale), ErrorCode::invalid_argument, "scale: is {}; a finite number is needed", scale);
  const DType dtype = common_dtype({{"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}});
  const int64_t feat = last_extent(q), feat_v = last_extent(v), element_bytes = bits_of(dtype) / 8;
  const Device device = device_of(q);
  AttentionForm form{.same = k.data() == v.data()};
  form.is_apart = attention_runs_apart(k.shape(0) * feat * element_bytes, form.same);
  if (form.is_apart && device == Device::cpu()) {
    GatherCall call{.feat = feat, .element_bytes = element_bytes, .workers = stream.team().num_workers()};
    call.op = GatherOperator::sddmm;
    form.keys_ahead = prefetch_of(data_of(graph, "graph"), call);
    call.op = GatherOperator::spmm;
    call.feat = feat_v;
    form.values_ahead = prefetch_of(data_of(graph, "graph"), call);
  }
  kept_operator(attention_program(feat, feat_v, dtype, vector_unit(device), form), device)
      .run({.structures = {{"J", graph}},
            .buffers = {{"Q", q}, {"Keys", k}, {"V", v}, {"O", o}},
            .reals = {{"scale", scale}}},
           stream);
}

}  // namespace weft::sparse
