// Operators over real graphs: Cora, symmetric, with rows of 1 to 168 elements; Pubmed's padding (tests/data/README.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "sparse/formats/structure.h"
#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/grid.h"
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
  static size_t place(int64_t node, int64_t k) { return static_cast<size_t>(node * kCoraFeat + k); }
  TensorView rows(const Values& x) const { return {x.data(), DType::fp32, {graph_->num_rows(), kCoraFeat}}; }
  TensorView elements(const Values& x) const { return {x.data(), DType::fp32, {graph_->nnz()}}; }
  Values node_values(uint32_t seed) const {
    return random_values(static_cast<size_t>(graph_->num_rows() * kCoraFeat), seed);
  }
  static double dot(const Values& x, const Values& y, int64_t row, int64_t col) {
    double sum = 0;
    for (int64_t k = 0; k < kCoraFeat; ++k) sum += double(x[place(row, k)]) * y[place(col, k)];
    return sum;
  }
  double dot(const Values& x, const Values& y, size_t e) const { return dot(x, y, at_->rows[e], at_->cols[e]); }
  // Sums over neighbours, each weighed: of a row over its columns, and of a column over its rows.
  using Nodes = std::vector<int32_t>;
  static std::vector<double> sums(const Nodes& to, const Nodes& from, const std::vector<double>& weights,
                                  const Values& y) {
    std::vector<double> result(y.size(), 0);
    for (size_t e = 0; e < to.size(); ++e)
      for (int64_t k = 0; k < kCoraFeat; ++k) result[place(to[e], k)] += weights[e] * y[place(from[e], k)];
    return result;
  }
  std::vector<double> sums(const std::vector<double>& weights, const Values& y) const {
    return sums(at_->rows, at_->cols, weights, y);
  }
  std::vector<double> sums_back(const std::vector<double>& weights, const Values& y) const {
    return sums(at_->cols, at_->rows, weights, y);
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
  const auto expect_sum = [&](const std::string& what, const auto& run) {
    std::fill(out_.begin(), out_.end(), std::nanf(""));
    run();
    expect_close(doubles(out_), want, 2e-5, what);
  };
  for (const char* format : {"auto", "csr", "ell(168)", "bsr(2)", "bsr(4)", "hyb(1)", "hyb(1, 2)", "hyb(3, 1)"})
    expect_sum(format, [&] { spmm(*graph_, elements(values), rows(y_), rows(out_), {.format = format}); });
  // Those that a program names, as a schedule without more lines runs them.
  const Program program = parse(kSpmmProgram + std::string(kTiles));
  for (const GridFormat& grid : grid_formats()) {
    const std::string format = grid.format;
    const std::string schedule = format.empty() ? "" : fmt::format("decompose_format(csrmm, A, {})\n", format);
    expect_sum("decomposed to " + format, [&] {
      compile(program, schedule)
          .run({.structures = {{"J", *graph_}},
                .buffers = {{"A", elements(values)}, {"B", rows(y_)}, {"C", rows(out_)}}});
    });
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

// Every place of a block that holds something.
TEST_F(Cora, SddmmInBlocksIsItsSumInDouble) {
  constexpr int64_t kBlock = 4;
  const Coo coo{.num_rows = at_->num_rows, .num_cols = at_->num_cols, .rows = at_->rows, .cols = at_->cols};
  const Structure blocks = bsr_from_coo(coo, kBlock).structure;
  const Coordinates at = coordinates_of(*blocks.data());
  std::vector<double> want;
  for (size_t p = 0; p < at.size(); ++p)
    for (int32_t i = 0; i < kBlock; ++i)
      for (int32_t j = 0; j < kBlock; ++j)
        want.push_back(dot(x_, y_, at.rows[p] * kBlock + i, at.cols[p] * kBlock + j));
  Values out(want.size(), std::nanf(""));
  block_sddmm(blocks, rows(x_), rows(y_), {out.data(), DType::fp32, {blocks.nnz(), kBlock, kBlock}});
  expect_close(doubles(out), want, 2e-5, "block_sddmm");
}

// d_b[j] = sum of values * d_c[i], d_values = d_c[i] b[j]; of sddmm the same, each weighed by the other gradient.
TEST_F(Cora, GradientsAreThoseInDouble) {
  const size_t nnz = at_->size();
  const Values values = random_values(nnz, 6), d_out = random_values(nnz, 7);
  const Transposed back = transposed(*graph_);
  std::vector<double> dots(nnz), both(nnz), scaled(nnz);
  for (size_t e = 0; e < nnz; ++e) {
    dots[e] = dot(x_, y_, e);
    both[e] = double(values[e]) * d_out[e];
    scaled[e] = d_out[e] * dots[e];
  }
  Values d_values(nnz, std::nanf("")), d_b(out_.size(), std::nanf("")), d_x = d_b, d_y = d_b;
  spmm_backward(*graph_, back, elements(values), rows(y_), rows(x_), {.values = elements(d_values), .b = rows(d_b)});
  expect_close(doubles(d_values), dots, 2e-5, "spmm, values");
  expect_close(doubles(d_b), sums_back(doubles(values), x_), 2e-5, "spmm, b");
  std::fill(d_values.begin(), d_values.end(), std::nanf(""));
  sddmm_backward(*graph_, back, elements(values), rows(x_), rows(y_), elements(d_out),
                 {.values = elements(d_values), .x = rows(d_x), .y = rows(d_y)});
  expect_close(doubles(d_values), scaled, 2e-5, "sddmm, values");
  expect_close(doubles(d_x), sums(both, y_), 2e-5, "sddmm, x");
  expect_close(doubles(d_y), sums_back(both, x_), 2e-5, "sddmm, y");
}

// Two heads of their own values and features over one graph.
TEST_F(Cora, BatchedOperatorsAreTheirSumsInDouble) {
  const int64_t nodes = graph_->num_rows(), nnz = graph_->nnz();
  const auto of_heads = [](const Values& first, const Values& second) {
    Values both = first;
    both.insert(both.end(), second.begin(), second.end());
    return both;
  };
  const std::array<Values, 2> weights{random_values(at_->size(), 8), random_values(at_->size(), 9)};
  const Values values = of_heads(weights[0], weights[1]), b = of_heads(y_, x_), x = of_heads(x_, out_);
  std::vector<double> product = sums(doubles(weights[0]), y_), dots;
  const std::vector<double> second = sums(doubles(weights[1]), x_);
  product.insert(product.end(), second.begin(), second.end());
  for (size_t e = 0; e < at_->size(); ++e) dots.push_back(dot(x_, y_, e));
  for (size_t e = 0; e < at_->size(); ++e) dots.push_back(dot(out_, x_, e));
  const auto heads = [&](const Values& t) { return TensorView(t.data(), DType::fp32, {2, nodes, kCoraFeat}); };
  const auto of_elements = [&](const Values& t) { return TensorView(t.data(), DType::fp32, {2, nnz}); };
  Values c(product.size(), std::nanf("")), out(dots.size(), std::nanf(""));
  batched_spmm(*graph_, of_elements(values), heads(b), heads(c));
  expect_close(doubles(c), product, 2e-5, "spmm");
  batched_sddmm(*graph_, heads(x), heads(b), of_elements(out));
  expect_close(doubles(out), dots, 2e-5, "sddmm");
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

}  // namespace
}  // namespace weft::sparse::test
