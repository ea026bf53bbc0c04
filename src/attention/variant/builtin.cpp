// The built-in variants, written as any user would write theirs.
#include "weft/attention.h"

namespace weft::variants {

Variant plain() { return {}; }

Variant logits_soft_cap() {
  return {.name = "LogitsSoftCap",
          .text = R"(struct LogitsSoftCap {
  static bool leaves_logits(P p) { return !(p.cap > 0 && p.cap < weft::infinity()); }
  real logits_transform(P p, Score, real s) { return leaves_logits(p) ? s : p.cap * weft::tanh(s * (1 / p.cap)); }
};
)",
          .scalars = {{.name = "cap"}}};
}

Variant alibi() {
  return {.name = "Alibi",
          .text = R"(struct Alibi {
  real logits_transform(P p, Score c, real s) { return s + p.slopes(c.qo_head) * real(c.kv_pos - c.q_pos); }
};
)",
          .tensors = {{.name = "slopes"}}};
}

Variant sigmoid() {
  return {.name = "Sigmoid",
          .text = R"(struct Sigmoid {
  static constexpr bool use_softmax = false;
  real logits_transform(P p, Score, real s) { return weft::sigmoid(s + p.bias); }
};
)",
          .scalars = {{.name = "bias", .default_value = 0.0}},
          .use_softmax = false};
}

// The sink is one more key with the logit s and the value 0.
Variant attention_sink() {
  return {.name = "AttentionSink",
          .text = R"(struct AttentionSink {
  real lse_transform(P p, Row r) {
    const real s = p.sinks(r.head), top = weft::max(s, r.lse);
    return weft::abs(top) == weft::infinity() ? top : top + weft::log(weft::exp(s - top) + weft::exp(r.lse - top));
  }
  real output_transform(P p, Vec x, int i, Row r) {
    return r.lse == -weft::infinity() ? 0 : x[i] * weft::sigmoid(r.lse - p.sinks(r.head));
  }
};
)",
          .tensors = {{.name = "sinks"}}};
}

Variant causal() {
  return {.name = "Causal", .text = "struct Causal {};\n", .intervals = {{.upper = {{.q_pos = true, .constant = 1}}}}};
}

Variant sliding_window() {
  return {.name = "SlidingWindow",
          .text = "struct SlidingWindow {};\n",
          .scalars = {{.name = "window_left", .kind = ScalarKind::integer}},
          .intervals = {{.lower = {{.q_pos = true, .scalar = "window_left", .scalar_sign = -1}}}}};
}

Variant custom_mask() {
  return {.name = "CustomMask",
          .text = R"(struct CustomMask {
  bool logits_mask(P p, Score c) {
    return p.mask.at(p.mask_indptr(c.batch) + static_cast<long long>(c.qo_idx) * c.kv_len, c.kv_idx) != 0;
  }
};
)",
          .tensors = {{.name = "mask", .dtype = DType::uint8}, {.name = "mask_indptr", .dtype = DType::int64}}};
}

Variant custom_mask_packed() {
  return {.name = "CustomMaskPacked",
          .text = R"(struct CustomMaskPacked {
  bool logits_mask(P p, Score c) {
    return weft::mask_bit(p.mask, p.mask_indptr(c.batch), static_cast<long long>(c.qo_idx) * c.kv_len, c);
  }
};
)",
          .tensors = {{.name = "mask", .dtype = DType::uint8}, {.name = "mask_indptr", .dtype = DType::int64}}};
}

}  // namespace weft::variants
