// Every tensor that an operator writes is refused where two of its elements share memory, and nothing is written then.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"
#include "weft/quest.h"

namespace weft {
namespace {

class WrittenTensor : public ::testing::Test {
 protected:
  TensorView view(std::initializer_list<int64_t> shape, DType dtype = DType::fp32) {
    TensorView made(memory_.data() + used_, dtype, shape);
    used_ += static_cast<size_t>(made.size()) + 64;
    return made;
  }
  // The same memory; along the first axis of several elements each step is one element short of what it spans.
  static TensorView overlapping(const TensorView& t) {
    std::vector<int64_t> strides(t.strides().begin(), t.strides().end());
    size_t axis = 0;
    while (t.shape(static_cast<int>(axis)) <= 1) ++axis;
    strides[axis] -= bits_of(t.dtype()) == 4 ? 2 : 1;  // rows begin on bytes
    return {t.data(), t.dtype(), t.shape(), strides};
  }
  // `call` works on `written` as it is, and not where it overlaps itself.
  void expect_checked(const std::string& op, const std::string& name, const TensorView& written,
                      const std::function<void(const TensorView&)>& call) {
    SCOPED_TRACE(op + " " + name);
    call(written);
    const std::vector<float> before = memory_;
    try {
      call(overlapping(written));
      ADD_FAILURE() << "was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), "invalid_stride") << error.what();
      EXPECT_NE(std::string(error.what()).find(op + ": " + name + ": "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("overlap"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(memory_ == before) << "memory was touched";
  }

  std::vector<float> memory_ = std::vector<float>(8192, 0.5f);
  size_t used_ = 0;
};

TEST_F(WrittenTensor, OfRowOperatorsMayNotOverlap) {
  const TensorView x = view({4, 8}), gate = view({4, 8}), weight = view({8}), y = view({4, 8}), sum = view({4, 8}),
                   heads = view({3, 2, 8});
  const std::vector<int32_t> positions{0, 1, 2};
  expect_checked("rms_norm", "y", y, [&](auto& t) { rms_norm(x, weight, 0.f, t); });
  expect_checked("add_rms_norm", "y", y, [&](auto& t) { add_rms_norm(x, sum, weight, 0.f, t); });
  expect_checked("add_rms_norm", "residual", sum, [&](auto& t) { add_rms_norm(x, t, weight, 0.f, y); });
  expect_checked("silu_and_mul", "y", y, [&](auto& t) { silu_and_mul(gate, x, t); });
  expect_checked("gelu_tanh_and_mul", "y", y, [&](auto& t) { gelu_tanh_and_mul(gate, x, t); });
  expect_checked("soft_cap", "x", x, [&](auto& t) { soft_cap(t, 2.f); });
  expect_checked("apply_rope", "x", heads, [&](auto& t) { apply_rope(t, positions, {}); });
}

// What is only read may be one row, many times.
TEST_F(WrittenTensor, IsNoneThatIsRead) {
  const TensorView row = view({1, 8}), weight = view({8}), y = view({4, 8});
  const int64_t shape[] = {4, 8}, strides[] = {0, 1};
  const TensorView repeated(row.data(), DType::fp32, shape, strides);
  rms_norm(repeated, weight, 0.f, y);
  silu_and_mul(repeated, repeated, y);
}

TEST_F(WrittenTensor, OfNarrowNumbersMayNotOverlap) {
  for (const DType dtype : {DType::int8, DType::int4}) {
    used_ = 0;
    const TensorView x = view({4, 2, 8}), q = view({4, 2, 8}, dtype), scales = view({4, 2, 1});
    expect_checked("quantize", "q", q, [&](auto& t) { quantize(x, t, scales); });
    expect_checked("quantize", "scales", scales, [&](auto& t) { quantize(x, q, t); });
    expect_checked("dequantize", "x", x, [&](auto& t) { dequantize(q, scales, t); });
  }
}

TEST_F(WrittenTensor, OfCachesMayNotOverlap) {
  const TensorView rows = view({3, 2, 8}), k = view({4, 2, 2, 8}), v = view({4, 2, 2, 8});
  const std::vector<int32_t> indptr{0, 3}, page_indptr{0, 2}, ids{3, 1}, last{1};
  const PageTableView pages{2, 4, page_indptr, ids, last};
  const auto append = [&](const KvCache& cache, KvScales scales = KvScales::none) {
    append_paged_kv(rows, rows, indptr, pages, Layout::nhd, cache, scales);
  };
  expect_checked("append_paged_kv", "cache.k", k, [&](auto& t) { append({t, v}); });
  expect_checked("append_paged_kv", "cache.v", v, [&](auto& t) { append({k, t}); });
  const TensorView bytes = view({4, 2, 2, 8}, DType::int8), scale = view({4, 2, 2, 1}), other = view({4, 2, 2, 1});
  expect_checked("append_paged_kv", "cache.k_scale", scale, [&](auto& t) {
    append({bytes, bytes, t, other}, KvScales::token);
  });
  expect_checked("append_paged_kv", "cache.v_scale", scale, [&](auto& t) {
    append({bytes, bytes, other, t}, KvScales::token);
  });
  const PageSummaries summaries{view({4, 2, 8}), view({4, 2, 8})};
  expect_checked("update_page_summaries", "summaries.min", summaries.min, [&](auto& t) {
    update_page_summaries(k, indptr, pages, Layout::nhd, {t, summaries.max});
  });
  expect_checked("update_page_summaries", "summaries.max", summaries.max, [&](auto& t) {
    update_page_summaries(k, indptr, pages, Layout::nhd, {summaries.min, t});
  });
}

TEST_F(WrittenTensor, OfAbsorbedWeightsMayNotOverlap) {
  const TensorView up = view({2, 3, 8}), latent = view({2, 3, 4}), o = view({5, 2, 3}), query = view({2, 4, 8}),
                   output = view({5, 2, 4});
  expect_checked("absorb_query_weights", "w_uq_uk", query, [&](auto& t) { absorb_query_weights(up, latent, t); });
  expect_checked("absorb_output_weights", "w_uv_o", output, [&](auto& t) { absorb_output_weights(latent, o, t); });
}

}  // namespace
}  // namespace weft
