// The text form of a program with its schedule. Errors name line and column.
//
//   ParsedProgram parsed = parse_program(text);
//   run_schedule(parsed.stage1, parsed.schedule);   // sparse/schedule.h
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loop/parse.h"
#include "sparse/formats/definition.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// An operand of a primitive: name, name.name, 16, "text" or format(operands).
struct Operand {
  enum class Kind : uint8_t { name, integer, call } kind = Kind::name;
  std::string text = {};  // the name, with its dot; of a call the function
  int64_t integer = 0;
  std::vector<Operand> operands = {};
  friend bool operator==(const Operand&, const Operand&) = default;
};
std::string to_text(const Operand& operand);

// results = primitive(operands)
struct ScheduleLine {
  std::vector<std::string> results = {};
  std::string primitive = {};
  std::vector<Operand> operands = {};
  int line = 0, column = 0;  // where it stands; 0: in no text
  friend bool operator==(const ScheduleLine& a, const ScheduleLine& b) {
    return a.results == b.results && a.primitive == b.primitive && a.operands == b.operands;
  }
};
using Schedule = std::vector<ScheduleLine>;
std::string to_text(const Schedule& schedule);

struct ParsedProgram {
  Stage1 stage1;
  Schedule schedule = {};
  std::vector<FormatDefinition> formats = {};
  friend bool operator==(const ParsedProgram&, const ParsedProgram&) = default;
};
std::string to_text(const FormatDefinition& format);
std::string to_text(const ParsedProgram& program);

ParsedProgram parse_program(std::string_view text);
// Lines of a schedule alone, at no indentation.
Schedule parse_schedule(std::string_view text);

// The parts of a program's text, each at its indentation, with the checks that they call for. Each ends before what is
// none.
void parse_head(loop::Source& source, Stage1& program);
void parse_iterations(loop::Source& source, Stage1& program);
void parse_formats(loop::Source& source, ParsedProgram& parsed);
void parse_schedule_lines(loop::Source& source, int indent, Schedule& schedule);
// Shared with the text of stage II: parameters, axes, buffers, at two spaces. Ends before what is neither. `has_rows`:
// axes may name an array of rows, which materialise_rows gives them.
void parse_declarations(loop::Source& source, Declarations& declared, bool has_rows = false);
loop::Symbols symbols_of(const Declarations& declared);
// "format NAME(I, J):" and what follows, of a program with these parameters.
FormatDefinition parse_format(loop::Source& source, const std::vector<std::string>& params);

}  // namespace weft::sparse
