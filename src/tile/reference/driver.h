// The reference's side of a variant: its hooks, one score or one vector a call, in double, or in the kernels' float to
// see what that rounds.
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft::detail {

inline constexpr int kMaxDim = 576;

template <class P, class V>
struct Reference {
  using H = Hooks<V, P>;

  static void set_math(const abi::ReferenceMath* functions) { use_math(functions); }

  static V enter(const P& p, int batch) {
    V v{};
    if constexpr (H::init) v.init(p, Request{batch});
    return v;
  }
  static Score score(const abi::ReferenceScore* c) {
    return {c->batch, c->qo_idx, c->kv_idx, c->qo_head, c->kv_head, c->q_pos, c->kv_pos, c->qo_len, c->kv_len, {}};
  }
  static double logits(const abi::Slot* slots, const abi::ReferenceScore* c, double s) {
    const P p = P::weft_load(slots);
    V v = enter(p, c->batch);
    return double(v.logits_transform(p, score(c), real(s)));
  }
  static int mask(const abi::Slot* slots, const abi::ReferenceScore* c) {
    const P p = P::weft_load(slots);
    V v = enter(p, c->batch);
    return v.logits_mask(p, score(c));
  }

  template <class F>
  static void vector(const abi::Slot* slots, const abi::VectorRow* row, const double* x, double* y, int dim, F f) {
    const P p = P::weft_load(slots);
    V v = enter(p, row->batch);
    real own[kMaxDim], pairs[kMaxDim], total = 0, squares = 0;
    for (int i = 0; i < dim; ++i) own[i] = real(x[i]);
    for (int i = 0; i < dim; ++i) {
      pairs[i] = i % 2 == 0 ? -own[i + 1] : own[i - 1];
      total += own[i];
      squares += own[i] * own[i];
    }
    const Vec vec{own, pairs, dim, total, squares};
    const Row at{row->batch, row->idx, row->pos, row->head, real(row->lse)};
    for (int i = 0; i < dim; ++i) y[i] = f(v, p, vec, i, at);
  }
#define WEFT_VECTOR_HOOK(name)                                                                                     \
  static void name(const abi::Slot* slots, const abi::VectorRow* row, const double* x, double* y, int dim) {       \
    vector(slots, row, x, y, dim,                                                                                  \
           [](V& v, const P& p, const Vec& u, int i, Row r) -> double { return v.name##_transform(p, u, i, r); }); \
  }
  WEFT_VECTOR_HOOK(query)
  WEFT_VECTOR_HOOK(key)
  WEFT_VECTOR_HOOK(value)
  WEFT_VECTOR_HOOK(output)
#undef WEFT_VECTOR_HOOK
  static double lse(const abi::Slot* slots, const abi::VectorRow* row) {
    const P p = P::weft_load(slots);
    V v = enter(p, row->batch);
    return double(v.lse_transform(p, Row{row->batch, row->idx, row->pos, row->head, real(row->lse)}));
  }

  static constexpr abi::ReferenceLeaf make() {
    abi::ReferenceLeaf leaf{abi::kLeafVersion, H::use_softmax, &set_math, nullptr, nullptr,
                            nullptr,           nullptr,        nullptr,   nullptr, nullptr};
    if constexpr (H::logits_transform) leaf.logits = &logits;
    if constexpr (H::logits_mask) leaf.mask = &mask;
    if constexpr (H::query_transform) leaf.query = &query;
    if constexpr (H::key_transform) leaf.key = &key;
    if constexpr (H::value_transform) leaf.value = &value;
    if constexpr (H::output_transform) leaf.output = &output;
    if constexpr (H::lse_transform) leaf.lse = &lse;
    return leaf;
  }
};

}  // namespace weft::detail
