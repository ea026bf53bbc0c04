#include "bench/sparse/graphsage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sparse/operators/card.h"
#include "weft/ops.h"

namespace weft::bench {
namespace {

constexpr const char* kHidden = R"(program hidden(rows, cols):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  Own = buffer(I, J): fp32
  Mean = buffer(I, J): fp32
  Bias = buffer(J): fp32
  H = buffer(I, J): fp32
  iterate hidden(I, J) "SS" as (i, j):
    H[i, j] = max(Own[i, j] + Mean[i, j] + Bias[j], 0.0)
)";

constexpr const char* kThrough = R"(program through(rows, cols):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  H = buffer(I, J): fp32
  D = buffer(I, J): fp32
  iterate through(I, J) "SS" as (i, j):
    D[i, j] = select(H[i, j] > 0.0, D[i, j], 0.0)
)";

// Cross entropy of each node, and D, the gradient of their mean in the scores.
constexpr const char* kLoss = R"(program loss(rows, cols, scale: real):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  O = dense_fixed(1)
  Own = buffer(I, J): fp32
  Mean = buffer(I, J): fp32
  Bias = buffer(J): fp32
  Label = buffer(I): int32
  D = buffer(I, J): fp32
  Losses = buffer(I, O): fp32
  Top = temporary(I): fp32
  Score = temporary(I): fp32
  Sum = temporary(I): fp32
  iterate nodes(I) "S" as (i):
    iterate scores(J) "S" as (j):
      D[i, j] = Own[i, j] + Mean[i, j] + Bias[j]
    iterate largest(J) "R" as (j):
      init:
        Top[i] = -inf
      Top[i] = max(Top[i], D[i, j])
    iterate own_score(J) "R" as (j):
      init:
        Score[i] = 0.0
      Score[i] = Score[i] + select(j == Label[i], D[i, j] - Top[i], 0.0)
    iterate exponentials(J) "S" as (j):
      D[i, j] = exp(D[i, j] - Top[i])
    iterate sums(J) "R" as (j):
      init:
        Sum[i] = 0.0
      Sum[i] = Sum[i] + D[i, j]
    iterate gradient(J) "S" as (j):
      D[i, j] = (D[i, j] / Sum[i] - select(j == Label[i], 1.0, 0.0)) * scale
    iterate losses(O) "S" as (o):
      Losses[i, o] = log(Sum[i]) - Score[i]
)";

// Kingma, Ba, 2014, with weight decay in the gradient; Powers are of both betas, by the number of steps.
constexpr const char* kAdam = R"(program adam(count):
  I = dense_fixed(count)
  Two = dense_fixed(2)
  Powers = buffer(Two): fp32
  V = buffer(I): fp32
  G = buffer(I): fp32
  M = buffer(I): fp32
  S = buffer(I): fp32
  iterate powers(Two) "S" as (t):
    Powers[t] = Powers[t] * select(t == 0, 0.9, 0.999)
  iterate first(I) "S" as (i):
    M[i] = 0.9 * M[i] + 0.1 * (G[i] + 0.0005 * V[i])
  iterate second(I) "S" as (i):
    S[i] = 0.999 * S[i] + 0.001 * (G[i] + 0.0005 * V[i]) * (G[i] + 0.0005 * V[i])
  iterate step(I) "S" as (i):
    V[i] = V[i] - 0.01 * M[i] / (1.0 - Powers[0]) / (sqrt(S[i] / (1.0 - Powers[1])) + 0.00000001)
)";
constexpr const char* kAdamTogether = "lower()\ncompute_at(first, step.i)\ncompute_at(second, step.i)\n";

// A loop whose iterations a thread each has, or the team.
std::string shared(const std::string& loop, bool is_on_card) {
  if (!is_on_card) return fmt::format("parallel({})\n", loop);
  return fmt::format("outer, inner = split({}, 128)\nbind(outer, blockIdx.x)\nbind(inner, threadIdx.x)\n", loop);
}

constexpr size_t kScratchBytes = 32 << 20;  // of products

int64_t padded(int64_t n) { return (n + 3) / 4 * 4; }

}  // namespace

SageTraining::Tensor SageTraining::tensor(std::vector<int64_t> shape) const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Tensor made{.memory = Workspace(device_, static_cast<size_t>(count) * sizeof(float))};
  made.view = TensorView(made.memory.data(), DType::fp32, shape, device_);
  return made;
}

SageTraining::Weights SageTraining::weights_in(const TensorView& all) const {
  int64_t at = 0;
  const auto take = [&](int64_t rows, int64_t cols) {
    const TensorView view(static_cast<float*>(all.data()) + at, DType::fp32, {rows, cols}, device_);
    at += padded(rows * cols);
    return view;
  };
  Weights w;
  w.own1 = take(shape_.feat, shape_.hidden), w.neigh1 = take(shape_.feat, shape_.hidden);
  w.bias1 = take(1, shape_.hidden);
  w.own2 = take(shape_.hidden, shape_.classes), w.neigh2 = take(shape_.hidden, shape_.classes);
  w.bias2 = take(1, shape_.classes);
  return w;
}

// A row's columns side by side.
sparse::Operator SageTraining::compiled(const char* program, const std::string& iteration, int64_t cols) const {
  const std::string rows = is_on_card_
                               ? sparse::card_rows({.iteration = iteration, .cta = "i", .feature = "j", .feat = cols})
                               : fmt::format("parallel({}.i)\n", iteration);
  return sparse::compile(sparse::parse(program), "lower()\n" + rows, device_, {.set = {{"cols", cols}}});
}

SageTraining::SageTraining(const SageShape& shape, const sparse::VectorUnit& unit, Device device, Stream stream,
                           const Place& place)
    : shape_(shape),
      is_on_card_(unit.is_of_card),
      nodes_(shape.graph->rows),
      device_(device),
      stream_(stream),
      hidden_(compiled(kHidden, "hidden", shape.hidden)),
      loss_(
          sparse::compile(sparse::parse(kLoss),
                          "lower()\nset_scope(Top, register)\nset_scope(Score, register)\nset_scope(Sum, register)\n" +
                              shared("losses.i", is_on_card_),
                          device, {.set = {{"cols", shape.classes}}})),
      through_(compiled(kThrough, "through", shape.hidden)),
      adam_(sparse::compile(sparse::parse(kAdam), kAdamTogether + shared("step.i", is_on_card_), device)) {
  const auto placed = [&](const auto& values, DType dtype, std::vector<int64_t> extents) {
    Tensor made{.memory = place(values.data(), values.size() * sizeof(values[0]))};
    made.view = TensorView(made.memory.data(), dtype, extents, device_);
    return made;
  };
  const MeanGraph graph = mean_graph(*shape.graph, nodes_);
  neighbours_ = graph.structure, turned_ = graph.turned;
  means_ = placed(graph.values, DType::fp32, {shape.graph->nnz()});
  turned_means_ = placed(graph.turned_values, DType::fp32, {shape.graph->nnz()});
  x_ = placed(random_floats(static_cast<size_t>(nodes_ * shape.feat), 1), DType::fp32, {nodes_, shape.feat});
  ones_ = placed(std::vector<float>(static_cast<size_t>(nodes_), 1.f), DType::fp32, {1, nodes_});
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < nodes_; ++i) labels.push_back(static_cast<int32_t>(i % shape.classes));
  labels_ = placed(labels, DType::int32, {nodes_});
  const int64_t count = 2 * padded(shape.feat * shape.hidden) + padded(shape.hidden) +
                        2 * padded(shape.hidden * shape.classes) + padded(shape.classes);
  std::vector<float> weights = random_floats(static_cast<size_t>(count), 2);
  for (float& w : weights) w *= std::sqrt(6.f / static_cast<float>(shape.feat + shape.hidden));
  parameters_ = placed(weights, DType::fp32, {count});
  gradients_ = tensor({count}), first_ = tensor({count}), second_ = tensor({count});
  steps_ = placed(std::vector<float>{1, 1}, DType::fp32, {2});
  for (Tensor* of_hidden : {&own1_, &neigh1_, &sum1_, &h_, &d_h_}) *of_hidden = tensor({nodes_, shape.hidden});
  for (Tensor* of_classes : {&own2_, &neigh2_, &sum2_, &d_z_}) *of_classes = tensor({nodes_, shape.classes});
  losses_ = tensor({nodes_, 1});
  // Gradients of weights are sums over all nodes of few elements, by a few CTAs where none share a sum.
  if (device_.kind == DeviceKind::cuda) scratch_ = Workspace(device_, kScratchBytes);
  w_ = weights_in(parameters_.view), g_ = weights_in(gradients_.view);
}

void SageTraining::mean(const TensorView& of, const TensorView& into) const {
  sparse::spmm(neighbours_, means_.view, of, into, {}, stream_);
}

void SageTraining::mean_backward(const TensorView& of, const TensorView& into) const {
  sparse::spmm(turned_, turned_means_.view, of, into, {}, stream_);
}

void SageTraining::multiply(const TensorView& a, const TensorView& b, const TensorView& c, bool add) const {
  matmul(a, b, c, {.add = add, .workspace = scratch_.bytes() == 0 ? nullptr : &scratch_}, stream_);
}

void SageTraining::forward() const {
  multiply(x_.view, w_.own1, own1_.view);
  multiply(x_.view, w_.neigh1, neigh1_.view);
  mean(neigh1_.view, sum1_.view);
  const TensorView bias1(w_.bias1.data(), DType::fp32, {shape_.hidden}, device_);
  hidden_.run({.buffers = {{"Own", own1_.view}, {"Mean", sum1_.view}, {"Bias", bias1}, {"H", h_.view}}}, stream_);
  multiply(h_.view, w_.own2, own2_.view);
  multiply(h_.view, w_.neigh2, neigh2_.view);
  mean(neigh2_.view, sum2_.view);
  const TensorView bias2(w_.bias2.data(), DType::fp32, {shape_.classes}, device_);
  loss_.run({.buffers = {{"Own", own2_.view},
                         {"Mean", sum2_.view},
                         {"Bias", bias2},
                         {"Label", labels_.view},
                         {"D", d_z_.view},
                         {"Losses", losses_.view}},
             .reals = {{"scale", 1. / static_cast<double>(nodes_)}}},
            stream_);
}

void SageTraining::backward() const {
  const TensorView h_turned = h_.view.permute({1, 0}), x_turned = x_.view.permute({1, 0});
  mean_backward(d_z_.view, neigh2_.view);
  multiply(h_turned, d_z_.view, g_.own2);
  multiply(h_turned, neigh2_.view, g_.neigh2);
  multiply(ones_.view, d_z_.view, g_.bias2);
  multiply(d_z_.view, w_.own2.permute({1, 0}), d_h_.view);
  multiply(neigh2_.view, w_.neigh2.permute({1, 0}), d_h_.view, true);
  through_.run({.buffers = {{"H", h_.view}, {"D", d_h_.view}}}, stream_);
  mean_backward(d_h_.view, neigh1_.view);
  multiply(x_turned, d_h_.view, g_.own1);
  multiply(x_turned, neigh1_.view, g_.neigh1);
  multiply(ones_.view, d_h_.view, g_.bias1);
}

void SageTraining::run() {
  forward();
  backward();
  adam_.run({.buffers = {{"Powers", steps_.view},
                         {"V", parameters_.view},
                         {"G", gradients_.view},
                         {"M", first_.view},
                         {"S", second_.view}}},
            stream_);
}

}  // namespace weft::bench
