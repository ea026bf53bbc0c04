// Operators on a card, in the host machine, against the CPU's, which have tests of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

#include "tests/ops/cuda/host_card.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

class CardOperators : public testing::HostCard {
 protected:
  CardOperators() : HostCard(true) {}
  std::vector<float> floats(int64_t n, float scale = 1.f) {
    std::normal_distribution<float> normal(0.f, scale);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = normal(random_);
    return x;
  }
  static TensorView on_host(const std::vector<float>& x, std::initializer_list<int64_t> shape) {
    return TensorView(x.data(), DType::fp32, shape);
  }
  static TensorView on_card(const void* x, std::initializer_list<int64_t> shape, DType dtype = DType::fp32) {
    return TensorView(x, dtype, shape, Device::cuda(0));
  }
  void expect_near(const float* got, const std::vector<float>& expected, double tolerance, const char* what) {
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::fabs(expected[i]))) << what << " " << i;
  }
  std::mt19937 random_{20261123};
};

TEST_F(CardOperators, NormAndAddAsOnTheCpu) {
  for (const auto& [rows, heads, dim] : {std::array<int64_t, 3>{3, 2, 40}, {17, 1, 33}}) {
    std::vector<float> x = floats(rows * heads * dim), residual = floats(rows * heads * dim), y(x.size());
    const std::vector<float> weight = floats(dim);
    for (int64_t i = 0; i < dim; ++i) x[static_cast<size_t>(i)] *= 1e22f;  // squares overflow
    float *card_x = place(x), *card_residual = place(residual), *card_y = poisoned<float>(x.size());
    const float* card_weight = place(weight);
    rms_norm(on_card(card_x, {rows, heads, dim}), on_card(card_weight, {dim}), 1e-5f,
             on_card(card_y, {rows, heads, dim}));
    rms_norm(on_host(x, {rows, heads, dim}), on_host(weight, {dim}), 1e-5f, on_host(y, {rows, heads, dim}));
    expect_near(card_y, y, 1e-5, "rms_norm");
    add_rms_norm(on_card(card_x, {rows, heads, dim}), on_card(card_residual, {rows, heads, dim}),
                 on_card(card_weight, {dim}), 0.f, on_card(card_y, {rows, heads, dim}));
    add_rms_norm(on_host(x, {rows, heads, dim}), on_host(residual, {rows, heads, dim}), on_host(weight, {dim}), 0.f,
                 on_host(y, {rows, heads, dim}));
    expect_near(card_y, y, 1e-5, "add_rms_norm");
    expect_near(card_residual, residual, 0, "residual");
  }
}

// Rows so small that the inverse of their largest element is no number, so large that its square is none, and both.
TEST_F(CardOperators, NormRowsOfAnySizeAsOnTheCpu) {
  const int64_t rows = 6, dim = 40;
  std::vector<float> x = floats(rows * dim), y(x.size());
  const std::vector<float> weight = floats(dim);
  const float sizes[] = {1e-40f, 1e-38f, 1e-31f, 1e-18f, 1e19f, 1e37f};
  for (size_t i = 0; i < x.size(); ++i) x[i] *= sizes[i / dim];
  x[dim + 3] = 1e-30f;
  const float* card_x = place(x);
  const float* card_weight = place(weight);
  for (const float eps : {0.f, 1e-38f}) {
    float* card_y = poisoned<float>(x.size());
    rms_norm(on_card(card_x, {rows, dim}), on_card(card_weight, {dim}), eps, on_card(card_y, {rows, dim}));
    rms_norm(on_host(x, {rows, dim}), on_host(weight, {dim}), eps, on_host(y, {rows, dim}));
    for (const float value : y) ASSERT_TRUE(std::isfinite(value));
    expect_near(card_y, y, 1e-5, "rms_norm");
  }
}

TEST_F(CardOperators, GateAndCapAsOnTheCpu) {
  for (const int64_t dim : {70, 600}) {  // a piece of a row; several, the last one not whole
    const int64_t rows = 5;
    std::vector<float> gate = floats(rows * dim, 8.f), y(gate.size());
    const std::vector<float> up = floats(rows * dim);
    gate[0] = -200.f, gate[1] = 200.f, gate[2] = 0.f;
    float *card_gate = place(gate), *card_y = poisoned<float>(y.size());
    const float* card_up = place(up);
    for (const auto gate_of : {silu_and_mul, gelu_tanh_and_mul}) {
      gate_of(on_card(card_gate, {rows, dim}), on_card(card_up, {rows, dim}), on_card(card_y, {rows, dim}), {});
      gate_of(on_host(gate, {rows, dim}), on_host(up, {rows, dim}), on_host(y, {rows, dim}), {});
      expect_near(card_y, y, 1e-5, "gate");
    }
    for (const float cap : {30.f, 1e-3f, INFINITY}) {
      std::vector<float> x = gate;
      float* card_x = place(x);
      soft_cap(on_card(card_x, {rows, dim}), cap);
      soft_cap(on_host(x, {rows, dim}), cap);
      expect_near(card_x, x, 1e-5, "cap");
    }
  }
}

TEST_F(CardOperators, RotateAsOnTheCpu) {
  const int64_t rows = 4, heads = 3, dim = 24;
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    std::vector<float> x = floats(rows * heads * dim);
    float* card_x = place(x);
    const RopeParams params{.pairs = pairs, .rotary_dim = 16};
    const std::vector<int32_t> positions{0, 5, 4000, 7};
    apply_rope(on_card(card_x, {rows, heads, dim}), positions, params);
    apply_rope(on_host(x, {rows, heads, dim}), positions, params);
    expect_near(card_x, x, 1e-6, "rope");
  }
}

TEST_F(CardOperators, RotateByPositionsThatLieOnTheCard) {
  const int64_t rows = 5, heads = 3, dim = 24;
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    std::vector<float> x = floats(rows * heads * dim);
    float* card_x = place(x);
    const RopeParams params{.pairs = pairs, .rotary_dim = 16, .linear_scale = 2.f, .attention_factor = 1.5f};
    const std::vector<int32_t> positions{0, 5, 4000, 131071, -3};
    const int32_t* card_positions = place(positions);
    apply_rope(on_card(card_x, {rows, heads, dim}), on_card(card_positions, {rows}, DType::int32), params);
    apply_rope(on_host(x, {rows, heads, dim}), positions, params);
    expect_near(card_x, x, 2e-6, "rope");
  }
  float x[24] = {};
  int32_t position[1] = {};
  EXPECT_THROW(apply_rope(TensorView(x, DType::fp32, {1, 1, 24}), TensorView(position, DType::int32, {1}), {}), Error);
}

TEST_F(CardOperators, AppendAtPlacesThatLieOnTheCard) {
  const int64_t pages = 3, page_size = 4, heads = 2, dim = 12, rows = 3;
  const std::vector<float> k = floats(rows * heads * dim), v = floats(rows * heads * dim);
  const float *card_k = place(k), *card_v = place(v);
  const std::initializer_list<int64_t> shape{pages, page_size, heads, dim};
  const std::vector<float> zeros(static_cast<size_t>(pages * page_size * heads * dim), 0.f);
  const float *card_to_k = place(zeros), *card_to_v = place(zeros);
  const KvCache cache(on_card(card_to_k, shape), on_card(card_to_v, shape));
  const auto append = [&](const std::vector<int32_t>& places) {
    append_paged_kv(on_card(card_k, {rows, heads, dim}), on_card(card_v, {rows, heads, dim}),
                    on_card(place(places), {rows, 2}, DType::int32), Layout::nhd, cache);
  };
  append({2, 1, 0, 3, 1, 0});
  Stream::cuda(nullptr).synchronize();
  const auto expect = [&](int64_t row, int64_t page, int64_t slot) {
    for (int64_t i = 0; i < heads * dim; ++i) {
      const auto from = static_cast<size_t>(row * heads * dim + i);
      ASSERT_EQ(card_to_k[(page * page_size + slot) * heads * dim + i], k[from]) << row;
      ASSERT_EQ(card_to_v[(page * page_size + slot) * heads * dim + i], v[from]) << row;
    }
  };
  expect(0, 2, 1);
  expect(1, 0, 3);
  expect(2, 1, 0);
  append({3, 1, 0, -1, 1, 2});  // a page and a slot that are not there
  expect(0, 2, 1);
  expect(1, 0, 0);
  expect(2, 1, 2);
  EXPECT_THROW(Stream::cuda(nullptr).synchronize(), Error);
}

// Two requests whose last tokens lie in the middle of pages and of groups, one of them new from its first token on.
class CardAppend : public CardOperators, public ::testing::WithParamInterface<std::tuple<DType, KvScales>> {
 protected:
  static constexpr int64_t kPages = 5, kPageSize = 4, kHeads = 2, kDim = 12, kRows = 7;
  // New tokens, and what their requests hold with them.
  struct Requests {
    std::vector<int32_t> indptr{0, 3, 7}, page_indptr{0, 2, 4}, page_ids{3, 0, 4, 1}, last{2, 3};
  };

  // What a number of bytes may hold; NaN and infinities, too, of types that have them.
  std::vector<char> any_bytes(size_t n) {
    std::vector<char> bytes(n);
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  void expect_the_bytes_of_the_cpu(const std::vector<float>& k, const std::vector<float>& v, Layout layout) {
    expect_the_bytes_of_the_cpu(k, v, layout, {});
  }
  void expect_the_bytes_of_the_cpu(const std::vector<float>& k, const std::vector<float>& v, Layout layout,
                                   const Requests& requests) {
    const auto [dtype, scales] = GetParam();
    const bool by_token = scales >= KvScales::token, nhd = layout == Layout::nhd;
    const std::vector<int32_t>& indptr = requests.indptr;
    const int64_t num_rows = indptr.back();
    const PageTableView table{.page_size = kPageSize,
                              .num_pages = kPages,
                              .kv_page_indptr = requests.page_indptr,
                              .kv_page_indices = requests.page_ids,
                              .kv_last_page_len = requests.last};
    const auto shape = [&](int64_t pages, int64_t slots, int64_t heads, int64_t dim) {
      return nhd ? std::vector<int64_t>{pages, slots, heads, dim} : std::vector<int64_t>{pages, heads, slots, dim};
    };
    const std::vector<int64_t> of_cache = shape(kPages, kPageSize, kHeads, kDim);
    const int64_t slots = scales == KvScales::token ? kPageSize : scales == KvScales::token_group ? kPageSize / 2 : 1;
    const std::vector<int64_t> of_scales =
        shape(by_token ? kPages : 1, slots, scales == KvScales::tensor ? 1 : kHeads, 1);
    const auto num_scales = static_cast<size_t>(of_scales[0] * of_scales[1] * of_scales[2]);
    const auto bytes = static_cast<size_t>(kPages * kPageSize * kHeads * kDim * bits_of(dtype) / 8);
    std::vector<char> host[2] = {any_bytes(bytes), any_bytes(bytes)};
    std::vector<float> host_scales[2] = {std::vector<float>(num_scales, 0.5f), std::vector<float>(num_scales, 1e-3f)};
    const char* card[2] = {place(host[0]), place(host[1])};
    const float* card_scales[2] = {place(host_scales[0]), place(host_scales[1])};
    const auto cache = [&](const auto& of, const auto& scales_of, Device device) {
      KvCache made(TensorView(of[0], dtype, of_cache, device), TensorView(of[1], dtype, of_cache, device));
      if (scales == KvScales::none) return made;
      made.k_scale = TensorView(scales_of[0], DType::fp32, of_scales, device);
      made.v_scale = TensorView(scales_of[1], DType::fp32, of_scales, device);
      return made;
    };
    const char* const on_cpu[2] = {host[0].data(), host[1].data()};
    const float* const scales_on_cpu[2] = {host_scales[0].data(), host_scales[1].data()};
    append_paged_kv(on_host(k, {num_rows, kHeads, kDim}), on_host(v, {num_rows, kHeads, kDim}), indptr, table, layout,
                    cache(on_cpu, scales_on_cpu, Device::cpu()), scales);
    append_paged_kv(on_card(place(k), {num_rows, kHeads, kDim}), on_card(place(v), {num_rows, kHeads, kDim}), indptr,
                    table, layout, cache(card, card_scales, Device::cuda(0)), scales);
    for (size_t side = 0; side < 2; ++side) {
      EXPECT_EQ(fetch(card[side], bytes), host[side]) << "side " << side;
      // By their bytes: NaN is one of them.
      EXPECT_EQ(std::memcmp(card_scales[side], host_scales[side].data(), num_scales * sizeof(float)), 0)
          << "scales of side " << side;
    }
  }
};

TEST_P(CardAppend, WritesTheSameBytesAsTheCpu) {
  std::vector<float> k = floats(kRows * kHeads * kDim), v = floats(kRows * kHeads * kDim);
  k[5] = 1e30f;  // beyond fp16
  for (const Layout layout : {Layout::nhd, Layout::hnd}) expect_the_bytes_of_the_cpu(k, v, layout);
  if (bits_of(std::get<DType>(GetParam())) > 8) return;
  // Ties and the smallest numbers of fp8, and zeros.
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::ldexp(static_cast<float>(i % 37), -static_cast<int>(i % 23));
  for (size_t i = 0; i < kDim; ++i) v[i] = 0.f;
  k[30] = -NAN;
  k[90] = INFINITY;
  k[7] = -1e-40f;
  expect_the_bytes_of_the_cpu(k, v, Layout::nhd);
}

// Rows beside each other whose tokens follow each other by slot alone, lie in pages of different requests, and share a
// group from the first row on.
TEST_P(CardAppend, WritesTheSameBytesOfNeighboursThatAreNone) {
  const std::vector<float> k = floats(kRows * kHeads * kDim), v = floats(kRows * kHeads * kDim);
  for (const Requests& requests :
       {Requests{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {2, 0, 4, 1}, {1, 2, 3, 4}},  // a token each
        Requests{{0, 2, 3, 7}, {0, 1, 2, 3}, {3, 1, 0}, {2, 4, 4}},              // two of a group; then one; a page
        Requests{{0, 2, 4}, {0, 1, 2}, {3, 1}, {4, 2}}})
    expect_the_bytes_of_the_cpu(k, v, Layout::nhd, requests);
}

std::vector<std::tuple<DType, KvScales>> forms_of_caches() {
  std::vector<std::tuple<DType, KvScales>> forms;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2})
    forms.push_back({dtype, KvScales::none});
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4})
    for (const KvScales scales : {KvScales::tensor, KvScales::head, KvScales::token, KvScales::token_group})
      forms.push_back({dtype, scales});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Caches, CardAppend, ::testing::ValuesIn(forms_of_caches()), [](const auto& form) {
  return fmt::format("{}_{}", to_string(std::get<DType>(form.param)), to_string(std::get<KvScales>(form.param)));
});

TEST_F(CardOperators, RefuseWhatIsNotThereAndWhatLiesElsewhere) {
  std::vector<float> x(8), weight(4);
  const auto code_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::io_error;
  };
  const TensorView card = on_card(place(x), {2, 4}), host = on_host(x, {2, 4});
  EXPECT_EQ(code_of([&] { rms_norm(card, on_host(weight, {4}), 0.f, card); }), ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] { rms_norm(host, on_card(place(weight), {4}), 0.f, host); }), ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] { soft_cap(host, 1.f, Stream::cuda(nullptr)); }), ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] {
              soft_cap(TensorView(x.data(), DType::fp32, {2, 4}, Device::cuda(9)), 1.f);
            }),
            ErrorCode::invalid_device);
}

}  // namespace
}  // namespace weft
