// Shared leading pages -> levels: find the tree of prefixes, choose the nodes that pay, write the arrays.
#include <algorithm>
#include <limits>
#include <numeric>

#include "attention/kernel.h"
#include "attention/plan/plan_builder.h"
#include "base/check.h"
#include "weft/levels.h"

namespace weft {

using namespace planner;

// One piece of a request's keys.
struct Piece {
  int node;  // pieces of one node are one entry where their requests follow each other; -1: nothing here
  std::span<const int32_t> pages;
  int last_page_len;
};

class LevelBuilder {
 public:
  // `pool` says how large pages are and how many, and whether their ids were checked.
  LevelBuilder(const PageTableView& pool, std::vector<int32_t> order) : pool_(pool) {
    result_.order_ = std::move(order);
  }

  // paths[r]: the pieces of request r. All but the last of them may be shared; the last is in the last level.
  SharedLevels build(const std::vector<std::vector<Piece>>& paths, std::span<const int32_t> qo_indptr) {
    size_t longest = 1;
    for (const std::vector<Piece>& path : paths) longest = std::max(longest, path.size());
    result_.arrays_.resize(longest);
    for (size_t l = 0; l < longest; ++l) {
      int last_node = -2, rows = 0;
      for (const int32_t r : result_.order_) {
        const std::vector<Piece>& path = paths[static_cast<size_t>(r)];
        const bool own = l + 1 == longest;
        const Piece piece = own ? path.back() : l + 1 < path.size() ? path[l] : Piece{-1, {}, 0};
        rows += qo_indptr[static_cast<size_t>(r) + 1] - qo_indptr[static_cast<size_t>(r)];
        add(result_.arrays_[l], piece, piece.node == last_node, rows);
        last_node = piece.node;
      }
      const SharedLevels::Arrays& a = result_.arrays_[l];
      result_.levels_.push_back(
          {a.qo_indptr,
           {pool_.page_size, pool_.num_pages, a.page_indptr, a.page_indices, a.last_page_len, pool_.ids_checked}});
    }
    return std::move(result_);
  }

 private:
  static void add(SharedLevels::Arrays& level, const Piece& piece, bool joins, int rows) {
    if (joins) {
      level.qo_indptr.back() = rows;
      return;
    }
    level.qo_indptr.push_back(rows);
    level.page_indices.insert(level.page_indices.end(), piece.pages.begin(), piece.pages.end());
    level.page_indptr.push_back(static_cast<int32_t>(level.page_indices.size()));
    level.last_page_len.push_back(piece.last_page_len);
  }

  PageTableView pool_;
  SharedLevels result_;
};

PlanInput SharedLevels::apply(const PlanInput& input) const {
  if (empty()) return input;
  PlanInput leveled = input;
  leveled.levels = levels_;
  leveled.request_order = order_;
  leveled.pages = {};
  return leveled;
}

namespace {

// Requests [begin, end) of the order, which share the pages [first_page, last_page).
struct Node {
  int begin, end;
  int first_page, last_page;
  int depth;
  std::vector<int> children = {};
  // Its subtree's least cost when its keys begin at this token, and whether it is a level then.
  struct Choice {
    int from;
    double cost;
    bool kept;
  };
  std::vector<Choice> choices = {};
};

class Search {
 public:
  Search(const KernelTraits& traits, const PlanInput& input, PlanBuilder& builder)
      : p_(check_input(traits, input, builder)), thresholds_(traits.thresholds), builder_(builder) {
    check(p_.plain, ErrorCode::invalid_argument, "levels: are given; levels_from_page_tables finds its own");
    order_.resize(static_cast<size_t>(p_.num_requests));
    std::iota(order_.begin(), order_.end(), 0);
    border_ = p_.mode == PlanMode::fixed_split ? p_.fixed_split_size : 1;
    border_ = std::lcm(border_, int64_t{p_.page_size});
  }

  SharedLevels run() {
    if (p_.page_size == 0) return {};
    split(0, p_.num_requests, 0, 0, roots_);
    if (roots_.empty()) return {};
    // Costs follow the plan's order of rows.
    p_.plain = false;
    p_.num_levels = 2;
    p_.request_order = order_;
    builder_.row_indptr.assign(1, 0);
    for (const int32_t r : order_) builder_.row_indptr.push_back(builder_.row_indptr.back() + p_.qo_len(r));
    double plain = 0, shared = 0;
    for (int place = 0; place < p_.num_requests; ++place) plain += cost_alone(place, 0);
    int place = 0;
    for (const int root : roots_) {
      for (; place < nodes_[root].begin; ++place) shared += cost_alone(place, 0);
      shared += cost(root, 0);
      place = nodes_[root].end;
    }
    for (; place < p_.num_requests; ++place) shared += cost_alone(place, 0);
    if (shared > thresholds_.shared_cost_at_most * plain) return {};
    return build();
  }

 private:
  std::span<const int32_t> pages(int place) const {
    const PageTableView& t = p_.levels[0].pages;
    const int32_t r = order_[static_cast<size_t>(place)];
    return t.kv_page_indices.subspan(static_cast<size_t>(t.kv_page_indptr[r]),
                                     static_cast<size_t>(t.kv_page_indptr[r + 1] - t.kv_page_indptr[r]));
  }
  // Pages that a request may share: its last one stays its own, as it grows.
  int shareable(int place) const {
    const bool attends = p_.qo_len(order_[static_cast<size_t>(place)]) > 0;
    return attends ? std::max(0, static_cast<int>(pages(place).size()) - 1) : 0;
  }

  // Nodes among requests [begin, end), which share their first `page` pages.
  void split(int begin, int end, int page, int depth, std::vector<int>& found) {
    const auto key = [&](int32_t r) -> int64_t {
      const PageTableView& t = p_.levels[0].pages;
      const int64_t own = t.kv_page_indptr[r + 1] - t.kv_page_indptr[r] - 1;
      // One that shares nothing more stands alone, behind the others.
      if (p_.qo_len(r) == 0 || own <= page) return (int64_t{1} << 32) + r;
      return t.kv_page_indices[static_cast<size_t>(t.kv_page_indptr[r] + page)];
    };
    std::stable_sort(order_.begin() + begin, order_.begin() + end,
                     [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (int first = begin, last; first < end; first = last) {
      const int64_t own = key(order_[static_cast<size_t>(first)]);
      for (last = first + 1; last < end && key(order_[static_cast<size_t>(last)]) == own;) ++last;
      if (last - first < 2) continue;
      int common = shareable(first);
      const std::span<const int32_t> leader = pages(first);
      for (int place = first + 1; place < last; ++place) {
        const std::span<const int32_t> other = pages(place);
        const int most = std::min(common, shareable(place));
        common = static_cast<int>(
            std::mismatch(leader.begin() + page, leader.begin() + most, other.begin() + page).first - leader.begin());
      }
      const int index = static_cast<int>(nodes_.size());
      nodes_.push_back({first, last, page, common, depth});
      found.push_back(index);
      if (depth + 1 == thresholds_.prefix_tree_depth) continue;
      std::vector<int> children;
      split(first, last, common, depth + 1, children);
      nodes_[index].children = std::move(children);
    }
  }

  int end_of(const Node& node) const {
    return static_cast<int>(int64_t{node.last_page} * p_.page_size / border_ * border_);
  }
  double cost_alone(int place, int from) {
    const int kv_len = builder_.kv_len[order_[static_cast<size_t>(place)]];
    return cost_of(place, place + 1, from, kv_len);
  }
  double cost_of(int begin, int end, int from, int to) {
    const Entry entry{
        1, builder_.row_indptr[begin], builder_.row_indptr[end], begin, end, 0, p_.num_kv_heads, from, to - from, 0};
    return entry.row_begin == entry.row_end ? 0 : entry_cost(p_, builder_, entry);
  }

  double cost(int index, int from) {
    for (const Node::Choice& choice : nodes_[index].choices)
      if (choice.from == from) return choice.cost;
    const auto below = [&](int start) {
      double sum = 0;
      int place = nodes_[index].begin;
      for (const int child : nodes_[index].children) {
        for (; place < nodes_[child].begin; ++place) sum += cost_alone(place, start);
        sum += cost(child, start);
        place = nodes_[child].end;
      }
      for (; place < nodes_[index].end; ++place) sum += cost_alone(place, start);
      return sum;
    };
    const Node& node = nodes_[index];
    Node::Choice choice{from, below(from), false};
    const int to = end_of(node);
    if (to > from) {
      const int rows = (builder_.row_indptr[node.end] - builder_.row_indptr[node.begin]) * p_.group;
      const double kept = cost_of(node.begin, node.end, from, to) + below(to) + thresholds_.merge_row * rows;
      if (kept < choice.cost) choice = {from, kept, true};
    }
    nodes_[index].choices.push_back(choice);
    return choice.cost;
  }

  SharedLevels build() {
    std::vector<std::vector<Piece>> paths(order_.size());
    std::vector<int> from(order_.size(), 0);  // first page that is in no piece yet, by place
    for (const int root : roots_) take(root, from, paths);
    bool any = false;
    for (int place = 0; place < p_.num_requests; ++place) {
      const auto r = static_cast<size_t>(order_[static_cast<size_t>(place)]);
      any = any || !paths[r].empty();
      // Its own pieces are numbered behind all nodes, so that none joins another.
      paths[r].push_back({static_cast<int>(nodes_.size() + r), pages(place).subspan(static_cast<size_t>(from[place])),
                          p_.levels[0].pages.kv_last_page_len[r]});
    }
    if (!any) return {};
    return LevelBuilder(p_.levels[0].pages, order_).build(paths, p_.qo_indptr);
  }
  void take(int index, std::vector<int>& from, std::vector<std::vector<Piece>>& paths) {
    const Node& node = nodes_[index];
    const int start = from[node.begin] * p_.page_size;
    const auto choice =
        std::find_if(node.choices.begin(), node.choices.end(), [&](const Node::Choice& c) { return c.from == start; });
    const auto depth = paths[static_cast<size_t>(order_[static_cast<size_t>(node.begin)])].size();
    if (choice != node.choices.end() && choice->kept && depth + 2 <= kMaxLevels) {
      const int end = end_of(node) / p_.page_size;
      const std::span<const int32_t> shared =
          pages(node.begin).subspan(static_cast<size_t>(from[node.begin]), static_cast<size_t>(end - from[node.begin]));
      for (int place = node.begin; place < node.end; ++place) {
        paths[static_cast<size_t>(order_[static_cast<size_t>(place)])].push_back({index, shared, p_.page_size});
        from[place] = end;
      }
    }
    for (const int child : node.children) take(child, from, paths);
  }

  Problem p_;
  const PlanThresholds& thresholds_;
  PlanBuilder& builder_;
  std::vector<int32_t> order_;  // requests, those that share pages side by side
  std::vector<Node> nodes_;
  std::vector<int> roots_;
  int64_t border_ = 1;
};

}  // namespace

SharedLevels levels_from_page_tables(const AttentionKernel& kernel, const PlanInput& input) {
  return Planner::shared_levels(kernel.impl().traits, input);
}

SharedLevels Planner::shared_levels(const KernelTraits& traits, const PlanInput& input) {
  static thread_local PlanBuilder builder;
  return Search(traits, input, builder).run();
}

SharedLevels levels_from_prefix_tree(const PrefixTree& tree, std::span<const int32_t> qo_indptr) {
  const size_t nodes = tree.parent.size(), batch = tree.node_of_request.size();
  check(qo_indptr.size() == batch + 1, ErrorCode::invalid_indptr,
        "qo_indptr: has {} entries for {} requests of the tree; it has one more than requests", qo_indptr.size(),
        batch);
  check(tree.page_indptr.size() == nodes + 1 && tree.last_page_len.size() == nodes, ErrorCode::invalid_indptr,
        "tree: page_indptr has {} and last_page_len {} entries for {} nodes; give nodes + 1 and nodes",
        tree.page_indptr.size(), tree.last_page_len.size(), nodes);
  for (size_t n = 0; n < nodes; ++n) {
    check(tree.parent[n] >= -1 && tree.parent[n] < static_cast<int>(n), ErrorCode::invalid_argument,
          "tree.parent[{}] = {}; allowed are -1 and nodes before it", n, tree.parent[n]);
    check(tree.page_indptr[n] >= 0 && tree.page_indptr[n] <= tree.page_indptr[n + 1] &&
              static_cast<size_t>(tree.page_indptr[n + 1]) <= tree.page_indices.size(),
          ErrorCode::invalid_indptr, "tree.page_indptr[{}] = {} after {}; it rises to at most {} page indices", n + 1,
          tree.page_indptr[n + 1], tree.page_indptr[n], tree.page_indices.size());
  }
  const auto piece = [&](int n) -> Piece {
    const auto begin = static_cast<size_t>(tree.page_indptr[n]), end = static_cast<size_t>(tree.page_indptr[n + 1]);
    return {n, tree.page_indices.subspan(begin, end - begin), tree.last_page_len[n]};
  };
  std::vector<std::vector<Piece>> paths(batch);
  for (size_t r = 0; r < batch; ++r) {
    const int own = tree.node_of_request[r];
    check(own >= 0 && own < static_cast<int>(nodes), ErrorCode::invalid_argument,
          "tree.node_of_request[{}] = {}; allowed are 0 to {}", r, own, static_cast<int64_t>(nodes) - 1);
    for (int n = own; n >= 0; n = tree.parent[n]) paths[r].insert(paths[r].begin(), piece(n));
    check(paths[r].size() <= kMaxLevels, ErrorCode::unsupported,
          "tree: required {} levels for request {}; supported {}; missing: room for more, join nodes", paths[r].size(),
          r, kMaxLevels);
  }
  // By path, so that the requests of a node stand side by side.
  std::vector<int32_t> order(batch);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const std::vector<Piece>&x = paths[static_cast<size_t>(a)], &y = paths[static_cast<size_t>(b)];
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(),
                                        [](const Piece& i, const Piece& j) { return i.node < j.node; });
  });
  if (batch == 0) return {};
  PageTableView pool;
  pool.page_size = tree.page_size;
  pool.num_pages = tree.num_pages;
  return LevelBuilder(pool, std::move(order)).build(paths, qo_indptr);
}

}  // namespace weft
