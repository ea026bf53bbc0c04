// A plan for people: a table, and a drawing of who is busy with what for how long.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft {

using namespace attention;

namespace {

struct PrintedItem {
  int request, last_request, level, row_begin, row_end, kv_head_begin, kv_head_end;
  int kv_begin, kv_end;
  TileKind tile_kind;
  int partial;
  double cost;
};

// A finished plan's items with their costs at the current lengths.
class Reader {
 public:
  explicit Reader(const Plan::Impl& impl)
      : impl_(impl),
        header_(impl.header()),
        worker_indptr_(section<int>(impl.bytes.data(), header_.worker_indptr)),
        items_(section<WorkItem>(impl.bytes.data(), header_.items)),
        units_(section<Unit>(impl.bytes.data(), header_.units)),
        rows_(section<PlanRow>(impl.bytes.data(), header_.rows)),
        lists_(section<PageList>(impl.bytes.data(), header_.page_lists)),
        kv_len_(section<int>(impl.bytes.data(), header_.kv_len)) {}

  const PlanHeader& header() const { return header_; }
  int begin(int worker) const { return worker_indptr_[worker]; }
  int end(int worker) const { return worker_indptr_[worker + 1]; }

  PrintedItem item(int i) const {
    const WorkItem& item = items_[i];
    const Unit& unit = units_[item.unit];
    const PageList& list = lists_[unit.page_list];
    const PlanRow &first = rows_[unit.row_begin], &last = rows_[unit.row_end - 1];
    const bool shared = first.request != last.request;  // then rows are counted over all requests
    const int len = list.len >= 0 ? list.len : kv_len_[list.request] - list.first_pos;
    const int end = item.kv_end == kOpenEnd ? len : std::min(item.kv_end, len);
    const planner::VisibleRange visible = visible_range(unit, list, len);
    const int from = std::clamp(item.kv_begin, visible.begin, visible.end),
              to = std::clamp(end, from, std::max(from, visible.end));
    const TileClass& c = *impl_.traits.find_class(unit.tile_kind);
    const int fused = (unit.row_end - unit.row_begin) * (header_.num_qo_heads / header_.num_kv_heads);
    const double walks = static_cast<double>(planner::ceil_div(fused, c.rows));
    const double cost = (unit.kv_head_end - unit.kv_head_begin) *
                        (c.row * fused + c.item + (c.token * walks + c.row_token * fused) * visible.num_keys(from, to));
    return {first.request,
            last.request,
            list.level,
            shared ? unit.row_begin : first.idx,
            shared ? unit.row_end : last.idx + 1,
            unit.kv_head_begin,
            unit.kv_head_end,
            list.first_pos + item.kv_begin,
            list.first_pos + end,
            unit.tile_kind,
            item.partial,
            cost};
  }

  double load(int worker) const {
    double sum = 0;
    for (int i = begin(worker); i < end(worker); ++i) sum += item(i).cost;
    return sum;
  }

 private:
  planner::VisibleRange visible_range(const Unit& unit, const PageList& list, int len) const {
    const std::span<const ResolvedInterval> intervals(header_.intervals, static_cast<size_t>(header_.num_intervals));
    if (header_.positions_per_page > 0) return {0, len, 0, 0};
    planner::VisibleRange visible;
    for (int row = unit.row_begin; row < unit.row_end; ++row) {
      const PlanRow& at = rows_[row];
      visible = planner::joined(visible, planner::visible_range(intervals, at.pos, at.pos, kv_len_[at.request]));
    }
    return planner::within_list(visible, list.first_pos, len);
  }

  const Plan::Impl& impl_;
  const PlanHeader& header_;
  const int* worker_indptr_;
  const WorkItem* items_;
  const Unit* units_;
  const PlanRow* rows_;
  const PageList* lists_;
  const int* kv_len_;
};

std::string range(int begin, int end) { return fmt::format("{}..{}", begin, end); }
// Requests from the first to the last of a unit's rows.
std::string requests(const PrintedItem& p) {
  return p.request == p.last_request ? std::to_string(p.request) : fmt::format("{}-{}", p.request, p.last_request);
}

// Distinct hues for neighbouring requests, `lightness` in percent. As #rrggbb: SVG 1.1, and most of what draws it but
// browsers, knows no hsl().
std::string colour(int request, int lightness) {
  constexpr double kSaturation = 0.58;
  const double hue = static_cast<double>(static_cast<int64_t>(request) * 137 % 360) / 30, light = lightness / 100.;
  const auto channel = [&](int offset) {
    const double k = std::fmod(offset + hue, 12.);
    const double value = light - kSaturation * std::min(light, 1 - light) * std::clamp(std::min(k - 3, 9 - k), -1., 1.);
    return static_cast<int>(std::lround(255 * value));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

}  // namespace

std::string Plan::to_string() const {
  const Reader reader(impl());
  const PlanHeader& h = reader.header();
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} plan: {} requests, {} query tokens, {}/{} heads, {} workers, {} items, {} partials\n",
                 weft::to_string(impl_->mode), h.num_requests, h.num_rows_q, h.num_qo_heads, h.num_kv_heads,
                 h.num_workers, h.items.count, h.partials.count);
  double total = 0;
  for (int w = 0; w < h.num_workers; ++w) total += reader.load(w);
  fmt::format_to(out, "makespan {:.4g}, lower bound {:.4g} ({:.3f}), busy {:.1f} %, workspace {} bytes\n\n",
                 impl_->makespan, impl_->lower_bound, impl_->lower_bound > 0 ? impl_->makespan / impl_->lower_bound : 1,
                 impl_->makespan > 0 ? 100 * total / (impl_->makespan * h.num_workers) : 100, workspace_bytes());
  fmt::format_to(out, "{:>6}  {:>6}  {:>5}  {:>7}  {:>13}  {:>8}  {:>15}  {:>8}  {:>7}\n", "worker", "share", "level",
                 "request", "rows", "kv heads", "keys", "class", "partial");
  for (int w = 0; w < h.num_workers; ++w) {
    const double share = impl_->makespan > 0 ? 100 * reader.load(w) / impl_->makespan : 0;
    if (reader.begin(w) == reader.end(w)) fmt::format_to(out, "{:>6}  {:>5.1f}%  idle\n", w, share);
    for (int i = reader.begin(w); i < reader.end(w); ++i) {
      const PrintedItem p = reader.item(i);
      fmt::format_to(out, "{:>6}  {:>6}  {:>5}  {:>7}  {:>13}  {:>8}  {:>15}  {:>8}  {:>7}\n",
                     i == reader.begin(w) ? std::to_string(w) : "",
                     i == reader.begin(w) ? fmt::format("{:.1f}%", share) : "", p.level, requests(p),
                     range(p.row_begin, p.row_end), range(p.kv_head_begin, p.kv_head_end), range(p.kv_begin, p.kv_end),
                     attention::to_string(p.tile_kind), p.partial < 0 ? "-" : std::to_string(p.partial));
    }
  }
  return text;
}

std::string Plan::to_svg() const {
  const Reader reader(impl());
  const PlanHeader& h = reader.header();
  const double width = 1000, left = 70, top = 60;
  const double row = h.num_workers <= 24 ? 26 : std::max(4.0, 640.0 / h.num_workers);
  const double height = top + row * h.num_workers + 50;
  const double scale = impl_->makespan > 0 ? width / impl_->makespan : 0;
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
                 "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
                 "<defs><pattern id=\"cut\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                 "patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"6\" fill=\"#000\" fill-opacity=\"0.28\"/>"
                 "</pattern></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                 left + width + 30, height);
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"20\" font-size=\"14\">{} plan: {} requests on {} workers, {} items, {} partials"
                 "</text>\n<text x=\"{}\" y=\"38\" fill=\"#555\">makespan {:.4g}, lower bound {:.4g}; one colour a "
                 "request, hatched where a unit is cut</text>\n",
                 left, weft::to_string(impl_->mode), h.num_requests, h.num_workers, h.items.count, h.partials.count,
                 left, impl_->makespan, impl_->lower_bound);
  const int label_step = std::max(1, static_cast<int>(14 / row));
  for (int w = 0; w < h.num_workers; ++w) {
    const double y = top + row * w;
    if (w % label_step == 0)
      fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#333\">{}</text>\n", left - 8,
                     y + row / 2 + 4, w);
    double x = left;
    for (int i = reader.begin(w); i < reader.end(w); ++i) {
      const PrintedItem p = reader.item(i);
      const double length = p.cost * scale;
      const auto box = [&](std::string_view fill, std::string_view rest) {
        fmt::format_to(out, "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}", x, y,
                       length, std::max(1.0, row - 2), fill, rest);
      };
      box(colour(p.request, 68), fmt::format(" stroke=\"{}\" stroke-width=\"0.6\">", colour(p.request, 38)));
      fmt::format_to(out,
                     "<title>request {}, level {}, rows {}, KV heads {}, keys {}, {}, cost {:.4g}</title></rect>\n",
                     requests(p), p.level, range(p.row_begin, p.row_end), range(p.kv_head_begin, p.kv_head_end),
                     range(p.kv_begin, p.kv_end), attention::to_string(p.tile_kind), p.cost);
      if (p.partial >= 0) box("url(#cut)", " pointer-events=\"none\"/>\n");
      if (row >= 18 && length >= 26)
        fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{:.2f}\" pointer-events=\"none\">r{}</text>\n", x + 4,
                       y + row / 2 + 3, requests(p));
      x += length;
    }
  }
  const double bottom = top + row * h.num_workers + 4, bound = left + impl_->lower_bound * scale;
  fmt::format_to(
      out,
      "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#c00\" "
      "stroke-dasharray=\"4 3\"/>\n<text x=\"{0:.2f}\" y=\"{3:.1f}\" text-anchor=\"end\" fill=\"#c00\">lower "
      "bound</text>\n",
      bound, top - 6, bottom, bottom + 12);
  for (int tick = 0; tick <= 5; ++tick)
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#555\">{:.3g}</text>\n",
                   left + width * tick / 5, bottom + 28, impl_->makespan * tick / 5);
  fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">worker</text>\n</svg>\n", left - 8,
                 bottom + 28);
  return svg;
}

}  // namespace weft
