// Page append: new keys and values to the last slots of each request.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "ops/elementwise.h"
#include "ops/narrow.h"
#include "ops/paged.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr std::string_view kOp = "append_paged_kv";

// A cache tensor as [pages][slots][heads][dim] whatever its layout, or its scales.
struct Cache {
  char* data = nullptr;
  int64_t page_stride = 0, slot_stride = 0, head_stride = 0;  // elements
  int64_t bits = 0;
  char* at(int64_t page, int64_t slot, int64_t head) const {
    return data + (page * page_stride + slot * slot_stride + head * head_stride) * bits / 8;
  }
};

Cache cache_of(std::string_view name, const TensorView& tensor, const TensorView& rows, const PageTableView& pages,
               Layout layout) {
  const DType dtype = tensor.dtype();
  check(dtype <= DType::int4, ErrorCode::invalid_dtype,
        "{}: {} has dtype {}; fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8 and int4 are supported", kOp, name,
        to_string(dtype));
  ops::check_memory(kOp, name, tensor);
  const int slots = ops::slot_axis(kOp, layout), heads = 3 - slots;
  check(tensor.rank() == 4 && tensor.shape(0) == pages.num_pages && tensor.shape(slots) == pages.page_size &&
            tensor.shape(heads) == rows.shape(1) && tensor.shape(3) == rows.shape(2),
        ErrorCode::invalid_shape, "{}: {} is {}; pages {} x page size {} x heads {} x dim {} are needed in {} order",
        kOp, name, shape_string(tensor), pages.num_pages, pages.page_size, rows.shape(1), rows.shape(2),
        layout == Layout::nhd ? "NHD" : "HND");
  ops::check_rows_of_bytes(kOp, name, tensor);
  check_written(kOp, name, tensor);
  return {tensor.as<char>(), tensor.stride(0), tensor.stride(slots), tensor.stride(heads), bits_of(dtype)};
}

// The scales of keys or values, and how many tokens of a page share one.
struct Scales : Cache {
  int64_t group = 1;
};

Scales scales_of(std::string_view name, const TensorView& tensor, DType dtype, const TensorView& rows,
                 const PageTableView& pages, Layout layout, KvScales scales) {
  const bool integer = dtype == DType::int8 || dtype == DType::int4;
  check(scales <= KvScales::token_group, ErrorCode::invalid_argument,
        "{}: kv_scales = {}; allowed are KvScales::none, tensor, head, token and token_group", kOp,
        static_cast<int>(scales));
  check(bits_of(dtype) <= 8 || scales == KvScales::none, ErrorCode::invalid_argument,
        "{}: kv_scales = {} with a cache of {}; only fp8, int8 and int4 are scaled", kOp, to_string(scales),
        to_string(dtype));
  check(!integer || scales != KvScales::none, ErrorCode::invalid_argument,
        "{}: kv_scales = none with a cache of {}; allowed are tensor, head, token and token_group", kOp,
        to_string(dtype));
  if (scales == KvScales::none) {
    check(!tensor, ErrorCode::invalid_argument, "{}: {} is given with kv_scales = none", kOp, name);
    return {};
  }
  check(!tensor || tensor.dtype() == DType::fp32, ErrorCode::invalid_dtype, "{}: {} has dtype {}; fp32 is needed", kOp,
        name, to_string(tensor.dtype()));
  ops::check_memory(kOp, name, tensor);
  const bool token = scales >= KvScales::token;
  const int slots = ops::slot_axis(kOp, layout), heads = 3 - slots;
  const bool grouped = scales == KvScales::token_group && tensor.rank() == 4 && tensor.shape(slots) >= 1;
  check(!grouped || pages.page_size % tensor.shape(slots) == 0, ErrorCode::invalid_shape,
        "{}: {} is {}: {} scales for the {} tokens of a page; groups of equal size are needed", kOp, name,
        shape_string(tensor), tensor.shape(slots), pages.page_size);
  const int64_t group = grouped ? pages.page_size / tensor.shape(slots) : 1;
  const int64_t num_pages = token ? pages.num_pages : 1, per_page = token ? pages.page_size / group : 1,
                num_heads = scales == KvScales::tensor ? 1 : rows.shape(1);
  check(tensor.rank() == 4 && tensor.shape(0) == num_pages && tensor.shape(slots) == per_page &&
            tensor.shape(heads) == num_heads && tensor.shape(3) == 1,
        ErrorCode::invalid_shape, "{}: {} is {}; with kv_scales = {} {} x {} x {} x 1 are needed (axes of the cache)",
        kOp, name, shape_string(tensor), to_string(scales), num_pages, layout == Layout::nhd ? per_page : num_heads,
        layout == Layout::nhd ? num_heads : per_page);
  if (token) check_written(kOp, name, tensor);
  const auto stride = [&](int axis) { return tensor.shape(axis) > 1 ? tensor.stride(axis) : 0; };
  const Scales result{{tensor.as<char>(), stride(0), stride(slots), stride(heads), 32}, group};
  for (int64_t head = 0; !token && head < num_heads; ++head) {
    float scale;
    std::memcpy(&scale, result.at(0, 0, head), sizeof scale);
    check(scale > 0.f && scale <= std::numeric_limits<float>::max(), ErrorCode::invalid_argument,
          "{}: {} is {} for head {}; scales are finite and above 0", kOp, name, scale, head);
  }
  return result;
}

// Keys or values, where they go and how.
struct Side {
  const TensorView& rows;
  Cache cache;
  Scales scales;
  DType dtype;
  bool scale_rows;  // by the largest magnitude of each, or of a group of tokens

  // Rows [row, row + count) to slots of one page from `slot` on, all of one group. `scratch` holds a row.
  void write(const ops::ElementwiseTable& loops, int64_t row, int64_t count, int64_t page, int64_t slot,
             float* scratch) const {
    for (int64_t head = 0; head < rows.shape(1); ++head) {
      const float factor = ops::is_narrow(dtype) ? find_factor(loops, row, count, page, slot, head, scratch) : 1.f;
      for (int64_t i = 0; i < count; ++i) write_row(loops, from(row + i, head), factor, cache.at(page, slot + i, head));
    }
  }

 private:
  const float* from(int64_t row, int64_t head) const {
    return rows.as<float>() + row * rows.stride(0) + head * rows.stride(1);
  }

  void write_row(const ops::ElementwiseTable& loops, const float* x, float factor, char* to) const {
    const int64_t dim = rows.shape(2);
    switch (dtype) {
      case DType::fp32: std::memcpy(to, x, static_cast<size_t>(dim) * sizeof(float)); break;
      case DType::bf16: loops.to_bf16(x, dim, reinterpret_cast<unsigned short*>(to)); break;
      case DType::fp16: loops.to_fp16(x, dim, reinterpret_cast<unsigned short*>(to)); break;
      default: ops::to_narrow(dtype, x, dim, factor, to);
    }
  }

  // What rows are multiplied by. Their scale is written where it is not given; where it outgrows that of the group's
  // tokens before them, these are rounded anew.
  float find_factor(const ops::ElementwiseTable& loops, int64_t row, int64_t count, int64_t page, int64_t slot,
                    int64_t head, float* scratch) const {
    if (scales.data == nullptr) return 1.f;
    char* at = scales.at(page, slot / scales.group, head);
    float old = 0;
    const int64_t first = slot / scales.group * scales.group;
    if (!scale_rows || first < slot) std::memcpy(&old, at, sizeof old);
    if (!scale_rows) return ops::factor_of(old);
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = ops::larger(loops.largest(from(row + i, head), rows.shape(2)), most);
    const float grown = ops::scale_for(dtype, most);
    if (first < slot && grown <= old) return ops::factor_of(old);
    const float scale = old == old ? grown : old;  // NaN stays
    std::memcpy(at, &scale, sizeof scale);
    for (int64_t before = first; before < slot; ++before) {
      char* numbers = cache.at(page, before, head);
      ops::from_narrow(dtype, numbers, rows.shape(2), old, scratch);
      ops::to_narrow(dtype, scratch, rows.shape(2), ops::factor_of(scale), numbers);
    }
    return ops::factor_of(scale);
  }
};

}  // namespace

void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, Stream stream) {
  append_paged_kv(k, v, append_indptr, pages, layout, cache, KvScales::none, stream);
}

void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, KvScales kv_scales,
                     Stream stream) {
  ops::check_fp32(kOp, "k", k, 3, 3);
  ops::check_fp32(kOp, "v", v, 3, 3);
  check(k.shape(0) == v.shape(0) && k.shape(1) == v.shape(1), ErrorCode::invalid_shape,
        "{}: k is {}, v is {}; rows and heads must be equal", kOp, shape_string(k), shape_string(v));
  check(pages.num_pages >= 0, ErrorCode::invalid_argument, "{}: num_pages = {}; 0 or more is needed", kOp,
        pages.num_pages);
  ops::check_requests(kOp, "append_indptr", append_indptr, k.shape(0), pages);
  for (size_t r = 0; r + 1 < append_indptr.size(); ++r) {
    const int64_t count = append_indptr[r + 1] - append_indptr[r];
    if (count > 0)
      ops::check_page_ids(kOp, pages, r, ops::request_of(pages, r).first_page_of_last(count, pages.page_size),
                          pages.num_pages);
  }
  const auto side = [&](std::string_view name, std::string_view scale_name, const TensorView& rows,
                        const TensorView& to, const TensorView& scale) {
    return Side{rows, cache_of(name, to, rows, pages, layout),
                scales_of(scale_name, scale, to.dtype(), rows, pages, layout, kv_scales), to.dtype(),
                kv_scales >= KvScales::token};
  };
  const std::array<Side, 2> sides{side("cache.k", "cache.k_scale", k, cache.k, cache.k_scale),
                                  side("cache.v", "cache.v_scale", v, cache.v, cache.v_scale)};
  const int64_t group = sides[0].scales.group;
  check(sides[1].scales.group == group, ErrorCode::invalid_shape,
        "{}: cache.k_scale has groups of {} tokens, cache.v_scale of {}; they must be equal", kOp, group,
        sides[1].scales.group);
  const ops::ElementwiseTable& loops = ops::elementwise();
  ops::for_rows(stream.team(), k.shape(0), k.shape(1) * (k.shape(2) + v.shape(2)), [&](int64_t begin, int64_t end) {
    size_t request = 0;
    std::vector<float> scratch(group > 1 ? static_cast<size_t>(std::max(k.shape(2), v.shape(2))) : 0);
    for (int64_t row = begin; row < end; ++row) {
      while (append_indptr[request + 1] <= row) ++request;
      const int64_t left = append_indptr[request + 1] - row;
      const ops::PagedRequest own = ops::request_of(pages, request);
      const int64_t token = own.tokens - left, slot = token % pages.page_size;
      // Whoever has a group's first new row writes all of them: they share a scale.
      if (slot % group != 0 && row != append_indptr[request]) continue;
      const int64_t page = own.pages[static_cast<size_t>(token / pages.page_size)];
      const int64_t count = std::min(left, group - slot % group);
      for (const Side& s : sides) s.write(loops, row, count, page, slot, scratch.data());
    }
  });
}

}  // namespace weft
