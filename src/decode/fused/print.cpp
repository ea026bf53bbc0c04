// Schedules and partitions for people: tables, and a drawing of who streams what.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/enum_names.h"
#include "decode/fused/schedule.h"

namespace weft::decode::fused {
namespace {

std::string range_text(int64_t begin, int64_t end) { return fmt::format("{}..{}", begin, end); }

std::string_view colour_of(WeightRole role) {
  switch (role) {
    case WeightRole::qkv: return "#7fb3d5";
    case WeightRole::output: return "#a9dfbf";
    case WeightRole::gate_up: return "#f8c471";
    case WeightRole::down: return "#e59866";
    default: return "#bb8fce";
  }
}

// A field of the drawing: the workers' shares of one matrix, a row each.
class Field {
 public:
  Field(const MatrixPartition& matrix, double left, double width, double top, double row)
      : matrix_(matrix), left_(left), width_(width), top_(top), row_(row) {}

  void draw(std::string& svg) const {
    constexpr double kLabelWidth = 62;
    const std::string label =
        matrix_.layer < 0 ? "head" : fmt::format("{}: {}", matrix_.layer, to_string(matrix_.role));
    if (width_ >= kLabelWidth)
      fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#333\">{}</text>\n", left_,
                     top_ - 6, label);
    const size_t workers = matrix_.borders.size() - 1;
    for (size_t w = 0; w < workers; ++w) draw_worker(svg, w);
    for (int64_t panel = 1; panel < matrix_.tiles.num_panels; ++panel)
      fmt::format_to(std::back_inserter(svg),
                     "<line x1=\"{0:.2f}\" y1=\"{1:.2f}\" x2=\"{0:.2f}\" y2=\"{2:.2f}\" stroke=\"#888\" "
                     "stroke-dasharray=\"3 3\"/>\n",
                     x_of(panel * matrix_.tiles.panel_tiles()), top_, top_ + row_ * static_cast<double>(workers));
  }

 private:
  // Where a tile lies across the field: the line of tiles from left to right.
  double x_of(int64_t tile) const {
    return left_ + width_ * static_cast<double>(matrix_.tiles.byte_of(tile)) / static_cast<double>(matrix_.tiles.bytes);
  }
  void box(std::string& svg, size_t w, int64_t begin, int64_t end, std::string_view fill, std::string_view rest) const {
    fmt::format_to(std::back_inserter(svg),
                   "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}", x_of(begin),
                   top_ + row_ * static_cast<double>(w), std::max(x_of(end) - x_of(begin), 0.4),
                   std::max(row_ - 1, 0.8), fill, rest);
  }
  void draw_worker(std::string& svg, size_t w) const {
    const int64_t begin = matrix_.borders[w], end = matrix_.borders[w + 1], band = matrix_.tiles.strip_tiles();
    if (begin == end) return;
    box(svg, w, begin, end, colour_of(matrix_.role), ">");
    fmt::format_to(std::back_inserter(svg), "<title>worker {}, {}: tiles {}, {} bytes, slots {} on</title></rect>\n", w,
                   to_string(matrix_.role), range_text(begin, end), matrix_.tiles.bytes_of(begin, end),
                   matrix_.worker_slot[w]);
    const auto hatch = [&](int64_t from, int64_t to) {
      box(svg, w, from, to, "url(#cut)", " pointer-events=\"none\"/>\n");
    };
    if (begin % band != 0) hatch(begin, std::min(end, (begin / band + 1) * band));
    if (end % band != 0 && end / band * band >= begin) hatch(end / band * band, end);
  }

  const MatrixPartition& matrix_;
  const double left_, width_, top_, row_;
};

}  // namespace

std::string_view to_string(StepKind kind) {
  static constexpr std::string_view kNames[] = {
      "wait",       "read",  "prologue", "keep",       "reduce",       "append", "await",   "multiply",
      "write_sums", "start", "attend",   "attend_own", "write_states", "merge",  "release", "arrive"};
  return enum_name(kNames, kind);
}

std::string to_string(const Load& load, const Partition& partition) {
  const Phase& phase = partition.phases.all[static_cast<size_t>(load.phase)];
  const std::string what =
      load.item >= 0 ? fmt::format("keys and values {} of item {}", range_text(load.begin, load.end), load.item)
                     : fmt::format("tiles {}", range_text(load.begin, load.end));
  return fmt::format("{:<28}  {:<36}  -> ring {} ({} bytes), behind {} releases", name_of(phase), what, load.at,
                     load.bytes, load.after);
}

std::string to_string(const WorkerStep& step, const Partition& partition) {
  const std::string range = range_text(step.begin, step.end);
  std::string text;
  switch (step.kind) {
    case StepKind::wait: text = fmt::format("counter {}, {} arrivals", step.id, step.count); break;
    case StepKind::arrive: text = fmt::format("counter {}", step.id); break;
    case StepKind::read:
      text = fmt::format("{}: cells {}, of {}", to_string(step.buffer), range,
                         step.id >= 0 && step.id < partition.phases.size()
                             ? name_of(partition.phases.all[static_cast<size_t>(step.id)])
                             : fmt::format("phase {}", step.id));
      break;
    case StepKind::prologue: text = fmt::format("columns {}", range); break;
    case StepKind::keep: text = fmt::format("residual: cells {}", range); break;
    case StepKind::reduce: text = fmt::format("{}: cells {}", to_string(step.buffer), range); break;
    case StepKind::append: text = fmt::format("item {}: rows {}", step.id, range); break;
    case StepKind::await:
    case StepKind::release: text = fmt::format("load {}", step.id); break;
    case StepKind::multiply: text = fmt::format("load {}: tiles {}", step.id, range); break;
    case StepKind::write_sums: text = fmt::format("{}: slot {}", to_string(step.buffer), step.begin); break;
    case StepKind::start: text = fmt::format("item {}", step.id); break;
    case StepKind::attend: text = fmt::format("item {}, load {}: tokens {}", step.count, step.id, range); break;
    case StepKind::attend_own: text = fmt::format("item {}: tokens {}", step.id, range); break;
    case StepKind::write_states: text = fmt::format("{}: cells {}", to_string(step.buffer), range); break;
    case StepKind::merge: text = fmt::format("{}: cells {}", to_string(step.buffer), range); break;
  }
  return fmt::format("{:<28}  {:<14}  {}", name_of(partition.phases.all[static_cast<size_t>(step.phase)]),
                     to_string(step.kind), text);
}

std::string to_string(const Schedule& schedule, const Partition& partition, int worker, int first_phase,
                      int last_phase) {
  const WorkerSchedule& own = schedule.workers[static_cast<size_t>(worker)];
  std::string text = fmt::format("worker {} of {}\n", worker, schedule.workers.size());
  const auto is_shown = [&](int phase) { return phase >= first_phase && phase < last_phase; };
  for (size_t i = 0; i < own.loads.size(); ++i)
    if (is_shown(own.loads[i].phase)) text += fmt::format("  load {:>4}  {}\n", i, to_string(own.loads[i], partition));
  for (size_t i = 0; i < own.steps.size(); ++i)
    if (is_shown(own.steps[i].phase)) text += fmt::format("  step {:>4}  {}\n", i, to_string(own.steps[i], partition));
  return text;
}

std::string to_svg(const Partition& partition) {
  constexpr double kWidth = 1100, kLeft = 60, kTop = 64, kGap = 8;
  const int workers = partition.machine.workers;
  const double row = workers <= 24 ? 18 : std::max(3.0, 520.0 / workers);
  const double height = kTop + row * workers + 30;
  int64_t bytes = 0;
  for (const MatrixPartition& matrix : partition.matrices) bytes += matrix.tiles.bytes;
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
                 "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
                 "<defs><pattern id=\"cut\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                 "patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"6\" fill=\"#000\" fill-opacity=\"0.35\"/>"
                 "</pattern></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                 kLeft + kWidth + 20, height);
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"20\" font-size=\"14\">{} workers stream {} bytes: {} of {} layers, and the "
                 "head</text>\n<text x=\"{}\" y=\"36\" fill=\"#555\">a field a matrix, its line of tiles from left to "
                 "right; hatched where a band is cut, dashed between panels</text>\n",
                 kLeft, workers, bytes, partition.period, partition.phases.num_layers, kLeft);
  // The width of a field follows its bytes, but beside a large head layers are seen, too.
  const double least = 0.6 / static_cast<double>(partition.matrices.size());
  std::vector<double> widths;
  double total = 0;
  for (const MatrixPartition& matrix : partition.matrices) {
    widths.push_back(std::max(static_cast<double>(matrix.tiles.bytes) / static_cast<double>(bytes), least));
    total += widths.back();
  }
  const double room = kWidth - kGap * static_cast<double>(widths.size() - 1);
  double x = kLeft;
  for (size_t i = 0; i < widths.size(); ++i) {
    const double width = widths[i] / total * room;
    Field(partition.matrices[i], x, width, kTop, row).draw(svg);
    x += width + kGap;
  }
  const int label_step = std::max(1, static_cast<int>(14 / row));
  for (int w = 0; w < workers; w += label_step)
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#333\">{}</text>\n", kLeft - 8,
                   kTop + row * w + row / 2 + 4, w);
  fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">worker</text>\n</svg>\n",
                 kLeft - 8, height - 10);
  return svg;
}

}  // namespace weft::decode::fused
