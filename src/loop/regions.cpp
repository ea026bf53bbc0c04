#include "loop/regions.h"

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "loop/linear.h"

namespace weft::loop {
namespace {

const Region* find(const std::vector<Region>& regions, std::string_view buffer) {
  for (const Region& region : regions)
    if (region.buffer == buffer) return &region;
  return nullptr;
}

// a - b, where that is a literal.
bool is_difference(const Expr& a, const Expr& b, int64_t* difference) {
  Linear sum = linear_of(a);
  sum.add(linear_of(b), -1);
  *difference = sum.constant;
  return sum.terms.empty() && !sum.overflows;
}

Expr end_of(const Range& range) { return range.is_place() ? range.begin + 1 : range.end; }

// The least range that holds both, where that is known; else the whole.
Range united(const Range& a, const Range& b) {
  if (a == b) return a;
  int64_t begin = 0, end = 0;
  if (a.is_whole() || b.is_whole() || !is_difference(b.begin, a.begin, &begin) ||
      !is_difference(end_of(b), end_of(a), &end))
    return {};
  return {begin < 0 ? b.begin : a.begin, expr_of(linear_of(end_of(end > 0 ? b : a)))};
}

void add_to(std::vector<Region>& regions, Region added) {
  for (Region& region : regions) {
    if (region.buffer != added.buffer) continue;
    for (size_t d = 0; d < region.ranges.size(); ++d) region.ranges[d] = united(region.ranges[d], added.ranges[d]);
    return;
  }
  regions.push_back(std::move(added));
}

class Collector {
 public:
  explicit Collector(Regions& regions) : regions_(regions) {}

  void collect(const Body& body) {
    const size_t outer = declared_.size(), memory = own_memory_.size();
    for (const Stmt& stmt : body) {
      for (const Expr& index : stmt.indices) collect(index);
      if (stmt.value) collect(stmt.value);
      if (stmt.kind == Stmt::Kind::store) add(regions_.writes, stmt.name, stmt.indices);
      if (stmt.kind == Stmt::Kind::allocate) own_memory_.push_back(stmt.name);
      if (stmt.kind == Stmt::Kind::let) declared_.emplace_back(stmt.name, Expr());
      if (stmt.kind == Stmt::Kind::loop) declared_.emplace_back(stmt.name, stmt.value);
      collect(stmt.init);
      collect(stmt.body);
      if (stmt.kind == Stmt::Kind::loop) declared_.pop_back();
    }
    declared_.resize(outer);
    own_memory_.resize(memory);
  }

 private:
  void collect(const Expr& e) {
    visit(e, [&](const Expr& node) {
      if (node->op == Op::load) add(regions_.reads, node->name, node->operands);
      if (is_search(node->op)) {
        const auto count = node->operands.end() - 2;
        add(regions_.reads, node->name, {node->operands.begin(), count}, *count);
      }
    });
  }

  // An element, or as many along the last dimension.
  void add(std::vector<Region>& regions, const std::string& buffer, const std::vector<Expr>& first,
           const Expr& count = 1) {
    if (std::find(own_memory_.begin(), own_memory_.end(), buffer) != own_memory_.end()) return;
    Region region{.buffer = buffer};
    for (const Expr& index : first) region.ranges.push_back(range_of(index, index));
    if (!is_literal(count, 1)) region.ranges.back() = range_of(first.back(), first.back() + count - 1);
    add_to(regions, std::move(region));
  }

  // From the least to the greatest that the two are in any iteration of the statements' own loops.
  Range range_of(Expr least, Expr most) const {
    for (auto own = declared_.rbegin(); own != declared_.rend(); ++own) {
      const auto& [variable, extent] = *own;
      if (!uses(least, variable) && !uses(most, variable)) continue;
      int64_t a = 0, b = 0;
      Expr least_rest, most_rest;
      if (!extent || !is_linear_in(least, variable, &a, &least_rest) || !is_linear_in(most, variable, &b, &most_rest))
        return {};
      const Expr last = extent - 1;
      least = a < 0 ? least_rest + last * a : least_rest;
      most = b > 0 ? most_rest + last * b : most_rest;
    }
    if (least == most) return {least};
    return {expr_of(linear_of(least)), expr_of(linear_of(most + 1))};
  }

  Regions& regions_;
  std::vector<std::pair<std::string, Expr>> declared_;  // within the statements: loops, and lets, which have no extent
  std::vector<std::string> own_memory_;
};

}  // namespace

const Region* Regions::find_read(std::string_view buffer) const { return find(reads, buffer); }
const Region* Regions::find_written(std::string_view buffer) const { return find(writes, buffer); }

Regions regions_of(const Body& body) {
  Regions regions;
  Collector(regions).collect(body);
  return regions;
}

Regions regions_of_block(const Stmt& block) {
  Regions regions;
  Collector collector(regions);
  collector.collect(block.init);
  collector.collect(block.body);
  return regions;
}

void find_regions(Body& body) {
  visit(body, [](Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::block) return;
    Regions regions = regions_of_block(stmt);
    stmt.reads = std::move(regions.reads);
    stmt.writes = std::move(regions.writes);
  });
}

bool are_apart(const Region& a, const Region& b) {
  if (a.buffer != b.buffer) return true;
  for (size_t d = 0; d < a.ranges.size(); ++d) {
    const Range &one = a.ranges[d], &other = b.ranges[d];
    int64_t gap = 0;
    if (one.is_whole() || other.is_whole()) continue;
    if (is_difference(other.begin, end_of(one), &gap) && gap >= 0) return true;
    if (is_difference(one.begin, end_of(other), &gap) && gap >= 0) return true;
  }
  return false;
}

std::string to_text(const std::vector<Region>& regions) {
  const auto text_of = [](const Range& range) -> std::string {
    if (range.is_whole()) return ":";
    return range.is_place() ? to_text(range.begin) : to_text(range.begin) + ":" + to_text(range.end);
  };
  return joined(regions,
                [&](const Region& region) { return region.buffer + "[" + joined(region.ranges, text_of) + "]"; });
}

}  // namespace weft::loop
