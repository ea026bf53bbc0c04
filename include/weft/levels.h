// Levels for requests that share leading pages: found in page tables, or taken from whoever knows what is shared.
//
//   const SharedLevels shared = levels_from_page_tables(kernel, input);   // input: as for a plain plan
//   Plan plan = kernel.plan(shared.apply(input));                         // the plain plan where nothing pays
//
// Keys of a shared level pass a variant's key and value hooks once, as keys of the entry's first request: hooks that
// read Row::batch must be planned without levels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/attention.h"

namespace weft {

// Node n holds the tokens that follow those of parent[n]; a request's keys are the path to its node.
struct PrefixTree {
  int page_size = 0;
  int64_t num_pages = 0;                     // of the pool
  std::span<const int32_t> parent;           // [nodes], -1: none; a parent comes before its children
  std::span<const int32_t> page_indptr;      // [nodes + 1]
  std::span<const int32_t> page_indices;     // [page_indptr[nodes]]
  std::span<const int32_t> last_page_len;    // [nodes], 1..page_size; 0 for a node without pages
  std::span<const int32_t> node_of_request;  // [batch]
};

// Leading pages that requests of an input share, as their owner knows them, a prefix cache for one. Node n stands for
// the pages [num_pages[parent[n]], num_pages[n]) of every request at it or below it.
struct SharedPrefixes {
  std::span<const int32_t> parent;           // [nodes], -1: none; a parent comes before its children
  std::span<const int32_t> num_pages;        // [nodes], more than the parent's
  std::span<const int32_t> node_of_request;  // [batch], -1: shares nothing
};

// Owns the arrays of levels.
class SharedLevels {
 public:
  SharedLevels() = default;
  SharedLevels(SharedLevels&&) noexcept = default;  // inputs stay valid
  SharedLevels& operator=(SharedLevels&&) noexcept = default;

  bool empty() const { return levels_.empty(); }
  int num_levels() const { return static_cast<int>(levels_.size()); }
  // The input with these levels instead of its pages; as it is when empty. Valid as long as this lives.
  PlanInput apply(const PlanInput& input) const;

  // Goes on to a later step: true where `input` has as many requests, with the same shared pages; their own pages are
  // brought up to date then. False, and nothing changed, where it has not.
  bool follow(const PlanInput& input);

  struct Arrays {
    std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_indices, last_page_len;
  };

 private:
  friend class LevelBuilder;
  std::vector<Arrays> arrays_;
  std::vector<Level> levels_;  // views of arrays_
  std::vector<int32_t> order_;
  // Of the input that they were made for; pages of each request that are in shared levels.
  std::vector<int32_t> qo_indptr_, shared_indptr_, shared_pages_;
};

// Finds leading pages that requests of a plain input share, in trees of any shape, and makes levels of those that cost
// less so by the kernel's own constants; empty where none does, or all of them save less than 20 %. Under fixed_split
// levels begin at multiples of the split size. Throws like AttentionKernel::plan.
SharedLevels levels_from_page_tables(const AttentionKernel& kernel, const PlanInput& input);

// Makes levels of prefixes that are known, without a look at all tables. Throws Error(invalid_argument) for pages that
// are not the same in all requests of a node, too.
SharedLevels levels_from_prefixes(const AttentionKernel& kernel, const PlanInput& input,
                                  const SharedPrefixes& prefixes);

// A level for each step from the root, whether it pays or not; a request's own node is in the last one.
// Throws Error(invalid_argument | invalid_indptr | unsupported).
SharedLevels levels_from_prefix_tree(const PrefixTree& tree, std::span<const int32_t> qo_indptr);

}  // namespace weft
