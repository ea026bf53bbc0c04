// Which keys the rows of a unit see.
#include "attention/cpu/kernels/seen.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

int evaluate(const BoundTerm& term, int q_pos, int kv_len) {
  const long long value = static_cast<long long>(term.q_pos ? q_pos : 0) + (term.kv_len ? kv_len : 0) + term.constant;
  return static_cast<int>(value < 0 ? 0 : value > kv_len ? kv_len : value);
}

// Bounds of the positions of some tokens: the least, and one that none is above.
struct PositionRange {
  int least;
  long long most;
};
PositionRange range_of_positions(const PlanHeader& plan, const PageList& list, int begin, int n) {
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

// Marks the columns of a tile that some row sees, their positions in any order.
void mark_positions(const Seen* seen, int num_rows, const int* positions, int n, unsigned char* marks) {
  for (int i = 0; i < n; ++i) {
    bool any = false;
    for (int r = 0; r < num_rows && !any; ++r) any = sees(seen[r], positions[i]);
    marks[i] = any;
  }
}

// The same for positions that follow each other.
void mark_intervals(const Seen* seen, int num_rows, int pos_begin, int n, unsigned char* marks) {
  int covered_from = 0, covered_to = 0;  // a run of columns already marked
  __builtin_memset(marks, 0, static_cast<unsigned long>(n));
  for (int r = 0; r < num_rows; ++r)
    for (int i = 0; i < 2; ++i) {
      const int from = max_of(seen[r].lower[i] - pos_begin, 0), to = min_of(seen[r].upper[i] - pos_begin, n);
      if (from >= to || (from >= covered_from && to <= covered_to)) continue;
      __builtin_memset(marks + from, 1, static_cast<unsigned long>(to - from));
      if (from <= covered_to && to >= covered_from) {
        if (from < covered_from || covered_from == covered_to) covered_from = from;
        if (to > covered_to) covered_to = to;
      }
    }
}

}  // namespace

Seen seen_by(const PlanHeader& plan, int q_pos, int kv_len) {
  if (plan.num_intervals == 0) return {{0, 0}, {kv_len, 0}};
  Seen seen = {};
  for (int i = 0; i < plan.num_intervals; ++i) {
    const ResolvedInterval& interval = plan.intervals[i];
    int lower = 0, upper = kv_len;
    for (int k = 0; k < interval.num_lower; ++k) lower = max_of(lower, evaluate(interval.lower[k], q_pos, kv_len));
    for (int k = 0; k < interval.num_upper; ++k) upper = min_of(upper, evaluate(interval.upper[k], q_pos, kv_len));
    if (lower < upper) {
      seen.lower[i] = lower;
      seen.upper[i] = upper;
    }
  }
  return seen;
}

void find_positions(const PlanHeader& plan, const PageList& list, int begin, int n, int* positions) {
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

bool TileCursor::next(KvTile& tile) {
  while (next_ < end_) {
    tile.begin = next_;
    tile.n = min_of(end_ - next_, step_);
    next_ += tile.n;
    if (classify(tile)) return true;
  }
  return false;
}

// False when no row sees any column.
bool TileCursor::classify(KvTile& tile) const {
  const bool checked = unit_.args.mask_error != nullptr;
  if (unit_.plan.positions_per_page > 0) {  // in any order: each column is looked at, where rows do not see all
    const bool all = all_seen(tile);
    if (checked) check(tile, 0, __INT_MAX__, all);
    tile.boundary = checked || !all || tile.n % abi::kColumnStep != 0;
    return true;
  }
  const int a = unit_.list.first_pos + tile.begin, b = a + tile.n;
  bool all = true;
  int low = b, high = a;
  for (int r = 0; r < unit_.num_rows; ++r) {
    bool whole = false;
    for (int i = 0; i < 2; ++i) {
      const int from = max_of(seen_[r].lower[i], a), to = min_of(seen_[r].upper[i], b);
      if (from >= to) continue;
      low = min_of(low, from);
      high = max_of(high, to);
      whole = whole || (from == a && to == b);
    }
    all = all && whole;
  }
  if (checked) {
    check(tile, low, high, all);
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
bool TileCursor::all_seen(const KvTile& tile) const {
  const PositionRange range = range_of_positions(unit_.plan, unit_.list, tile.begin, tile.n);
  for (int r = 0; r < unit_.num_rows; ++r) {
    bool whole = false;
    for (int i = 0; i < 2; ++i) whole = whole || (seen_[r].lower[i] <= range.least && range.most < seen_[r].upper[i]);
    if (!whole) return false;
  }
  return true;
}

// Compares what was concluded with each row and column.
void TileCursor::check(const KvTile& tile, int low, int high, bool all) const {
  for (int i = 0; i < tile.n; ++i) {
    int pos;
    find_positions(unit_.plan, unit_.list, tile.begin + i, 1, &pos);
    for (int r = 0; r < unit_.num_rows; ++r) {
      const bool seen = sees(seen_[r], pos);
      if ((seen && (pos < low || pos >= high)) || (!seen && all))
        __atomic_store_n(unit_.args.mask_error, 1, __ATOMIC_RELAXED);
    }
  }
}

Columns::Columns(const UnitView& unit, const Seen* seen, int tokens, Arena& arena)
    : positions(arena.allocate<int>(tokens)),
      marks(arena.allocate<unsigned char>(tokens)),
      vectors(arena.allocate<abi::VectorRow>(unit.args.leaf->key || unit.args.leaf->value ? tokens : 0)),
      unit_(unit),
      seen_(seen) {}

void Columns::set(const KvTile& tile) {
  const abi::Leaf& leaf = *unit_.args.leaf;
  if (!leaf.score && !leaf.key && !leaf.value && !tile.boundary) return;
  const PageList& list = unit_.list;
  find_positions(unit_.plan, list, tile.begin, tile.n, positions);
  for (int i = tile.n; i < round_up(tile.n, abi::kColumnStep); ++i) positions[i] = -1;
  if (leaf.key || leaf.value)
    for (int i = 0; i < tile.n; ++i) vectors[i] = {list.request, list.first_pos + tile.begin + i, positions[i], 0};
  if (!tile.boundary) return;
  if (unit_.plan.positions_per_page > 0)
    mark_positions(seen_, unit_.num_rows, positions, tile.n, marks);
  else
    mark_intervals(seen_, unit_.num_rows, list.first_pos + tile.begin, tile.n, marks);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
