// What the planner must know of a kernel: its tile classes, costs and intervals. Data, no code: the same planner
// serves every backend.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/abi.h"
#include "weft/attention.h"
#include "weft/levels.h"

namespace weft {

// Forms whose tokens are found through a page table.
constexpr bool has_page_table(KvForm form) { return form == KvForm::paged || form == KvForm::latent; }

// Rows are fused rows: query tokens x group size.
struct TileClass {
  int rows = 0;  // fused rows of a tile, at most
  // An item carries every KV head (whole-token reads), else one. `balanced` may halve and quarter the heads of an
  // item where whole tokens are too coarse for the workers; the unit's KV-head range says what it carries.
  bool all_kv_heads = false;
  int most_states = std::numeric_limits<int>::max();  // of rows x heads in an item; fewer heads where all are more
  // Cost of an item over one KV head: row * rows + token * visible tokens + row_token * rows * visible + item.
  // A query token whose group has more rows than the largest class is one tile that the kernel walks in several.
  double row = 0, token = 0, row_token = 0, item = 0;
};

struct KernelTraits {
  std::vector<TileClass> classes;  // by rows, ascending, 1 to kMaxTileClasses; entries take the first that holds them
  int granule = 64;                // chunk borders are multiples of this many tokens
  int head_dim_vo = 0;
  bool use_softmax = true;
  KvForm kv_form = KvForm::paged;
  std::vector<Interval> intervals;  // of mask and variant together, 0 to 2
  std::vector<ScalarArg> defaults;  // of scalars that intervals name, where plan is not given them
  uint64_t signature() const;       // hash of all of the above
};

// The scalars that bounds of these intervals name, each once, in the order of PlanHeader::scalars.
std::vector<std::string_view> interval_scalars(std::span<const Interval> intervals);
// What a plan was given for them. `intervals`: those of its kernel.
std::vector<ScalarArg> plan_scalars(std::span<const Interval> intervals, const attention::PlanHeader& plan);

// The planner. Throws like AttentionKernel::plan.
class Planner {
 public:
  static Plan plan(const KernelTraits& traits, const PlanInput& input);
  static size_t workspace_bytes(const KernelTraits& traits, const PlanBounds& bounds);
  // A plan from the bytes that a workspace held up to its counters. covers and update do not go on from it. Throws
  // Error(invalid_file | plan_mismatch).
  static Plan restore(const KernelTraits& traits, std::span<const char> bytes);
  static SharedLevels shared_levels(const KernelTraits& traits, const PlanInput& input);
};

// Bytes that are not zeroed on allocation: the planner writes each of them once.
template <class T>
struct UninitializedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    if constexpr (sizeof...(Args) == 0)
      ::new (static_cast<void*>(p)) U;
    else
      ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

struct Plan::Impl {
  // Lengths of a request's KV for which the plan stays right.
  struct Reach {
    int min_kv_len = 0, max_kv_len = 0;
  };
  std::vector<char, UninitializedAllocator<char>> bytes;   // header and the sections that upload copies, tightly
  attention::PlanHeader placed = {};                       // the header with the offsets of the workspace
  std::span<const int32_t> borrowed_page_ids[kMaxLevels];  // page ids that are not in bytes (borrow_page_ids)
  bool borrows_page_ids = false;
  int64_t page_capacity = 0;  // entries that the workspace's page_indices has room for
  int max_kv_len = 0;         // of the bounds
  std::vector<Reach> reach;   // [requests]
  KernelTraits traits;
  PlanMode mode = PlanMode::balanced;
  double makespan = 0, lower_bound = 0;
  // Offsets into bytes; a workspace's are in its own header.
  const attention::PlanHeader& header() const { return *reinterpret_cast<const attention::PlanHeader*>(bytes.data()); }
};

// Typed view of a section of a plan at `base` (a Plan's bytes or a workspace).
template <class T>
inline T* section(const void* base, const attention::Section& s) {
  return reinterpret_cast<T*>(static_cast<char*>(const_cast<void*>(base)) + s.offset);
}

// Throws InternalError naming the first broken rule: every (row, visible token) pair exactly once, bounds of every
// index, direct writes only by sole items, merge groups complete, sections within total_bytes.
void verify(const Plan& plan);

}  // namespace weft
