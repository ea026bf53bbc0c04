// A work item as the kernels walk it: which rows see which keys, tile by tile, and where those keys lie.
#pragma once

#include "attention/cpu/kernels/core.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Cuts scratch memory into arrays, each on its own cache line. With a null base it only counts.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* allocate(long long n) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (n * static_cast<long long>(sizeof(T)) + 63) / 64 * 64;
    return p;
  }
  long long bytes() const { return bytes_; }

 private:
  char* base_;
  long long bytes_ = 0;
};

// The positions that one query token sees: [lower[0], upper[0]) and [lower[1], upper[1]); an empty one is [0, 0).
struct Seen {
  int lower[2], upper[2];
};

inline bool sees(const Seen& seen, int pos) {
  return (pos >= seen.lower[0] && pos < seen.upper[0]) || (pos >= seen.lower[1] && pos < seen.upper[1]);
}

inline int evaluate(const BoundTerm& term, int q_pos, int kv_len, int low, int high) {
  const long long value = static_cast<long long>(term.q_pos ? q_pos : 0) + (term.kv_len ? kv_len : 0) + term.constant;
  return static_cast<int>(value < low ? low : value > high ? high : value);
}

inline Seen seen_by(const PlanHeader& plan, int q_pos, int kv_len) {
  if (plan.num_intervals == 0) return {{0, 0}, {kv_len, 0}};
  Seen seen = {};
  for (int i = 0; i < plan.num_intervals; ++i) {
    const ResolvedInterval& interval = plan.intervals[i];
    int lower = 0, upper = kv_len;
    for (int k = 0; k < interval.num_lower; ++k) {
      const int bound = evaluate(interval.lower[k], q_pos, kv_len, 0, kv_len);
      if (bound > lower) lower = bound;
    }
    for (int k = 0; k < interval.num_upper; ++k) {
      const int bound = evaluate(interval.upper[k], q_pos, kv_len, 0, kv_len);
      if (bound < upper) upper = bound;
    }
    if (lower < upper) {
      seen.lower[i] = lower;
      seen.upper[i] = upper;
    }
  }
  return seen;
}

// Columns [begin, begin + n) of the unit's page list.
struct KvTile {
  int begin, n;
  bool boundary;  // some row does not see some column, or n is no multiple of kColumnStep
};

// Positions of tokens [begin, begin + n) of a page list.
inline void find_positions(const PlanHeader& plan, const PageList& list, int begin, int n, int* positions) {
  if (plan.positions_per_page == 0) {
    for (int i = 0; i < n; ++i) positions[i] = list.first_pos + begin + i;
    return;
  }
  const int* known = section<int>(&plan, plan.kv_positions);
  if (plan.positions_per_page == plan.page_size) {
    known += list.first * plan.page_size + begin;
    for (int i = 0; i < n; ++i) positions[i] = known[i];
    return;
  }
  known += list.first;
  for (int i = 0; i < n; ++i) positions[i] = known[(begin + i) / plan.page_size] + (begin + i) % plan.page_size;
}

// Bounds of their positions: the least, and one that none is above.
struct PositionRange {
  int least;
  long long most;
};
inline PositionRange range_of_positions(const PlanHeader& plan, const PageList& list, int begin, int n) {
  const int* known = section<int>(&plan, plan.kv_positions);
  const bool each = plan.positions_per_page == plan.page_size;
  const long long first = each ? list.first * plan.page_size + begin : list.first + begin / plan.page_size;
  const long long last = each ? first + n - 1 : list.first + (begin + n - 1) / plan.page_size;
  PositionRange range = {known[first], known[first]};
  for (long long i = first; i <= last; ++i) {
    if (known[i] < range.least) range.least = known[i];
    if (known[i] > range.most) range.most = known[i];
  }
  if (!each) range.most += plan.page_size - 1;
  return range;
}

// Walks the tiles of an item, leaving out those that no row sees. Tiles start at multiples of `step` from the item's
// first key, and are cut to what some row sees, at multiples of kColumnStep.
class TileCursor {
 public:
  TileCursor(const AttendArgs& args, const PageList& list, const Seen* seen, int num_rows, int begin, int end, int step)
      : args_(args), list_(list), seen_(seen), num_rows_(num_rows), end_(end), step_(step), next_(begin) {}

  bool next(KvTile& tile) {
    while (next_ < end_) {
      tile.begin = next_;
      tile.n = end_ - next_ < step_ ? end_ - next_ : step_;
      next_ += tile.n;
      if (classify(tile) || args_.check_masks) return true;
    }
    return false;
  }

 private:
  // False when no row sees any column.
  bool classify(KvTile& tile) const {
    if (args_.plan->positions_per_page > 0) {  // in any order: each column is looked at, where rows do not see all
      const bool all = all_seen(tile);
      if (args_.check_masks) compare(tile, 0, __INT_MAX__, all);
      tile.boundary = args_.check_masks || !all || tile.n % abi::kColumnStep != 0;
      return true;
    }
    const int a = list_.first_pos + tile.begin, b = a + tile.n;
    bool all = true;
    int low = b, high = a;
    for (int r = 0; r < num_rows_; ++r) {
      const Seen& s = seen_[r];
      bool whole = false;
      for (int i = 0; i < 2; ++i) {
        const int from = s.lower[i] > a ? s.lower[i] : a, to = s.upper[i] < b ? s.upper[i] : b;
        if (from >= to) continue;
        if (from < low) low = from;
        if (to > high) high = to;
        whole = whole || (from == a && to == b);
      }
      all = all && whole;
    }
    if (args_.check_masks) {
      compare(tile, low, high, all);
      tile.boundary = true;
      return true;
    }
    if (low >= high) return false;
    const int cut = (low - a) / abi::kColumnStep * abi::kColumnStep;
    tile.begin += cut;
    tile.n = high - a - cut;
    tile.boundary = !all || tile.n % abi::kColumnStep != 0;
    return true;
  }

  // Whether every row sees every column, by bounds of their positions: a no may be wrong.
  bool all_seen(const KvTile& tile) const {
    if (args_.plan->num_intervals == 0) return true;
    const PositionRange range = range_of_positions(*args_.plan, list_, tile.begin, tile.n);
    for (int r = 0; r < num_rows_; ++r) {
      const Seen& s = seen_[r];
      bool whole = false;
      for (int i = 0; i < 2; ++i) whole = whole || (s.lower[i] <= range.least && range.most < s.upper[i]);
      if (!whole) return false;
    }
    return true;
  }

  void compare(const KvTile& tile, int low, int high, bool all) const {
    for (int i = 0; i < tile.n; ++i) {
      int pos;
      find_positions(*args_.plan, list_, tile.begin + i, 1, &pos);
      for (int r = 0; r < num_rows_; ++r) {
        const bool seen = sees(seen_[r], pos);
        if ((seen && (pos < low || pos >= high)) || (!seen && all))
          __atomic_store_n(args_.mask_error, 1, __ATOMIC_RELAXED);
      }
    }
  }

  const AttendArgs& args_;
  const PageList& list_;
  const Seen* seen_;
  int num_rows_, end_, step_, next_;
};

// Marks which columns of a tile some row sees, their positions in any order.
inline void mark_positions(const Seen* seen, int num_rows, const int* positions, int n, unsigned char* marks) {
  for (int i = 0; i < n; ++i) {
    bool any = false;
    for (int r = 0; r < num_rows && !any; ++r) any = sees(seen[r], positions[i]);
    marks[i] = any;
  }
}

// Marks which columns of a tile some row sees; returns whether all do.
inline bool mark_seen(const Seen* seen, int num_rows, int pos_begin, int n, unsigned char* marks) {
  int covered_from = 0, covered_to = 0;  // a run of columns already marked
  __builtin_memset(marks, 0, static_cast<unsigned long>(n));
  for (int r = 0; r < num_rows; ++r)
    for (int i = 0; i < 2; ++i) {
      int from = seen[r].lower[i] - pos_begin, to = seen[r].upper[i] - pos_begin;
      if (from < 0) from = 0;
      if (to > n) to = n;
      if (from >= to || (from >= covered_from && to <= covered_to)) continue;
      __builtin_memset(marks + from, 1, static_cast<unsigned long>(to - from));
      if (from <= covered_to && to >= covered_from) {
        if (from < covered_from || covered_from == covered_to) covered_from = from;
        if (to > covered_to) covered_to = to;
      }
    }
  return __builtin_memchr(marks, 0, static_cast<unsigned long>(n)) == nullptr;
}

// Where tokens [begin, begin + n) of a page list lie.
inline void locate_tokens(const AttendArgs& args, const PageList& list, const TokensView& view, long long head,
                          int begin, int n, const char** rows) {
  const char* data = view.data + head * view.head_stride;
  // Consecutive tokens from `first` on, up to n.
  const auto walk = [&](const char* row, long long first, int count, const char** to) {
    if (view.group == 1) {
      row += first * view.token_stride;
      for (int i = 0; i < count; ++i, row += view.token_stride) to[i] = row;
      return;
    }
    row += first / view.group * view.token_stride;
    int left = view.group - static_cast<int>(first % view.group);
    for (int i = 0; i < count; ++i) {
      to[i] = row;
      if (--left > 0) continue;
      row += view.token_stride;
      left = view.group;
    }
  };
  if (args.token_page_size == 0) {
    walk(data, list.first + begin, n, rows);
    return;
  }
  const int page_size = args.token_page_size;
  const int* pages = section<int>(args.plan, args.plan->page_indices);
  if (args.paged && page_size == 1) {
    for (int i = 0; i < n; ++i) rows[i] = data + pages[list.first + begin + i] * view.page_stride;
    return;
  }
  long long page = list.first + begin / page_size, slot = begin % page_size;
  if (!args.paged) {
    page = (list.first + begin) / page_size;
    slot = (list.first + begin) % page_size;
  }
  for (int i = 0; i < n; ++page, slot = 0) {
    const int count = n - i < page_size - slot ? n - i : static_cast<int>(page_size - slot);
    walk(data + (args.paged ? pages[page] : page) * view.page_stride, slot, count, rows + i);
    i += count;
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
