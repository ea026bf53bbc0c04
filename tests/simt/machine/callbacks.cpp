// What -fsanitize=thread makes of every access of a kernel: calls of functions that the compiler's runtime would have.
// Here they belong to the machine.
#include "tests/simt/machine/thread.h"

namespace {

void seen(const void* p, size_t bytes, weft::simt::Access access, bool aligned, const void* pc) {
  weft::simt::Machine* machine = weft::simt::Machine::active();
  if (machine == nullptr) return;
  if (aligned) machine->require_aligned(p, bytes, access == weft::simt::Access::read ? "reads" : "writes", pc);
  machine->access(p, bytes, access, pc);
}

}  // namespace

using weft::simt::Access;
#define WEFT_CALLBACK(name, bytes, access, aligned) \
  void name(void* p) { seen(p, bytes, Access::access, aligned, __builtin_return_address(0)); }

extern "C" {
WEFT_CALLBACK(__tsan_read1, 1, read, true)
WEFT_CALLBACK(__tsan_read2, 2, read, true)
WEFT_CALLBACK(__tsan_read4, 4, read, true)
WEFT_CALLBACK(__tsan_read8, 8, read, true)
WEFT_CALLBACK(__tsan_read16, 16, read, true)
WEFT_CALLBACK(__tsan_write1, 1, write, true)
WEFT_CALLBACK(__tsan_write2, 2, write, true)
WEFT_CALLBACK(__tsan_write4, 4, write, true)
WEFT_CALLBACK(__tsan_write8, 8, write, true)
WEFT_CALLBACK(__tsan_write16, 16, write, true)
WEFT_CALLBACK(__tsan_unaligned_read2, 2, read, false)
WEFT_CALLBACK(__tsan_unaligned_read4, 4, read, false)
WEFT_CALLBACK(__tsan_unaligned_read8, 8, read, false)
WEFT_CALLBACK(__tsan_unaligned_read16, 16, read, false)
WEFT_CALLBACK(__tsan_unaligned_write2, 2, write, false)
WEFT_CALLBACK(__tsan_unaligned_write4, 4, write, false)
WEFT_CALLBACK(__tsan_unaligned_write8, 8, write, false)
WEFT_CALLBACK(__tsan_unaligned_write16, 16, write, false)
void __tsan_read_range(void* p, size_t bytes) { seen(p, bytes, Access::read, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { seen(p, bytes, Access::write, false, __builtin_return_address(0)); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
