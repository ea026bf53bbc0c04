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
  real value_transform(P p, Vec x, int i, Row r) { return weight * x[i] - weft::sum(x) / real(x.size()) + real(r.head); }
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

void check_hook(abi::VectorFn hook, const std::vector<abi::Slot>& slots, int dim, const Formula& formula) {
  ASSERT_NE(hook, nullptr);
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  const std::vector<abi::VectorRow> rows = {{0, 3, 7, 1}, {0, 4, 8, 1}, {1, 0, 15, 2}, {0, 1, 0, 0}};
  const int ld = dim + 8;
  const int ld_from = dim + 24;
  std::vector<float> before(rows.size() * static_cast<size_t>(ld_from)), x(rows.size() * static_cast<size_t>(ld));
  for (float& v : before) v = normal(random);
  for (float& v : x) v = normal(random);
  const std::vector<float> behind = x;
  const abi::VectorTile tile{slots.data(), rows.data(), static_cast<int>(rows.size()), dim, before.data(), ld_from,
                             x.data(),     ld};
  hook(&tile);
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* at = before.data() + r * static_cast<size_t>(ld_from);
    const std::vector<double> old(at, at + dim);
    for (int i = 0; i < ld; ++i) {
      const double actual = static_cast<double>(x[r * static_cast<size_t>(ld) + static_cast<size_t>(i)]);
      const double want = i < dim ? formula(old, i, rows[r])
                                  : static_cast<double>(behind[r * static_cast<size_t>(ld) + static_cast<size_t>(i)]);
      ASSERT_NEAR(actual, want, i < dim ? 1e-5 * (1 + std::abs(want)) : 0.0)
          << "dim " << dim << " row " << r << " i " << i;
    }
  }
}

TEST(VectorHooks, NormsRotationsSumsAndProjectionsAgreeWithTheirFormulas) {
  for (const Isa isa : supported_isas()) {
    for (const int dim : {8, 24, 128, 576}) {
      if (dim != 24 && isa != supported_isas().back())
        continue;  // each is a leaf to compile, its loops of known length
      const AttentionSpec spec{.head_dim_qk = dim, .head_dim_vo = dim, .variant = everything()};
      validate(spec);
      const LeafHandle handle = find_leaf(spec, isa);
      const Inputs in(dim);
      const auto slots = pack_params(spec, 1.f, {}, in.args());
      const auto cs = [&](int pos, int i) { return static_cast<double>(in.cs[static_cast<size_t>(pos * dim + i)]); };
      const auto sn = [&](int pos, int i) { return static_cast<double>(in.sn[static_cast<size_t>(pos * dim + i)]); };
      check_hook(handle.leaf->query, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
        double squares = 0;
        for (double v : x) squares += v * v;
        const double other = i < dim / 2 ? -x[static_cast<size_t>(i + dim / 2)] : x[static_cast<size_t>(i - dim / 2)];
        return (x[static_cast<size_t>(i)] * cs(row.pos, i) + other * sn(row.pos, i)) / std::sqrt(squares / dim + 1e-5);
      });
      check_hook(handle.leaf->key, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
        const double other = i % 2 == 0 ? -x[static_cast<size_t>(i + 1)] : x[static_cast<size_t>(i - 1)];
        return x[static_cast<size_t>(i)] * cs(row.pos, i) + other * sn(row.pos, i);
      });
      check_hook(handle.leaf->value, slots, dim, [&](const auto& x, int i, const abi::VectorRow& row) {
        double sum = 0;
        for (double v : x) sum += v;
        return static_cast<double>(in.weights[static_cast<size_t>(row.batch)]) * x[static_cast<size_t>(i)] - sum / dim +
               row.head;
      });
      check_hook(handle.leaf->output, slots, dim, [&](const auto& x, int i, const abi::VectorRow&) {
        double sum = 0;
        for (int k = 0; k < dim; ++k)
          sum += x[static_cast<size_t>(k)] * static_cast<double>(in.matrix[static_cast<size_t>(i * dim + k)]);
        return sum;
      });
    }
  }
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
