#include "ops/paged.h"

#include <string>

#include "base/check.h"
#include "base/format_tensor.h"
#include "base/index_checks.h"

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
  const std::string of = fmt::format("{}: ", op);
  check(pages.page_size >= 1, ErrorCode::invalid_argument, "{}page_size = {}; 1 or more is needed", of,
        pages.page_size);
  check_indptr(of, name, indptr);
  check(rows < 0 || indptr.back() == rows, ErrorCode::invalid_indptr, "{}{} ends at {}; there are {} tokens", of, name,
        indptr.back(), rows);
  check_indptr(of, "kv_page_indptr", pages.kv_page_indptr);
  const size_t batch = indptr.size() - 1;
  check(pages.kv_page_indptr.size() == batch + 1 && pages.kv_last_page_len.size() == batch &&
            static_cast<size_t>(pages.kv_page_indptr.back()) == pages.kv_page_indices.size(),
        ErrorCode::invalid_indptr,
        "{}for {} requests kv_page_indptr needs {} entries that rise to the {} of kv_page_indices, and "
        "kv_last_page_len {}",
        of, batch, batch + 1, pages.kv_page_indices.size(), batch);
  for (size_t r = 0; r < batch; ++r) {
    const int last = pages.kv_last_page_len[r];
    const bool empty = pages.kv_page_indptr[r] == pages.kv_page_indptr[r + 1];
    check(empty ? last == 0 : last >= 1 && last <= pages.page_size, ErrorCode::invalid_page,
          "{}kv_last_page_len[{}] = {}; allowed are 1 to {}, or 0 without pages", of, r, last, pages.page_size);
    const int64_t count = int64_t{indptr[r + 1]} - indptr[r], tokens = request_of(pages, r).tokens;
    check(count <= tokens, ErrorCode::invalid_indptr,
          "{}{} gives request {} {} tokens, but its pages hold {}; they are to be in the page table first", of, name, r,
          count, tokens);
  }
}

void check_page_ids(std::string_view op, const PageTableView& pages, size_t r, int64_t first, int64_t num_pages) {
  const auto begin = static_cast<size_t>(pages.kv_page_indptr[r] + first);
  const auto ids = pages.kv_page_indices.first(static_cast<size_t>(pages.kv_page_indptr[r + 1]));
  const size_t bad = find_bad_id(ids, begin, num_pages);
  if (bad < ids.size())
    fail(ErrorCode::invalid_page, "{}: kv_page_indices[{}] = {} (request {}); allowed are 0 to {}", op, bad, ids[bad],
         r, num_pages - 1);
}

int slot_axis(std::string_view op, Layout layout) {
  check(layout == Layout::nhd || layout == Layout::hnd, ErrorCode::invalid_argument,
        "{}: layout = {}; Layout::nhd or hnd is needed", op, static_cast<int>(layout));
  return layout == Layout::nhd ? 1 : 2;
}

void check_rows_of_bytes(std::string_view op, std::string_view name, const TensorView& tensor) {
  const int last = tensor.rank() - 1;
  const int64_t bits = bits_of(tensor.dtype());
  check(tensor.shape(last) <= 1 || tensor.stride(last) == 1, ErrorCode::invalid_stride,
        "{}: the last axis of {} has stride {}; 1 is needed", op, name, tensor.stride(last));
  check(tensor.shape(last) * bits % 8 == 0, ErrorCode::invalid_shape, "{}: {} is {}; int4 needs an even last axis", op,
        name, tensor);
  for (int axis = 0; axis < last; ++axis)
    check(tensor.shape(axis) <= 1 || tensor.stride(axis) * bits % 8 == 0, ErrorCode::invalid_stride,
          "{}: {} has stride {} along axis {}; rows of int4 must begin on a byte", op, name, tensor.stride(axis), axis);
}

}  // namespace weft::ops
