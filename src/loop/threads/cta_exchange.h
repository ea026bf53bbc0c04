// Nobody waits for another CTA within a kernel, so no CTA may access what another one writes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loop/threads/surroundings.h"

namespace weft::loop {

class CtaExchange {
 public:
  CtaExchange(const Kernel& kernel, const Surroundings& around) : kernel_(kernel), around_(around) {}
  // Of a buffer of the function. `atomic`: a write that others of the kind may meet.
  void access(const std::string& buffer, const Expr& index, bool writes, bool atomic);
  // Throws Error(unsupported) where an element that one CTA writes may be another's, too. Within one loop over CTAs
  // that runs once bind() has shown that none is.
  void check() const;

 private:
  struct Use {
    bool writes, atomic;
    std::string cta;  // in words; "": it may be any
    CtaNest nest;     // number 0: none
  };
  const Kernel& kernel_;
  const Surroundings& around_;
  std::map<std::string, std::vector<Use>> uses_;  // of each buffer
};

}  // namespace weft::loop
