// What statements of a kernel access, as far as threads may exchange it, and whether two accesses need a barrier
// between them.
#pragma once

#include <string>
#include <vector>

#include "loop/expr.h"

namespace weft::loop {

struct Access {
  std::string buffer;
  bool writes = false, atomic = false;
  std::string owner = {};  // the one thread that accesses the element, in words; "": it may be any
  Names fixed = {};        // variables in those words
  friend bool operator==(const Access&, const Access&) = default;
};
using Accesses = std::vector<Access>;

// Whether two threads may access one element, and not both to read it or to add to it.
bool meet(const Access& a, const Access& b);
bool meet(const Accesses& a, const Accesses& b);
void add_once(Accesses& list, const Accesses& more);

}  // namespace weft::loop
