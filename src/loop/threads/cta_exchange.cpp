#include "loop/threads/cta_exchange.h"

#include <algorithm>

namespace weft::loop {
namespace {

bool has_cta_loops(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= is_cta_loop(stmt); });
  return found;
}

bool has_cta_axis_twice(const Stmt& loop) {
  Names axes;
  bool twice = false;
  visit(Body{loop}, [&](const Stmt& stmt) { twice |= is_cta_loop(stmt) && !axes.insert(stmt.thread).second; });
  return twice;
}

// Loops over CTAs that nothing stands around or beside: bind() has shown that their iterations access elements of
// their own.
bool is_one_nest_of_ctas(const Body& body) {
  if (body.size() != 1) return !has_cta_loops(body);
  const Stmt& stmt = body[0];
  if (is_cta_loop(stmt)) return !has_cta_axis_twice(stmt);
  const bool may_stand_around = stmt.kind == Stmt::Kind::condition || is_thread_loop(stmt);
  return may_stand_around ? is_one_nest_of_ctas(stmt.body) : !has_cta_loops(body);
}

}  // namespace

void CtaExchange::access(const std::string& buffer, const Expr& index, bool writes) {
  uses_[buffer].push_back({writes, around_.cta_of(index)});
}

void CtaExchange::check(const Body& body) const {
  if (is_one_nest_of_ctas(body)) return;
  for (const auto& [buffer, uses] : uses_) {
    if (std::none_of(uses.begin(), uses.end(), [](const Use& use) { return use.writes; })) continue;
    for (const Use& use : uses)
      if (use.cta.empty() || use.cta != uses[0].cta)
        kernel_.refuse(
            kernel_.ctas.empty() ? ScheduledAt{} : kernel_.ctas.begin()->second,
            "'{}' may be exchanged between CTAs, which do not wait for each other within a kernel; required: loops "
            "bound to blockIdx outside of others, or places that are their variable, or a literal times that",
            buffer);
  }
}

}  // namespace weft::loop
