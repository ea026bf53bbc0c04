// Leading pages that requests of a plain input share, as trees: found by sorting page tables, or as their owner knows
// them.
#pragma once

#include <span>
#include <vector>

#include "attention/plan/plan_builder.h"
#include "weft/levels.h"

namespace weft::planner {

// Requests [begin, end) of the order, which share the pages [first_page, last_page).
struct PrefixNode {
  int begin, end;
  int first_page, last_page;
  int depth;
  std::vector<int> children = {};
};

struct PrefixForest {
  std::vector<int32_t> order;  // all requests, those of a node side by side
  std::vector<PrefixNode> nodes;
  std::vector<int> roots;
};

std::span<const int32_t> pages_of(const Problem& p, int request);

// That the arrays fit each other and so many requests. Throws Error(invalid_argument).
void check_prefixes(const SharedPrefixes& prefixes, size_t requests);

// Of at most so many nodes below each other.
PrefixForest find_prefixes(const Problem& p, int most_depth);
// Throws Error(invalid_argument) for prefixes that are none of these requests.
PrefixForest take_prefixes(const Problem& p, const SharedPrefixes& prefixes, int most_depth);

}  // namespace weft::planner
