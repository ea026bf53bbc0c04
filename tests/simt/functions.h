// What docs/numerics.md says of the math of variants on a card, checked against the C library in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/simt/kernels/args.h"

namespace weft::simt {

// The whole range of floats, more densely where functions bend, and numbers that are special.
inline std::vector<float> function_arguments() {
  std::vector<float> x = {0.f, -0.f, INFINITY, -INFINITY, NAN, 1.f, -1.f, 88.f, -100.f, 89.f, -1e30f, 3e38f};
  for (int i = -1200; i < 1200; ++i) x.push_back(static_cast<float>(i) * 0.07331f);
  for (float size = 1.3e-38f; size < 2e38f; size *= 1.171f) x.insert(x.end(), {size, -size});
  return x;
}

// y: [kFunctions, x.size()].
inline void check_functions(const std::vector<float>& x, const std::vector<float>& y) {
  struct Function {
    const char* name;
    double (*exact)(double);
    double relative, absolute;  // the error: a share of the result, and beside that
  };
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  const Function functions[kFunctions] = {{"exp", std::exp, 3.5e-7, 1.75e-38},
                                          {"exp2", std::exp2, 2.4e-7, 1.2e-38},
                                          {"log", std::log, 5e-7, 0},
                                          {"tanh", std::tanh, 0, 4e-7},
                                          {"fast_tanh", std::tanh, 5e-4, 0},
                                          {"sigmoid", sigmoid, 6e-7, 1.2e-38},
                                          {"abs", std::fabs, 0, 0}};
  for (size_t f = 0; f < kFunctions; ++f)
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = functions[f].exact(static_cast<double>(x[i])),
                   got = static_cast<double>(y[f * x.size() + i]);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(got)) << functions[f].name << "(" << x[i] << ") = " << got;
      } else if (std::fabs(exact) > 3.4028235e38) {
        EXPECT_EQ(got, std::copysign(INFINITY, exact)) << functions[f].name << "(" << x[i] << ")";
      } else {
        EXPECT_LE(std::fabs(got - exact), functions[f].relative * std::fabs(exact) + functions[f].absolute)
            << functions[f].name << "(" << x[i] << ") = " << got;
      }
    }
}

}  // namespace weft::simt
