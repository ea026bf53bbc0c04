// Operators over a real graph: Cora, symmetric, with rows of 1 to 168 elements (tests/data/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "sparse/formats/structure.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

constexpr int64_t kFeat = 32;

class Cora : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::ifstream file(WEFT_CORA);
    std::string line;
    std::getline(file, line);
    Coo coo;
    coo.num_rows = coo.num_cols = std::stoll(line);
    for (int32_t node = 0; std::getline(file, line); ++node) {
      std::istringstream others(line.substr(line.find('|') + 1));
      for (int32_t other = 0; others >> other;) {
        coo.rows.insert(coo.rows.end(), {node, other});
        coo.cols.insert(coo.cols.end(), {other, node});
      }
    }
    graph_ = new Structure(csr_from_coo(coo).structure);
    at_ = new Coordinates(coordinates_of(*graph_->data()));
  }
  static void TearDownTestSuite() {
    delete graph_;
    delete at_;
  }
  static size_t place(int32_t node, int64_t k) { return static_cast<size_t>(node * kFeat + k); }
  TensorView rows(const Values& x) const { return {x.data(), DType::fp32, {graph_->num_rows(), kFeat}}; }
  TensorView elements(const Values& x) const { return {x.data(), DType::fp32, {graph_->nnz()}}; }
  Values node_values(uint32_t seed) const {
    return random_values(static_cast<size_t>(graph_->num_rows() * kFeat), seed);
  }
  double dot(const Values& x, const Values& y, size_t e) const {
    double sum = 0;
    for (int64_t k = 0; k < kFeat; ++k) sum += double(x[place(at_->rows[e], k)]) * y[place(at_->cols[e], k)];
    return sum;
  }
  // Sums over neighbours, each weighed.
  std::vector<double> sums(const std::vector<double>& weights, const Values& y) const {
    std::vector<double> result(static_cast<size_t>(graph_->num_rows() * kFeat), 0);
    for (size_t e = 0; e < at_->size(); ++e)
      for (int64_t k = 0; k < kFeat; ++k) result[place(at_->rows[e], k)] += weights[e] * y[place(at_->cols[e], k)];
    return result;
  }

  static Structure* graph_;
  static Coordinates* at_;
  Values x_ = node_values(1), y_ = node_values(2), out_ = node_values(3);
};
Structure* Cora::graph_ = nullptr;
Coordinates* Cora::at_ = nullptr;

TEST_F(Cora, SpmmInEveryFormatIsItsSumInDouble) {
  const Values values = random_values(static_cast<size_t>(graph_->nnz()), 4);
  const std::vector<double> want = sums(doubles(values), y_);
  for (const char* format : {"auto", "hyb(1, 2)"}) {
    std::fill(out_.begin(), out_.end(), std::nanf(""));
    spmm(*graph_, elements(values), rows(y_), rows(out_), {.format = format});
    expect_close(doubles(out_), want, 2e-5, format);
  }
}

TEST_F(Cora, SddmmAndAttentionAreThoseInDouble) {
  const Values ones(at_->size(), 1.f);
  Values scores(at_->size(), std::nanf(""));
  std::vector<double> want(at_->size()), of_row(static_cast<size_t>(graph_->num_rows()), 0);
  for (size_t e = 0; e < at_->size(); ++e) want[e] = dot(x_, y_, e);
  sddmm(*graph_, elements(ones), rows(x_), rows(y_), elements(scores));
  expect_close(doubles(scores), want, 2e-5, "sddmm");

  for (size_t e = 0; e < at_->size(); ++e) of_row[static_cast<size_t>(at_->rows[e])] += want[e] = std::exp(want[e]);
  for (size_t e = 0; e < at_->size(); ++e) want[e] /= of_row[static_cast<size_t>(at_->rows[e])];
  graph_attention(*graph_, rows(x_), rows(y_), rows(y_), rows(out_));
  expect_close(doubles(out_), sums(want, y_), 5e-5, "attention");
}

// Ye et al., SparseTIR, Table 3.1: of all places 15.9 % are padding.
TEST_F(Cora, IsPaddedByHybAsThePaperSays) {
  const MatrixAxes axes{.row = "I", .col = "J", .num_rows = at_->num_rows, .num_cols = at_->num_cols};
  size_t places = 0;
  for (const FormatArrays& bucket : take_all(hyb_rules(axes, 1, 2), *at_))
    for (const auto& [name, array] : bucket.arrays) places += name.starts_with("J_") ? array.size() : 0;
  EXPECT_NEAR(100. * (1 - double(at_->size()) / double(places)), 15.9, 0.2);
}

}  // namespace
}  // namespace weft::sparse::test
