// A program that names this has an operator new of its own, which tells of every allocation before it is made.
//
//   testing::before_allocation = [] { ++count; };            // may throw std::bad_alloc: the allocation fails
#pragma once

#include <atomic>

namespace weft::testing {

extern std::atomic<void (*)()> before_allocation;  // null at first

}  // namespace weft::testing
