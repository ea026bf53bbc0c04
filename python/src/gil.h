// Work without Python's lock, and the way back to it, also when the interpreter ends meanwhile.
//
// A thread that asks for the lock of an interpreter that is ending is ended by it, up to Python 3.13, in the middle of
// C++'s destructors: that is std::terminate. So from the moment at which exit begins (atexit) threads that come back
// from their work sleep for good instead, as they do from Python 3.14 on; and exit waits a second for those that are
// between C++ and a function of Python's, which may give the lock away and ask for it again.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace weft::python {

// For the module: what exit has to wait for.
void watch_exit();

// Of a thread that Python is ending (abi::__forced_unwind), too.
[[noreturn]] void sleep_for_good();

// With the lock: calls of Python's functions go on inside of it.
class HoldsExit {
 public:
  HoldsExit();
  ~HoldsExit();
  HoldsExit(const HoldsExit&) = delete;
  HoldsExit& operator=(const HoldsExit&) = delete;
};

class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  int holders_;  // of exit, around it
  PyThreadState* state_;
};

// In a thread that may not have it. False where the interpreter is ending or has ended: then nothing of Python may be
// touched.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  explicit operator bool() const { return guard_ && *guard_; }

 private:
  std::optional<nanobind::detail::cleanup_guard> guard_;  // none: exit has begun
};

}  // namespace weft::python
