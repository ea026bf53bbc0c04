#include "sparse/stage1/parse.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"

namespace weft::sparse {
namespace {

using loop::Cursor;
using loop::Source;
using loop::Symbols;

constexpr size_t kMaxAround = 8;
constexpr size_t kMaxDeclared = 4096;  // axes, buffers and iterations of a program
constexpr size_t kMaxLines = 2048;     // of a schedule, each of which may make a loop more

Symbols scalar_symbols(const Declarations& declared) {
  Symbols symbols;
  symbols.variables.insert(declared.params.begin(), declared.params.end());
  symbols.variables.insert(declared.reals.begin(), declared.reals.end());
  symbols.reals.insert(declared.reals.begin(), declared.reals.end());
  return symbols;
}

std::string named_argument(Cursor& line, std::string_view keyword) {
  line.expect(",");
  line.expect(keyword);
  line.expect("=");
  return line.new_name(keyword);
}

Expr parse_length(Cursor& line, const Symbols& symbols) {
  const size_t column = line.column();
  Expr length = parse_integer(line, symbols);
  if (divides_by_zero(length)) line.fail_at(column, fmt::format("{}: the divisor is 0", loop::to_text(length)));
  return length;
}

// "sparse_variable(I, n, nnz, indptr=a, indices=b)" after the name of the kind.
Axis parse_axis(Cursor& line, std::string name, std::string_view kind, const Symbols& symbols, bool has_rows) {
  Axis axis{
      .name = std::move(name), .is_sparse = kind.starts_with("sparse"), .is_variable = kind.ends_with("variable")};
  line.expect("(");
  if (kind != "dense_fixed") {
    axis.parent = line.name("the parent axis");
    line.expect(",");
  }
  axis.length = parse_length(line, symbols);
  if (kind != "dense_fixed") {
    line.expect(",");
    axis.nnz = parse_length(line, symbols);
    if (axis.is_variable) axis.indptr = named_argument(line, "indptr");
    if (axis.is_sparse) axis.indices = named_argument(line, "indices");
    if (has_rows && axis.is_variable && line.looks_like(",")) axis.rows = named_argument(line, "rows");
  }
  line.expect(")");
  if (line.accept(":")) {
    const size_t column = line.column();
    axis.index_type = loop::parse_dtype(line);
    if (loop::type_of(axis.index_type) != Type::integer) line.fail_at(column, "indices are of type int32 or int64");
  }
  line.expect_end();
  return axis;
}

SparseBuffer parse_buffer(Cursor& line, std::string name, bool temporary) {
  SparseBuffer buffer{.name = std::move(name), .temporary = temporary};
  line.expect("(");
  do {
    buffer.axes.push_back(line.name("an axis"));
  } while (line.accept(","));
  line.expect(")");
  line.expect(":");
  buffer.dtype = loop::parse_dtype(line);
  line.expect_end();
  return buffer;
}

// iterate NAME(I, fuse(J, K)) "SRS" as (i, j, k) of ITERATION where CONDITION:
void parse_iteration_head(Cursor& line, Iteration& it, Symbols symbols) {
  it.name = line.new_name("iteration");
  line.expect("(");
  do {
    it.axes.emplace_back();
    const bool fused = line.accept("fuse");
    if (fused) line.expect("(");
    do {
      it.axes.back().push_back(line.name("an axis"));
    } while (fused && line.accept(","));
    if (fused) line.expect(")");
  } while (line.accept(","));
  line.expect(")");
  it.kinds = line.quoted();
  line.expect("as");
  it.iterators = loop::parse_names(line, "iterator");
  symbols.variables.insert(it.iterators.begin(), it.iterators.end());
  if (line.accept("of")) it.place.iteration = line.name("the iteration that errors name");
  if (line.accept("where")) {
    do {
      it.where.push_back(parse_condition(line, symbols));
    } while (line.accept(","));
  }
  line.expect(":");
  line.expect_end();
}

// The axes of the iteration around it come first.
void put_within(const Iteration& outer, Iteration& it) {
  it.around = outer.around;
  it.around.push_back({outer.name, outer.axes.size()});
  it.axes.insert(it.axes.begin(), outer.axes.begin(), outer.axes.end());
  it.kinds = outer.kinds + it.kinds;
  it.iterators.insert(it.iterators.begin(), outer.iterators.begin(), outer.iterators.end());
}

std::vector<Iteration> parse_inner(Source& source, Cursor& line, size_t column, const Declarations& declared,
                                   const Iteration& it);

// `outer` is an iteration that it stands within, or null.
std::vector<Iteration> parse_iteration(Source& source, Cursor& line, const Declarations& declared, bool preprocess,
                                       const Iteration* outer = nullptr) {
  const int deep = outer == nullptr ? 4 : 6 + 2 * static_cast<int>(outer->around.size());
  const size_t column = line.column();
  Iteration it{.preprocess = preprocess, .place = {line.number(), static_cast<int>(column)}};
  Symbols symbols = symbols_of(declared);
  if (outer != nullptr) symbols.variables.insert(outer->iterators.begin(), outer->iterators.end());
  parse_iteration_head(line, it, symbols);
  if (outer != nullptr) put_within(*outer, it);
  if (std::string problem = problem_of_axes(declared, it); !problem.empty()) line.fail_at(column, problem);
  symbols.variables.insert(it.iterators.begin(), it.iterators.end());
  if (source.has_line(deep) && Cursor(source.peek()).looks_like("iterate"))
    return parse_inner(source, line, column, declared, it);
  const auto parse_stores = [&](int indent, Body& body) {
    while (source.has_line(indent)) {
      Cursor store = source.next();
      if (store.looks_like("iterate"))
        store.fail_at(
            store.column(),
            "an iteration computes something itself, or holds iterations that do, and not both; write what it "
            "computes as an iteration, too");
      body.push_back(parse_store(store, symbols));
    }
  };
  if (source.has_line(deep)) {
    if (Cursor first = source.peek(); first.accept("init")) {
      first.expect(":");
      first.expect_end();
      source.next();
      parse_stores(deep + 2, it.init);
      if (it.init.empty())
        source.fail_after(fmt::format("init computes nothing; write its lines {} spaces deep", deep + 2));
    }
  }
  parse_stores(deep, it.body);
  if (it.body.empty())
    source.fail_after(fmt::format("iteration '{}' computes nothing; write its lines {} spaces deep", it.name, deep));
  if (std::string problem = problem_of(declared, it); !problem.empty()) line.fail_at(column, problem);
  return {it};
}

std::vector<Iteration> parse_inner(Source& source, Cursor& line, size_t column, const Declarations& declared,
                                   const Iteration& it) {
  const size_t depth = it.around.size() + 1;
  if (depth > kMaxAround)
    line.fail_at(column, fmt::format("iterations stand within others at most {} deep", kMaxAround));
  if (!it.where.empty())
    line.fail_at(column, fmt::format("'where' of '{}' belongs to the iterations within it", it.name));
  for (const auto& group : it.axes)
    if (group.size() > 1)
      line.fail_at(column, fmt::format("axes of '{}', which has others within, are fused", it.name));
  std::vector<Iteration> inner;
  Names names;
  while (source.has_line(2 + 2 * static_cast<int>(depth))) {
    Cursor head = source.next();
    head.expect("iterate");
    const size_t head_column = head.column();
    std::vector<Iteration> ones = parse_iteration(source, head, declared, it.preprocess, &it);
    const std::string& name = ones[0].around.size() == depth ? ones[0].name : ones[0].around[depth].name;
    if (!names.insert(name).second) head.fail_at(head_column, fmt::format("iteration '{}' is declared twice", name));
    inner.insert(inner.end(), std::make_move_iterator(ones.begin()), std::make_move_iterator(ones.end()));
  }
  return inner;
}

Operand parse_operand(Cursor& line, int depth) {
  if (depth > 8) line.fail("operands stand more than 8 deep");
  if (line.looks_like("-") || line.at_digit()) {
    const size_t column = line.column();
    const Expr number = loop::parse_expr(line, {});
    Operand operand{.kind = Operand::Kind::integer};
    if (!loop::is_integer(number, &operand.integer)) line.fail_at(column, "an integer is expected here");
    return operand;
  }
  Operand operand{.text = line.name("an operand")};
  while (line.accept(".")) operand.text += "." + line.name("the name after the dot");
  if (!line.accept("(")) return operand;
  operand.kind = Operand::Kind::call;
  if (line.accept(")")) return operand;
  do {
    operand.operands.push_back(parse_operand(line, depth + 1));
  } while (line.accept(","));
  line.expect(")");
  return operand;
}

ScheduleLine parse_schedule_line(Cursor& line) {
  ScheduleLine result{.line = line.number()};
  result.column = static_cast<int>(line.column());
  std::vector<std::string> names;
  do {
    names.push_back(line.name("a primitive"));
  } while (line.accept(","));
  if (line.accept("=")) {
    result.results = names;
    result.column = static_cast<int>(line.column());
    result.primitive = line.name("a primitive");
  } else if (names.size() == 1) {
    result.primitive = names[0];
  } else {
    line.expect("=");
  }
  line.expect("(");
  if (!line.accept(")")) {
    do {
      result.operands.push_back(parse_operand(line, 0));
    } while (line.accept(","));
    line.expect(")");
  }
  line.expect_end();
  return result;
}

}  // namespace

void parse_schedule_lines(Source& source, int indent, Schedule& schedule) {
  while (source.has_line(indent)) {
    Cursor line = source.next();
    if (schedule.size() == kMaxLines) line.fail(fmt::format("a schedule has at most {} lines", kMaxLines));
    schedule.push_back(parse_schedule_line(line));
  }
}

Symbols symbols_of(const Declarations& declared) {
  Symbols symbols = scalar_symbols(declared);
  for (const SparseBuffer& b : declared.buffers) symbols.buffers[b.name] = {loop::type_of(b.dtype), b.axes.size()};
  return symbols;
}

void parse_declarations(Source& source, Declarations& declared, bool has_rows) {
  while (source.has_line(2)) {
    Cursor line = source.peek();
    const size_t column = line.column();
    if (line.looks_like("iterate") || line.looks_like("preprocess") || line.looks_like("for")) return;
    if (line.accept("apart")) {
      source.next();
      declared.apart.push_back(loop::parse_apart(line));
      if (const std::string problem = problem_of_apart(declared, declared.apart.back()); !problem.empty())
        line.fail_at(column, "apart: " + problem);
      continue;
    }
    std::string name = line.name("a declaration");
    if (!line.accept("=")) return;
    line = source.next();
    if (declared.axes.size() + declared.buffers.size() >= kMaxDeclared)
      line.fail_at(column, fmt::format("a program declares at most {} axes and buffers", kMaxDeclared));
    name = line.new_name("axis or buffer");
    line.expect("=");
    const size_t kind_column = line.column();
    const std::string kind =
        line.name("dense_fixed, dense_variable, sparse_fixed, sparse_variable, buffer or temporary");
    std::string problem;
    if (kind == "buffer" || kind == "temporary") {
      SparseBuffer buffer = parse_buffer(line, name, kind == "temporary");
      problem = problem_of(declared, buffer);
      if (problem.empty()) declared.buffers.push_back(std::move(buffer));
    } else if (kind == "dense_fixed" || kind == "dense_variable" || kind == "sparse_fixed" ||
               kind == "sparse_variable") {
      Axis axis = parse_axis(line, name, kind, scalar_symbols(declared), has_rows);
      problem = problem_of(declared, axis);
      if (problem.empty()) declared.axes.push_back(std::move(axis));
    } else {
      line.fail_at(kind_column, fmt::format("'{}' declares nothing; allowed are dense_fixed, dense_variable, "
                                            "sparse_fixed, sparse_variable, buffer and temporary",
                                            kind));
    }
    if (!problem.empty()) line.fail_at(column, problem);
  }
}

void parse_head(Source& source, Stage1& program) {
  if (source.at_end()) source.fail_after("a program is expected, as in program NAME(n):");
  if (!source.has_line(0)) source.fail_after("a program is expected");
  Cursor head = source.next();
  head.expect("program");
  program.name = head.new_name("program");
  const size_t params_column = head.column();
  loop::parse_parameters(head, program.params, program.reals);
  if (std::count(program.params.begin(), program.params.end(), program.name) +
          std::count(program.reals.begin(), program.reals.end(), program.name) >
      0)
    head.fail_at(params_column, fmt::format("'{}' is declared twice", program.name));
  head.expect(":");
  head.expect_end();
}

void parse_iterations(Source& source, Stage1& program) {
  Names taken;
  for (const Iteration& it : program.iterations) {
    taken.insert(it.name);
    for (const Iteration::Around& around : it.around) taken.insert(around.name);
  }
  while (source.has_line(2)) {
    Cursor line = source.next();
    const bool preprocess = line.accept("preprocess");
    if (!preprocess) line.expect("iterate");
    const size_t column = line.column();
    std::vector<Iteration> parsed_here = parse_iteration(source, line, program, preprocess);
    for (size_t i = 0; i < parsed_here.size(); ++i) {
      Iteration& it = parsed_here[i];
      // Iterations around this one, too, have names of their own.
      const size_t known = i == 0 ? 0 : num_common(program.iterations.back(), it);
      std::vector<std::string> names;
      for (size_t d = known; d < it.around.size(); ++d) names.push_back(it.around[d].name);
      names.push_back(it.name);
      for (const std::string& name : names)
        if (!taken.insert(name).second) line.fail_at(column, fmt::format("iteration '{}' is declared twice", name));
      if (program.iterations.size() == kMaxDeclared)
        line.fail_at(column, fmt::format("a program has at most {} iterations", kMaxDeclared));
      program.iterations.push_back(std::move(it));
    }
  }
}

void parse_formats(Source& source, ParsedProgram& parsed) {
  while (source.has_line(0)) {
    if (Cursor line = source.peek(); !line.looks_like("format")) break;
    const Cursor line = source.peek();
    parsed.formats.push_back(parse_format(source, parsed.stage1.params));
    const auto named = [&](const FormatDefinition& f) { return f.name == parsed.formats.back().name; };
    if (std::count_if(parsed.formats.begin(), parsed.formats.end(), named) > 1)
      line.fail_at(1, fmt::format("format '{}' is defined twice", parsed.formats.back().name));
  }
}

ParsedProgram parse_program(std::string_view text) {
  Source source(text);
  ParsedProgram parsed;
  Stage1& program = parsed.stage1;
  parse_head(source, program);
  parse_declarations(source, program);
  parse_iterations(source, program);
  if (program.iterations.empty()) source.fail_after("the program computes nothing; write an iterate");
  parse_formats(source, parsed);
  if (source.has_line(0)) {
    Cursor line = source.next();
    line.expect("schedule");
    line.expect(":");
    line.expect_end();
    parse_schedule_lines(source, 2, parsed.schedule);
  }
  if (!source.at_end()) {
    Cursor line = source.peek();
    line.fail("nothing may follow here");
  }
  return parsed;
}

Schedule parse_schedule(std::string_view text) {
  Source source(text);
  Schedule schedule;
  parse_schedule_lines(source, 0, schedule);
  if (!source.at_end()) source.peek().fail("nothing may follow here");
  return schedule;
}

}  // namespace weft::sparse
