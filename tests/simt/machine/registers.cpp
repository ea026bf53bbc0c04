// Registers that warpgroups hand to each other.
#include <fmt/format.h>

#include <cstdlib>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {
namespace {

constexpr int kThreads = 128;  // of a warpgroup

}  // namespace

void Machine::change_registers(int registers, bool more, const void* pc) {
  const int index = current_->index / kThreads;
  const char* const name = more ? "increase_registers" : "decrease_registers";
  if ((index + 1) * kThreads > launch_.threads)
    fault(fmt::format("comes to {}: its warpgroup has {} of 4 warps", name, launch_.threads % kThreads / 32), pc);
  Warpgroup& group = cta().warpgroups[static_cast<size_t>(index)];
  Thread* const threads = current_ - current_->index % kThreads;
  const int change = more ? registers : -registers;
  if (group.arrived == 0) {
    group.coming_to = change;
    group.first_at = pc;
    group.first_thread = current_->id;
  } else if (group.coming_to != change || !same_place(group.first_at, pc)) {
    fault(fmt::format("comes to {}<{}> while {} of its warpgroup waits in {}<{}> at {}: divergent warpgroup", name,
                      registers, name_of(group.first_thread),
                      group.coming_to > 0 ? "increase_registers" : "decrease_registers", std::abs(group.coming_to),
                      place(group.first_at)),
          pc);
  }
  for (int i = 0; i < kThreads; ++i)
    if (const auto who = static_cast<size_t>(threads[i].id);
        threads[i].id != current_->id && group.changed[who] > current_->clock[who])
      fault(
          fmt::format("comes to {}: no barrier lies between this and the last change of {}", name, name_of(threads[i])),
          pc);
  if (more ? registers < group.registers : registers > group.registers)
    fault(fmt::format("comes to {}<{}> with {} registers; allowed are {}", name, registers, group.registers,
                      more ? "as many or more" : "as many or fewer"),
          pc);
  if (++group.arrived < kThreads) {
    wait(name, pc);
    return;
  }
  group.arrived = 0;
  for (int i = 0; i < kThreads; ++i) {
    const auto who = static_cast<size_t>(threads[i].id);
    group.changed.set(who, threads[i].clock[who]);
    threads[i].clock.count(who);
  }
  group.wanted = registers;
  if (!more) {
    cta().free_registers += (group.registers - registers) * kThreads;
    group.registers = registers;
  }
  hand_out_registers(cta());
  if (group.wanted != 0) wait(name, pc);
}

// To those that wait, the first one first.
void Machine::hand_out_registers(Cta& cta) {
  for (size_t i = 0; i < cta.warpgroups.size(); ++i) {
    Warpgroup& group = cta.warpgroups[i];
    const int needed = (group.wanted - group.registers) * kThreads;
    if (group.wanted == 0 || needed > cta.free_registers) continue;
    cta.free_registers -= needed;
    group.registers = group.wanted;
    group.wanted = 0;
    Thread* threads = &threads_[static_cast<size_t>((&cta - ctas_.data()) * launch_.threads) + i * kThreads];
    for (int lane = 0; lane < kThreads; ++lane) release(threads[lane]);
  }
  ++changes_;
}

}  // namespace weft::simt
