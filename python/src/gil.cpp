#include "gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace weft::python {
namespace {

std::atomic<bool> ending{false};
std::atomic<int> waited_for{0};  // threads that are about to take the lock, or between C++ and Python with it
thread_local int holders = 0;    // of this thread, which is counted once
pthread_t ender;

bool is_ender() { return pthread_equal(ender, pthread_self()) != 0; }

// Whether the lock may be asked for: then exit waits for this thread until as many calls of let_exit.
bool hold_exit() {
  if (holders == 0) {
    ++waited_for;
    if (ending && !is_ender()) {
      --waited_for;
      return false;
    }
  }
  ++holders;
  return true;
}

void let_exit() {
  if (--holders == 0) --waited_for;
}

void end() {
  ender = pthread_self();
  ending = true;
  // Those that have asked get the lock; whoever comes later does not ask.
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (waited_for > (holders > 0 ? 1 : 0) && std::chrono::steady_clock::now() < latest) {
    PyThreadState* const state = PyEval_SaveThread();
    usleep(50);
    PyEval_RestoreThread(state);
  }
}

}  // namespace

void sleep_for_good() {
  while (true) pause();
}

void watch_exit() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end));
  pthread_atfork(nullptr, nullptr, [] { waited_for = holders > 0 ? 1 : 0; });  // other threads a child has not
}

HoldsExit::HoldsExit() {
  if (hold_exit()) return;
  PyEval_SaveThread();
  sleep_for_good();
}

HoldsExit::~HoldsExit() { let_exit(); }

WithoutGil::WithoutGil() : holders_(holders) {
  if (holders > 0) --waited_for;
  holders = 0;
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (!hold_exit()) sleep_for_good();
  PyEval_RestoreThread(state_);
  if (holders_ > 0)
    holders = holders_;
  else
    let_exit();
}

WithGil::WithGil() {
  if (hold_exit()) guard_.emplace();
}

WithGil::~WithGil() {
  if (!guard_) return;
  guard_.reset();
  let_exit();
}

}  // namespace weft::python
