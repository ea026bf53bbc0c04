// The planner, and what a plan is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "attention/traits.h"
#include "weft/attention.h"
#include "weft/levels.h"

namespace weft {

// The planner. Throws like AttentionKernel::plan.
class Planner {
 public:
  static Plan plan(const KernelTraits& traits, const PlanInput& input);
  static size_t workspace_bytes(const KernelTraits& traits, const PlanBounds& bounds);
  // What of an even plan, with bounds, follows from rows alone, for whoever writes the rest: its header, whose sections
  // are laid anew, and the class of its units (null: there are none). Throws like `plan`.
  struct Outline {
    attention::PlanHeader header;
    const TileClass* tile_class = nullptr;
    int unit_heads = 0;
  };
  static Outline outline(const KernelTraits& traits, const PlanInput& input);
  // A plan from the bytes that a workspace held up to its partial states. covers and update do not go on from it.
  // Throws Error(invalid_file | plan_mismatch).
  static Plan restore(const KernelTraits& traits, std::span<const char> bytes);
  // Levels of the prefixes that are given, else of those that the page tables share.
  static SharedLevels shared_levels(const KernelTraits& traits, const PlanInput& input,
                                    const SharedPrefixes* prefixes = nullptr);
};

// Bytes that are not zeroed on allocation: the planner writes each of them once. They begin with a line of the cache:
// an upload from any multiple of 16 copies 8 % slower.
template <class T>
struct UninitializedAllocator : std::allocator<T> {
  static constexpr std::align_val_t kAlignment{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlignment); }
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
  std::vector<char, UninitializedAllocator<char>> bytes;   // what upload copies: header and sections
  std::span<const int32_t> borrowed_page_ids[kMaxLevels];  // page ids that are not in bytes (borrow_page_ids)
  bool borrows_page_ids = false;
  int64_t page_capacity = 0;  // entries that the workspace's page_indices has room for
  int max_kv_len = 0;         // of the bounds
  std::vector<Reach> reach;   // [requests]
  KernelTraits traits;
  PlanMode mode = PlanMode::balanced;
  double makespan = 0, lower_bound = 0;
  // Offsets into bytes and into a workspace.
  const attention::PlanHeader& header() const { return *reinterpret_cast<const attention::PlanHeader*>(bytes.data()); }
};

// Throws InternalError naming the first broken rule: every (row, visible token) pair exactly once, bounds of every
// index, direct writes only by sole items, merge groups complete, sections within total_bytes.
void verify(const Plan& plan);

}  // namespace weft
