// Memory around bound loops: of registers every thread has its own, of shared memory every CTA, so each reads there
// what it wrote itself.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loop/threads/surroundings.h"

namespace weft::loop {

class OwnMemory {
 public:
  OwnMemory(const Kernel& kernel, const Surroundings& around) : kernel_(kernel), around_(around) {}
  void allocate(const Stmt& memory);
  // Of what is no memory of the kernel's own nothing is noted.
  void access(const std::string& name, const Expr& index, bool writes);
  // Throws Error(unsupported) where memory around a bound loop is written in it, and an element may be accessed by
  // another iteration than the one that writes it; of shared memory, where that may be another CTA's.
  void check() const;

 private:
  struct Use {
    bool writes;
    std::string loop;   // the innermost bound one between the memory and the access; "": none
    std::string owner;  // of the element in those loops
  };
  struct Memory {
    std::string name;
    bool is_shared;
    ScheduledAt scheduled;
    size_t depth;  // bound loops around it
    std::vector<Use> uses = {};
  };
  const Kernel& kernel_;
  const Surroundings& around_;
  std::vector<Memory> all_;
  std::map<std::string, size_t> current_;  // which of them has a name now
};

}  // namespace weft::loop
