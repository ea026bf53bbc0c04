#include "bench/variants.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace weft::bench {

void VariantTensors::add(const std::string& name, const std::vector<float>& numbers, std::vector<int64_t> shape) {
  Workspace memory(Device::cpu(), numbers.size() * sizeof(float));
  std::memcpy(memory.data(), numbers.data(), memory.bytes());
  held_.push_back({name, std::move(memory), std::move(shape)});
}

std::vector<TensorArg> VariantTensors::args() const {
  std::vector<TensorArg> all;
  for (const Held& held : held_) all.push_back({held.name, TensorView(held.numbers.data(), DType::fp32, held.shape)});
  return all;
}

Variant rope_inside() {
  return {.name = "Rope",
          .text = R"(struct Rope {
  static real turned(P p, Vec x, int i, Row r) {
    const int half = x.size() / 2, pair = i < half ? i : i - half;
    return x[i] * p.cos(r.pos, pair) + weft::pair_halves(x, i) * p.sin(r.pos, pair);
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
};
)",
          .tensors = {{"cos", DType::fp32, 2}, {"sin", DType::fp32, 2}}};
}

VariantTensors rope_tables(int positions, int head_dim) {
  const int half = head_dim / 2;
  std::vector<float> cos(static_cast<size_t>(positions * half)), sin(cos.size());
  for (int i = 0; i < positions * half; ++i) {
    const double angle = i / half * std::pow(10000., -static_cast<double>(i % half) / half);
    cos[static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
    sin[static_cast<size_t>(i)] = static_cast<float>(std::sin(angle));
  }
  VariantTensors tables;
  tables.add("cos", cos, {positions, half});
  tables.add("sin", sin, {positions, half});
  return tables;
}

Variant qk_norm_inside() {
  return {.name = "QkNorm",
          .text = R"(struct QkNorm {
  template <class W>
  static real normed(Vec x, int i, W weight) {
    return x[i] * weight(i) * weft::rsqrt(weft::dot(x, x) / x.size() + real(1e-6));
  }
  real query_transform(P p, Vec x, int i, Row) { return normed(x, i, p.q_weight); }
  real key_transform(P p, Vec x, int i, Row) { return normed(x, i, p.k_weight); }
};
)",
          .tensors = {{"q_weight"}, {"k_weight"}}};
}

Variant decay() {
  return {.name = "Decay",
          .text = R"(struct Decay {
  static constexpr bool use_softmax = false;
  real logits_transform(P p, Score c, real s) {
    return s * weft::exp2(p.log2_decay(c.qo_head) * real(c.q_pos - c.kv_pos));
  }
};
)",
          .tensors = {{"log2_decay"}},
          .use_softmax = false};
}

Variant new_variant(int number) {
  return {.name = "CapAndBias",
          .text = fmt::format("struct CapAndBias {{\n"
                              "  real logits_transform(P p, Score c, real s) {{\n"
                              "    return p.cap * weft::tanh(s / p.cap) + real({}e-6) * real(c.kv_pos - c.q_pos);\n"
                              "  }}\n"
                              "}};\n",
                              number + 1),
          .scalars = {{.name = "cap"}}};
}

}  // namespace weft::bench
