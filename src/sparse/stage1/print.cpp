// Stage I and schedules as text; stage1/parse.h reads it again.
#include "base/check.h"
#include "sparse/stage1/parse.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {
namespace {

template <class List, class Text>
std::string joined(const List& list, const Text& text_of) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

const auto kSame = [](const std::string& name) { return name; };

}  // namespace

std::string to_text(const Axis& axis) {
  std::string text = fmt::format("{} = {}_{}(", axis.name, axis.is_sparse ? "sparse" : "dense",
                                 axis.is_variable ? "variable" : "fixed");
  if (!axis.parent.empty()) text += axis.parent + ", ";
  text += loop::to_text(axis.length);
  if (axis.nnz) text += ", " + loop::to_text(axis.nnz);
  if (!axis.indptr.empty()) text += ", indptr=" + axis.indptr;
  if (!axis.indices.empty()) text += ", indices=" + axis.indices;
  text += ")";
  if (axis.index_type != DType::int32) text += fmt::format(": {}", weft::to_string(axis.index_type));
  return text;
}

std::string to_text(const SparseBuffer& buffer) {
  return fmt::format("{} = {}({}): {}", buffer.name, buffer.temporary ? "temporary" : "buffer",
                     joined(buffer.axes, kSame), weft::to_string(buffer.dtype));
}

std::string to_text(const Stage1& program) {
  std::string text = fmt::format("program {}({}):\n", program.name, joined(program.params, kSame));
  for (const Axis& axis : program.axes) text += "  " + to_text(axis) + "\n";
  for (const SparseBuffer& buffer : program.buffers) text += "  " + to_text(buffer) + "\n";
  for (const Iteration& it : program.iterations) {
    const std::string axes = joined(it.axes, [](const std::vector<std::string>& group) {
      return group.size() == 1 ? group[0] : fmt::format("fuse({})", joined(group, kSame));
    });
    text += fmt::format("  {} {}({}) \"{}\" as ({})", it.preprocess ? "preprocess" : "iterate", it.name, axes, it.kinds,
                        joined(it.iterators, kSame));
    if (!it.where.empty()) text += " where " + joined(it.where, [](const Expr& e) { return loop::to_text(e); });
    text += ":\n";
    if (!it.init.empty()) text += "    init:\n" + loop::to_text(it.init, 6);
    text += loop::to_text(it.body, 4);
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
    if (!line.results.empty()) text += joined(line.results, kSame) + " = ";
    text += fmt::format("{}({})\n", line.primitive, joined(line.operands, [](const Operand& o) { return to_text(o); }));
  }
  return text;
}

}  // namespace weft::sparse
