// An epoch of training GraphSAGE: two layers with mean aggregation, the whole graph, Adam, as torch_sparse.py writes
// it. A layer is x w_self + mean over neighbours (x w_neigh) + b. Means are spmm, by the matrix or its transpose; all
// else is programs of the compiler, too, but for the loss of a few classes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/sparse/cases.h"
#include "contestants.h"
#include "dense_product.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace contest {
namespace {

using namespace weft;
using sparse::Operator;

constexpr int64_t kLanes = 16, kRows = 256;  // columns and rows are padded to multiples of these

int64_t padded(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

// b = a^T c, in strips, by pieces of rows that the caches hold. HALF strips a worker, TILE rows of b at once.
constexpr const char* kGradient = R"(program gradient(rows, inner, strips):
  I = dense_fixed(rows)
  L = dense_fixed(inner)
  JO = dense_fixed(strips)
  JI = dense_fixed(16)
  J = dense_fixed(strips * 16)
  A = buffer(I, L): fp32
  B = buffer(JO, L, JI): fp32
  C = buffer(I, J): fp32
  iterate clear(L, JO, JI) "SSS" as (l, jo, ji):
    B[jo, l, ji] = 0.0
  iterate gradient(JO, I, L, JI) "SRSS" as (jo, i, l, ji):
    B[jo, l, ji] = B[jo, l, ji] + A[i, l] * C[i, jo * 16 + ji]
schedule:
  lower()
  parallel(clear.l)
  io, ii = split(gradient.i, 256)
  lo, li = split(gradient.l, TILE)
SPLIT  reorder(io, lo, INNERii, li, gradient.ji)
  vectorize(gradient.ji)
  unroll(li)
  cache_write(KEPT, register)
  parallel(OUTER)
)";

constexpr const char* kHidden = R"(program hidden(rows, cols):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  Own = buffer(I, J): fp32
  Theirs = buffer(I, J): fp32
  Bias = buffer(J): fp32
  H = buffer(I, J): fp32
  iterate hidden(I, J) "SS" as (i, j):
    H[i, j] = max(Own[i, j] + Theirs[i, j] + Bias[j], 0.0)
schedule:
  lower()
  parallel(hidden.i)
)";

constexpr const char* kThrough = R"(program through(rows, cols):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  Own = buffer(I, J): fp32
  Theirs = buffer(I, J): fp32
  H = buffer(I, J): fp32
  D = buffer(I, J): fp32
  iterate through(I, J) "SS" as (i, j):
    D[i, j] = select(H[i, j] > 0.0, Own[i, j] + Theirs[i, j], 0.0)
schedule:
  lower()
  parallel(through.i)
)";

constexpr const char* kColumnSums = R"(program column_sums(rows, cols):
  I = dense_fixed(rows)
  J = dense_fixed(cols)
  D = buffer(I, J): fp32
  Sum = buffer(J): fp32
  iterate sums(I, J) "RS" as (i, j):
    init:
      Sum[j] = 0.0
    Sum[j] = Sum[j] + D[i, j]
schedule:
  lower()
  jo, ji = split(sums.j, 16)
  reorder(jo, sums.i, ji)
  vectorize(ji)
  cache_write(jo, register)
  parallel(jo)
)";

// Kingma, Ba, 2014, with weight decay in the gradient; Step holds rate / unbias1 and 1 / unbias2.
constexpr const char* kAdam = R"(program adam(count):
  I = dense_fixed(count)
  Two = dense_fixed(2)
  Step = buffer(Two): fp32
  V = buffer(I): fp32
  G = buffer(I): fp32
  M = buffer(I): fp32
  S = buffer(I): fp32
  iterate mean(I) "S" as (i):
    M[i] = 0.9 * M[i] + 0.1 * (G[i] + 0.0005 * V[i])
  iterate square(I) "S" as (i):
    S[i] = 0.999 * S[i] + 0.001 * (G[i] + 0.0005 * V[i]) * (G[i] + 0.0005 * V[i])
  iterate step(I) "S" as (i):
    V[i] = V[i] - Step[0] * M[i] / (sqrt(S[i] * Step[1]) + 0.00000001)
schedule:
  lower()
  parallel(mean.i)
  parallel(square.i)
  parallel(step.i)
)";

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  for (size_t at = 0; (at = text.find(old, at)) != text.npos; at += now.size()) text.replace(at, old.size(), now);
  return text;
}

Operator compiled(const std::string& text, const std::map<std::string, int64_t>& set) {
  return sparse::compile(sparse::parse(text), Device::cpu(), {.set = set});
}

// c = a b. b in strips of a vector: [cols / 16, inner, 16].
Operator product(int64_t rows, int64_t inner, int64_t cols) {
  std::string schedule = R"(schedule:
  lower()
  io, ii = split(product.i, 16)
  jo, ji = split(product.j, 16)
  reorder(io, jo, product.l, ii, ji)
  vectorize(ji)
  unroll(ii)
  cache_write(jo, register)
  parallel(io)
)";
  if (cols == kLanes) {
    schedule = replaced(replaced(schedule, "  jo, ji = split(product.j, 16)\n", ""), "io, jo, ", "io, ");
    schedule = replaced(replaced(schedule, "(jo, register", "(io, register"), "ji)", "product.j)");
  }
  return compiled(dense_product("I, L", "JO, L, JI") + schedule, {{"rows", rows}, {"inner", inner}, {"cols", cols}});
}

// Two workers share the strips, or where there is one alone the tiles of rows.
Operator gradient(int64_t rows, int64_t inner, int64_t cols) {
  const int64_t strips = cols / kLanes;
  int64_t tile = 20;
  while (inner % tile != 0) --tile;
  const bool shared = strips % 2 == 0;
  std::string text = replaced(kGradient, "TILE", std::to_string(tile));
  text = replaced(text, "SPLIT", shared ? "  jp, jo = split(gradient.jo, " + std::to_string(strips / 2) + ")\n" : "");
  text = replaced(text, "INNER", shared ? "jo, " : "");
  text = replaced(text, "KEPT", shared ? "jo" : "lo");
  text = replaced(text, "reorder(io, lo", shared ? "reorder(jp, io, lo" : "reorder(lo, io");
  if (!shared) text = replaced(text, "cache_write(lo", "cache_write(io");
  text = replaced(text, "OUTER", shared ? "jp" : "lo");
  return compiled(text, {{"rows", rows}, {"inner", inner}, {"strips", strips}});
}

struct Matrix {
  Workspace memory = {};
  TensorView view = {};
  float* data = nullptr;
  Matrix() = default;
  explicit Matrix(std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    memory = Workspace(Device::cpu(), static_cast<size_t>(count) * sizeof(float));
    data = static_cast<float*>(memory.data());
    std::fill_n(data, count, 0.f);
    view = TensorView(data, DType::fp32, shape);
  }
};

void multiply(const sparse::Structure& a, const std::vector<float>& values, const Matrix& b, const Matrix& c,
              Stream stream) {
  sparse::spmm(a, {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}, b.view, c.view, {}, stream);
}

// Weights of both layers, for a node itself and for its neighbours, and biases, one behind the other.
struct Weights {
  Matrix all;
  TensorView own1, theirs1, bias1, own2, theirs2, bias2;
  Weights(int64_t feat, int64_t hidden, int64_t classes) {
    const int64_t first = hidden * feat, second = classes * hidden;
    all = Matrix({padded(2 * first + hidden + 2 * second + classes, kLanes)});
    float* at = all.data;
    const auto take = [&](std::vector<int64_t> shape, int64_t count) {
      TensorView view(at, DType::fp32, std::move(shape));
      at += count;
      return view;
    };
    own1 = take({hidden / kLanes, feat, kLanes}, first), theirs1 = take({hidden / kLanes, feat, kLanes}, first);
    own2 = take({classes / kLanes, hidden, kLanes}, second), theirs2 = take({classes / kLanes, hidden, kLanes}, second);
    bias1 = take({hidden}, hidden), bias2 = take({classes}, classes);
  }
};

class GraphSage {
 public:
  explicit GraphSage(const json& row)
      : a_(bench::read_case(row.at("matrix"))),
        feat_(row.at("feat")),
        hidden_(row.at("hidden")),
        classes_(row.at("classes")),
        team_(row.at("threads").get<int>()),
        rows_(padded(a_.rows, kRows)),
        wide_(padded(classes_, kLanes)) {
    const std::vector<float> numbers = bench::random_floats(size_t{1} << 20, 1);
    for (int64_t i = 0; i < a_.rows * feat_; ++i) x_.data[i] = numbers[static_cast<size_t>(i) % numbers.size()];
    const std::vector<float> weights = bench::random_floats(static_cast<size_t>(w_.all.view.size()), 2);
    for (int64_t i = 0; i < w_.all.view.size(); ++i) w_.all.data[i] = 0.05f * weights[static_cast<size_t>(i)];
  }

  // The loss before the step.
  double epoch() {
    first_.run({.buffers = {{"A", x_.view}, {"B", w_.own1}, {"C", own_.view}}}, stream_);
    first_.run({.buffers = {{"A", x_.view}, {"B", w_.theirs1}, {"C", theirs_.view}}}, stream_);
    mean(theirs_, sums_);
    relu_.run({.buffers = {{"Own", own_.view}, {"Theirs", sums_.view}, {"Bias", w_.bias1}, {"H", h_.view}}}, stream_);
    second_.run({.buffers = {{"A", h_.view}, {"B", w_.own2}, {"C", z_.view}}}, stream_);
    second_.run({.buffers = {{"A", h_.view}, {"B", w_.theirs2}, {"C", z_theirs_.view}}}, stream_);
    mean(z_theirs_, z_sums_);
    const double loss = loss_and_its_gradient();

    mean_backward(d_z_, z_sums_);
    gradient2_.run({.buffers = {{"A", h_.view}, {"B", g_.own2}, {"C", d_z_.view}}}, stream_);
    gradient2_.run({.buffers = {{"A", h_.view}, {"B", g_.theirs2}, {"C", z_sums_.view}}}, stream_);
    column_sums2_.run({.buffers = {{"D", d_z_.view}, {"Sum", g_.bias2}}}, stream_);
    transpose(w_.own2, own2_transposed_), transpose(w_.theirs2, theirs2_transposed_);
    back_.run({.buffers = {{"A", d_z_.view}, {"B", own2_transposed_.view}, {"C", own_.view}}}, stream_);
    back_.run({.buffers = {{"A", z_sums_.view}, {"B", theirs2_transposed_.view}, {"C", sums_.view}}}, stream_);
    through_.run({.buffers = {{"Own", own_.view}, {"Theirs", sums_.view}, {"H", h_.view}, {"D", theirs_.view}}},
                 stream_);
    mean_backward(theirs_, sums_);
    gradient1_.run({.buffers = {{"A", x_.view}, {"B", g_.own1}, {"C", theirs_.view}}}, stream_);
    gradient1_.run({.buffers = {{"A", x_.view}, {"B", g_.theirs1}, {"C", sums_.view}}}, stream_);
    column_sums1_.run({.buffers = {{"D", theirs_.view}, {"Sum", g_.bias1}}}, stream_);

    ++steps_;
    step_.data[0] = 0.01f / (1 - std::pow(0.9f, static_cast<float>(steps_)));
    step_.data[1] = 1 / (1 - std::pow(0.999f, static_cast<float>(steps_)));
    adam_.run(
        {.buffers =
             {{"Step", step_.view}, {"V", w_.all.view}, {"G", g_.all.view}, {"M", mean_.view}, {"S", square_.view}}},
        stream_);
    return loss;
  }

 private:
  void mean(const Matrix& of, const Matrix& into) const {
    multiply(graph_.structure, graph_.values, of, into, stream_);
  }
  void mean_backward(const Matrix& of, const Matrix& into) const {
    multiply(graph_.turned, graph_.turned_values, of, into, stream_);
  }

  // Cross entropy of node i in class i modulo their number; d_z is its gradient in z, to which the bias is added.
  double loss_and_its_gradient() {
    std::vector<double> losses(static_cast<size_t>(team_.num_workers()), 0);
    team_.run([&](int worker) {
      const int64_t workers = team_.num_workers();
      for (int64_t i = a_.rows * worker / workers; i < a_.rows * (worker + 1) / workers; ++i) {
        const float *own = z_.data + i * wide_, *theirs = z_sums_.data + i * wide_;
        const float* bias = static_cast<const float*>(w_.bias2.data());
        float* d = d_z_.data + i * wide_;
        float top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < classes_; ++c) top = std::max(top, d[c] = own[c] + theirs[c] + bias[c]);
        const int64_t label = i % classes_;
        losses[static_cast<size_t>(worker)] -= d[label] - top;
        for (int64_t c = 0; c < classes_; ++c) sum += d[c] = std::exp(d[c] - top);
        losses[static_cast<size_t>(worker)] += std::log(sum);
        for (int64_t c = 0; c < classes_; ++c)
          d[c] = (d[c] / sum - (c == label ? 1.f : 0.f)) / static_cast<float>(a_.rows);
      }
    });
    double loss = 0;
    for (const double part : losses) loss += part;
    return loss / static_cast<double>(a_.rows);
  }

  // [1, hidden, 16] as [hidden / 16, 16, 16]: strips of the transpose.
  void transpose(const TensorView& weights, const Matrix& into) const {
    const auto* from = static_cast<const float*>(weights.data());
    for (int64_t j = 0; j < hidden_; ++j)
      for (int64_t c = 0; c < wide_; ++c)
        into.data[(j / kLanes * wide_ + c) * kLanes + j % kLanes] =
            from[(c / kLanes * hidden_ + j) * kLanes + c % kLanes];
  }

  bench::SparseCase a_;
  int64_t feat_, hidden_, classes_;
  WorkerTeam team_;
  Stream stream_ = Stream::cpu(team_);
  int64_t rows_, wide_;
  bench::MeanGraph graph_ = bench::mean_graph(a_, rows_);  // rows of padding are empty
  Matrix x_{{rows_, feat_}}, own_{{rows_, hidden_}}, theirs_{{rows_, hidden_}}, sums_{{rows_, hidden_}};
  Matrix h_{{rows_, hidden_}}, z_{{rows_, wide_}}, z_theirs_{{rows_, wide_}}, z_sums_{{rows_, wide_}};
  Matrix d_z_{{rows_, wide_}};
  Matrix own2_transposed_{{hidden_ / kLanes, wide_, kLanes}}, theirs2_transposed_{{hidden_ / kLanes, wide_, kLanes}};
  Weights w_{feat_, hidden_, wide_}, g_{feat_, hidden_, wide_};
  Matrix mean_{{w_.all.view.size()}}, square_{{w_.all.view.size()}}, step_{{2}};
  int steps_ = 0;
  Operator first_ = product(rows_, feat_, hidden_), second_ = product(rows_, hidden_, wide_);
  Operator back_ = product(rows_, wide_, hidden_);
  Operator gradient1_ = gradient(rows_, feat_, hidden_), gradient2_ = gradient(rows_, hidden_, wide_);
  Operator relu_ = compiled(kHidden, {{"cols", hidden_}}), through_ = compiled(kThrough, {{"cols", hidden_}});
  Operator column_sums1_ = compiled(kColumnSums, {{"cols", hidden_}});
  Operator column_sums2_ = compiled(kColumnSums, {{"cols", wide_}});
  Operator adam_ = compiled(kAdam, {{"count", w_.all.view.size()}});
};

}  // namespace

Reading weft_graphsage(const json& row) {
  if (row.at("hidden").get<int64_t>() % kLanes != 0) throw std::invalid_argument("hidden is no multiple of 16");
  const auto model = std::make_shared<GraphSage>(row);
  for (int i = 0; i < 3; ++i) facts()["loss"] = model->epoch();
  return [model] { return mean_seconds([&] { model->epoch(); }); };
}

}  // namespace contest
