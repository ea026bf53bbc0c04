// A request whose pages lie beyond 2^32 elements of their pool, beside the same pages at its beginning.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/attention/kernels/target.h"

namespace weft::testing {

struct FarPages {
  static constexpr int kPageSize = 16, kNumPages = 3;  // of the request
  AttentionSpec spec;
  int64_t elements_of_page() const { return 2 * kPageSize * spec.head_dim_qk; }  // keys and values of one head
  int64_t page_bytes() const { return elements_of_page() * bits_of(spec.kv_dtype) / 8; }
  // A product cut to 32 bits leads to page 7.
  int64_t far() const { return (int64_t{1} << 32) / elements_of_page() + 7; }
  int64_t num_pages() const { return far() + kNumPages; }
  static constexpr int64_t kNear = 1;

  // What the request's pages hold.
  std::vector<char> content() const {
    std::mt19937 random(9);
    std::vector<char> bytes(static_cast<size_t>(kNumPages * page_bytes()));
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {  // halves of 1 to 2, and floats of them
      bytes[i] = static_cast<char>(random());
      bytes[i + 1] = static_cast<char>(0x3f);
    }
    return bytes;
  }
  // The bytes of o over the pages from `first` on of the pool at `base`.
  std::string output(const Target& target, char* base, int64_t first) const {
    const AttentionKernel kernel = build_on(target, spec);
    const std::vector<int32_t> qo_indptr{0, 1}, page_indptr{0, kNumPages}, last_page_len{kPageSize};
    std::vector<int32_t> ids;
    for (int i = 0; i < kNumPages; ++i) ids.push_back(static_cast<int32_t>(first + i));
    PlanInput input{.num_qo_heads = 2, .num_kv_heads = 1, .qo_indptr = qo_indptr};
    input.pages = {kPageSize, num_pages(), page_indptr, ids, last_page_len};
    input.num_workers = 2;
    const Plan plan = kernel.plan(input);
    Workspace workspace(target.device(), plan.workspace_bytes());
    plan.upload(workspace);
    const auto bytes = static_cast<size_t>(2 * spec.head_dim_qk * bits_of(spec.q_dtype) / 8);
    std::string q(bytes, '\x3e'), o(bytes, '\0');
    void* const q_placed = target.place(q.data(), bytes);
    void* const o_placed = target.place(o.data(), bytes);
    AttentionTensors tensors;
    tensors.q = TensorView(q_placed, spec.q_dtype, {1, 2, spec.head_dim_qk}, target.device());
    tensors.o = TensorView(o_placed, spec.o_dtype, {1, 2, spec.head_dim_vo}, target.device());
    tensors.kv =
        KvCache(TensorView(base, spec.kv_dtype, {num_pages(), 2, kPageSize, 1, spec.head_dim_qk}, target.device()));
    kernel.run(workspace, tensors);
    target.fetch(o.data(), o_placed, bytes);
    target.release(q_placed, bytes);
    target.release(o_placed, bytes);
    return o;
  }
};

}  // namespace weft::testing
