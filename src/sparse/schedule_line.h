// Reads the operands of a line of a schedule: what every primitive begins with.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "sparse/stage1/parse.h"

namespace weft::sparse {

// `form` is how the line is written.
inline void require(bool ok, const ScheduleLine& line, const std::string& form) {
  check(ok, ErrorCode::invalid_argument, "{}: the operands are written as {}", line.primitive, form);
}

inline const std::string& name_at(const ScheduleLine& line, size_t index, const std::string& form) {
  require(index < line.operands.size() && line.operands[index].kind == Operand::Kind::name, line, form);
  return line.operands[index].text;
}

inline int64_t integer_at(const ScheduleLine& line, size_t index, const std::string& form) {
  require(index < line.operands.size() && line.operands[index].kind == Operand::Kind::integer, line, form);
  return line.operands[index].integer;
}

// Throws for a primitive that is not of this stage: `advice` where it is of the other one.
void check_known(const ScheduleLine& line, const std::vector<std::string>& own, const std::vector<std::string>& other,
                 const char* advice);
const std::vector<std::string>& stage1_primitives();
const std::vector<std::string>& stage2_primitives();

}  // namespace weft::sparse
