// Page tables of a paged KV cache, and the owner of a pool's pages.
//
//   PageTable pages(page_size, num_pages);
//   PageTable::RequestId request = pages.add();
//   pages.append(request, tokens);
//   Plan plan = kernel.plan(
//       {.num_qo_heads = 32, .num_kv_heads = 8, .qo_indptr = qo_indptr, .pages = pages.view({request})});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

namespace weft {

// Of which ids a PageTable has checked that they are below a number of pages: plan need not look at those again. In a
// view of other ids a copy of it says nothing.
class PageIdsChecked {
 public:
  PageIdsChecked() = default;
  bool covers(std::span<const int32_t> ids, int64_t num_pages) const {
    return ids.data() == ids_.data() && ids.size() <= ids_.size() && num_pages >= num_pages_;
  }

 private:
  friend class PageTable;
  friend class LevelBuilder;  // writes ids of a checked view into those of levels
  PageIdsChecked(std::span<const int32_t> ids, int64_t num_pages) : ids_(ids), num_pages_(num_pages) {}
  std::span<const int32_t> ids_;
  int64_t num_pages_ = 0;
};

// Which pages hold which request's tokens. Token t of request r lies in page
// kv_page_indices[kv_page_indptr[r] + t / page_size], slot t % page_size.
struct PageTableView {
  int page_size = 0;
  int64_t num_pages = 0;                      // of the pool: every index is below it
  std::span<const int32_t> kv_page_indptr;    // [batch + 1]
  std::span<const int32_t> kv_page_indices;   // [kv_page_indptr[batch]]
  std::span<const int32_t> kv_last_page_len;  // [batch], 1..page_size; 0 for a request without pages
  PageIdsChecked ids_checked = {};
};

// Host side owner of a pool's pages: hands them out, shares prefixes, takes them back, and checks each id once.
// Not thread-safe. Requests are named by a handle; a page is free again when the last request has released it and
// nobody else holds it.
class PageTable {
 public:
  using RequestId = int64_t;
  // Throws Error(invalid_argument) unless page_size >= 1 and num_pages >= 0.
  PageTable(int page_size, int64_t num_pages);
  ~PageTable();
  PageTable(PageTable&&) noexcept;
  PageTable& operator=(PageTable&&) noexcept;

  RequestId add();  // an empty request
  // A request that begins with these pages, all of them full: shared with whoever has them. Throws
  // Error(invalid_argument) for a page that is free.
  RequestId add(std::span<const int32_t> pages);
  // A new request that begins with the first `tokens` tokens of `other`: full pages are shared. A last page
  // that is not full gets a page of its own, and its `copied_slots` first slots must be copied by the caller
  // from `source_page` to `target_page` (-1 when nothing is to be copied).
  struct Fork {
    RequestId request;
    int32_t source_page = -1, target_page = -1;
    int copied_slots = 0;
  };
  Fork fork(RequestId other, int64_t tokens);
  // Makes room for `tokens` more. Throws Error(context_full) and changes nothing when the pool is too small, and
  // Error(invalid_argument) when the request was truncated inside a page that another one reads: fork it first.
  void append(RequestId request, int64_t tokens);
  void truncate(RequestId request, int64_t tokens);  // keeps the first `tokens` tokens
  void release(RequestId request);
  // Holds beside those of requests, as of a prefix cache: one more of each page, which is not free then when its
  // requests are gone; unhold ends one of each. Throws Error(invalid_argument) and changes nothing for a page that is
  // free, or that unhold finds without a hold.
  void hold(std::span<const int32_t> pages);
  void unhold(std::span<const int32_t> pages);
  int num_holders(int32_t page) const;  // requests, and holds beside them
  int64_t length(RequestId request) const;
  std::span<const int32_t> pages(RequestId request) const;
  int page_size() const;
  int64_t num_pages() const;
  int64_t num_free_pages() const;
  // Of the free pages those that were never handed out: the pool's last ones. They come in order, after all others.
  int64_t num_fresh_pages() const;
  // The table of these requests, in this order. Valid until the next call that changes the table or asks for a view.
  PageTableView view(std::span<const RequestId> requests);
  PageTableView view(std::initializer_list<RequestId> requests);

 private:
  struct Impl;
  Impl& impl() const;  // throws for an empty one
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
