#include "serve/step_cost.h"

#include <algorithm>

namespace weft::serve {
namespace {

constexpr double kForget = 0.98;
constexpr double kWithin = 0.97;  // of steps that mix end within what is said times the overshoot
constexpr double kOvershootStep = 0.03, kMostOvershoot = 2;
constexpr double kLargest = 1e4;  // of the covariance: with one kind of step alone it would grow without bound
constexpr double kMostDoubt =
    0.5;  // of a step with prompts: answers that decode for minutes say nothing of what rows cost

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
  if (work.mixes()) {  // a running quantile: up seldom and far, down often and little
    const bool beyond = seconds > overshoot_ * this->seconds(work);
    overshoot_ = std::clamp(overshoot_ + kOvershootStep * (beyond ? kWithin : kWithin - 1), 1., kMostOvershoot);
  }
  Vector x = features(work), gain{};
  for (double& value : x) value /= seconds;
  double error = 1, scale = kForget;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) gain[i] += covariance_[i][j] * x[j];
    error -= weights_[i] * x[i];
    scale += gain[i] * x[i];
  }
  for (size_t i = 0; i < 3; ++i) weights_[i] += gain[i] / scale * error;
  if (work.rows > work.pieces) last_prompt_ = x;
  double largest = 0;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) covariance_[i][j] -= gain[i] * gain[j] / scale;
    largest = std::max(largest, covariance_[i][i]);
  }
  if (largest > kLargest * kForget || doubt(last_prompt_) > kMostDoubt * kForget) return;
  for (Vector& row : covariance_)
    for (double& value : row) value /= kForget;
}

// The variance of what is said of a step, in that of a step's own noise.
double StepCost::doubt(const Vector& x) const {
  double sum = 0;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) sum += x[i] * covariance_[i][j] * x[j];
  return sum;
}

int64_t StepCost::rows_that_fit(const Work& work, int64_t before, double target, int64_t most) const {
  int64_t fits = 0, fails = most + 1;
  while (fits + 1 < fails) {
    const int64_t rows = fits + (fails - fits) / 2;
    Work with = work;
    with.add(rows, before);
    (overshoot_ * seconds(with) <= target ? fits : fails) = rows;
  }
  return fits;
}

}  // namespace weft::serve
