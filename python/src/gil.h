// Work without Python's lock, and the way back to it, also when the interpreter ends meanwhile.
//
// A thread that asks for the lock of an interpreter that is ending is ended by it, up to Python 3.13, in the middle of
// C++'s destructors: that is std::terminate. So from the moment at which exit begins (atexit) threads that come back
// from their work sleep for good instead, as they do from Python 3.14 on.
#pragma once

#include <nanobind/nanobind.h>

namespace weft::python {

// For the module: what exit has to wait for.
void watch_exit();

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// In a thread that may not have it. False where the interpreter is ending: then nothing of Python may be touched.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  explicit operator bool() const { return held_; }

 private:
  bool held_ = false;
  PyGILState_STATE state_ = {};
};

}  // namespace weft::python
