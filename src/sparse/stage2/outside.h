// What is taken out of loops and conditions runs where those would not have run it: a loop may have no iteration. There
// it may find nothing at its places, or an infinite factor of no term.
//
//   for j in range(n) [reduce]: W[i, i % n] = W[i, i % n] + X[i, j]   // with n = 0 nothing is accessed
//   if 0 < n: W_local[0] = W[i, i % n]                                // so the copy asks first
#pragma once

#include <functional>
#include <vector>

#include "sparse/stage2/nest.h"

namespace weft::sparse {

// Calls with each statement, of init too, and with what it stands within: statements around it, and lets before it.
void visit_within(const Body& body, const std::function<void(const Stmt& stmt, const Around& around)>& call,
                  Around around = {});
// What is known within these statements.
loop::Facts facts_within(const Stage2& stage, const Around& around);

// What holds wherever the block of the nest runs within `left_out`, loops and conditions below path[from], and can be
// asked outside of them: conditions on extents and on first iterations. Names of `kept` are known there, too.
struct Runs {
  std::vector<Expr> conditions = {};
  bool exact = true;  // the block runs wherever they hold
};
Runs runs_of(const Nest& nest, size_t from, const Names& kept, const std::vector<const Stmt*>& left_out);
// The conjunction of the conditions that neither facts nor other conditions prove; none where all are proven.
Expr unproven(const loop::Facts& facts, std::vector<Expr> conditions);

// `inner` stands within `kept`, this within `outer`, and both are taken out of `left_out`. Returns `inner`, in a
// condition where only that keeps an access inside of its buffer. Throws Error(unsupported) where no such condition can
// be said, and something left out may be what keeps an access inside.
Body where_they_run(const Stage2& stage, const Nest& nest, size_t from, const Around& outer, const Body& kept,
                    const std::vector<const Stmt*>& left_out, Body inner);

}  // namespace weft::sparse
