// Operators over the relations of AIFB: 45, most of few edges, one of 6,405 (tests/data/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

constexpr size_t kIn = 16, kOut = 16;

// Edges (relation, row, column).
CooTensor aifb() {
  std::ifstream file(WEFT_TEST_DATA "/aifb.csv");
  std::string line;
  std::getline(file, line);
  CooTensor edges{.extents = {45, 8285, 8285}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    for (auto& coordinates : edges.coordinates) words >> coordinates.emplace_back();
  }
  return edges;
}

Values in_order(const Values& list, const std::vector<int64_t>& order) {
  Values stored;
  for (const int64_t e : order) stored.push_back(list[static_cast<size_t>(e)]);
  return stored;
}

// y[i] += value * x[j] w[r].
void add_product(std::vector<double>& y, size_t i, double value, const Values& x, size_t j, const Values& w, size_t r) {
  for (size_t l = 0; l < kIn; ++l)
    for (size_t k = 0; k < kOut; ++k) y[i * kOut + k] += value * x[j * kIn + l] * w[(r * kIn + l) * kOut + k];
}

class Aifb : public ::testing::Test {
 protected:
  static constexpr int64_t kNodes = 8285, kRelations = 45;
  void SetUp() override {
    ASSERT_EQ(list_.size(), 29043u);
    for (size_t e = 0; e < list_.size(); ++e) add_product(want_, at(1, e), list_[e], x_, at(2, e), w_, at(0, e));
  }
  size_t at(size_t dimension, size_t e) const { return static_cast<size_t>(edges_.coordinates[dimension][e]); }
  TensorView x() const { return {x_.data(), DType::fp32, {kNodes, kIn}}; }
  TensorView w() const { return {w_.data(), DType::fp32, {kRelations, kIn, kOut}}; }
  TensorView y() const { return {y_.data(), DType::fp32, {kNodes, kOut}}; }

  const CooTensor edges_ = aifb();
  const Values x_ = random_values(kNodes * kIn, 1), w_ = random_values(kRelations * kIn * kOut, 2);
  const Values list_ = random_values(edges_.coordinates[0].size(), 3);
  Values y_ = Values(kNodes * kOut, std::nanf(""));
  std::vector<double> want_ = std::vector<double>(kNodes * kOut, 0);
};

// y[i] = sum over edges (r, i, j) of x[j] w[r].
TEST_F(Aifb, RgmsIsItsSumInDouble) {
  const Converted converted = relational_from_coo(edges_);
  const Values values = in_order(list_, converted.order);
  rgms(converted.structure, {values.data(), DType::fp32, {converted.structure.nnz()}}, x(), w(), y());
  expect_close(doubles(y_), want_, 1e-4, "rgms");
}

// The same, every relation's matrix in buckets of rows of one length.
TEST_F(Aifb, RgmsIn3DHybIsItsSumInDouble) {
  const Converted stack = relations_from_coo(edges_);
  const Values values = in_order(list_, stack.order);
  compile(parse(example("rgms_hyb")))
      .run({.structures = {{"J", stack.structure}},
            .buffers = {
                {"A", {values.data(), DType::fp32, {stack.structure.nnz()}}}, {"X", x()}, {"W", w()}, {"Y", y()}}});
  expect_close(doubles(y_), want_, 1e-4, "hyb(1, 2)");
}

// Edges as voxels: places as skewed as real ones, dense where relations join nodes of near numbers. An output meets the
// input at its place times the stride + offset - 1.
TEST(AifbVoxels, SparseConvolutionIsItsSumInDouble) {
  const CooTensor edges = aifb();
  std::vector<std::array<int32_t, 3>> voxels;
  std::map<std::array<int32_t, 3>, size_t> input;
  for (size_t e = 0; e < edges.coordinates[0].size(); ++e) {
    voxels.push_back({edges.coordinates[0][e], edges.coordinates[1][e], edges.coordinates[2][e]});
    input[voxels.back()] = e;
  }
  const Values x = random_values(voxels.size() * kIn, 4), w = random_values(27 * kIn * kOut, 5);
  for (const int32_t stride : {1, 2}) {
    const KernelMap map = kernel_map(voxels, {3, 3, 3}, {stride, stride, stride});
    Values y(map.outputs.size() * kOut, std::nanf(""));
    std::vector<double> want(y.size(), 0);
    size_t pairs = 0;
    for (size_t u = 0; u < map.outputs.size(); ++u)
      for (int32_t offset = 0; offset < 27; ++offset) {
        const auto& at = map.outputs[u];
        const auto met = input.find(
            {at[0] * stride + offset / 9 - 1, at[1] * stride + offset / 3 % 3 - 1, at[2] * stride + offset % 3 - 1});
        if (met == input.end()) continue;
        add_product(want, u, 1, x, met->second, w, static_cast<size_t>(offset));
        ++pairs;
      }
    EXPECT_GT(pairs, voxels.size()) << "voxels have neighbours";
    sparse_convolution(map, {x.data(), DType::fp32, {static_cast<int64_t>(voxels.size()), kIn}},
                       {w.data(), DType::fp32, {27, kIn, kOut}},
                       {y.data(), DType::fp32, {static_cast<int64_t>(map.outputs.size()), kOut}});
    expect_close(doubles(y), want, 1e-4, "stride " + std::to_string(stride));
  }
}

}  // namespace
}  // namespace weft::sparse::test
