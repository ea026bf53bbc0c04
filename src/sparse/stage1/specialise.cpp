#include "sparse/stage1/specialise.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/names.h"

namespace weft::sparse {

Stage1 specialise(Stage1 program, const std::map<std::string, int64_t>& values,
                  const std::map<std::string, double>& reals) {
  Substitution numbers;
  for (const auto& [name, value] : reals) {
    const auto at = std::find(program.reals.begin(), program.reals.end(), name);
    check(at != program.reals.end(), ErrorCode::invalid_argument,
          "set_reals: '{}' is no real parameter of program {}{}", name, program.name,
          did_you_mean(name, program.reals));
    program.reals.erase(at);
    numbers[name] = loop::real(value);
  }
  for (const auto& [name, value] : values) {
    const auto at = std::find(program.params.begin(), program.params.end(), name);
    const bool is_real = std::find(program.reals.begin(), program.reals.end(), name) != program.reals.end();
    check(!is_real, ErrorCode::invalid_argument, "set: '{}' is a real parameter of program {}; give it in set_reals",
          name, program.name);
    check(at != program.params.end(), ErrorCode::invalid_argument, "set: '{}' is no parameter of program {}{}", name,
          program.name, did_you_mean(name, program.params));
    check(value >= 0 && value <= INT32_MAX, ErrorCode::invalid_argument, "set: {} = {}; 0 to {} are allowed", name,
          value, INT32_MAX);
    program.params.erase(at);
    numbers[name] = value;
  }
  for (Axis& axis : program.axes) {
    for (Expr* length : {&axis.length, &axis.nnz}) {
      if (!*length) continue;
      const Expr written = std::exchange(*length, loop::substitute(*length, numbers));
      check(!divides_by_zero(*length), ErrorCode::invalid_argument, "set: the length {} of axis '{}' divides by 0: {}",
            loop::to_words(written), axis.name, loop::to_words(*length));
    }
  }
  for (Iteration& it : program.iterations) {
    for (Body* body : {&it.init, &it.body}) loop::substitute(*body, numbers);
    for (Expr& condition : it.where) condition = loop::substitute(condition, numbers);
  }
  return program;
}

}  // namespace weft::sparse
