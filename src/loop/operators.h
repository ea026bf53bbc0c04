// How operations are written in the text form: printer and parser share it.
#pragma once

#include <string_view>

#include "loop/expr.h"

namespace weft::loop {

struct InfixOperator {
  std::string_view symbol;
  Op op;
  int precedence;  // higher binds closer; all associate to the left
};
// Longer symbols first where one begins with another.
inline constexpr InfixOperator kInfixOperators[] = {
    {"or", Op::logical_or, 1}, {"and", Op::logical_and, 2}, {"<=", Op::less_equal, 4}, {">=", Op::greater_equal, 4},
    {"==", Op::equal, 4},      {"!=", Op::not_equal, 4},    {"<", Op::less, 4},        {">", Op::greater, 4},
    {"+", Op::add, 5},         {"-", Op::subtract, 5},      {"*", Op::multiply, 6},    {"//", Op::floor_div, 6},
    {"/", Op::divide, 6},      {"%", Op::modulo, 6}};
inline constexpr int kNotPrecedence = 3, kSumPrecedence = 5, kProductPrecedence = 6, kUnaryPrecedence = 7,
                     kPostfixPrecedence = 8;

struct NamedFunction {
  std::string_view name;
  Op op;
  size_t num_operands;
};
inline constexpr NamedFunction kNamedFunctions[] = {{"min", Op::minimum, 2},
                                                    {"max", Op::maximum, 2},
                                                    {"select", Op::select, 3},
                                                    {"exp", Op::exponential, 1},
                                                    {"log", Op::logarithm, 1},
                                                    {"tanh", Op::hyperbolic_tangent, 1},
                                                    {"pow", Op::power, 2},
                                                    {"sigmoid", Op::sigmoid, 1},
                                                    {"sqrt", Op::square_root, 1},
                                                    {"abs", Op::absolute, 1},
                                                    {"real", Op::to_real, 1},
                                                    {"find", Op::find, 3},
                                                    {"upper_bound", Op::upper_bound, 3}};

int precedence_of(const Node& node);

}  // namespace weft::loop
