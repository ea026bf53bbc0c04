// What operators over paged caches share: the requests of a page table and its checks, and where rows of a cache lie.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "weft/attention.h"
#include "weft/tensor.h"

namespace weft::ops {

struct PagedRequest {
  std::span<const int32_t> pages;
  int64_t tokens;
  // Where its last `count` tokens begin, as a number of page.
  int64_t first_page_of_last(int64_t count, int64_t page_size) const { return (tokens - count) / page_size; }
};
PagedRequest request_of(const PageTableView& pages, size_t r);

// `indptr` counts the last tokens of each request, `rows` of them in all (-1: any number). Throws unless it and the
// table agree; ids of pages are not looked at.
void check_requests(std::string_view op, std::string_view name, std::span<const int32_t> indptr, int64_t rows,
                    const PageTableView& pages);
// Throws unless the ids of a request's pages from the first-th on are below num_pages.
void check_page_ids(std::string_view op, const PageTableView& pages, size_t r, int64_t first, int64_t num_pages);

// Which axis of a cache [pages, ...] counts the slots of a page; the other one of 1 and 2 counts heads. Throws for an
// unknown layout.
int slot_axis(std::string_view op, Layout layout);

// Throws unless rows along the last axis lie without gaps, and begin and end on bytes.
void check_rows_of_bytes(std::string_view op, std::string_view name, const TensorView& tensor);

}  // namespace weft::ops
