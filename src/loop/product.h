// A nest that is tensorised: three loops, each alone in the other, around c[m, n] = c[m, n] + a[m, k] * b[k, n].
#pragma once

#include <string>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

struct ProductNest {
  std::vector<const Stmt*> loops = {};  // fewer than three where a loop of one iteration is gone
  const Stmt* store = nullptr;
  bool is_whole() const { return loops.size() == 3; }
};

bool is_tensorised(const Stmt& stmt);
bool is_mma(const Stmt& stmt);  // by tensor cores, on a card that has some
// Of a loop that is. Throws Error(unsupported) where its loops are others than it was made of.
ProductNest product_nest(const Function& function, const Stmt& outer);

// What one routine computes in place of a whole nest.
struct ProductCall {
  // Elements of a buffer, from `begin` on, at equal steps.
  struct Operand {
    std::string buffer = {};
    Expr begin = {};
    Expr row = {}, column = {};  // steps: of c along m and n, of a along m and k, of b along k and n
  };
  int64_t m = 0, n = 0, k = 0;
  Operand c = {}, a = {}, b = {};  // columns of c lie side by side
};
// Throws Error(unsupported) where its operands do not lie so.
ProductCall product_call(const Function& function, const Stmt& outer, const ProductNest& nest);

// Further annotation of such a loop: the threads of a CTA come to it together, and share its elements.
inline constexpr const char* kTogether = "together";

}  // namespace weft::loop
