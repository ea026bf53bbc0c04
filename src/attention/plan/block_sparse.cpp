// Constructors of the block-sparse form.
#include "weft/block_sparse.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace weft {
namespace {

// A request's pages, and the tokens in them.
struct Request {
  std::span<const int32_t> pages;
  int64_t tokens;
  int qo_begin, qo_len;
};

class Requests {
 public:
  Requests(const PageTableView& table, std::span<const int32_t> qo_indptr) : table_(table), qo_indptr_(qo_indptr) {
    check(table.page_size >= 1, ErrorCode::invalid_argument, "pages.page_size = {}; allowed are 1 and more",
          table.page_size);
    check(
        !qo_indptr.empty() && qo_indptr.size() == table.kv_page_indptr.size() &&
            qo_indptr.size() == table.kv_last_page_len.size() + 1,
        ErrorCode::invalid_indptr,
        "qo_indptr: has {} entries, kv_page_indptr {} and kv_last_page_len {}; they have [batch + 1], [batch + 1] and "
        "[batch]",
        qo_indptr.size(), table.kv_page_indptr.size(), table.kv_last_page_len.size());
    const auto rises = [](std::span<const int32_t> indptr) {
      return indptr[0] == 0 && std::is_sorted(indptr.begin(), indptr.end());
    };
    check(rises(qo_indptr) && rises(table.kv_page_indptr) &&
              static_cast<size_t>(table.kv_page_indptr.back()) <= table.kv_page_indices.size(),
          ErrorCode::invalid_indptr,
          "qo_indptr, kv_page_indptr: start at 0, never decrease, and end within kv_page_indices");
  }
  size_t size() const { return qo_indptr_.size() - 1; }
  Request operator[](size_t r) const {
    const auto begin = static_cast<size_t>(table_.kv_page_indptr[r]),
               end = static_cast<size_t>(table_.kv_page_indptr[r + 1]);
    const int64_t pages = static_cast<int64_t>(end - begin);
    return {table_.kv_page_indices.subspan(begin, end - begin),
            pages == 0 ? 0 : (pages - 1) * table_.page_size + table_.kv_last_page_len[r], qo_indptr_[r],
            qo_indptr_[r + 1] - qo_indptr_[r]};
  }
  int longest_query() const {
    int most = 1;
    for (size_t r = 0; r < size(); ++r) most = std::max(most, (*this)[r].qo_len);
    return most;
  }

 private:
  const PageTableView& table_;
  std::span<const int32_t> qo_indptr_;
};

BlockLists empty_lists(const PageTableView& pages, int block_rows) {
  BlockLists lists;
  lists.block_rows = block_rows;
  lists.block_cols = pages.page_size;
  lists.num_blocks = pages.num_pages;
  return lists;
}

// Ends the list that was being written. `last`: its last block's place in the request's pages, -1: it has none.
void end_list(BlockLists& lists, const Request& request, int64_t last) {
  const int64_t tokens = request.tokens - last * lists.block_cols;
  lists.last_block_len.push_back(last < 0 ? 0 : static_cast<int32_t>(std::min<int64_t>(tokens, lists.block_cols)));
  lists.block_indptr.push_back(static_cast<int32_t>(lists.block_indices.size()));
}

void add_block(BlockLists& lists, const Request& request, int64_t place) {
  lists.block_indices.push_back(request.pages[static_cast<size_t>(place)]);
  lists.kv_positions.push_back(static_cast<int32_t>(place * lists.block_cols));
}

// Bottom-right, in the positions of the whole request, which lists need not hold.
void place_queries(BlockLists& lists, const Requests& requests) {
  for (size_t r = 0; r < requests.size(); ++r)
    for (int i = 0; i < requests[r].qo_len; ++i)
      lists.q_positions.push_back(static_cast<int32_t>(requests[r].tokens - requests[r].qo_len + i));
}

}  // namespace

BlockSparse BlockLists::view() const {
  return {block_rows,     block_cols,   num_blocks,  block_indptr, block_indices,
          last_block_len, kv_positions, q_positions, bits_index,   bits};
}

BlockLists blocks_from_page_table(const PageTableView& pages, std::span<const int32_t> qo_indptr) {
  const Requests requests(pages, qo_indptr);
  BlockLists lists = empty_lists(pages, requests.longest_query());
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request request = requests[r];
    if (request.qo_len == 0) continue;
    lists.block_indices.insert(lists.block_indices.end(), request.pages.begin(), request.pages.end());
    end_list(lists, request, static_cast<int64_t>(request.pages.size()) - 1);
  }
  return lists;
}

BlockLists select_pages(const PageTableView& pages, std::span<const int32_t> qo_indptr, int num_kv_heads,
                        std::span<const int32_t> selected, int budget) {
  const Requests requests(pages, qo_indptr);
  check(num_kv_heads >= 1 && budget >= 1 &&
            selected.size() == requests.size() * static_cast<size_t>(num_kv_heads) * static_cast<size_t>(budget),
        ErrorCode::invalid_shape, "selected: has {} entries; it is [batch, num_kv_heads, budget] = [{}, {}, {}]",
        selected.size(), requests.size(), num_kv_heads, budget);
  BlockLists lists = empty_lists(pages, requests.longest_query());
  for (int head = 0; head < num_kv_heads; ++head)
    for (size_t r = 0; r < requests.size(); ++r) {
      const Request request = requests[r];
      if (request.qo_len == 0) continue;
      const auto choice = selected.subspan(
          (r * static_cast<size_t>(num_kv_heads) + static_cast<size_t>(head)) * static_cast<size_t>(budget),
          static_cast<size_t>(budget));
      int64_t last = -1;
      for (size_t i = 0; i < choice.size() && choice[i] >= 0; ++i) {
        check(choice[i] > last && choice[i] < static_cast<int64_t>(request.pages.size()), ErrorCode::invalid_argument,
              "selected[{}, {}, {}] = {} after {}; places in the request's {} pages ascend", r, head, i, choice[i],
              last, request.pages.size());
        last = choice[i];
        add_block(lists, request, last);
      }
      check(last + 1 == static_cast<int64_t>(request.pages.size()), ErrorCode::invalid_argument,
            "selected[{}, {}]: ends with page {} of {}; a choice holds the last one, where the newest tokens are", r,
            head, last, request.pages.size());
      end_list(lists, request, last);
    }
  place_queries(lists, requests);
  return lists;
}

BlockLists pages_to_set(const PageBudget& of) {
  check(of.batch >= 0 && of.qo_len >= 1 && of.page_size >= 1 && of.num_pages >= 1 && of.num_kv_heads >= 1,
        ErrorCode::invalid_argument,
        "pages_to_set: batch = {}, qo_len = {}, page_size = {}, num_pages = {}, num_kv_heads = {}; allowed are 0 and "
        "more, and 1 and more of the others",
        of.batch, of.qo_len, of.page_size, of.num_pages, of.num_kv_heads);
  const int64_t least = (int64_t{of.qo_len} + of.page_size - 2) / of.page_size + 1;
  check(of.budget >= least, ErrorCode::invalid_argument,
        "pages_to_set: budget = {}; {} query tokens may lie in {} pages of {}, which are always chosen", of.budget,
        of.qo_len, least, of.page_size);
  const int64_t lists_of = int64_t{of.num_kv_heads} * of.batch, listed = lists_of * of.budget;
  check(listed <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "pages_to_set: budget = {} for {} lists: {} pages; at most {} are allowed", of.budget, lists_of, listed,
        std::numeric_limits<int32_t>::max());
  BlockLists lists;
  lists.block_rows = of.qo_len;
  lists.block_cols = of.page_size;
  lists.num_blocks = of.num_pages;
  lists.block_indices.assign(static_cast<size_t>(listed), 0);
  lists.last_block_len.assign(static_cast<size_t>(lists_of), of.page_size);
  for (int64_t list = 0; list < lists_of; ++list) {
    lists.block_indptr.push_back(static_cast<int32_t>((list + 1) * of.budget));
    for (int page = 0; page < of.budget; ++page) lists.kv_positions.push_back(page * of.page_size);
  }
  for (int r = 0; r < of.batch; ++r)
    for (int i = 0; i < of.qo_len; ++i) lists.q_positions.push_back(of.budget * of.page_size - of.qo_len + i);
  return lists;
}

BlockLists blocks_from_importance(const PageTableView& pages, std::span<const int32_t> qo_indptr, int block_rows,
                                  std::span<const uint8_t> mask) {
  const Requests requests(pages, qo_indptr);
  check(block_rows >= 1, ErrorCode::invalid_argument, "block_rows = {}; allowed are 1 and more", block_rows);
  BlockLists lists = empty_lists(pages, block_rows);
  size_t at = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request request = requests[r];
    for (int row = 0; row < request.qo_len; row += block_rows, at += request.pages.size()) {
      check(at + request.pages.size() <= mask.size(), ErrorCode::invalid_shape,
            "mask: has {} bytes; request {} alone reaches {}", mask.size(), r, at + request.pages.size());
      int64_t last = -1;
      for (size_t page = 0; page < request.pages.size(); ++page) {
        if (mask[at + page] == 0) continue;
        last = static_cast<int64_t>(page);
        add_block(lists, request, last);
      }
      end_list(lists, request, last);
    }
  }
  place_queries(lists, requests);
  return lists;
}

BlockLists blocks_from_tree(const PageTableView& pages, std::span<const int32_t> qo_indptr,
                            std::span<const int32_t> parent) {
  const Requests requests(pages, qo_indptr);
  check(static_cast<int64_t>(parent.size()) == qo_indptr.back(), ErrorCode::invalid_shape,
        "parent: has {} entries for {} query tokens", parent.size(), qo_indptr.back());
  BlockLists lists = empty_lists(pages, requests.longest_query());
  const int cols = lists.block_cols;
  const size_t bytes = (static_cast<size_t>(lists.block_rows) * static_cast<size_t>(cols) + 7) / 8;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request request = requests[r];
    if (request.qo_len == 0) continue;
    const int64_t context = request.tokens - request.qo_len;
    check(context >= 0, ErrorCode::invalid_argument,
          "request {}: {} tokens in its pages and {} in its tree; the tree's are the last of them", r, request.tokens,
          request.qo_len);
    const auto tree = parent.subspan(static_cast<size_t>(request.qo_begin), static_cast<size_t>(request.qo_len));
    std::vector<int32_t> position(tree.size());
    for (size_t i = 0; i < tree.size(); ++i) {
      check(tree[i] >= -1 && tree[i] < static_cast<int>(i), ErrorCode::invalid_argument,
            "parent[{}] = {}; allowed are -1 and tokens of the request before it, 0 to {}",
            static_cast<size_t>(request.qo_begin) + i, tree[i], static_cast<int64_t>(i) - 1);
      position[i] = tree[i] < 0 ? static_cast<int32_t>(context) : position[static_cast<size_t>(tree[i])] + 1;
      lists.q_positions.push_back(position[i]);
    }
    for (int64_t page = 0; page < static_cast<int64_t>(request.pages.size()); ++page) {
      lists.block_indices.push_back(request.pages[static_cast<size_t>(page)]);
      const int64_t first = page * cols;
      for (int64_t t = first; t < first + cols; ++t)
        lists.kv_positions.push_back(t < context || t >= request.tokens ? static_cast<int32_t>(t)
                                                                        : position[static_cast<size_t>(t - context)]);
      if (first + cols <= context) {
        lists.bits_index.push_back(-1);
        continue;
      }
      // A block with tokens of the tree: the context in it, ancestors and the token itself.
      lists.bits_index.push_back(static_cast<int32_t>(lists.bits.size() / bytes));
      const size_t base = lists.bits.size() * 8;
      lists.bits.resize(lists.bits.size() + bytes, 0);
      const auto show = [&](int row, int64_t t) {
        if (t < first || t >= first + cols) return;
        const size_t bit = base + static_cast<size_t>(row) * static_cast<size_t>(cols) + static_cast<size_t>(t - first);
        lists.bits[bit / 8] = static_cast<uint8_t>(lists.bits[bit / 8] | 1u << bit % 8);
      };
      for (int row = 0; row < request.qo_len; ++row) {
        for (int64_t t = first; t < context; ++t) show(row, t);
        for (int token = row; token >= 0; token = tree[static_cast<size_t>(token)]) show(row, context + token);
      }
    }
    end_list(lists, request, static_cast<int64_t>(request.pages.size()) - 1);
  }
  return lists;
}

}  // namespace weft
