// GraphSAGE on Cora, trained end to end: two layers with mean aggregation, the whole graph in every step, Adam.
//
//   graphsage tests/data/cora.txt [--epochs N] [--seeds N] [--hidden N]
//
// A layer is z = x w_self + mean over neighbours (x w_neigh) + b. Words and neighbours are sparse: both products with
// them are spmm, and spmm_backward gives what reaches the weights and the layer below. The dense products are programs
// of the compiler, too. The public split is used: 140 nodes train, 500 choose the epoch, 1,000 are counted.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "dense_product.h"
#include "weft/error.h"
#include "weft/sparse.h"

using namespace weft;
using namespace weft::sparse;

namespace {

// A matrix of floats, row by row.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values = {};
  Matrix(int64_t m, int64_t n) : rows(m), cols(n), values(static_cast<size_t>(m * n)) {}
  TensorView view() const { return {values.data(), DType::fp32, {rows, cols}}; }
};

struct SparseMatrix {
  Structure structure = {};
  Transposed transpose = {};
  std::vector<float> values = {};
  TensorView view() const { return {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}; }
};

SparseMatrix sparse_matrix(const Coo& coo) {
  SparseMatrix a{.structure = csr_from_coo(coo).structure};
  a.transpose = transposed(a.structure);
  // Every row sums to one: a mean.
  std::vector<int> length(static_cast<size_t>(coo.num_rows), 0);
  for (const int32_t row : coo.rows) ++length[static_cast<size_t>(row)];
  for (const int count : length) a.values.insert(a.values.end(), static_cast<size_t>(count), 1.f / float(count));
  return a;
}

struct Cora {
  SparseMatrix neighbours = {}, words = {};
  std::vector<int> labels = {};
  std::string split = {};  // t, v, s or - for each node
  int64_t num_classes = 0;
};

Cora read_cora(const char* path) {
  std::ifstream file(path);
  int64_t nodes = 0, num_words = 0;
  Cora cora;
  if (!(file >> nodes >> num_words >> cora.num_classes)) {
    std::fprintf(stderr, "%s: is not there, or no graph as tools/cora_to_text.py writes it\n", path);
    std::exit(1);
  }
  Coo graph{.num_rows = nodes, .num_cols = nodes}, words{.num_rows = nodes, .num_cols = num_words};
  std::string line;
  std::getline(file, line);
  for (int32_t node = 0; node < nodes && std::getline(file, line); ++node) {
    std::istringstream in(line);
    int label = 0;
    char part = '-';
    in >> label >> part;
    cora.labels.push_back(label);
    cora.split += part;
    for (std::string word; in >> word && word != "|";) {
      words.rows.push_back(node);
      words.cols.push_back(std::stoi(word));
    }
    for (int32_t other = 0; in >> other;) {
      graph.rows.insert(graph.rows.end(), {node, other});
      graph.cols.insert(graph.cols.end(), {other, node});
    }
  }
  cora.neighbours = sparse_matrix(graph);
  cora.words = sparse_matrix(words);
  return cora;
}

// c = a b, c = a^T b, c = a b^T: one program, read in three ways.
class Product {
 public:
  Product(const char* a_axes, const char* b_axes)
      : op_(compile(parse(dense_product(a_axes, b_axes) + "schedule:\n  lower()\n  parallel(product.i)\n"))) {}
  void operator()(const Matrix& a, const Matrix& b, Matrix& c) const {
    op_.run({.buffers = {{"A", a.view()}, {"B", b.view()}, {"C", c.view()}}});
  }

 private:
  Operator op_;
};

// A matrix that is trained (Kingma, Ba, 2014), with weight decay in the gradient.
struct Parameter {
  Matrix value, gradient, mean, square;
  Parameter(int64_t m, int64_t n) : value(m, n), gradient(m, n), mean(m, n), square(m, n) {}
  void step(int t, float decay) {
    constexpr float kRate = 0.01f, kBeta1 = 0.9f, kBeta2 = 0.999f;
    const float unbias1 = 1 - std::pow(kBeta1, float(t)), unbias2 = 1 - std::pow(kBeta2, float(t));
    for (size_t i = 0; i < value.values.size(); ++i) {
      const float g = gradient.values[i] + decay * value.values[i];
      mean.values[i] = kBeta1 * mean.values[i] + (1 - kBeta1) * g;
      square.values[i] = kBeta2 * square.values[i] + (1 - kBeta2) * g * g;
      value.values[i] -= kRate * (mean.values[i] / unbias1) / (std::sqrt(square.values[i] / unbias2) + 1e-8f);
    }
  }
};

class GraphSage {
 public:
  GraphSage(const Cora& cora, int64_t hidden, unsigned seed)
      : cora_(cora),
        random_(seed),
        self1_(cora.words.structure.num_cols(), hidden),
        neigh1_(cora.words.structure.num_cols(), hidden),
        bias1_(1, hidden),
        self2_(hidden, cora.num_classes),
        neigh2_(hidden, cora.num_classes),
        bias2_(1, cora.num_classes),
        h_(nodes(), hidden),
        keep_(nodes(), hidden),
        z_(nodes(), cora.num_classes) {
    for (Parameter* p : {&self1_, &neigh1_, &self2_, &neigh2_}) {
      const float bound = std::sqrt(6.f / float(p->value.rows + p->value.cols));  // Glorot, Bengio, 2010
      for (float& w : p->value.values) w = (2 * uniform() - 1) * bound;
    }
  }

  // Trains once; the mean loss of the nodes that train.
  double train(int t) {
    words_ = cora_.words.values;
    for (float& w : words_) w = uniform() < 0.5f ? 2 * w : 0;
    for (float& k : keep_.values) k = uniform() < 0.5f ? 2.f : 0.f;
    forward();
    const double loss = backward();
    for (Parameter* p : {&self1_, &neigh1_, &bias1_, &self2_, &neigh2_, &bias2_}) p->step(t, 5e-4f);
    return loss;
  }

  // Scores of all nodes, nothing dropped.
  void infer() {
    words_ = cora_.words.values;
    std::fill(keep_.values.begin(), keep_.values.end(), 1.f);
    forward();
  }

  double accuracy(char part) const {
    int right = 0, all = 0;
    for (size_t i = 0; i < cora_.labels.size(); ++i) {
      if (cora_.split[i] != part) continue;
      const auto row = z_.values.begin() + static_cast<std::ptrdiff_t>(i) * z_.cols;
      right += std::max_element(row, row + z_.cols) - row == cora_.labels[i] ? 1 : 0;
      ++all;
    }
    return all == 0 ? 0 : double(right) / all;
  }

 private:
  int64_t nodes() const { return cora_.words.structure.num_rows(); }
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1p-24f; }
  TensorView word_values() const { return {words_.data(), DType::fp32, {static_cast<int64_t>(words_.size())}}; }

  // into = own + mean over neighbours of theirs + bias
  void aggregate(const Matrix& own, const Matrix& theirs, const Matrix& bias, Matrix& into) const {
    spmm(cora_.neighbours.structure, cora_.neighbours.view(), theirs.view(), into.view());
    for (size_t i = 0; i < into.values.size(); ++i)
      into.values[i] += own.values[i] + bias.values[i % bias.values.size()];
  }

  void forward() {
    Matrix own1(nodes(), h_.cols), theirs1 = own1, own2(nodes(), z_.cols), theirs2 = own2;
    spmm(cora_.words.structure, word_values(), self1_.value.view(), own1.view());
    spmm(cora_.words.structure, word_values(), neigh1_.value.view(), theirs1.view());
    aggregate(own1, theirs1, bias1_.value, h_);
    for (size_t i = 0; i < h_.values.size(); ++i) h_.values[i] = std::max(h_.values[i], 0.f) * keep_.values[i];
    product_(h_, self2_.value, own2);
    product_(h_, neigh2_.value, theirs2);
    aggregate(own2, theirs2, bias2_.value, z_);
  }

  // What reaches `theirs` of aggregate from what reaches its result.
  Matrix through_neighbours(const Matrix& d) const {
    Matrix result(d.rows, d.cols);
    spmm_backward(cora_.neighbours.structure, cora_.neighbours.transpose, cora_.neighbours.view(), {}, d.view(),
                  {.b = result.view()});
    return result;
  }

  static void sum_rows(const Matrix& d, Matrix& into) {
    std::fill(into.values.begin(), into.values.end(), 0.f);
    for (size_t i = 0; i < d.values.size(); ++i) into.values[i % into.values.size()] += d.values[i];
  }

  // Cross entropy of the softmax of z, and its gradient in every parameter.
  double backward() {
    Matrix d_z(z_.rows, z_.cols);
    double loss = 0;
    const auto train = static_cast<float>(std::count(cora_.split.begin(), cora_.split.end(), 't'));
    for (size_t i = 0; i < cora_.labels.size(); ++i) {
      if (cora_.split[i] != 't') continue;
      const size_t at = i * static_cast<size_t>(z_.cols), label = at + static_cast<size_t>(cora_.labels[i]);
      const auto row = z_.values.begin() + static_cast<std::ptrdiff_t>(at);
      const float top = *std::max_element(row, row + z_.cols);
      double sum = 0;
      for (int64_t c = 0; c < z_.cols; ++c) sum += std::exp(row[c] - top);
      for (size_t c = at; c < at + static_cast<size_t>(z_.cols); ++c)
        d_z.values[c] = (static_cast<float>(std::exp(z_.values[c] - top) / sum) - (c == label ? 1.f : 0.f)) / train;
      loss += std::log(sum) - (z_.values[label] - top);
    }
    const Matrix d_theirs2 = through_neighbours(d_z);
    transposed_product_(h_, d_z, self2_.gradient);
    transposed_product_(h_, d_theirs2, neigh2_.gradient);
    sum_rows(d_z, bias2_.gradient);

    Matrix d_h(h_.rows, h_.cols), by_neighbours = d_h;
    product_transposed_(d_z, self2_.value, d_h);
    product_transposed_(d_theirs2, neigh2_.value, by_neighbours);
    for (size_t i = 0; i < d_h.values.size(); ++i)
      d_h.values[i] = h_.values[i] > 0 ? (d_h.values[i] + by_neighbours.values[i]) * keep_.values[i] : 0.f;
    const Matrix d_theirs1 = through_neighbours(d_h);
    const SparseMatrix& words = cora_.words;
    spmm_backward(words.structure, words.transpose, word_values(), {}, d_h.view(), {.b = self1_.gradient.view()});
    spmm_backward(words.structure, words.transpose, word_values(), {}, d_theirs1.view(),
                  {.b = neigh1_.gradient.view()});
    sum_rows(d_h, bias1_.gradient);
    return loss / train;
  }

  const Cora& cora_;
  std::mt19937 random_;
  Parameter self1_, neigh1_, bias1_, self2_, neigh2_, bias2_;
  std::vector<float> words_ = {};  // values of this step
  Matrix h_, keep_, z_;            // the hidden layer, what of it is kept and how much, the scores
  Product product_{"I, L", "L, J"}, transposed_product_{"L, I", "L, J"}, product_transposed_{"I, L", "J, L"};
};

int option(int argc, char** argv, const char* name, int otherwise) {
  for (int i = 2; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::max(1, std::atoi(argv[i + 1]));
  return otherwise;
}

int run(int argc, char** argv) {
  const Cora cora = read_cora(argc > 1 ? argv[1] : "tests/data/cora.txt");
  const int epochs = option(argc, argv, "--epochs", 200), seeds = option(argc, argv, "--seeds", 1);
  const int hidden = option(argc, argv, "--hidden", 64);
  std::printf("%lld nodes, %lld edges, %lld words\n", static_cast<long long>(cora.labels.size()),
              static_cast<long long>(cora.neighbours.structure.nnz() / 2),
              static_cast<long long>(cora.words.structure.num_cols()));
  double sum = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    GraphSage model(cora, hidden, static_cast<unsigned>(seed));
    double best = 0, test = 0;
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      const double loss = model.train(epoch);
      model.infer();
      const double valid = model.accuracy('v');
      if (valid > best) best = valid, test = model.accuracy('s');
      if (epoch % 20 == 0 || epoch == epochs)
        std::printf("seed %d, epoch %3d: loss %.3f, right of training %.3f, of validation %.3f\n", seed, epoch, loss,
                    model.accuracy('t'), valid);
    }
    std::printf("seed %d: test accuracy %.3f\n", seed, test);
    sum += test;
  }
  std::printf("mean test accuracy of %d: %.4f\n", seeds, sum / seeds);
  return sum / seeds > 0.7 ? 0 : 1;  // chance is 0.14
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
