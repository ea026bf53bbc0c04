#include "loop/threads/barriers.h"

#include <algorithm>
#include <utility>

#include "loop/threads/kernel.h"

namespace weft::loop {
namespace {

bool is_loop(const Step& step) { return step.nest && step.nest->kind == Stmt::Kind::loop; }

// The access as others see it, for whom these variables have other values: any thread may be its owner.
Access without_owner_by(const Names& variables, Access access) {
  const auto is_fixed = [&](const std::string& v) { return variables.contains(v); };
  if (std::any_of(access.fixed.begin(), access.fixed.end(), is_fixed)) access.owner.clear(), access.fixed.clear();
  return access;
}

void append(Body& body, const Body& more) { body.insert(body.end(), more.begin(), more.end()); }

}  // namespace

Body Barriers::placed(const std::vector<Step>& steps) {
  nests_.clear();
  for (const Step& step : steps)
    if (step.nest) look_into(step);
  Body text;
  int64_t growths = 0;
  do {
    growths = num_growths_;
    text.clear();
    Accesses pending;
    pass(steps, pending, &text);
  } while (num_growths_ != growths);
  return text;
}

const Barriers::Nest& Barriers::look_into(const Step& step) {
  Nest nest{.all = step.accesses};
  if (is_loop(step)) nest.own.insert(step.nest->name);
  for (const Step& inner : step.steps) {
    add_once(nest.all, inner.accesses);
    visit(inner.body, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let) nest.own.insert(stmt.name);
    });
    if (!inner.nest) continue;
    const Nest& found = look_into(inner);
    add_once(nest.all, found.all);
    nest.own.insert(found.own.begin(), found.own.end());
  }
  Nest& kept = nests_[&step] = std::move(nest);
  if (is_loop(step)) settle(step, kept);
  return kept;
}

// Until an iteration leaves nothing pending but what it was given. What is carried only grows.
void Barriers::settle(const Step& step, Nest& nest) {
  int64_t growths = 0;
  do {
    growths = num_growths_;
    Accesses pending = nest.carried;
    nest.waits = pass(step.steps, pending, nullptr);
    has_grown(step, nest, nest.carried, pending);
  } while (num_growths_ != growths);
}

// Goes through the steps as threads do, from what is pending before them to what is pending behind. Returns whether
// threads wait there.
bool Barriers::pass(const std::vector<Step>& steps, Accesses& pending, Body* text) {
  bool waits = false;
  const auto wait_for = [&](const Accesses& next) {
    if (!meet(next, pending)) return;
    waits = true;
    pending.clear();
    if (text != nullptr) text->push_back({.kind = Stmt::Kind::barrier});
  };
  for (const Step& step : steps) {
    ++num_visits_;
    if (step.waits) waits = true, pending.clear();
    wait_for(step.accesses);
    add_once(pending, step.accesses);
    if (text != nullptr) append(*text, step.body);
    if (!step.nest) continue;
    Nest& nest = nests_.at(&step);
    if (is_loop(step)) {
      if (!nest.waits) wait_for(nest.all);  // once, and not in every iteration
      add_once(pending, nest.carried);
    }
    const Accesses before = pending;
    Body inner;
    waits |= pass(step.steps, pending, text == nullptr ? nullptr : &inner);
    if (is_loop(step) && has_grown(step, nest, before, pending)) settle(step, nest);
    Accesses behind = step.runs ? Accesses() : before;
    for (const Access& access : pending)
      add_once(behind, {is_apart(step, access) ? access : without_owner_by(nest.own, access)});
    pending = std::move(behind);
    if (text == nullptr) continue;
    Stmt stmt = *step.nest;
    stmt.body = std::move(inner);
    text->push_back(std::move(stmt));
  }
  return waits;
}

// Whether an iteration leaves something pending, `after`, that was not pending `before` it. The loop carries that, too.
bool Barriers::has_grown(const Step& step, Nest& nest, const Accesses& before, const Accesses& after) {
  Accesses carried = before;
  for (const Access& access : after)
    if (!is_apart(step, access)) add_once(carried, {without_owner_by(nest.own, access)});
  if (carried.size() == before.size()) return false;
  carried.erase(carried.begin(), carried.begin() + static_cast<std::ptrdiff_t>(before.size()));
  add_once(nest.carried, carried);
  ++num_growths_;
  return true;
}

bool Barriers::is_apart(const Step& step, const Access& access) const {
  return is_loop(step) && is_cta_loop(*step.nest) && !shared_.contains(access.buffer);
}

}  // namespace weft::loop
