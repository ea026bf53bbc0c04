#include "bench/batch.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace weft::bench {

AttentionSpec make_spec(DType dtype, int head_dim, Mask mask, const Variant& variant) {
  AttentionSpec spec;
  spec.q_dtype = spec.kv_dtype = spec.o_dtype = dtype;
  spec.head_dim_qk = spec.head_dim_vo = head_dim;
  spec.mask = mask;
  spec.variant = variant;
  return spec;
}

void fill_random(void* data, DType dtype, int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  auto* halves = static_cast<uint16_t*>(data);
  auto* floats = static_cast<uint32_t*>(data);
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<uint32_t>(random());
    // A sign, an exponent of 2^-1 to 2^-4, a random mantissa.
    switch (dtype) {
      case DType::fp16: halves[i] = static_cast<uint16_t>((x & 0x83ff) | (11 + (x >> 30)) << 10); break;
      case DType::fp8_e4m3:
      case DType::fp8_e5m2:
      case DType::int8: static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(x & 0xbf); break;  // no NaN of fp8
      case DType::int4: static_cast<uint8_t*>(data)[i / 2] = static_cast<uint8_t>(x); break;
      case DType::bf16: halves[i] = static_cast<uint16_t>((x & 0x807f) | (123 + (x >> 30)) << 7); break;
      default: floats[i] = (x & 0x807fffff) | (123 + (x >> 23 & 3)) << 23; break;
    }
  }
}

Batch::Batch(const AttentionSpec& spec, const Shape& shape, int qo_len, const std::vector<int>& kv_lens, int page_size,
             int threads, char* cache) {
  for (const int kv_len : kv_lens) {
    const int pages = (kv_len + page_size - 1) / page_size;
    qo_indptr.push_back(qo_indptr.back() + (qo_len == kWholePrompts ? kv_len : qo_len));
    page_indptr.push_back(page_indptr.back() + pages);
    last_page_len.push_back(kv_len - (pages - 1) * page_size);
  }
  const int64_t num_pages = page_indptr.back(), rows = qo_indptr.back();
  page_indices.resize(static_cast<size_t>(num_pages));
  std::iota(page_indices.begin(), page_indices.end(), 0);
  std::shuffle(page_indices.begin(), page_indices.end(), std::mt19937(1));
  input.num_qo_heads = shape.qo_heads;
  input.num_kv_heads = shape.kv_heads;
  input.qo_indptr = qo_indptr;
  input.pages.page_size = page_size;
  input.pages.num_pages = num_pages;
  input.pages.kv_page_indptr = page_indptr;
  input.pages.kv_page_indices = page_indices;
  input.pages.kv_last_page_len = last_page_len;
  input.num_workers = threads;
  const auto make = [](Workspace& memory, DType dtype, const std::vector<int64_t>& dims, unsigned seed) {
    const TensorView sized(nullptr, dtype, dims);
    memory = Workspace(Device::cpu(), static_cast<size_t>(sized.size() * bits_of(dtype) / 8));
    fill_random(memory.data(), dtype, sized.size(), seed);
    return TensorView(memory.data(), dtype, dims);
  };
  tensors.q = make(q, spec.q_dtype, {rows, shape.qo_heads, spec.head_dim_qk}, 1);
  tensors.o = make(o, spec.o_dtype, {rows, shape.qo_heads, spec.head_dim_vo}, 4);
  if (spec.kv_form == KvForm::latent) {
    tensors.kv =
        KvCache::latent(make(k, spec.kv_dtype, {num_pages, page_size, spec.head_dim_vo}, 2),
                        make(v, spec.kv_dtype, {num_pages, page_size, spec.head_dim_qk - spec.head_dim_vo}, 3));
    return;
  }
  std::vector<int64_t> dims = {num_pages, page_size, shape.kv_heads, shape.head_dim};
  if (spec.layout == Layout::hnd) std::swap(dims[1], dims[2]);
  if (cache == nullptr) {
    tensors.kv.k = make(k, spec.kv_dtype, dims, 2);
    tensors.kv.v = make(v, spec.kv_dtype, dims, 3);
  } else {
    tensors.kv.k = TensorView(cache, spec.kv_dtype, dims);
    tensors.kv.v = TensorView(cache + tensors.kv.k.size() * bits_of(spec.kv_dtype) / 8, spec.kv_dtype, dims);
  }
  if (spec.kv_scales == KvScales::none) return;
  std::vector<int64_t> scale_dims(dims.size(), 1);
  if (spec.kv_scales != KvScales::tensor) scale_dims[spec.layout == Layout::hnd ? 1 : 2] = shape.kv_heads;
  if (spec.kv_scales >= KvScales::token) {
    scale_dims[0] = num_pages;
    scale_dims[spec.layout == Layout::hnd ? 2 : 1] = page_size / std::max(spec.kv_scale_group, 1);
  }
  const int64_t count = TensorView(nullptr, DType::fp32, scale_dims).size();
  scales = Workspace(Device::cpu(), static_cast<size_t>(2 * count) * sizeof(float));
  auto* scale = static_cast<float*>(scales.data());
  const float unit = spec.kv_dtype == DType::int4 ? 1 / 8.f : spec.kv_dtype == DType::int8 ? 1 / 128.f : 1.f;
  for (int64_t i = 0; i < 2 * count; ++i) scale[i] = unit * (1 + static_cast<float>(i % 7) / 8);
  for (TensorView* side : {&tensors.kv.k_scale, &tensors.kv.v_scale}) {
    *side = TensorView(scale, DType::fp32, scale_dims);
    scale += count;
  }
}

}  // namespace weft::bench
