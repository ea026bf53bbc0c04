#include "attention/params.h"
#include "tests/attention/variant/leaf_harness.h"

namespace weft::test {
namespace {

// Each hook uses another part of the vocabulary.
const Variant& everything() {
  static const Variant v{
      .name = "Everything",
      .text = R"(struct Everything {
  real weight = 0;
  void init(P p, Request r) { weight = p.weights(r.batch); }
  // Norm, then rotation between the halves.
  real query_transform(P p, Vec x, int i, Row r) const {
    const real inverse = weft::rsqrt(weft::dot(x, x) / real(x.size()) + p.epsilon);
    return inverse * (x[i] * p.cs(r.pos, i) + weft::pair_halves(x, i) * p.sn(r.pos, i));
  }
  // Rotation of adjacent pairs.
  static real key_transform(const P& p, const Vec& x, int i, Row r) {
    return x[i] * p.cs(r.pos, i) + weft::pair(x, i) * p.sn(r.pos, i);
  }
  real value_transform(P p, Vec x, int i, Row r) {
    return weight * x[i] - weft::sum(x) / real(x.size()) + real(r.head);
  }
  // A projection, by tensor.
  real output_transform(P p, Vec x, int i, Row) { return weft::dot(x, p.matrix.row(i)); }
};
)",
      .scalars = {{.name = "epsilon", .default_value = 1e-5}},
      .tensors = {
          {.name = "weights"}, {.name = "cs", .rank = 2}, {.name = "sn", .rank = 2}, {.name = "matrix", .rank = 2}}};
  return v;
}

struct Inputs {
  int64_t dim;
  std::vector<float> weights = {2.f, -0.5f}, cs, sn, matrix;
  explicit Inputs(int d) : dim(d) {
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform(-1.f, 1.f);
    for (int i = 0; i < 16 * d; ++i) {
      cs.push_back(uniform(random));
      sn.push_back(uniform(random));
    }
    for (int i = 0; i < d * d; ++i) matrix.push_back(uniform(random));
  }
  std::vector<TensorArg> args() const {
    return {{"weights", TensorView(weights.data(), DType::fp32, {2})},
            {"cs", TensorView(cs.data(), DType::fp32, {16, dim})},
            {"sn", TensorView(sn.data(), DType::fp32, {16, dim})},
            {"matrix", TensorView(matrix.data(), DType::fp32, {dim, dim})}};
  }
};

using Formula = std::function<double(const std::vector<double>& x, int i, const abi::VectorRow& row)>;

float widened(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// Element: float, or uint16_t for bf16, to which results are rounded.
template <class Element>
void check_hook(abi::VectorFn hook, const std::vector<abi::Slot>& slots, int dim, const Formula& formula) {
  constexpr bool kBf16 = sizeof(Element) == 2;
  ASSERT_NE(hook, nullptr);
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  const std::vector<abi::VectorRow> rows = {{0, 3, 7, 1}, {0, 4, 8, 1}, {1, 0, 15, 2}, {0, 1, 0, 0}};
  const auto ld = static_cast<size_t>(dim + 8), offset = size_t{16};
  const auto number = [&] {
    const float x = normal(random);
    return kBf16 ? static_cast<Element>(std::bit_cast<uint32_t>(x) >> 16) : static_cast<Element>(x);
  };
  const auto value = [](Element x) { return kBf16 ? widened(static_cast<uint16_t>(x)) : static_cast<float>(x); };
  std::vector<Element> before(rows.size() * (ld + offset)), x(rows.size() * ld);
  for (Element& v : before) v = number();
  for (Element& v : x) v = number();
  const std::vector<Element> behind = x;
  std::vector<const char*> from;  // in no order
  for (size_t r = 0; r < rows.size(); ++r)
    from.push_back(reinterpret_cast<const char*>(before.data() + (r ^ 1) * (ld + offset)));
  const abi::VectorTile tile{slots.data(),
                             rows.data(),
                             static_cast<int>(rows.size()),
                             dim,
                             from.data(),
                             static_cast<long long>(offset * sizeof(Element)),
                             x.data(),
                             static_cast<long long>(ld)};
  hook(&tile);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Element* at = before.data() + (r ^ 1) * (ld + offset) + offset;
    std::vector<double> old;
    for (int i = 0; i < dim; ++i) old.push_back(static_cast<double>(value(at[i])));
    for (size_t i = 0; i < ld; ++i) {
      if (i >= static_cast<size_t>(dim)) {
        ASSERT_EQ(x[r * ld + i], behind[r * ld + i]) << "dim " << dim << " row " << r << " behind it";
        continue;
      }
      const double want = formula(old, static_cast<int>(i), rows[r]),
                   actual = static_cast<double>(value(x[r * ld + i]));
      ASSERT_NEAR(actual, want, 1e-5 * (1 + std::abs(want)) + (kBf16 ? std::ldexp(std::abs(want), -8) : 0))
          << "dim " << dim << " row " << r << " i " << i;
    }
  }
}

void check_formulas(Isa isa, int dim, bool bf16) {
  AttentionSpec spec{.head_dim_qk = dim, .head_dim_vo = dim, .variant = everything()};
  spec.q_dtype = spec.kv_dtype = spec.o_dtype = bf16 ? DType::bf16 : DType::fp32;
  if (bf16) spec.compute = DType::bf16;
  validate(spec);
  const LeafHandle handle = find_leaf(spec, isa);
  const Inputs in(dim);
  const auto check_kv = bf16 ? check_hook<uint16_t> : check_hook<float>;
  const auto slots = pack_params(spec, 1.f, {}, in.args());
  const auto cs = [&](int pos, int i) { return static_cast<double>(in.cs[static_cast<size_t>(pos * dim + i)]); };
  const auto sn = [&](int pos, int i) { return static_cast<double>(in.sn[static_cast<size_t>(pos * dim + i)]); };
  check_hook<float>(handle.leaf->query, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
    double squares = 0;
    for (double v : x) squares += v * v;
    const double other = i < dim / 2 ? -x[static_cast<size_t>(i + dim / 2)] : x[static_cast<size_t>(i - dim / 2)];
    return (x[static_cast<size_t>(i)] * cs(row.pos, i) + other * sn(row.pos, i)) / std::sqrt(squares / dim + 1e-5);
  });
  check_kv(handle.leaf->key, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
    const double other = i % 2 == 0 ? -x[static_cast<size_t>(i + 1)] : x[static_cast<size_t>(i - 1)];
    return x[static_cast<size_t>(i)] * cs(row.pos, i) + other * sn(row.pos, i);
  });
  check_kv(handle.leaf->value, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
    double sum = 0;
    for (double v : x) sum += v;
    return static_cast<double>(in.weights[static_cast<size_t>(row.batch)]) * x[static_cast<size_t>(i)] - sum / dim +
           row.head;
  });
  check_hook<float>(handle.leaf->output, slots, dim, [&](const auto& x, int i, const abi::VectorRow&) {
    double sum = 0;
    for (int k = 0; k < dim; ++k)
      sum += x[static_cast<size_t>(k)] * static_cast<double>(in.matrix[static_cast<size_t>(i * dim + k)]);
    return sum;
  });
}

TEST(VectorHooks, NormsRotationsSumsAndProjectionsAgreeWithTheirFormulas) {
  for (const Isa isa : supported_isas())
    for (const int dim : {8, 24, 128, 576})
      if (dim == 24 || isa == supported_isas().back())  // each is a leaf to compile, its loops of known length
        check_formulas(isa, dim, false);
}

TEST(VectorHooks, KeysAndValuesThatAreMultipliedInBf16AreReadAndWrittenInIt) {
  if (supported_isas().back() != Isa::avx512_bf16) GTEST_SKIP() << "this machine has no bf16 dot product";
  for (const int dim : {8, 24, 72, 128, 576}) check_formulas(Isa::avx512_bf16, dim, true);
}

TEST(VectorHooks, BuiltInLeavesHaveNone) {
  const LeafHandle handle = find_leaf({}, Isa::plain);
  EXPECT_EQ(handle.leaf->query, nullptr);
  EXPECT_EQ(handle.leaf->key, nullptr);
  EXPECT_EQ(handle.leaf->value, nullptr);
  EXPECT_EQ(handle.leaf->output, nullptr);
  EXPECT_EQ(handle.origin, "built-in");
}

}  // namespace
}  // namespace weft::test
