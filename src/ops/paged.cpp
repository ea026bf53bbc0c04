#include "ops/paged.h"

#include <algorithm>

#include "base/check.h"

namespace weft::ops {

PagedRequest request_of(const PageTableView& pages, size_t r) {
  const auto begin = static_cast<size_t>(pages.kv_page_indptr[r]),
             end = static_cast<size_t>(pages.kv_page_indptr[r + 1]);
  const auto count = static_cast<int64_t>(end - begin);
  return {pages.kv_page_indices.subspan(begin, end - begin),
          count == 0 ? 0 : (count - 1) * pages.page_size + pages.kv_last_page_len[r]};
}

void check_requests(std::string_view op, std::string_view name, std::span<const int32_t> indptr, int64_t rows,
                    const PageTableView& pages) {
  check(pages.page_size >= 1, ErrorCode::invalid_argument, "{}: page_size = {}; 1 or more is needed", op,
        pages.page_size);
  check(!indptr.empty() && indptr.front() == 0 && (rows < 0 || indptr.back() == rows) &&
            std::is_sorted(indptr.begin(), indptr.end()),
        ErrorCode::invalid_indptr, "{}: {} must start at 0, never decrease and end at the number of tokens{}", op, name,
        rows < 0 ? "" : fmt::format(", {}", rows));
  const size_t batch = indptr.size() - 1;
  check(pages.kv_page_indptr.size() == batch + 1 && pages.kv_last_page_len.size() == batch &&
            pages.kv_page_indptr.front() == 0 &&
            std::is_sorted(pages.kv_page_indptr.begin(), pages.kv_page_indptr.end()) &&
            static_cast<size_t>(pages.kv_page_indptr.back()) == pages.kv_page_indices.size(),
        ErrorCode::invalid_indptr,
        "{}: for {} requests kv_page_indptr needs {} entries that rise from 0 to the {} of kv_page_indices, and "
        "kv_last_page_len {}",
        op, batch, batch + 1, pages.kv_page_indices.size(), batch);
  for (size_t r = 0; r < batch; ++r) {
    const int last = pages.kv_last_page_len[r];
    const bool empty = pages.kv_page_indptr[r] == pages.kv_page_indptr[r + 1];
    check(empty ? last == 0 : last >= 1 && last <= pages.page_size, ErrorCode::invalid_page,
          "{}: kv_last_page_len[{}] = {}; allowed are 1 to {}, or 0 without pages", op, r, last, pages.page_size);
    const int64_t count = int64_t{indptr[r + 1]} - indptr[r], tokens = request_of(pages, r).tokens;
    check(count <= tokens, ErrorCode::invalid_indptr,
          "{}: {} gives request {} {} tokens, but its pages hold {}; they are to be in the page table first", op, name,
          r, count, tokens);
  }
}

void check_page_ids(std::string_view op, const PageTableView& pages, size_t r, int64_t first, int64_t num_pages) {
  const PagedRequest request = request_of(pages, r);
  for (size_t i = static_cast<size_t>(first); i < request.pages.size(); ++i)
    check(request.pages[i] >= 0 && request.pages[i] < num_pages, ErrorCode::invalid_page,
          "{}: kv_page_indices[{}] = {} (request {}); allowed are 0 to {}", op,
          static_cast<size_t>(pages.kv_page_indptr[r]) + i, request.pages[i], r, num_pages - 1);
}

void check_rows_of_bytes(std::string_view op, std::string_view name, const TensorView& tensor) {
  const int last = tensor.rank() - 1;
  const int64_t bits = bits_of(tensor.dtype());
  check(tensor.shape(last) <= 1 || tensor.stride(last) == 1, ErrorCode::invalid_stride,
        "{}: the last axis of {} has stride {}; 1 is needed", op, name, tensor.stride(last));
  check(tensor.shape(last) * bits % 8 == 0, ErrorCode::invalid_shape, "{}: {} is {}; int4 needs an even last axis", op,
        name, shape_string(tensor));
  for (int axis = 0; axis < last; ++axis)
    check(tensor.shape(axis) <= 1 || tensor.stride(axis) * bits % 8 == 0, ErrorCode::invalid_stride,
          "{}: {} has stride {} along axis {}; rows of int4 must begin on a byte", op, name, tensor.stride(axis), axis);
}

}  // namespace weft::ops
