#include "tests/sparse/random/watched.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

namespace weft::sparse::random {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
sigjmp_buf back;

void jump(int signal) { siglongjmp(back, signal); }

// Stacks that overflow leave no room for a handler.
void use_other_stack() {
  static char* const memory = new char[1 << 16];
  const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = 1 << 16};
  sigaltstack(&stack, nullptr);
}

}  // namespace

std::string watched(const std::function<void()>& call, int seconds) {
  use_other_stack();
  // One may be watched within another.
  sigjmp_buf outer;
  std::memcpy(&outer, &back, sizeof back);
  const unsigned outer_seconds = alarm(0);
  struct sigaction action = {}, before[std::size(kSignals)] = {};
  action.sa_handler = jump;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before[i]);
  const auto restore = [&] {
    alarm(outer_seconds);
    std::memcpy(&back, &outer, sizeof back);
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
  };
  const int signal = sigsetjmp(back, 1);
  if (signal == 0) {
    alarm(static_cast<unsigned>(seconds));
    try {
      call();
    } catch (...) {
      restore();
      throw;
    }
  }
  restore();
  if (signal == 0) return {};
  return signal == SIGALRM ? fmt::format("no end after {} s", seconds) : fmt::format("SIG{}", sigabbrev_np(signal));
}

}  // namespace weft::sparse::random
