#include "serve/step_cost.h"

#include <algorithm>

namespace weft::serve {
namespace {

constexpr double kForget = 0.98;
constexpr double kLargest = 1e4;  // of the covariance: with one kind of step alone it would grow without bound

}  // namespace

// Before the first step: a small model on a few cores, rather too slow than too fast.
StepCost::StepCost() : weights_{0.01, 0.002, 1e-3}, covariance_{} {
  for (size_t i = 0; i < 3; ++i) covariance_[i][i] = kLargest;
}

// Keys in thousands, so that all three are of a size.
StepCost::Vector StepCost::features(const Work& work) {
  return {1., static_cast<double>(work.rows), work.keys / 1000.};
}

double StepCost::seconds(const Work& work) const {
  const Vector x = features(work);
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += std::max(0., weights_[i]) * x[i];
  return sum;
}

void StepCost::learn(const Work& work, double seconds) {
  if (!(seconds > 0) || work.rows == 0) return;
  Vector x = features(work), gain{};
  for (double& value : x) value /= seconds;
  double error = 1, scale = kForget;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) gain[i] += covariance_[i][j] * x[j];
    error -= weights_[i] * x[i];
    scale += gain[i] * x[i];
  }
  for (size_t i = 0; i < 3; ++i) weights_[i] += gain[i] / scale * error;
  double largest = 0;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) covariance_[i][j] -= gain[i] * gain[j] / scale;
    largest = std::max(largest, covariance_[i][i]);
  }
  if (largest * kForget > kLargest) return;
  for (Vector& row : covariance_)
    for (double& value : row) value /= kForget;
}

int64_t StepCost::rows_that_fit(const Work& work, int64_t before, double target, int64_t most) const {
  int64_t fits = 0, fails = most + 1;
  while (fits + 1 < fails) {
    const int64_t rows = fits + (fails - fits) / 2;
    Work with = work;
    with.add(rows, before);
    (seconds(with) <= target ? fits : fails) = rows;
  }
  return fits;
}

}  // namespace weft::serve
