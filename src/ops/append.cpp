// Page append: its arguments, whatever the device.
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/format_tensor.h"
#include "ops/backend.h"
#include "ops/elementwise.h"
#include "ops/paged.h"
#include "weft/ops.h"

namespace weft {
namespace {

using ops::CacheRows;

constexpr std::string_view kOp = "append_paged_kv";

CacheRows cache_of(std::string_view name, const TensorView& tensor, const TensorView& rows, const PageTableView& pages,
                   Layout layout, Device device) {
  const DType dtype = tensor.dtype();
  check(dtype <= DType::int4, ErrorCode::invalid_dtype,
        "{}: {} has dtype {}; fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8 and int4 are supported", kOp, name,
        to_string(dtype));
  ops::check_memory(kOp, name, tensor, device);
  const int slots = ops::slot_axis(kOp, layout), heads = 3 - slots;
  check(tensor.rank() == 4 && tensor.shape(0) == pages.num_pages && tensor.shape(slots) == pages.page_size &&
            tensor.shape(heads) == rows.shape(1) && tensor.shape(3) == rows.shape(2),
        ErrorCode::invalid_shape, "{}: {} is {}; pages {} x page size {} x heads {} x dim {} are needed in {} order",
        kOp, name, tensor, pages.num_pages, pages.page_size, rows.shape(1), rows.shape(2),
        layout == Layout::nhd ? "NHD" : "HND");
  ops::check_rows_of_bytes(kOp, name, tensor);
  check_written(kOp, name, tensor);
  return {tensor.as<char>(), tensor.stride(0), tensor.stride(slots), tensor.stride(heads), bits_of(dtype)};
}

// The scales of a side, and how many tokens of a page share one.
std::pair<CacheRows, int64_t> scales_of(std::string_view name, const TensorView& tensor, DType dtype,
                                        const TensorView& rows, const PageTableView& pages, Layout layout,
                                        KvScales scales, Device device) {
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
    return {{}, 1};
  }
  check(!tensor || tensor.dtype() == DType::fp32, ErrorCode::invalid_dtype, "{}: {} has dtype {}; fp32 is needed", kOp,
        name, to_string(tensor.dtype()));
  ops::check_memory(kOp, name, tensor, device);
  const bool token = scales >= KvScales::token;
  const int slots = ops::slot_axis(kOp, layout), heads = 3 - slots;
  const bool grouped = scales == KvScales::token_group && tensor.rank() == 4 && tensor.shape(slots) >= 1;
  check(!grouped || pages.page_size % tensor.shape(slots) == 0, ErrorCode::invalid_shape,
        "{}: {} is {}: {} scales for the {} tokens of a page; groups of equal size are needed", kOp, name, tensor,
        tensor.shape(slots), pages.page_size);
  const int64_t group = grouped ? pages.page_size / tensor.shape(slots) : 1;
  const int64_t num_pages = token ? pages.num_pages : 1, per_page = token ? pages.page_size / group : 1,
                num_heads = scales == KvScales::tensor ? 1 : rows.shape(1);
  check(tensor.rank() == 4 && tensor.shape(0) == num_pages && tensor.shape(slots) == per_page &&
            tensor.shape(heads) == num_heads && tensor.shape(3) == 1,
        ErrorCode::invalid_shape, "{}: {} is {}; with kv_scales = {} {} x {} x {} x 1 are needed (axes of the cache)",
        kOp, name, tensor, to_string(scales), num_pages, layout == Layout::nhd ? per_page : num_heads,
        layout == Layout::nhd ? num_heads : per_page);
  if (token) check_written(kOp, name, tensor);
  const auto stride = [&](int axis) { return tensor.shape(axis) > 1 ? tensor.stride(axis) : 0; };
  const CacheRows result{tensor.as<char>(), stride(0), stride(slots), stride(heads), 32};
  // What lies on a card is not looked at: a scale that is 0 or less writes zeros there.
  for (int64_t head = 0; !token && device == Device::cpu() && head < num_heads; ++head) {
    float scale;
    std::memcpy(&scale, result.at(0, 0, head), sizeof scale);
    check(scale > 0.f && scale <= std::numeric_limits<float>::max(), ErrorCode::invalid_argument,
          "{}: {} is {} for head {}; scales are finite and above 0", kOp, name, scale, head);
  }
  return {result, group};
}

}  // namespace

void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, Stream stream) {
  append_paged_kv(k, v, append_indptr, pages, layout, cache, KvScales::none, stream);
}

namespace {

// Both sides, checked; of `pages` the pool's extents.
ops::AppendCall call_of(const TensorView& k, const TensorView& v, const PageTableView& pages, Layout layout,
                        const KvCache& cache, KvScales kv_scales, Device device) {
  const auto side = [&](std::string_view name, std::string_view scale_name, const TensorView& rows,
                        const TensorView& to, const TensorView& scale) {
    const CacheRows cache_rows = cache_of(name, to, rows, pages, layout, device);
    const auto [scales, group] = scales_of(scale_name, scale, to.dtype(), rows, pages, layout, kv_scales, device);
    return ops::AppendSide{rows, cache_rows, scales, group, to.dtype()};
  };
  ops::AppendCall call{.sides = {side("cache.k", "cache.k_scale", k, cache.k, cache.k_scale),
                                 side("cache.v", "cache.v_scale", v, cache.v, cache.v_scale)},
                       .append_indptr = {},
                       .pages = pages,
                       .places = {},
                       .kv_scales = kv_scales};
  check(call.sides[0].group == call.sides[1].group, ErrorCode::invalid_shape,
        "{}: cache.k_scale has groups of {} tokens, cache.v_scale of {}; they must be equal", kOp, call.sides[0].group,
        call.sides[1].group);
  return call;
}

Device check_rows(const TensorView& k, const TensorView& v, Stream stream) {
  const Device device = ops::device_of(k);
  ops::check_fp32(kOp, "k", k, 3, 3, device);
  ops::check_fp32(kOp, "v", v, 3, 3, device);
  ops::check_stream(kOp, stream, device);
  check(k.shape(0) == v.shape(0) && k.shape(1) == v.shape(1), ErrorCode::invalid_shape,
        "{}: k is {}, v is {}; rows and heads must be equal", kOp, k, v);
  return device;
}

}  // namespace

void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, KvScales kv_scales,
                     Stream stream) {
  const Device device = check_rows(k, v, stream);
  check(pages.num_pages >= 0, ErrorCode::invalid_argument, "{}: num_pages = {}; 0 or more is needed", kOp,
        pages.num_pages);
  ops::check_requests(kOp, "append_indptr", append_indptr, k.shape(0), pages);
  for (size_t r = 0; r + 1 < append_indptr.size(); ++r) {
    const int64_t count = append_indptr[r + 1] - append_indptr[r];
    if (count > 0)
      ops::check_page_ids(kOp, pages, r, ops::request_of(pages, r).first_page_of_last(count, pages.page_size),
                          pages.num_pages);
  }
  ops::AppendCall call = call_of(k, v, pages, layout, cache, kv_scales, device);
  call.append_indptr = append_indptr;
  ops::backend_of(kOp, device).append(call, stream);
}

void append_paged_kv(const TensorView& k, const TensorView& v, const TensorView& places, Layout layout,
                     const KvCache& cache, KvScales kv_scales, Stream stream) {
  const Device device = check_rows(k, v, stream);
  check(device.kind == DeviceKind::cuda, ErrorCode::unsupported,
        "{}: required places on {}, supported on cards, missing on CPUs; give append_indptr and pages", kOp,
        to_string(device));
  check(!places || places.dtype() == DType::int32, ErrorCode::invalid_dtype, "{}: places has dtype {}; int32 is needed",
        kOp, to_string(places.dtype()));
  ops::check_memory(kOp, "places", places, device);
  check(places.rank() == 2 && places.shape(0) == k.shape(0) && places.shape(1) == 2, ErrorCode::invalid_shape,
        "{}: places is {}; page and slot of each of {} rows are needed", kOp, places, k.shape(0));
  check(places.shape(0) == 0 || (places.stride(1) == 1 && (places.shape(0) == 1 || places.stride(0) == 2)),
        ErrorCode::invalid_stride, "{}: places must lie together", kOp);
  check(cache.k && cache.k.rank() == 4, ErrorCode::invalid_shape, "{}: cache.k is {}; pages of rank 4 are needed", kOp,
        cache.k ? shape_string(cache.k) : "missing");
  PageTableView pages;
  pages.num_pages = cache.k.shape(0);
  pages.page_size = static_cast<int>(cache.k.shape(ops::slot_axis(kOp, layout)));
  ops::AppendCall call = call_of(k, v, pages, layout, cache, kv_scales, device);
  call.places = places;
  ops::backend_of(kOp, device).append(call, stream);
}

}  // namespace weft
