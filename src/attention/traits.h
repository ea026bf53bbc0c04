// What the planner must know of a kernel: its tile classes, costs and intervals. Data, no code: the same planner
// serves every backend.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kernels/abi.h"
#include "weft/attention.h"

namespace weft {

// Rows are fused rows: query tokens x group size.
struct TileClass {
  int rows = 0;                 // fused rows of a tile, at most
  bool all_kv_heads = false;    // an item carries every KV head (whole-token reads), else one
  // Cost of an item over one KV head: row * rows + token * visible tokens + row_token * rows * visible + item.
  double row = 0, token = 0, row_token = 0, item = 0;
};

struct KernelTraits {
  std::vector<TileClass> classes;   // by rows, ascending; 1 to kMaxTileClasses
  int granule = 64;                 // chunk borders are multiples of this many tokens
  int head_dim_vo = 0;
  bool use_softmax = true;
  KvForm kv_form = KvForm::paged;
  std::vector<Interval> intervals;  // of mask and variant together, 0 to 2
  uint64_t signature() const;       // hash of all of the above
};

// The planner. Throws like AttentionKernel::plan.
class Planner {
 public:
  static Plan plan(const KernelTraits& traits, const PlanInput& input);
  static size_t workspace_bytes(const KernelTraits& traits, const PlanBounds& bounds);
};

struct Plan::Impl {
  std::vector<char> bytes;          // header and the sections that upload copies, at their offsets
  KernelTraits traits;
  double makespan = 0, lower_bound = 0;
  const attention::PlanHeader& header() const {
    return *reinterpret_cast<const attention::PlanHeader*>(bytes.data());
  }
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
