#include "tests/sparse/random/number.h"

#include <algorithm>
#include <cmath>

namespace weft::sparse::random {
namespace {

constexpr double kUnit = 0x1p-24;  // of fp32: half of the distance between numbers, relative
constexpr double kRoundings = 16;  // of which an operation may have so many
constexpr double kLeast = 1e-37;   // what is smaller than fp32 holds in full
constexpr double kFinest = 0x1p-12;

// The largest power of two up to 1 that the value is a multiple of; 0: none.
double granule_of(double value) {
  for (double granule = 1; granule >= kFinest; granule /= 2)
    if (std::fmod(value, granule) == 0) return granule;
  return 0;
}

// Whether all sums of what `size` is made of are exact with so many binary digits.
bool is_exact(double size, double granule, int digits = 24) {
  return granule >= kFinest && size <= std::ldexp(granule, digits);
}

Number rounded(double value, double error, double size) {
  return {value, error + kRoundings * kUnit * size + kLeast, size, 0};
}

// Largest distance from the value within the operands' errors; monotone in each operand.
double spread(const Operation& op, const Number* x, double value) {
  double most = 0;
  for (int corner = 0; corner < (1 << op.operands.size()); ++corner) {
    double at[3] = {};
    for (size_t i = 0; i < op.operands.size(); ++i) at[i] = x[i].value + (corner >> i & 1 ? x[i].error : -x[i].error);
    const double distance = std::fabs(op.apply(at) - value);
    if (!(distance <= most)) most = distance;  // NaN, too
  }
  return most;
}

Number function_of(const Operation& op, const Number* x, double value) {
  const Number& last = x[op.operands.size() - 1];
  if (op.symbol == "/" && std::fabs(last.value) <= last.error) throw Unusable("a divisor that may be 0");
  if ((op.symbol == "log" || op.symbol == "pow") && x[0].value <= x[0].error) throw Unusable("not above 0");
  if (op.symbol == "sqrt" && x[0].value < x[0].error) throw Unusable("a root of what may lie below 0");
  const bool are_exact = x[0].error == 0 && last.error == 0, is_nearest = op.symbol == "/" || op.symbol == "sqrt";
  const double granule = granule_of(value);
  if (are_exact && is_nearest && is_exact(std::fabs(value), granule)) return {value, 0, std::fabs(value), granule};
  if (are_exact && value == 0) return number(0);  // log(1), tanh(0)
  const double error = spread(op, x, value);
  return rounded(value, error, std::fabs(value) + error);
}

}  // namespace

Number number(double value) {
  const double granule = granule_of(value), size = std::fabs(value);
  if (granule == 0) return {value, static_cast<float>(value) == value ? 0 : kUnit * size, size, 0};
  return {value, 0, size, granule};
}

Number result_of(const Operation& op, const Number* x) {
  double values[3] = {};
  for (size_t i = 0; i < op.operands.size(); ++i) values[i] = x[i].value;
  const double value = op.apply(values);
  const double size = std::max(x[0].size, x[1].size), granule = std::min(x[0].granule, x[1].granule);
  switch (op.rounding) {
    case Rounding::none: break;
    case Rounding::choice: {
      if (op.symbol == "select") return x[0].value != 0 ? x[1] : x[2];
      if (op.operands.size() == 1) return {value, x[0].error, x[0].size, x[0].granule};
      return {value, std::max(x[0].error, x[1].error), size, granule};
    }
    case Rounding::comparison: {
      const double error = x[0].error + x[1].error;
      if (error > 0 && std::fabs(x[0].value - x[1].value) <= error) throw Unusable("a comparison of what is rounded");
      break;
    }
    case Rounding::conversion:
      if (std::fabs(value) > 1 / kUnit) return rounded(value, 0, std::fabs(value));
      break;
    case Rounding::sum: {
      const double error = x[0].error + x[1].error, all = x[0].size + x[1].size;
      return error == 0 && is_exact(all, granule) ? Number{value, 0, all, granule} : rounded(value, error, all);
    }
    case Rounding::product: {
      const double all = x[0].size * x[1].size, digits = x[0].granule * x[1].granule;
      if (x[0].error == 0 && x[1].error == 0 && is_exact(all, digits)) return {value, 0, all, digits};
      return rounded(value, x[0].error * x[1].size + x[1].error * (x[0].size + x[0].error), all);
    }
    case Rounding::function: return function_of(op, x, value);
  }
  return {value, 0, std::fabs(value), 1};
}

Number stored(const Number& x, const std::string& dtype, bool accumulates) {
  if (dtype != "fp16" && dtype != "bf16") return x;
  const int digits = dtype == "fp16" ? 11 : 8;
  if (x.error == 0 && is_exact(x.size, x.granule, digits)) return x;
  if (dtype == "fp16" && x.size + x.error > 60000) throw Unusable("more than fp16 holds");
  const double half = std::ldexp(accumulates ? kRoundings * x.size : std::fabs(x.value) + x.error, -digits);
  return {x.value, x.error + half + 0x1p-25, x.size, 0};
}

}  // namespace weft::sparse::random
