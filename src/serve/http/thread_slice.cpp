#include "serve/http/thread_slice.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace weft::serve::http {
namespace {

constexpr uint64_t kSliceNs = 100'000;  // the least that Linux takes
constexpr int kBehind = 10;             // a nice value, of which ten are a tenth

// sched_attr of sched_setattr(2).
struct Attributes {
  uint32_t size = sizeof(Attributes), policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

void run_soon_and_briefly() {
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void run_behind_others() {
  run_soon_and_briefly();
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.nice = std::min(19, attributes.nice + kBehind);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace weft::serve::http
