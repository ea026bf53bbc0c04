// Bounds that every build keeps, not only one under a sanitizer.
//
//   const GuardedArrays guard;
//   auto header = std::make_unique_for_overwrite<char[]>(n);   // header[n] ends the program
#pragma once

namespace weft::testing {

// While one lives, the arrays of characters that this thread makes with `new` end where a page begins that nobody may
// touch. They stay so until they are deleted. A program that uses it has operator new[] and delete[] of its own.
class GuardedArrays {
 public:
  GuardedArrays();
  ~GuardedArrays();
  GuardedArrays(const GuardedArrays&) = delete;
  GuardedArrays& operator=(const GuardedArrays&) = delete;
};

}  // namespace weft::testing
