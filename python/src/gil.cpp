#include "gil.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>

namespace weft::python {
namespace {

std::atomic<bool> ending{false};
std::atomic<int> asking{0};  // threads that are about to take the lock, or wait for it
pthread_t ender;

// Whether the lock may be asked for: then `asking` counts this thread until it has it.
bool may_ask() {
  ++asking;
  if (!ending || pthread_equal(ender, pthread_self()) != 0) return true;
  --asking;
  return false;
}

void end() {
  ender = pthread_self();
  ending = true;
  // Those that have asked get it; whoever comes later does not ask.
  while (asking > 0) {
    PyThreadState* const state = PyEval_SaveThread();
    sched_yield();
    PyEval_RestoreThread(state);
  }
}

}  // namespace

void watch_exit() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end));
  pthread_atfork(nullptr, nullptr, [] { asking = 0; });  // of the threads that a child has not
}

WithoutGil::~WithoutGil() {
  if (!may_ask())
    while (true) pause();
  PyEval_RestoreThread(state_);
  --asking;
}

WithGil::WithGil() : held_(may_ask()) {
  if (!held_) return;
  state_ = PyGILState_Ensure();
  --asking;
}

WithGil::~WithGil() {
  if (held_) PyGILState_Release(state_);
}

}  // namespace weft::python
