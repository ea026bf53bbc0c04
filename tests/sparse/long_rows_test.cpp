// How rows are shared by CTAs: groups tile the matrix, pieces tile its elements, and rows that no group takes are left
// to the operator of huge rows.
#include "sparse/operators/long_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sparse/formats/structure.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

Structure rows_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> indptr{0}, indices;
  for (const int32_t length : lengths) {
    for (int32_t j = 0; j < length; ++j) indices.push_back(j);
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const int32_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  return csr(static_cast<int64_t>(lengths.size()), longest, indptr, indices);
}

// Walks through the groups, and the rows of each, as the kernel does.
void expect_tiles(const std::vector<int32_t>& lengths, int64_t group, int64_t longest_piece = kPieceOfRow) {
  SCOPED_TRACE(fmt::format("{} rows in groups of {}", lengths.size(), group));
  const Structure a = rows_of(lengths);
  const PiecesAtOnce at_once{.of_cta = group, .of_card = 8448};
  const RowGroups groups = row_groups(*a.data(), at_once, longest_piece);
  const Level &group_rows = groups.rows.data()->levels[1], &places = groups.rows.data()->levels[2];
  const Level &group_pieces = groups.pieces.data()->levels[1], &elements = groups.pieces.data()->levels[2];
  EXPECT_EQ(elements.indices, a.data()->levels[1].indices);
  std::vector<int32_t> huge;
  size_t row = 0;
  int32_t element = 0;
  for (size_t w = 0; w + 1 < group_rows.indptr.size(); ++w) {
    const int32_t first_piece = group_pieces.indptr[w], end = group_pieces.indptr[w + 1];
    ASSERT_LE(end - first_piece, group);
    ASSERT_LE(group_rows.indptr[w + 1] - group_rows.indptr[w], group);
    ASSERT_EQ(static_cast<int32_t>(row), group_rows.indptr[w]);
    for (; row < static_cast<size_t>(group_rows.indptr[w + 1]); ++row) {
      const int32_t num_pieces = places.indptr[row + 1] - places.indptr[row];
      const bool is_huge = lengths[row] > group * most_of_piece(a.nnz(), at_once);
      ASSERT_EQ(num_pieces == 0, is_huge);
      const int32_t first = first_piece + groups.first[row];
      for (int32_t p = first; p < first + std::max(num_pieces, 1); ++p) {
        ASSERT_LT(p, end);
        const auto piece = static_cast<size_t>(p);
        ASSERT_EQ(groups.computed[piece], is_huge ? 0 : 1);
        ASSERT_EQ(elements.indptr[piece], element) << "of row " << row;
        const int32_t length = elements.indptr[piece + 1] - element;
        ASSERT_TRUE(is_huge || length <= std::max<int64_t>(longest_piece, (lengths[row] + group - 1) / group));
        element += length;
      }
      ASSERT_EQ(element, a.data()->levels[1].indptr[row + 1]);
      if (is_huge) huge.push_back(static_cast<int32_t>(row));
    }
    if (row == lengths.size()) continue;
    // The next row has no room in it.
    const int32_t num_next = std::max(places.indptr[row + 1] - places.indptr[row], 1);
    ASSERT_GT(end - first_piece + num_next, group);
  }
  EXPECT_EQ(row, lengths.size());
  ASSERT_EQ(static_cast<bool>(groups.huge), !huge.empty());
  if (huge.empty()) return;
  const std::vector<Level>& levels = groups.huge.data()->levels;
  EXPECT_EQ(levels[1].indices, huge);
  EXPECT_EQ(static_cast<int64_t>(groups.order.size()), groups.huge.nnz());
  for (size_t p = 0; p + 1 < levels[3].indptr.size(); ++p)
    EXPECT_LE(levels[3].indptr[p + 1] - levels[3].indptr[p], kPieceOfHugeRow);
  for (size_t e = 0; e < groups.order.size(); ++e)
    ASSERT_EQ(levels[3].indices[e], elements.indices[static_cast<size_t>(groups.order[e])]);
}

// As long as each of those that run at once has as much to do, on as many multiprocessors as the card has.
TEST(LongRows, HavePiecesAsLongAsTheOthersTake) {
  VectorUnit unit = vector_unit(Device::cuda());
  const auto most = [&](int64_t nnz, int64_t feat) {
    return most_of_piece(nnz, pieces_at_once(feat, DType::fp32, {}, unit));
  };
  EXPECT_EQ(most(88'651, 128), 128);
  EXPECT_EQ(most(1'166'243, 128), 276);
  EXPECT_EQ(most(11'461'589, 128), 512);
  EXPECT_EQ(most(5'000'000, 32), 295);
  unit.num_multiprocessors = 66;
  EXPECT_EQ(most(5'000'000, 32), 512);
  EXPECT_EQ(most(2'500'000, 32), 295);
}

// A CTA of few side by side takes more in turn, as far as memory for their sums is little.
TEST(LongRows, StandInCtasOfSixteenPiecesAndMore) {
  const VectorUnit unit = vector_unit(Device::cuda());
  const auto of_cta = [&](int64_t feat, const CardCut& cut = {}) {
    return pieces_at_once(feat, DType::fp32, cut, unit).of_cta;
  };
  EXPECT_EQ(of_cta(32), 32);
  EXPECT_EQ(of_cta(64), 16);
  EXPECT_EQ(of_cta(128), 16);
  EXPECT_EQ(of_cta(256), 8);
  EXPECT_EQ(of_cta(512), 4);
  EXPECT_EQ(of_cta(4096), 1);
  EXPECT_EQ(of_cta(128, {.rows = 8}), 8);
}

TEST(LongRows, AreCutIntoPiecesThatTileTheMatrix) {
  std::mt19937 random(20261128);
  for (const int64_t group : {1, 2, 8, 32}) {
    expect_tiles({}, group);
    expect_tiles({0, 0, 0}, group);
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<int32_t> lengths;
      for (int i = 0; i < 60; ++i)
        lengths.push_back(static_cast<int32_t>(random() % 3 == 0 ? random() % 700 : random() % 70));
      lengths[7] = static_cast<int32_t>(group * 128);
      lengths[30 + repeat] = static_cast<int32_t>(group * 128 + 1);
      expect_tiles(lengths, group);
      expect_tiles(lengths, group, 16);
    }
  }
}

// Where no row is long, or a CTA lacks memory for sums, rows stay as they are.
TEST(LongRows, AreSeenWhereThereAreSome) {
  const int32_t most = 2 * kPieceOfRow;
  EXPECT_FALSE(runs_in_groups(*rows_of({3, most}).data(), 32, DType::fp32));
  const Structure longer = rows_of({3, most + 1});
  EXPECT_TRUE(runs_in_groups(*longer.data(), 32, DType::fp32));
  EXPECT_TRUE(runs_in_groups(*longer.data(), 12288, DType::fp32));
  EXPECT_FALSE(runs_in_groups(*longer.data(), 12289, DType::fp32));
  EXPECT_FALSE(runs_in_groups(*longer.data(), 0, DType::fp32));
  EXPECT_TRUE(has_memory_for_groups(12, DType::fp32, {.rows = 1024}));
  EXPECT_FALSE(has_memory_for_groups(12, DType::fp32, {.rows = 1025}));
}

}  // namespace
}  // namespace weft::sparse::test
