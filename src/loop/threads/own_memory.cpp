#include "loop/threads/own_memory.h"

#include <algorithm>

namespace weft::loop {

void OwnMemory::allocate(const Stmt& memory) {
  current_[memory.name] = all_.size();
  all_.push_back({memory.name, memory.scope == Scope::shared, memory.scheduled, around_.bound_loops().size()});
}

void OwnMemory::access(const std::string& name, const Expr& index, bool writes) {
  const auto current = current_.find(name);
  if (current == current_.end()) return;
  Memory& memory = all_[current->second];
  std::vector<BoundLoop> within = around_.bound_loops();
  within.erase(within.begin(), within.begin() + static_cast<std::ptrdiff_t>(std::min(memory.depth, within.size())));
  if (memory.is_shared) std::erase_if(within, [](const BoundLoop& bound) { return !is_cta_loop(*bound.loop); });
  if (within.empty())
    memory.uses.push_back({writes, "", ""});
  else
    memory.uses.push_back({writes, within.back().loop->name, around_.owner_of(index, within).words});
}

void OwnMemory::check() const {
  for (const Memory& memory : all_) {
    const auto first = std::find_if(memory.uses.begin(), memory.uses.end(),
                                    [](const Use& use) { return use.writes && !use.loop.empty(); });
    if (first == memory.uses.end()) continue;
    for (const Use& use : memory.uses)
      if (use.owner.empty() || use.owner != first->owner)
        kernel_.refuse(memory.scheduled,
                       "'{}' lies in {} around loop '{}', whose {} write it, and is accessed by others; required: "
                       "memory within the loop{}",
                       memory.name, memory.is_shared ? "shared memory" : "registers", first->loop,
                       memory.is_shared ? "CTAs" : "threads", memory.is_shared ? "" : ", or shared");
  }
}

}  // namespace weft::loop
