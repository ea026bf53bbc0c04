// An epoch of the bench's GraphSAGE against differences of a loss in fp64.
#include "bench/sparse/graphsage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace weft::bench {
namespace {

constexpr int64_t kFeat = 6, kHidden = 8, kClasses = 3;

std::vector<double> doubles(const TensorView& tensor) {
  const auto* at = static_cast<const float*>(tensor.data());
  return {at, at + tensor.size()};
}

using Rows = std::vector<double>;  // row by row

Rows times(const Rows& a, const Rows& b, int64_t inner, int64_t cols) {
  Rows c(a.size() / static_cast<size_t>(inner) * static_cast<size_t>(cols));
  for (size_t i = 0; i < c.size(); ++i)
    for (int64_t l = 0; l < inner; ++l)
      c[i] += a[i / static_cast<size_t>(cols) * static_cast<size_t>(inner) + static_cast<size_t>(l)] *
              b[static_cast<size_t>(l * cols) + i % static_cast<size_t>(cols)];
  return c;
}

// own + mean over neighbours + bias.
Rows layer(const SparseCase& graph, const Rows& x, const double* weights, int64_t inner, int64_t cols) {
  const int64_t size = (inner * cols + 3) / 4 * 4;
  Rows z = times(x, {weights, weights + inner * cols}, inner, cols);
  const Rows theirs = times(x, {weights + size, weights + size + inner * cols}, inner, cols);
  for (int64_t i = 0; i < graph.rows; ++i) {
    const int32_t begin = graph.indptr[static_cast<size_t>(i)], end = graph.indptr[static_cast<size_t>(i) + 1];
    for (int64_t c = 0; c < cols; ++c) {
      double& sum = z[static_cast<size_t>(i * cols + c)];
      sum += weights[2 * size + c];
      for (int32_t p = begin; p < end; ++p)
        sum += theirs[static_cast<size_t>(graph.indices[static_cast<size_t>(p)] * cols + c)] / (end - begin);
    }
  }
  return z;
}

double loss_of(const SparseCase& graph, const Rows& x, const Rows& parameters) {
  Rows h = layer(graph, x, parameters.data(), kFeat, kHidden);
  for (double& value : h) value = std::max(value, 0.);
  const Rows z = layer(graph, h, parameters.data() + 2 * kFeat * kHidden + kHidden, kHidden, kClasses);
  double loss = 0;
  for (int64_t i = 0; i < graph.rows; ++i) {
    const double* const row = z.data() + i * kClasses;
    double sum = 0;
    for (int64_t c = 0; c < kClasses; ++c) sum += std::exp(row[c]);
    loss += std::log(sum) - row[i % kClasses];
  }
  return loss / static_cast<double>(graph.rows);
}

void expect_steps(const sparse::VectorUnit& unit) {
  const SparseCase graph = power_law_case(40, 160);
  WorkerTeam team(2);
  SageTraining training({.graph = &graph, .feat = kFeat, .hidden = kHidden, .classes = kClasses}, unit, Device::cpu(),
                        Stream::cpu(team), [](const void* data, size_t bytes) {
                          Workspace memory(Device::cpu(), bytes);
                          std::memcpy(memory.data(), data, bytes);
                          return memory;
                        });
  const Rows before = doubles(training.parameters()), x = doubles(training.features());
  training.run();
  const Rows losses = doubles(training.losses()), gradients = doubles(training.gradients());
  double mean = 0;
  for (const double loss : losses) mean += loss / static_cast<double>(graph.rows);
  EXPECT_NEAR(mean, loss_of(graph, x, before), 1e-5);
  const Rows after = doubles(training.parameters());
  for (size_t i = 0; i < before.size(); i += 3) {
    Rows more = before, less = before;
    more[i] += 1e-5, less[i] -= 1e-5;
    const double gradient = (loss_of(graph, x, more) - loss_of(graph, x, less)) / 2e-5;
    EXPECT_NEAR(gradients[i], gradient, 1e-4) << i;
    const double decayed = gradients[i] + 5e-4 * before[i];
    EXPECT_NEAR(after[i], before[i] - 0.01 * decayed / (std::fabs(decayed) + 1e-8), 2e-4) << i;
  }
  for (int epoch = 0; epoch < 30; ++epoch) training.run();
  double later = 0;
  for (const double loss : doubles(training.losses())) later += loss / static_cast<double>(graph.rows);
  EXPECT_LT(later, 0.9 * mean);
}

TEST(GraphSage, StepsByTheGradientOfItsLoss) { expect_steps(sparse::vector_unit(Device::cpu())); }

// What the loops of a card's schedules compute.
TEST(GraphSage, StepsSoByTheSchedulesOfCards) { expect_steps(sparse::vector_unit(Device::cuda())); }

}  // namespace
}  // namespace weft::bench
