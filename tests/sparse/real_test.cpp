// Operators over real graphs: Cora, symmetric, with rows of 1 to 168 elements; Pubmed's padding; relations of AIFB
// (tests/data/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "sparse/formats/structure.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

constexpr int64_t kCoraFeat = 32;

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
  static size_t place(int32_t node, int64_t k) { return static_cast<size_t>(node * kCoraFeat + k); }
  TensorView rows(const Values& x) const { return {x.data(), DType::fp32, {graph_->num_rows(), kCoraFeat}}; }
  TensorView elements(const Values& x) const { return {x.data(), DType::fp32, {graph_->nnz()}}; }
  Values node_values(uint32_t seed) const {
    return random_values(static_cast<size_t>(graph_->num_rows() * kCoraFeat), seed);
  }
  double dot(const Values& x, const Values& y, size_t e) const {
    double sum = 0;
    for (int64_t k = 0; k < kCoraFeat; ++k) sum += double(x[place(at_->rows[e], k)]) * y[place(at_->cols[e], k)];
    return sum;
  }
  // Sums over neighbours, each weighed.
  std::vector<double> sums(const std::vector<double>& weights, const Values& y) const {
    std::vector<double> result(static_cast<size_t>(graph_->num_rows() * kCoraFeat), 0);
    for (size_t e = 0; e < at_->size(); ++e)
      for (int64_t k = 0; k < kCoraFeat; ++k) result[place(at_->rows[e], k)] += weights[e] * y[place(at_->cols[e], k)];
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

// o[i] = sum of sigmoid(x[i] y[j]) y[j].
TEST_F(Cora, FusedMmIsItsSumInDouble) {
  std::vector<double> weights(at_->size());
  for (size_t e = 0; e < at_->size(); ++e) weights[e] = 1 / (1 + std::exp(-dot(x_, y_, e)));
  fused_mm(*graph_, rows(x_), rows(y_), rows(out_));
  expect_close(doubles(out_), sums(weights, y_), 5e-5, "fused_mm");
}

// In blocks of 4, of all block rows and of those alone that hold something; and in strips.
TEST_F(Cora, SpmmInBlocksIsItsSumInDouble) {
  const Values values = random_values(static_cast<size_t>(graph_->nnz()), 5);
  const std::vector<double> want = sums(doubles(values), y_);
  const Coo coo{.num_rows = at_->num_rows, .num_cols = at_->num_cols, .rows = at_->rows, .cols = at_->cols};
  const auto placed = [&](const Converted& converted) {
    Values in_blocks;
    for (const int64_t e : converted.order) in_blocks.push_back(e < 0 ? 0 : values[static_cast<size_t>(e)]);
    return in_blocks;
  };
  ASSERT_EQ(graph_->num_rows() % 4, 0);
  const Converted bsr = bsr_from_coo(coo, 4), dbsr = dbsr_from_coo(coo, 4), strips = sr_bcrs_from_coo(coo, 4, 8);
  const Values in_bsr = placed(bsr), in_dbsr = placed(dbsr), in_strips = placed(strips);
  const auto fresh = [&] { std::fill(out_.begin(), out_.end(), std::nanf("")); };
  fresh();
  block_spmm(bsr.structure, {in_bsr.data(), DType::fp32, {bsr.structure.nnz(), 4, 4}}, rows(y_), rows(out_));
  expect_close(doubles(out_), want, 2e-5, "bsr");
  fresh();
  dbsr_spmm(dbsr.structure, {in_dbsr.data(), DType::fp32, {dbsr.structure.nnz(), 4, 4}}, rows(y_), rows(out_));
  expect_close(doubles(out_), want, 2e-5, "dbsr");
  fresh();
  const int64_t groups = strips.structure.nnz() / 8;
  sr_bcrs_spmm(strips.structure, {in_strips.data(), DType::fp32, {groups, 8, 4}}, rows(y_), rows(out_));
  expect_close(doubles(out_), want, 2e-5, "sr_bcrs");
}

// Of all places, in hyb(1, k).
double padding(const Coordinates& at, int64_t k) {
  const MatrixAxes axes{.row = "I", .col = "J", .num_rows = at.num_rows, .num_cols = at.num_cols};
  size_t places = 0;
  for (const FormatArrays& bucket : take_all(hyb_rules(axes, 1, k), at))
    for (const auto& [name, array] : bucket.arrays) places += name.starts_with("J_") ? array.size() : 0;
  return 100. * (1 - double(at.size()) / double(places));
}

// Ye et al., SparseTIR, Table 3.1: of all places 15.9 % are padding.
TEST_F(Cora, IsPaddedByHybAsThePaperSays) { EXPECT_NEAR(padding(*at_, 2), 15.9, 0.2); }

// The same table: 23.1 % with k = 5.
TEST(Pubmed, IsPaddedByHybAsThePaperSays) {
  std::ifstream file(WEFT_TEST_DATA "/pubmed.txt");
  std::string line;
  std::getline(file, line);
  Coo coo;
  coo.num_rows = coo.num_cols = std::stoll(line);
  for (int32_t node = 0; std::getline(file, line); ++node) {
    std::istringstream others(line);
    for (int32_t other = 0; others >> other;) {
      coo.rows.insert(coo.rows.end(), {node, other});
      coo.cols.insert(coo.cols.end(), {other, node});
    }
  }
  ASSERT_EQ(coo.rows.size(), 88648u);
  EXPECT_NEAR(padding(coordinates_of(*csr_from_coo(coo).structure.data()), 5), 23.1, 0.2);
}

// y[i] = sum over edges (r, i, j) of x[j] w[r].
TEST(Aifb, RgmsIsItsSumInDouble) {
  std::ifstream file(WEFT_TEST_DATA "/aifb.csv");
  std::string line;
  std::getline(file, line);
  CooTensor edges{.extents = {45, 8285, 8285}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    for (auto& coordinates : edges.coordinates) words >> coordinates.emplace_back();
  }
  const size_t count = edges.coordinates[0].size();
  ASSERT_EQ(count, 29043u);
  constexpr size_t kIn = 16, kOut = 16, kNodes = 8285;
  const Converted converted = relational_from_coo(edges);
  const Values x = random_values(kNodes * kIn, 1), w = random_values(45 * kIn * kOut, 2);
  const Values list = random_values(count, 3);
  Values values, y(kNodes * kOut, std::nanf(""));
  for (const int64_t e : converted.order) values.push_back(list[static_cast<size_t>(e)]);
  std::vector<double> want(y.size(), 0);
  for (size_t e = 0; e < count; ++e)
    for (size_t l = 0; l < kIn; ++l)
      for (size_t k = 0; k < kOut; ++k)
        want[static_cast<size_t>(edges.coordinates[1][e]) * kOut + k] +=
            double(list[e]) * x[static_cast<size_t>(edges.coordinates[2][e]) * kIn + l] *
            w[(static_cast<size_t>(edges.coordinates[0][e]) * kIn + l) * kOut + k];
  rgms(converted.structure, {values.data(), DType::fp32, {static_cast<int64_t>(count)}},
       {x.data(), DType::fp32, {kNodes, kIn}}, {w.data(), DType::fp32, {45, kIn, kOut}},
       {y.data(), DType::fp32, {kNodes, kOut}});
  expect_close(doubles(y), want, 1e-4, "rgms");
}

}  // namespace
}  // namespace weft::sparse::test
