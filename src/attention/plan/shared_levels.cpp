// Shared leading pages -> levels: choose the nodes of the tree of prefixes that pay, write the arrays.
#include <algorithm>
#include <numeric>

#include "attention/kernel.h"
#include "attention/plan/prefix_forest.h"
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
      result_.levels_.push_back(view_of(result_.arrays_[l], pool_));
    }
    return std::move(result_);
  }

  // What follow() compares.
  static void remember(SharedLevels& levels, std::span<const int32_t> qo_indptr,
                       const std::vector<std::vector<Piece>>& paths) {
    levels.qo_indptr_.assign(qo_indptr.begin(), qo_indptr.end());
    levels.shared_indptr_.assign(1, 0);
    for (const std::vector<Piece>& path : paths) {
      for (size_t i = 0; i + 1 < path.size(); ++i)
        levels.shared_pages_.insert(levels.shared_pages_.end(), path[i].pages.begin(), path[i].pages.end());
      levels.shared_indptr_.push_back(static_cast<int32_t>(levels.shared_pages_.size()));
    }
  }

  static Level view_of(const SharedLevels::Arrays& a, const PageTableView& pool) {
    PageIdsChecked checked;
    if (pool.ids_checked.covers(pool.kv_page_indices, pool.num_pages))
      checked = PageIdsChecked(a.page_indices, pool.num_pages);
    return {a.qo_indptr, {pool.page_size, pool.num_pages, a.page_indptr, a.page_indices, a.last_page_len, checked}};
  }
  static void add_pages(SharedLevels::Arrays& level, std::span<const int32_t> pages, int last_page_len) {
    level.page_indices.insert(level.page_indices.end(), pages.begin(), pages.end());
    level.page_indptr.push_back(static_cast<int32_t>(level.page_indices.size()));
    level.last_page_len.push_back(last_page_len);
  }

 private:
  static void add(SharedLevels::Arrays& level, const Piece& piece, bool joins, int rows) {
    if (joins) {
      level.qo_indptr.back() = rows;
      return;
    }
    level.qo_indptr.push_back(rows);
    add_pages(level, piece.pages, piece.last_page_len);
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

bool SharedLevels::follow(const PlanInput& input) {
  const PageTableView& table = input.pages;
  if (empty() || !std::equal(qo_indptr_.begin(), qo_indptr_.end(), input.qo_indptr.begin(), input.qo_indptr.end()))
    return false;
  const auto pages = [&](size_t r) {
    const auto first = static_cast<size_t>(table.kv_page_indptr[r]);
    return table.kv_page_indices.subspan(first, static_cast<size_t>(table.kv_page_indptr[r + 1]) - first);
  };
  const auto num_shared = [&](size_t r) { return static_cast<size_t>(shared_indptr_[r + 1] - shared_indptr_[r]); };
  if (table.kv_last_page_len.size() != order_.size()) return false;
  for (size_t r = 0; r < order_.size(); ++r) {
    const std::span<const int32_t> now = pages(r);
    const size_t least = num_shared(r) > 0 ? num_shared(r) + 1 : 0;  // a last page of its own behind shared ones
    if (now.size() < least || !std::equal(now.begin(), now.begin() + static_cast<int64_t>(num_shared(r)),
                                          shared_pages_.begin() + shared_indptr_[r]))
      return false;
  }
  Arrays& own = arrays_.back();
  own.page_indptr.assign(1, 0);
  own.page_indices.clear();
  own.last_page_len.clear();
  for (const int32_t request : order_) {
    const auto r = static_cast<size_t>(request);
    LevelBuilder::add_pages(own, pages(r).subspan(num_shared(r)), table.kv_last_page_len[r]);
  }
  levels_.back() = LevelBuilder::view_of(own, table);
  return true;
}

namespace {

// Which nodes of a forest are levels.
class Search {
 public:
  Search(const KernelTraits& traits, const PlanInput& input, const SharedPrefixes* prefixes, PlanBuilder& builder)
      : p_(check_input(traits, input, builder)), thresholds_(traits.thresholds), builder_(builder) {
    check(p_.plain, ErrorCode::invalid_argument, "levels: are given; levels of shared pages are made of plain inputs");
    border_ = p_.mode == PlanMode::fixed_split ? p_.fixed_split_size : 1;
    border_ = std::lcm(border_, int64_t{p_.page_size});
    if (p_.page_size == 0) return;
    forest_ = prefixes != nullptr ? take_prefixes(p_, *prefixes, thresholds_.prefix_tree_depth)
                                  : find_prefixes(p_, thresholds_.prefix_tree_depth);
    choices_.resize(forest_.nodes.size());
  }

  SharedLevels run() {
    if (forest_.roots.empty()) return {};
    // Costs follow the plan's order of rows.
    builder_.tile_kinds = 0;
    p_.plain = false;
    p_.num_levels = 2;
    p_.request_order = forest_.order;
    builder_.row_indptr.assign(1, 0);
    for (const int32_t r : forest_.order) builder_.row_indptr.push_back(builder_.row_indptr.back() + p_.qo_len(r));
    double plain = 0, shared = 0;
    for (int place = 0; place < p_.num_requests; ++place) plain += cost_alone(place, 0);
    int place = 0;
    for (const int root : forest_.roots) {
      for (; place < forest_.nodes[root].begin; ++place) shared += cost_alone(place, 0);
      shared += cost(root, 0);
      place = forest_.nodes[root].end;
    }
    for (; place < p_.num_requests; ++place) shared += cost_alone(place, 0);
    if (shared > thresholds_.shared_cost_at_most * plain) return {};
    const double saving = (plain - shared) * p_.num_kv_heads;  // costs are of one head
    if (saving < thresholds_.least_saving * workers_of(p_, builder_.tile_kinds)) return {};
    return build();
  }

 private:
  // A subtree's least cost when its keys begin at this token, and whether its first node is a level then.
  struct Choice {
    int from;
    double cost;
    bool kept;
  };

  std::span<const int32_t> pages(int place) const { return pages_of(p_, forest_.order[static_cast<size_t>(place)]); }
  int end_of(const PrefixNode& node) const {
    return static_cast<int>(int64_t{node.last_page} * p_.page_size / border_ * border_);
  }
  double cost_alone(int place, int from) {
    const int kv_len = builder_.kv_len[forest_.order[static_cast<size_t>(place)]];
    return cost_of(place, place + 1, from, kv_len);
  }
  double cost_of(int begin, int end, int from, int to) {
    const Entry entry{
        1, builder_.row_indptr[begin], builder_.row_indptr[end], begin, end, 0, p_.num_kv_heads, from, to - from, 0};
    return entry.row_begin == entry.row_end ? 0 : entry_cost(p_, builder_, entry);
  }

  double cost(int index, int from) {
    for (const Choice& choice : choices_[static_cast<size_t>(index)])
      if (choice.from == from) return choice.cost;
    const auto below = [&](int start) {
      double sum = 0;
      int place = forest_.nodes[index].begin;
      for (const int child : forest_.nodes[index].children) {
        for (; place < forest_.nodes[child].begin; ++place) sum += cost_alone(place, start);
        sum += cost(child, start);
        place = forest_.nodes[child].end;
      }
      for (; place < forest_.nodes[index].end; ++place) sum += cost_alone(place, start);
      return sum;
    };
    const PrefixNode& node = forest_.nodes[index];
    Choice choice{from, below(from), false};
    const int to = end_of(node);
    if (to > from) {
      const int rows = (builder_.row_indptr[node.end] - builder_.row_indptr[node.begin]) * p_.group;
      const double kept = cost_of(node.begin, node.end, from, to) + below(to) + thresholds_.merge_row * rows;
      if (kept < choice.cost) choice = {from, kept, true};
    }
    choices_[static_cast<size_t>(index)].push_back(choice);
    return choice.cost;
  }

  SharedLevels build() {
    std::vector<std::vector<Piece>> paths(forest_.order.size());
    std::vector<int> from(forest_.order.size(), 0);  // first page that is in no piece yet, by place
    for (const int root : forest_.roots) take(root, from, paths);
    bool any = false;
    for (int place = 0; place < p_.num_requests; ++place) {
      const auto r = static_cast<size_t>(forest_.order[static_cast<size_t>(place)]);
      any = any || !paths[r].empty();
      // Its own pieces are numbered behind all nodes, so that none joins another.
      paths[r].push_back({static_cast<int>(forest_.nodes.size() + r),
                          pages(place).subspan(static_cast<size_t>(from[place])),
                          p_.levels[0].pages.kv_last_page_len[r]});
    }
    if (!any) return {};
    SharedLevels levels = LevelBuilder(p_.levels[0].pages, forest_.order).build(paths, p_.qo_indptr);
    LevelBuilder::remember(levels, p_.qo_indptr, paths);
    return levels;
  }
  void take(int index, std::vector<int>& from, std::vector<std::vector<Piece>>& paths) {
    const PrefixNode& node = forest_.nodes[index];
    const int start = from[node.begin] * p_.page_size;
    const std::vector<Choice>& choices = choices_[static_cast<size_t>(index)];
    const auto choice = std::find_if(choices.begin(), choices.end(), [&](const Choice& c) { return c.from == start; });
    const auto depth = paths[static_cast<size_t>(forest_.order[static_cast<size_t>(node.begin)])].size();
    if (choice != choices.end() && choice->kept && depth + 2 <= kMaxLevels) {
      const int end = end_of(node) / p_.page_size;
      const std::span<const int32_t> shared =
          pages(node.begin).subspan(static_cast<size_t>(from[node.begin]), static_cast<size_t>(end - from[node.begin]));
      for (int place = node.begin; place < node.end; ++place) {
        paths[static_cast<size_t>(forest_.order[static_cast<size_t>(place)])].push_back({index, shared, p_.page_size});
        from[place] = end;
      }
    }
    for (const int child : node.children) take(child, from, paths);
  }

  Problem p_;
  const PlanThresholds& thresholds_;
  PlanBuilder& builder_;
  PrefixForest forest_;
  std::vector<std::vector<Choice>> choices_;  // of each node
  int64_t border_ = 1;
};

}  // namespace

SharedLevels levels_from_page_tables(const AttentionKernel& kernel, const PlanInput& input) {
  return Planner::shared_levels(kernel.impl().traits, input);
}

SharedLevels levels_from_prefixes(const AttentionKernel& kernel, const PlanInput& input,
                                  const SharedPrefixes& prefixes) {
  return Planner::shared_levels(kernel.impl().traits, input, &prefixes);
}

SharedLevels Planner::shared_levels(const KernelTraits& traits, const PlanInput& input,
                                    const SharedPrefixes* prefixes) {
  return Search(traits, input, prefixes, scratch()).run();
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
