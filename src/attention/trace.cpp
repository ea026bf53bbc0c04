#include "attention/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "attention/traits.h"
#include "base/check.h"
#include "base/env.h"
#include "base/log.h"

namespace weft::attention {
namespace {

constexpr std::string_view kEnd = "\n]\n";

// Tokens [begin, end) of an item, its end known.
std::string item_line(const PlanHeader& plan, int index) {
  const WorkItem& item = section<WorkItem>(&plan, plan.items)[index];
  const Unit& unit = section<Unit>(&plan, plan.units)[item.unit];
  const PageList& list = section<PageList>(&plan, plan.page_lists)[unit.page_list];
  int end = item.kv_end;
  if (end == kOpenEnd) end = list.len >= 0 ? list.len : section<int>(&plan, plan.kv_len)[list.request] - list.first_pos;
  return fmt::format(
      R"("name":"unit {}","cat":"attend","args":{{"item":{},"rows":[{},{}],"kv_heads":[{},{}],"level":{},)"
      R"("tile_class":"{}","positions":[{},{}],"partial":{}}})",
      item.unit, index, unit.row_begin, unit.row_end, unit.kv_head_begin, unit.kv_head_end, list.level,
      to_string(unit.tile_kind), list.first_pos + item.kv_begin, list.first_pos + end, item.partial);
}

std::string group_line(const PlanHeader& plan, int index) {
  const MergeGroup& group = section<MergeGroup>(&plan, plan.merge_groups)[index];
  return fmt::format(R"("name":"merge {}","cat":"merge","args":{{"rows":[{},{}],"kv_heads":[{},{}],"partials":{}}})",
                     index, group.row_begin, group.row_end, group.kv_head_begin, group.kv_head_end,
                     group.source_end - group.source_begin);
}

}  // namespace

Trace* Trace::instance() {
  static const std::unique_ptr<Trace> trace = [] {
    const auto path = env::trace_file();
    return path ? std::make_unique<Trace>(*path) : nullptr;
  }();
  return trace.get();
}

Trace::Trace(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")), start_(Lane::now()) {
  check(file_ != nullptr, ErrorCode::io_error, "WEFT_TRACE = '{}': cannot be written: {}", path, std::strerror(errno));
  fmt::print(file_.get(), "[{}", kEnd);
}

int64_t Trace::Lane::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Trace::Lane::end(Span span) {
  if (!trace_) return;
  span.end = now();
  spans_.push_back(span);
}

Trace::Lane::~Lane() {
  if (!spans_.empty()) trace_->write(*this);
}

// A trace that cannot go on ends with a warning: the run itself is fine.
void Trace::append(std::string lines) {
  lines += kEnd;
  std::FILE* file = file_.get();
  failed_ = std::fseek(file, -static_cast<long>(kEnd.size()), SEEK_END) != 0 ||
            std::fwrite(lines.data(), 1, lines.size(), file) != lines.size() || std::fflush(file) != 0;
  if (failed_) log::warn("WEFT_TRACE = '{}': stops here: {}", path_, std::strerror(errno));
}

void Trace::write(const Lane& lane) noexcept try {
  std::scoped_lock lock(mutex_);
  if (failed_) return;
  std::string lines;
  for (const Lane::Span& span : lane.spans_)
    fmt::format_to(std::back_inserter(lines), R"({}{{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},{}}})",
                   separator(), lane.worker_, static_cast<double>(span.begin - start_) * 1e-3,
                   static_cast<double>(span.end - span.begin) * 1e-3,
                   span.item >= 0 ? item_line(lane.plan_, span.item) : group_line(lane.plan_, span.group));
  append(std::move(lines));
} catch (const std::bad_alloc&) {
  log::warn("WEFT_TRACE = '{}': a worker's lane is left out: no memory", path_);
}

void Trace::add(std::span<const Event> events) noexcept try {
  std::scoped_lock lock(mutex_);
  if (failed_ || events.empty()) return;
  std::string lines;
  for (const Event& event : events)
    fmt::format_to(std::back_inserter(lines),
                   R"({}{{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":"{}","cat":"{}"}})", separator(),
                   event.process, event.lane, event.begin_us, event.us, event.name, event.category);
  append(std::move(lines));
} catch (const std::bad_alloc&) {
  log::warn("WEFT_TRACE = '{}': {} spans are left out: no memory", path_, events.size());
}

void Trace::add_launch(std::string_view kernel, Device device, const PlanHeader& plan, double seconds) noexcept try {
  std::scoped_lock lock(mutex_);
  if (failed_) return;
  append(fmt::format(
      R"({}{{"ph":"X","pid":2,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":"{}","cat":"launch","args":{{"requests":{},)"
      R"("rows":{},"items":{},"workers":{}}}}})",
      separator(), device.index, static_cast<double>(Lane::now() - start_) * 1e-3 - seconds * 1e6, seconds * 1e6,
      kernel, plan.num_requests, plan.num_rows_q, plan.items.count, plan.num_workers));
} catch (const std::bad_alloc&) {
  log::warn("WEFT_TRACE = '{}': a launch is left out: no memory", path_);
}

}  // namespace weft::attention
