#include "loop/threads/cta_exchange.h"

#include <algorithm>

namespace weft::loop {

void CtaExchange::access(const std::string& buffer, const Expr& index, bool writes, bool atomic) {
  const std::vector<BoundLoop> loops = around_.cta_loops();
  uses_[buffer].push_back({writes, atomic, around_.cta_of(index), loops.empty() ? CtaNest{} : loops[0].nest});
}

void CtaExchange::check() const {
  if (kernel_.ctas.empty()) return;
  for (const auto& [buffer, uses] : uses_) {
    if (std::none_of(uses.begin(), uses.end(), [](const Use& use) { return use.writes; })) continue;
    if (std::all_of(uses.begin(), uses.end(), [](const Use& use) { return use.atomic; })) continue;
    const Use& first = uses[0];
    const auto is_beside_first = [&](const Use& use) { return use.nest.number == first.nest.number; };
    if (first.nest.is_apart && std::all_of(uses.begin(), uses.end(), is_beside_first)) continue;
    for (const Use& use : uses)
      if (use.cta.empty() || use.cta != first.cta)
        kernel_.refuse(
            kernel_.ctas.begin()->second,
            "'{}' may be exchanged between CTAs, which do not wait for each other within a kernel; required: loops "
            "bound to blockIdx outside of others, or places that are their variable, or a literal times that",
            buffer);
  }
}

}  // namespace weft::loop
