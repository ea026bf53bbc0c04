#include "loop/threads/registers.h"

#include <algorithm>

namespace weft::loop {

void RegisterUses::allocate(const Stmt& memory) {
  current_[memory.name] = registers_.size();
  registers_.push_back({memory.name, memory.scheduled, around_.bound_loops().size()});
}

void RegisterUses::access(const std::string& name, const Expr& index, bool writes) {
  const auto current = current_.find(name);
  if (current == current_.end()) return;
  Register& memory = registers_[current->second];
  const std::vector<BoundLoop>& bound = around_.bound_loops();
  const std::vector<BoundLoop> within(bound.begin() + static_cast<std::ptrdiff_t>(std::min(memory.depth, bound.size())),
                                      bound.end());
  if (within.empty())
    memory.uses.push_back({writes, "", ""});
  else
    memory.uses.push_back({writes, within.back().loop->name, around_.owner_of(index, within).words});
}

void RegisterUses::check() const {
  for (const Register& memory : registers_) {
    const auto first = std::find_if(memory.uses.begin(), memory.uses.end(),
                                    [](const Use& use) { return use.writes && !use.loop.empty(); });
    if (first == memory.uses.end()) continue;
    for (const Use& use : memory.uses)
      if (use.owner.empty() || use.owner != first->owner)
        kernel_.refuse(
            memory.scheduled,
            "'{}' lies in registers around loop '{}', whose threads write it, and is accessed by others; required: "
            "memory within the loop, or shared",
            memory.name, first->loop);
  }
}

}  // namespace weft::loop
