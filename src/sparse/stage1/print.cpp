// Stage I and schedules as text; stage1/parse.h reads it again.
#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/parse.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {
std::string to_text(const Axis& axis) {
  std::string text = fmt::format("{} = {}_{}(", axis.name, axis.is_sparse ? "sparse" : "dense",
                                 axis.is_variable ? "variable" : "fixed");
  if (!axis.parent.empty()) text += axis.parent + ", ";
  text += loop::to_text(axis.length);
  if (axis.nnz) text += ", " + loop::to_text(axis.nnz);
  if (!axis.indptr.empty()) text += ", indptr=" + axis.indptr;
  if (!axis.indices.empty()) text += ", indices=" + axis.indices;
  if (!axis.rows.empty()) text += ", rows=" + axis.rows;
  text += ")";
  if (axis.index_type != DType::int32) text += fmt::format(": {}", weft::to_string(axis.index_type));
  return text;
}

std::string to_text(const SparseBuffer& buffer) {
  return fmt::format("{} = {}({}): {}", buffer.name, buffer.temporary ? "temporary" : "buffer", joined(buffer.axes),
                     weft::to_string(buffer.dtype));
}

namespace {

// "iterate NAME(I, fuse(J, K)) "SRS" as (i, j, k)" of the groups of axes from `begin` to `end`.
std::string head_text(const Iteration& it, const std::string& name, size_t begin, size_t end, int indent) {
  const bool preprocess = it.preprocess && begin == 0;  // said once for a nest
  std::string axes, kinds, iterators;
  size_t place = 0;
  for (size_t g = 0; g < end; ++g) {
    const std::vector<std::string>& group = it.axes[g];
    const size_t first = place;
    place += group.size();
    if (g < begin) continue;
    axes += (axes.empty() ? "" : ", ") + (group.size() == 1 ? group[0] : fmt::format("fuse({})", joined(group)));
    kinds += it.kinds.substr(first, group.size());
    for (size_t a = first; a < place; ++a) iterators += (iterators.empty() ? "" : ", ") + it.iterators[a];
  }
  return fmt::format("{}{} {}({}) \"{}\" as ({})", std::string(static_cast<size_t>(indent), ' '),
                     preprocess ? "preprocess" : "iterate", name, axes, kinds, iterators);
}

}  // namespace

std::string text_of_apart(const Declarations& declared) {
  std::string text;
  for (const auto& axes : declared.apart) text += fmt::format("  apart({})\n", joined(axes));
  return text;
}

std::string to_text(const Stage1& program) {
  std::string text =
      fmt::format("program {}({}):\n", program.name, loop::text_of_parameters(program.params, program.reals));
  for (const Axis& axis : program.axes) text += "  " + to_text(axis) + "\n";
  for (const SparseBuffer& buffer : program.buffers) text += "  " + to_text(buffer) + "\n";
  text += text_of_apart(program);
  for (size_t i = 0; i < program.iterations.size(); ++i) {
    const Iteration& it = program.iterations[i];
    const auto indent_at = [](size_t depth) { return 2 + 2 * static_cast<int>(depth); };
    for (size_t d = i == 0 ? 0 : num_common(program.iterations[i - 1], it); d < it.around.size(); ++d)
      text += head_text(it, it.around[d].name, d == 0 ? 0 : it.around[d - 1].num_axes, it.around[d].num_axes,
                        indent_at(d)) +
              ":\n";
    const int indent = indent_at(it.around.size());
    text += head_text(it, it.name, it.num_shared_axes(), it.axes.size(), indent);
    if (!it.place.iteration.empty()) text += " of " + it.place.iteration;
    if (!it.where.empty()) text += " where " + joined(it.where, [](const Expr& e) { return loop::to_text(e); });
    text += ":\n";
    const std::string space(static_cast<size_t>(indent) + 2, ' ');
    if (!it.init.empty()) text += space + "init:\n" + loop::to_text(it.init, indent + 4);
    text += loop::to_text(it.body, indent + 2);
  }
  return text;
}

std::string to_text(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::name: return operand.text;
    case Operand::Kind::integer: return fmt::format("{}", operand.integer);
    case Operand::Kind::call:
      return fmt::format("{}({})", operand.text, joined(operand.operands, [](const Operand& o) { return to_text(o); }));
  }
  return "?";
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const ScheduleLine& line : schedule) {
    if (!line.results.empty()) text += joined(line.results) + " = ";
    text += fmt::format("{}({})\n", line.primitive, joined(line.operands, [](const Operand& o) { return to_text(o); }));
  }
  return text;
}

std::string to_text(const FormatDefinition& format) {
  std::string text = fmt::format("format {}({})", format.name, joined(format.old_axes));
  if (!format.new_params.empty()) text += fmt::format(" with ({})", joined(format.new_params));
  text += ":\n";
  for (const Axis& axis : format.declared.axes) text += "  " + to_text(axis) + "\n";
  text += fmt::format("  buffer({})\n", joined(format.buffer_axes));
  const auto map_text = [](const auto& map) { return fmt::format("{} = {}", map.first, loop::to_text(map.second)); };
  return text + fmt::format("  to {}\n  from {}\n", joined(format.to_new, map_text), joined(format.to_old, map_text));
}

std::string to_text(const ParsedProgram& program) {
  std::string text = to_text(program.stage1);
  for (const FormatDefinition& format : program.formats) text += to_text(format);
  if (!program.schedule.empty()) text += "schedule:\n";
  for (const ScheduleLine& line : program.schedule) text += "  " + to_text(Schedule{line});
  return text;
}

}  // namespace weft::sparse
