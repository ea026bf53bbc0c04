// Page append: new keys and values to the last slots of each request.
#include <array>
#include <cstring>

#include "ops/elementwise.h"
#include "weft/ops.h"

namespace weft {
namespace {

// A cache tensor as [pages][slots][heads][dim] whatever its layout.
struct Cache {
  char* data;
  int64_t page_stride, slot_stride, head_stride;  // elements
  int64_t element_bytes;
  char* at(int64_t page, int64_t slot, int64_t head) const {
    return data + (page * page_stride + slot * slot_stride + head * head_stride) * element_bytes;
  }
};

Cache cache_of(std::string_view name, const TensorView& tensor, const TensorView& rows, const PageTableView& pages,
               Layout layout) {
  constexpr std::string_view kOp = "append_paged_kv";
  check(tensor.dtype() == DType::fp32 || tensor.dtype() == DType::fp16 || tensor.dtype() == DType::bf16,
        ErrorCode::invalid_dtype, "{}: {} has dtype {}; fp32, fp16 and bf16 are supported", kOp, name,
        to_string(tensor.dtype()));
  ops::check_memory(kOp, name, tensor);
  const int slots = layout == Layout::nhd ? 1 : 2, heads = 3 - slots;
  check(tensor.rank() == 4 && tensor.shape(0) == pages.num_pages && tensor.shape(slots) == pages.page_size &&
            tensor.shape(heads) == rows.shape(1) && tensor.shape(3) == rows.shape(2),
        ErrorCode::invalid_shape, "{}: {} is {}; pages {} x page size {} x heads {} x dim {} are needed in {} order",
        kOp, name, shape_string(tensor), pages.num_pages, pages.page_size, rows.shape(1), rows.shape(2),
        layout == Layout::nhd ? "NHD" : "HND");
  check(tensor.shape(3) <= 1 || tensor.stride(3) == 1, ErrorCode::invalid_stride,
        "{}: the last axis of {} has stride {}; 1 is needed", kOp, name, tensor.stride(3));
  return {tensor.as<char>(), tensor.stride(0), tensor.stride(slots), tensor.stride(heads), bits_of(tensor.dtype()) / 8};
}

void check_table(std::span<const int32_t> append_indptr, int64_t rows, const PageTableView& pages) {
  constexpr std::string_view kOp = "append_paged_kv";
  check(pages.page_size >= 1, ErrorCode::invalid_argument, "{}: page_size = {}; 1 or more is needed", kOp,
        pages.page_size);
  check(!append_indptr.empty() && append_indptr.front() == 0 && append_indptr.back() == rows, ErrorCode::invalid_indptr,
        "{}: append_indptr must start at 0 and end at the rows of k, {}", kOp, rows);
  const size_t batch = append_indptr.size() - 1;
  check(pages.kv_page_indptr.size() == batch + 1 && pages.kv_last_page_len.size() == batch, ErrorCode::invalid_indptr,
        "{}: kv_page_indptr has {} and kv_last_page_len {} entries for {} requests; {} and {} are needed", kOp,
        pages.kv_page_indptr.size(), pages.kv_last_page_len.size(), batch, batch + 1, batch);
  check(
      pages.kv_page_indptr[0] == 0 && static_cast<size_t>(pages.kv_page_indptr[batch]) == pages.kv_page_indices.size(),
      ErrorCode::invalid_indptr, "{}: kv_page_indptr must start at 0 and end at the number of kv_page_indices, {}", kOp,
      pages.kv_page_indices.size());
  // Both whole before an id is read: an indptr that rises too far and falls again would lead beyond the indices.
  for (size_t r = 0; r < batch; ++r)
    check(append_indptr[r + 1] >= append_indptr[r] && pages.kv_page_indptr[r + 1] >= pages.kv_page_indptr[r],
          ErrorCode::invalid_indptr, "{}: append_indptr or kv_page_indptr decreases at request {}", kOp, r);
  for (size_t r = 0; r < batch; ++r) {
    const int64_t count = int64_t{append_indptr[r + 1]} - append_indptr[r];
    const int64_t table = int64_t{pages.kv_page_indptr[r + 1]} - pages.kv_page_indptr[r];
    const int last = pages.kv_last_page_len[r];
    check(table == 0 ? last == 0 : last >= 1 && last <= pages.page_size, ErrorCode::invalid_page,
          "{}: kv_last_page_len[{}] = {}; allowed are 1 to {}, or 0 without pages", kOp, r, last, pages.page_size);
    const int64_t length = table == 0 ? 0 : (table - 1) * pages.page_size + last;
    check(count <= length, ErrorCode::invalid_indptr,
          "{}: request {} appends {} tokens, but its pages hold {}; append to the page table first", kOp, r, count,
          length);
    for (int64_t i = (length - count) / pages.page_size; count > 0 && i < table; ++i) {
      const int32_t page = pages.kv_page_indices[static_cast<size_t>(pages.kv_page_indptr[r] + i)];
      check(page >= 0 && page < pages.num_pages, ErrorCode::invalid_page,
            "{}: page {} of request {} is {}; allowed are 0 to {}", kOp, i, r, page, pages.num_pages - 1);
    }
  }
}

}  // namespace

void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, Stream stream) {
  ops::check_fp32("append_paged_kv", "k", k, 3, 3);
  ops::check_fp32("append_paged_kv", "v", v, 3, 3);
  check(k.shape(0) == v.shape(0) && k.shape(1) == v.shape(1), ErrorCode::invalid_shape,
        "append_paged_kv: k is {}, v is {}; rows and heads must be equal", shape_string(k), shape_string(v));
  check_table(append_indptr, k.shape(0), pages);
  struct Side {
    const TensorView& rows;
    Cache cache;
    DType dtype;
  };
  const std::array<Side, 2> sides{Side{k, cache_of("cache.k", cache.k, k, pages, layout), cache.k.dtype()},
                                  Side{v, cache_of("cache.v", cache.v, v, pages, layout), cache.v.dtype()}};
  const ops::ElementwiseTable& loops = ops::elementwise();
  const auto write_row = [&](const Side& side, int64_t row, int64_t page, int64_t slot) {
    const int64_t dim = side.rows.shape(2);
    for (int64_t head = 0; head < side.rows.shape(1); ++head) {
      const float* from = side.rows.as<float>() + row * side.rows.stride(0) + head * side.rows.stride(1);
      char* to = side.cache.at(page, slot, head);
      switch (side.dtype) {
        case DType::bf16: loops.to_bf16(from, dim, reinterpret_cast<unsigned short*>(to)); break;
        case DType::fp16: loops.to_fp16(from, dim, reinterpret_cast<unsigned short*>(to)); break;
        default: std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float)); break;
      }
    }
  };
  ops::for_rows(stream.team(), k.shape(0), k.shape(1) * (k.shape(2) + v.shape(2)), [&](int64_t begin, int64_t end) {
    size_t request = 0;
    for (int64_t row = begin; row < end; ++row) {
      while (append_indptr[request + 1] <= row) ++request;
      const int64_t first_page = pages.kv_page_indptr[request];
      const int64_t length =
          (pages.kv_page_indptr[request + 1] - first_page - 1) * pages.page_size + pages.kv_last_page_len[request];
      const int64_t token = length - (append_indptr[request + 1] - row);
      const int64_t page = pages.kv_page_indices[static_cast<size_t>(first_page + token / pages.page_size)];
      for (const Side& side : sides) write_row(side, row, page, token % pages.page_size);
    }
  });
}

}  // namespace weft
