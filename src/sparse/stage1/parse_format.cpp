// format NAME(I, J) with (params): axes, buffer, maps.
#include <algorithm>

#include "base/check.h"
#include "sparse/stage1/parse.h"

namespace weft::sparse {
namespace {

using loop::Cursor;

// "to A = ..., B = ..." in terms of `variables`; one for each of `names`.
std::map<std::string, Expr> parse_maps(Cursor& line, const std::vector<std::string>& names,
                                       const std::vector<std::string>& variables) {
  loop::Symbols symbols;
  symbols.variables.insert(variables.begin(), variables.end());
  std::map<std::string, Expr> maps;
  do {
    const size_t column = line.column();
    const std::string name = line.name("an axis");
    if (std::find(names.begin(), names.end(), name) == names.end() || maps.contains(name))
      line.fail_at(column, fmt::format("'{}' is no axis that is mapped here, or is mapped twice", name));
    line.expect("=");
    maps[name] = parse_integer(line, symbols);
    if (divides_by_zero(maps[name])) line.fail_at(column, fmt::format("the map of '{}' divides by 0", name));
  } while (line.accept(","));
  line.expect_end();
  return maps;
}

}  // namespace

FormatDefinition parse_format(loop::Source& source, const std::vector<std::string>& params) {
  Cursor head = source.next();
  const size_t column = head.column();
  head.expect("format");
  FormatDefinition d{.name = head.new_name("format")};
  d.old_axes = loop::parse_names(head, "axis");
  if (head.accept("with")) d.new_params = loop::parse_names(head, "parameter");
  head.expect(":");
  head.expect_end();
  d.declared.name = d.name;
  d.declared.params = params;
  for (const std::string& name : d.new_params)
    if (std::find(params.begin(), params.end(), name) != params.end())
      head.fail_at(column, fmt::format("format {}: '{}' is a parameter of the program already", d.name, name));
  d.declared.params.insert(d.declared.params.end(), d.new_params.begin(), d.new_params.end());
  parse_declarations(source, d.declared);
  std::vector<std::string> axes;
  for (const Axis& axis : d.declared.axes) axes.push_back(axis.name);
  while (source.has_line(2)) {
    Cursor line = source.next();
    if (line.accept("buffer")) {
      line.expect("(");
      do {
        d.buffer_axes.push_back(line.name("an axis"));
      } while (line.accept(","));
      line.expect(")");
      line.expect_end();
    } else if (line.accept("to")) {
      d.to_new = parse_maps(line, axes, d.old_axes);
    } else {
      line.expect("from");
      d.to_old = parse_maps(line, d.old_axes, axes);
    }
  }
  if (const std::string problem = problem_of(d); !problem.empty())
    head.fail_at(column, fmt::format("format {}: {}", d.name, problem));
  return d;
}

}  // namespace weft::sparse
