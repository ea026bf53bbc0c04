#include "attention/plan/prefix_forest.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace weft::planner {
namespace {

// Pages that a request may share: its last one stays its own, as it grows.
int shareable(const Problem& p, int request) {
  return p.qo_len(request) > 0 ? std::max(0, static_cast<int>(pages_of(p, request).size()) - 1) : 0;
}

class Finder {
 public:
  Finder(const Problem& p, int most_depth) : p_(p), most_depth_(most_depth) {
    forest_.order.resize(static_cast<size_t>(p.num_requests));
    std::iota(forest_.order.begin(), forest_.order.end(), 0);
  }
  PrefixForest run() {
    split(0, p_.num_requests, 0, 0, forest_.roots);
    return std::move(forest_);
  }

 private:
  // Nodes among requests [begin, end), which share their first `page` pages.
  void split(int begin, int end, int page, int depth, std::vector<int>& found) {
    std::vector<int32_t>& order = forest_.order;
    const auto key = [&](int32_t r) -> int64_t {
      // One that shares nothing more stands alone, behind the others.
      if (shareable(p_, r) <= page) return (int64_t{1} << 32) + r;
      return pages_of(p_, r)[static_cast<size_t>(page)];
    };
    std::stable_sort(order.begin() + begin, order.begin() + end, [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (int first = begin, last; first < end; first = last) {
      const int64_t own = key(order[static_cast<size_t>(first)]);
      for (last = first + 1; last < end && key(order[static_cast<size_t>(last)]) == own;) ++last;
      if (last - first < 2) continue;
      int common = shareable(p_, order[static_cast<size_t>(first)]);
      const std::span<const int32_t> leader = pages_of(p_, order[static_cast<size_t>(first)]);
      for (int place = first + 1; place < last; ++place) {
        const int32_t r = order[static_cast<size_t>(place)];
        const int most = std::min(common, shareable(p_, r));
        common = static_cast<int>(
            std::mismatch(leader.begin() + page, leader.begin() + most, pages_of(p_, r).begin() + page).first -
            leader.begin());
      }
      const size_t index = forest_.nodes.size();
      forest_.nodes.push_back({first, last, page, common, depth});
      found.push_back(static_cast<int>(index));
      if (depth + 1 == most_depth_) continue;
      std::vector<int> children;
      split(first, last, common, depth + 1, children);
      forest_.nodes[index].children = std::move(children);
    }
  }

  const Problem& p_;
  const int most_depth_;
  PrefixForest forest_;
};

class Taker {
 public:
  Taker(const Problem& p, const SharedPrefixes& prefixes, int most_depth)
      : p_(p), prefixes_(prefixes), most_depth_(most_depth), below_(prefixes.parent.size()) {
    check_prefixes(prefixes, static_cast<size_t>(p.num_requests));
    std::vector<int32_t> alone;
    std::vector<int> roots;
    for (int r = 0; r < p_.num_requests; ++r) {
      const int32_t node = prefixes_.node_of_request[static_cast<size_t>(r)];
      const bool shares = node >= 0 && shareable(p_, r) > 0;
      (shares ? below_[static_cast<size_t>(node)].requests : alone).push_back(r);
    }
    for (int n = static_cast<int>(below_.size()); n-- > 0;) {
      Below& own = below_[static_cast<size_t>(n)];
      own.count += static_cast<int>(own.requests.size());
      const int32_t parent = prefixes_.parent[static_cast<size_t>(n)];
      if (parent >= 0) below_[static_cast<size_t>(parent)].count += own.count;
      (parent >= 0 ? below_[static_cast<size_t>(parent)].children : roots).push_back(n);
    }
    for (const int root : roots) place(root, 0, 0, forest_.roots);
    forest_.order.insert(forest_.order.end(), alone.begin(), alone.end());
  }
  PrefixForest take() { return std::move(forest_); }

 private:
  struct Below {
    std::vector<int32_t> requests;  // of the node itself
    std::vector<int> children;
    int count = 0;  // requests of the whole tree below
  };

  // The requests at and below node n, which share their first `page` pages, behind those that have a place.
  void place(int n, int page, int depth, std::vector<int>& found) {
    const Below* own = &below_[static_cast<size_t>(n)];
    if (own->count < 2 || depth == most_depth_) return place_all(n);
    while (own->requests.empty() && own->children.size() == 1) {  // nobody parts here
      n = own->children[0];
      own = &below_[static_cast<size_t>(n)];
    }
    const size_t index = forest_.nodes.size();
    const auto begin = static_cast<int>(forest_.order.size());
    const int end_page = prefixes_.num_pages[static_cast<size_t>(n)];
    forest_.nodes.push_back({begin, begin + own->count, page, end_page, depth});
    found.push_back(static_cast<int>(index));
    std::vector<int> children;
    for (const int child : own->children) place(child, end_page, depth + 1, children);
    forest_.order.insert(forest_.order.end(), own->requests.begin(), own->requests.end());
    forest_.nodes[index].children = std::move(children);
    check_pages(n, forest_.nodes[index]);
  }
  void place_all(int n) {
    const Below& own = below_[static_cast<size_t>(n)];
    for (const int child : own.children) place_all(child);
    forest_.order.insert(forest_.order.end(), own.requests.begin(), own.requests.end());
  }

  void check_pages(int n, const PrefixNode& node) const {
    const std::span<const int32_t> leader = pages_of(p_, forest_.order[static_cast<size_t>(node.begin)]);
    for (int place = node.begin; place < node.end; ++place) {
      const int32_t r = forest_.order[static_cast<size_t>(place)];
      const std::span<const int32_t> pages = pages_of(p_, r);
      check(shareable(p_, r) >= node.last_page, ErrorCode::invalid_argument,
            "prefixes: node {} has {} pages and request {} below it {}; the last page of a request is its own", n,
            node.last_page, r, pages.size());
      check(
          std::equal(pages.begin() + node.first_page, pages.begin() + node.last_page, leader.begin() + node.first_page),
          ErrorCode::invalid_argument, "prefixes: request {} of node {} has other pages than request {}", r, n,
          forest_.order[static_cast<size_t>(node.begin)]);
    }
  }

  const Problem& p_;
  const SharedPrefixes& prefixes_;
  const int most_depth_;
  std::vector<Below> below_;
  PrefixForest forest_;
};

}  // namespace

std::span<const int32_t> pages_of(const Problem& p, int request) {
  const PageTableView& t = p.levels[0].pages;
  const auto r = static_cast<size_t>(request);
  return t.kv_page_indices.subspan(static_cast<size_t>(t.kv_page_indptr[r]),
                                   static_cast<size_t>(t.kv_page_indptr[r + 1] - t.kv_page_indptr[r]));
}

void check_prefixes(const SharedPrefixes& prefixes, size_t requests) {
  const size_t nodes = prefixes.parent.size();
  check(prefixes.num_pages.size() == nodes && prefixes.node_of_request.size() == requests, ErrorCode::invalid_argument,
        "prefixes: num_pages has {} and node_of_request {} entries for {} nodes and {} requests; give one of each",
        prefixes.num_pages.size(), prefixes.node_of_request.size(), nodes, requests);
  for (size_t n = 0; n < nodes; ++n) {
    const int32_t parent = prefixes.parent[n];
    check(parent >= -1 && parent < static_cast<int32_t>(n), ErrorCode::invalid_argument,
          "prefixes.parent[{}] = {}; allowed are -1 and nodes before it", n, parent);
    const int32_t first = parent < 0 ? 0 : prefixes.num_pages[static_cast<size_t>(parent)];
    check(prefixes.num_pages[n] > first, ErrorCode::invalid_argument,
          "prefixes.num_pages[{}] = {}; it is more than the parent's {}", n, prefixes.num_pages[n], first);
  }
  for (size_t r = 0; r < requests; ++r)
    check(prefixes.node_of_request[r] >= -1 && prefixes.node_of_request[r] < static_cast<int32_t>(nodes),
          ErrorCode::invalid_argument, "prefixes.node_of_request[{}] = {}; allowed are -1 to {}", r,
          prefixes.node_of_request[r], static_cast<int64_t>(nodes) - 1);
}

PrefixForest find_prefixes(const Problem& p, int most_depth) { return Finder(p, most_depth).run(); }

PrefixForest take_prefixes(const Problem& p, const SharedPrefixes& prefixes, int most_depth) {
  return Taker(p, prefixes, most_depth).take();
}

}  // namespace weft::planner
