// ProgramBuilder: each call writes the text of one declaration, and parses it.
#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/parse.h"
#include "weft/sparse.h"

namespace weft::sparse {
namespace {

std::string index_text(DType type) { return type == DType::int32 ? "" : fmt::format(": {}", weft::to_string(type)); }

// As far as `within`: a head and lines, `indent` deep.
std::string iteration_text(const IterationSpec& it, size_t indent) {
  const std::string space(indent, ' ');
  std::string text = fmt::format("{}{} {}({}) \"{}\" as ({})", space, it.preprocess ? "preprocess" : "iterate", it.name,
                                 joined(it.axes), it.kinds, joined(it.iterators));
  if (!it.where.empty()) text += " where " + joined(it.where);
  text += ":\n";
  if (!it.init.empty()) text += space + "  init:\n";
  for (const std::string& line : it.init) text += fmt::format("{}    {}\n", space, line);
  for (const std::string& line : it.body) text += fmt::format("{}  {}\n", space, line);
  for (const IterationSpec& inner : it.within) text += iteration_text(inner, indent + 2);
  return text;
}

}  // namespace

struct ProgramBuilder::State {
  ParsedProgram parsed;
  // Adds what `parse` reads of the text to a copy, which becomes the program where all of it is right.
  template <class Parse>
  void add(const std::string& text, const Parse& parse) {
    ParsedProgram changed = parsed;
    loop::Source source(text);
    parse(source, changed);
    if (!source.at_end()) source.peek().fail("nothing may follow here");
    parsed = std::move(changed);
  }
  void declare(const std::string& text) {
    const size_t before = parsed.stage1.axes.size() + parsed.stage1.buffers.size() + parsed.stage1.apart.size();
    add("  " + text + "\n", [&](loop::Source& source, ParsedProgram& to) {
      parse_declarations(source, to.stage1);
      check(to.stage1.axes.size() + to.stage1.buffers.size() + to.stage1.apart.size() == before + 1,
            ErrorCode::invalid_argument, "'{}': one declaration is expected", text);
    });
  }
};

ProgramBuilder::ProgramBuilder(const std::string& name, const std::vector<std::string>& params)
    : state_(std::make_unique<State>()) {
  state_->add(fmt::format("program {}({}):\n", name, joined(params)),
              [](loop::Source& source, ParsedProgram& to) { parse_head(source, to.stage1); });
}
ProgramBuilder::ProgramBuilder(const ProgramBuilder& other) : state_(std::make_unique<State>(*other.state_)) {}
ProgramBuilder& ProgramBuilder::operator=(const ProgramBuilder& other) {
  *state_ = *other.state_;
  return *this;
}
ProgramBuilder::~ProgramBuilder() = default;

ProgramBuilder& ProgramBuilder::dense_fixed(const std::string& name, const std::string& length) {
  state_->declare(fmt::format("{} = dense_fixed({})", name, length));
  return *this;
}

ProgramBuilder& ProgramBuilder::dense_variable(const std::string& name, const std::string& parent,
                                               const std::string& length, const std::string& nnz,
                                               const std::string& indptr, DType index_type) {
  state_->declare(fmt::format("{} = dense_variable({}, {}, {}, indptr={}){}", name, parent, length, nnz, indptr,
                              index_text(index_type)));
  return *this;
}

ProgramBuilder& ProgramBuilder::sparse_fixed(const std::string& name, const std::string& parent,
                                             const std::string& length, const std::string& nnz_cols,
                                             const std::string& indices, DType index_type) {
  state_->declare(fmt::format("{} = sparse_fixed({}, {}, {}, indices={}){}", name, parent, length, nnz_cols, indices,
                              index_text(index_type)));
  return *this;
}

ProgramBuilder& ProgramBuilder::sparse_variable(const std::string& name, const std::string& parent,
                                                const std::string& length, const std::string& nnz,
                                                const std::string& indptr, const std::string& indices,
                                                DType index_type) {
  state_->declare(fmt::format("{} = sparse_variable({}, {}, {}, indptr={}, indices={}){}", name, parent, length, nnz,
                              indptr, indices, index_text(index_type)));
  return *this;
}

ProgramBuilder& ProgramBuilder::buffer(const std::string& name, const std::vector<std::string>& axes, DType dtype) {
  state_->declare(fmt::format("{} = buffer({}): {}", name, joined(axes), weft::to_string(dtype)));
  return *this;
}

ProgramBuilder& ProgramBuilder::temporary(const std::string& name, const std::vector<std::string>& axes, DType dtype) {
  state_->declare(fmt::format("{} = temporary({}): {}", name, joined(axes), weft::to_string(dtype)));
  return *this;
}

ProgramBuilder& ProgramBuilder::apart(const std::vector<std::string>& axes) {
  state_->declare(fmt::format("apart({})", joined(axes)));
  return *this;
}

ProgramBuilder& ProgramBuilder::iterate(const IterationSpec& iteration) {
  check(iteration.within.empty() || iteration.body.empty(), ErrorCode::invalid_argument,
        "iterate({}): it has a body, and iterations within it; write the body as one of them", iteration.name);
  state_->add(iteration_text(iteration, 2),
              [](loop::Source& source, ParsedProgram& to) { parse_iterations(source, to.stage1); });
  return *this;
}

ProgramBuilder& ProgramBuilder::format(const FormatSpec& format) {
  std::string text = fmt::format("format {}({})", format.name, joined(format.old_axes));
  if (!format.params.empty()) text += fmt::format(" with ({})", joined(format.params));
  text += ":\n";
  for (const std::string& axis : format.axes) text += "  " + axis + "\n";
  text += fmt::format("  buffer({})\n  to {}\n  from {}\n", joined(format.buffer_axes), joined(format.to),
                      joined(format.from));
  state_->add(text, [](loop::Source& source, ParsedProgram& to) { parse_formats(source, to); });
  return *this;
}

ProgramBuilder& ProgramBuilder::schedule(const std::string& line) {
  state_->add(line + "\n",
              [](loop::Source& source, ParsedProgram& to) { parse_schedule_lines(source, 0, to.schedule); });
  // Lines of a text have places, which these do not.
  for (ScheduleLine& each : state_->parsed.schedule) each.line = each.column = 0;
  return *this;
}

std::string ProgramBuilder::text() const { return to_text(state_->parsed); }

Program ProgramBuilder::build() const {
  check(!state_->parsed.stage1.iterations.empty(), ErrorCode::invalid_argument,
        "program {}: it computes nothing; iterate() is missing", state_->parsed.stage1.name);
  return Program(text());
}

}  // namespace weft::sparse
