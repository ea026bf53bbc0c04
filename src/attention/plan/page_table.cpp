// PageTable: pages of a pool, counted by the requests and others that hold them.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "weft/attention.h"

namespace weft {

struct PageTable::Impl {
  struct Request {
    std::vector<int32_t> pages;
    int64_t tokens = 0;
  };

  int page_size;
  int64_t num_pages;
  // Memory grows with the pages in use, not with the pool: those from references.size() on were never handed out.
  std::vector<int32_t> references;
  std::vector<int32_t> holds;  // of the references those that belong to no request; perhaps shorter
  std::vector<int32_t> free;   // of the others; the last one is handed out next
  std::unordered_map<RequestId, Request> requests;
  RequestId next_id = 0;  // handles are never used twice
  // What view() points to.
  std::vector<int32_t> indptr, indices, last_page_len;

  Request& at(RequestId id, const char* what) {
    const auto found = requests.find(id);
    if (found == requests.end()) [[unlikely]]
      unknown(id, what);
    return found->second;
  }
  [[noreturn]] void unknown(RequestId id, const char* what) const {
    if (id >= 0 && id < next_id)
      fail(ErrorCode::invalid_argument, "{}: request {} was released; a handle ends with its release", what, id);
    fail(ErrorCode::invalid_argument, "{}: no request has the handle {}; use what add() or fork() returned", what, id);
  }
  bool in_use(int32_t page) const {
    return page >= 0 && static_cast<size_t>(page) < references.size() && references[static_cast<size_t>(page)] > 0;
  }
  void check_in_use(std::span<const int32_t> pages, const char* what) const {
    for (size_t i = 0; i < pages.size(); ++i)
      check(in_use(pages[i]), ErrorCode::invalid_argument,
            "{}: pages[{}] = {} is free, or no page of the pool of {}; give pages of requests that live", what, i,
            pages[i], num_pages);
  }
  int64_t pages_for(int64_t tokens) const { return tokens / page_size + (tokens % page_size != 0); }
  int64_t num_free() const { return num_fresh() + static_cast<int64_t>(free.size()); }
  int64_t num_fresh() const { return num_pages - static_cast<int64_t>(references.size()); }
  // For `count` pages, so that neither taking them nor giving any back can fail.
  void make_room(int64_t count) {
    const size_t fresh = static_cast<size_t>(std::max<int64_t>(count - static_cast<int64_t>(free.size()), 0));
    const size_t pages = references.size() + fresh;
    if (pages <= free.capacity() && pages <= references.capacity()) return;
    const size_t room = std::max(pages, 2 * references.size());
    references.reserve(room);
    free.reserve(room);
  }
  int32_t take() noexcept {
    if (free.empty()) {
      references.push_back(1);
      return static_cast<int32_t>(references.size() - 1);
    }
    const int32_t page = free.back();
    free.pop_back();
    references[static_cast<size_t>(page)] = 1;
    return page;
  }
  void give_back(int32_t page) noexcept {
    if (--references[static_cast<size_t>(page)] == 0) free.push_back(page);
  }
  void shrink(Request& request, int64_t pages) noexcept {
    while (static_cast<int64_t>(request.pages.size()) > pages) {
      give_back(request.pages.back());
      request.pages.pop_back();
    }
  }
};

PageTable::PageTable(int page_size, int64_t num_pages) {
  check(page_size >= 1, ErrorCode::invalid_argument, "page_size = {}; allowed are 1 and more", page_size);
  check(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "num_pages = {}; allowed are 0 to {}", num_pages, std::numeric_limits<int32_t>::max());
  impl_ = std::make_unique<Impl>();
  impl_->page_size = page_size;
  impl_->num_pages = num_pages;
}

PageTable::~PageTable() = default;
PageTable::PageTable(PageTable&&) noexcept = default;
PageTable& PageTable::operator=(PageTable&&) noexcept = default;

PageTable::Impl& PageTable::impl() const { return held(impl_, "page table", "PageTable(page_size, num_pages)"); }

PageTable::RequestId PageTable::add() {
  Impl& impl = this->impl();
  impl.requests.try_emplace(impl.next_id);
  return impl.next_id++;
}

PageTable::RequestId PageTable::add(std::span<const int32_t> pages) {
  Impl& impl = this->impl();
  impl.check_in_use(pages, "add");
  Impl::Request request{{pages.begin(), pages.end()}, static_cast<int64_t>(pages.size()) * impl.page_size};
  impl.requests.try_emplace(impl.next_id, std::move(request));
  // From here on nothing throws.
  for (const int32_t page : pages) ++impl.references[static_cast<size_t>(page)];
  return impl.next_id++;
}

void PageTable::hold(std::span<const int32_t> pages) {
  Impl& impl = this->impl();
  impl.check_in_use(pages, "hold");
  impl.holds.resize(impl.references.size());
  for (const int32_t page : pages) {
    ++impl.references[static_cast<size_t>(page)];
    ++impl.holds[static_cast<size_t>(page)];
  }
}

void PageTable::unhold(std::span<const int32_t> pages) {
  Impl& impl = this->impl();
  for (size_t i = 0; i < pages.size(); ++i) {
    const int32_t page = pages[i];
    if (page >= 0 && static_cast<size_t>(page) < impl.holds.size() && impl.holds[static_cast<size_t>(page)] > 0) {
      --impl.holds[static_cast<size_t>(page)];
      continue;
    }
    for (size_t j = 0; j < i; ++j) ++impl.holds[static_cast<size_t>(pages[j])];
    fail(ErrorCode::invalid_argument, "unhold: pages[{}] = {} has no hold left; give pages that hold() was given", i,
         page);
  }
  for (const int32_t page : pages) impl.give_back(page);
}

int PageTable::num_holders(int32_t page) const {
  const Impl& impl = this->impl();
  return impl.in_use(page) ? impl.references[static_cast<size_t>(page)] : 0;
}

PageTable::Fork PageTable::fork(RequestId other, int64_t tokens) {
  Impl& impl = this->impl();
  const Impl::Request& source = impl.at(other, "fork");
  check(tokens >= 0 && tokens <= source.tokens, ErrorCode::invalid_argument,
        "fork: {} tokens of request {}; allowed are 0 to its {}", tokens, other, source.tokens);
  const int64_t shared = tokens / impl.page_size;
  const auto copied = static_cast<int>(tokens % impl.page_size);
  check(copied == 0 || impl.num_free() > 0, ErrorCode::context_full,
        "fork: {} tokens end inside a page, and the pool of {} pages has no free one for the copy; release requests or "
        "fork at a multiple of the page size {}",
        tokens, impl.num_pages, impl.page_size);
  impl.make_room(copied != 0);
  Impl::Request request;
  request.pages.reserve(static_cast<size_t>(shared) + (copied != 0));
  request.pages.assign(source.pages.begin(), source.pages.begin() + shared);
  request.tokens = tokens;
  Fork result{impl.next_id, -1, -1, 0};
  const int32_t source_page = copied != 0 ? source.pages[static_cast<size_t>(shared)] : -1;
  const auto placed = impl.requests.try_emplace(impl.next_id, std::move(request)).first;
  // From here on nothing throws.
  ++impl.next_id;
  for (const int32_t page : placed->second.pages) ++impl.references[static_cast<size_t>(page)];
  if (copied != 0) {
    result.source_page = source_page;
    result.target_page = impl.take();
    result.copied_slots = copied;
    placed->second.pages.push_back(result.target_page);
  }
  return result;
}

void PageTable::append(RequestId id, int64_t tokens) {
  Impl& impl = this->impl();
  Impl::Request& request = impl.at(id, "append");
  check(tokens >= 0, ErrorCode::invalid_argument, "append: {} tokens; allowed are 0 and more", tokens);
  check(tokens == 0 || request.tokens % impl.page_size == 0 ||
            impl.references[static_cast<size_t>(request.pages.back())] == 1,
        ErrorCode::invalid_argument,
        "append: request {} was truncated to {} tokens, inside a page that another request reads; fork(request, {}) "
        "makes one with a page of its own, append to that one",
        id, request.tokens, request.tokens);
  const int64_t slots = num_pages() * impl.page_size;
  const bool beyond = tokens > slots - std::min(slots, request.tokens);  // a request never outgrows the whole pool
  const int64_t needed =
      beyond ? 0 : impl.pages_for(request.tokens + tokens) - static_cast<int64_t>(request.pages.size());
  check(!beyond && needed <= num_free_pages(), ErrorCode::context_full,
        "append: {} tokens to the {} of request {} need more than the {} free pages of {} tokens; release or truncate "
        "requests, or make a larger pool",
        tokens, request.tokens, id, num_free_pages(), impl.page_size);
  request.pages.reserve(request.pages.size() + static_cast<size_t>(needed));
  impl.make_room(needed);
  for (int64_t i = 0; i < needed; ++i) request.pages.push_back(impl.take());
  request.tokens += tokens;
}

void PageTable::truncate(RequestId id, int64_t tokens) {
  Impl& impl = this->impl();
  Impl::Request& request = impl.at(id, "truncate");
  check(tokens >= 0 && tokens <= request.tokens, ErrorCode::invalid_argument,
        "truncate: to {} tokens; allowed are 0 to the {} of request {}", tokens, request.tokens, id);
  impl.shrink(request, impl.pages_for(tokens));
  request.tokens = tokens;
}

void PageTable::release(RequestId id) {
  Impl& impl = this->impl();
  impl.shrink(impl.at(id, "release"), 0);
  impl.requests.erase(id);
}

int64_t PageTable::length(RequestId id) const { return impl().at(id, "length").tokens; }
std::span<const int32_t> PageTable::pages(RequestId id) const { return impl().at(id, "pages").pages; }
int PageTable::page_size() const { return impl().page_size; }
int64_t PageTable::num_pages() const { return impl().num_pages; }
int64_t PageTable::num_free_pages() const { return impl().num_free(); }
int64_t PageTable::num_fresh_pages() const { return impl().num_fresh(); }

PageTableView PageTable::view(std::span<const RequestId> requests) {
  Impl& impl = this->impl();
  size_t total = 0;
  for (const RequestId id : requests) total += impl.at(id, "view").pages.size();
  check(total <= static_cast<size_t>(std::numeric_limits<int32_t>::max()), ErrorCode::invalid_argument,
        "view: {} pages in one table; plan fewer requests at once", total);
  impl.indptr.resize(requests.size() + 1);
  impl.indices.resize(total);
  impl.last_page_len.resize(requests.size());
  impl.indptr[0] = 0;
  int32_t* out = impl.indices.data();
  for (size_t r = 0; r < requests.size(); ++r) {
    const Impl::Request& request = impl.at(requests[r], "view");
    out = std::copy(request.pages.begin(), request.pages.end(), out);
    impl.indptr[r + 1] = static_cast<int32_t>(out - impl.indices.data());
    impl.last_page_len[r] = request.tokens == 0 ? 0 : static_cast<int32_t>((request.tokens - 1) % impl.page_size + 1);
  }
  return {impl.page_size, num_pages(),        impl.indptr,
          impl.indices,   impl.last_page_len, PageIdsChecked(impl.indices, num_pages())};
}

PageTableView PageTable::view(std::initializer_list<RequestId> requests) {
  return view(std::span<const RequestId>(requests.begin(), requests.size()));
}

}  // namespace weft
