#include "loop/threads/accesses.h"

#include <algorithm>

namespace weft::loop {

bool meet(const Access& a, const Access& b) {
  return a.buffer == b.buffer && (a.writes || b.writes) && !(a.atomic && b.atomic) &&
         (a.owner.empty() || a.owner != b.owner);
}

bool meet(const Accesses& a, const Accesses& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& x) {
    return std::any_of(b.begin(), b.end(), [&](const Access& y) { return meet(x, y); });
  });
}

void add_once(Accesses& list, const Accesses& more) {
  for (const Access& a : more)
    if (std::find(list.begin(), list.end(), a) == list.end()) list.push_back(a);
}

}  // namespace weft::loop
