// How many cubins a test program made, for the summary of a run (tools/summarise_tests.py): each takes a second or
// more.
//
//   count_cubin();      // beside each call of the compiler
#pragma once

#include <cstdio>

namespace weft::testing {

inline void count_cubin() {
  struct Count {
    int made = 0;
    ~Count() { std::printf("cubins made: %d\n", made); }
  };
  static Count count;
  ++count.made;
}

}  // namespace weft::testing
