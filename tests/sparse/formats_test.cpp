// Formats: conversions keep every element once, hyb fills its buckets as it says, maps are inverse to each other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "sparse/formats/structure.h"
#include "sparse/formats/structure_on.h"
#include "sparse/schedule.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

MatrixAxes axes() { return {.row = "I", .col = "J", .num_rows = loop::variable("m"), .num_cols = loop::variable("n")}; }

Coordinates coordinates(const Matrix& a) { return coordinates_of(*a.structure().data()); }

TEST(Formats, ConversionsKeepEveryElementOnce) {
  for (const Shape shape : kShapes) {
    const Coo coo = random_matrix(shape, 71).coo();
    std::vector<std::vector<int64_t>> orders = {csr_from_coo(coo).order,           csc_from_coo(coo).order,
                                                ell_from_coo(coo).order,           bsr_from_coo(coo, 3).order,
                                                dcsr_from_coo(coo).order,          dbsr_from_coo(coo, 2).order,
                                                sr_bcrs_from_coo(coo, 4, 2).order, dia_from_coo(coo).order,
                                                coo_from_coo(coo).order,           ragged_from_coo(coo).order};
    orders.emplace_back();
    for (const Converted& bucket : hyb_from_coo(coo, 3, 2))
      orders.back().insert(orders.back().end(), bucket.order.begin(), bucket.order.end());
    for (size_t f = 0; f < orders.size(); ++f) {
      std::vector<int> seen(coo.rows.size(), 0);
      for (const int64_t e : orders[f])
        if (e >= 0) ++seen[static_cast<size_t>(e)];
      EXPECT_EQ(seen, std::vector<int>(coo.rows.size(), 1)) << name_of(shape) << ", format " << f;
    }
  }
}

TEST(Formats, RulesTogetherTakeEveryElementOnce) {
  const std::vector<std::vector<FormatRewriteRule>> compositions = {
      {csr_rule(axes())},
      {bsr_rule(axes(), 2)},
      {bsr_rule(axes(), 2), ell_rule(axes(), 2), csr_rule(axes())},
      hyb_rules(axes(), 1, 3),
      hyb_rules(axes(), 3, 0),
      hyb_rules(axes(), 4, 5),
      {csc_rule(axes())},
      {coo_rule(axes())},
      {dcsr_rule(axes())},
      {dbsr_rule(axes(), 3)},
      {dia_rule(axes())},
      {sr_bcrs_rule(axes(), 4, 2)},
      {dia_rule(axes()), dbsr_rule(axes(), 2), sr_bcrs_rule(axes(), 3, 2), coo_rule(axes())}};
  for (const auto& rules : compositions)
    for (const Shape shape : kShapes) {
      const Coordinates all = coordinates(random_matrix(shape, 72));
      size_t taken = 0;
      for (const FormatArrays& format : take_all(rules, all))
        taken += static_cast<size_t>(std::count(format.taken.begin(), format.taken.end(), 1));
      EXPECT_EQ(taken, all.size()) << rules[0].name << ", " << name_of(shape);
    }
}

// A row of length l goes to the bucket i with 2^(i-1) < l <= 2^i; a longer one to the last, in pieces.
TEST(Formats, HybPutsRowsIntoBucketsByTheirLength) {
  Coordinates rows{.num_rows = 9, .num_cols = 16};
  for (int32_t r = 0; r < 9; ++r)
    for (int32_t c = 0; c < r; ++c) {
      rows.rows.push_back(r);
      rows.cols.push_back(c);
    }
  const std::vector<FormatArrays> buckets = take_all(hyb_rules(axes(), 1, 2), rows);
  const auto array = [&](size_t b, const std::string& name) { return buckets[b].arrays.at(name); };
  EXPECT_EQ(array(0, "I_hyb_0_0_indices"), (std::vector<int32_t>{1}));
  EXPECT_EQ(array(1, "I_hyb_0_1_indices"), (std::vector<int32_t>{2}));
  EXPECT_EQ(array(2, "I_hyb_0_2_indices"), (std::vector<int32_t>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(array(2, "S_hyb_0_2_indptr"), (std::vector<int32_t>{0, 1, 2, 4, 6, 8, 10}));
  const std::vector<int32_t> columns = array(2, "J_hyb_0_2_indices");
  EXPECT_EQ(std::vector<int32_t>(columns.begin(), columns.begin() + 4), (std::vector<int32_t>{0, 1, 2, 16}));
  EXPECT_EQ(std::vector<int32_t>(columns.begin() + 8, columns.begin() + 16),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 16, 16, 16}));
}

TEST(Formats, HybPartitionsColumnsEvenly) {
  Coordinates row{.num_rows = 1, .num_cols = 10};
  for (int32_t c = 0; c < 10; ++c) {
    row.rows.push_back(0);
    row.cols.push_back(c);
  }
  const std::vector<FormatArrays> buckets = take_all(hyb_rules(axes(), 3, 2), row);  // widths 4, 4, 2
  EXPECT_EQ(buckets[2].arrays.at("J_hyb_0_2_indices"), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(buckets[5].arrays.at("J_hyb_1_2_indices"), (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(buckets[7].arrays.at("J_hyb_2_1_indices"), (std::vector<int32_t>{8, 9}));
}

// A matrix fills the axes of a program in the format that they say.
TEST(Formats, MatricesFillTheAxesOfAProgram) {
  const auto program = [](const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(WEFT_SPARSE_EXAMPLES "/" + name + ".txt").rdbuf();
    return parse_program(text.str()).stage1;
  };
  const auto expect_same = [](const Structure& got, const Structure& want, const std::string& what) {
    const auto &a = got.data()->levels, &b = want.data()->levels;
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t l = 0; l < a.size(); ++l) {
      EXPECT_EQ(a[l].indptr, b[l].indptr) << what;
      EXPECT_EQ(a[l].indices, b[l].indices) << what;
      EXPECT_EQ(a[l].per_parent, b[l].per_parent) << what;
    }
  };
  const Matrix a = random_matrix(Shape::uniform, 77);
  const Coo coo = a.coo();
  expect_same(structure_on(program("spmm_hyb"), "J", coo), csr_from_coo(coo).structure, "csr");
  expect_same(structure_on(program("spmm_ell"), "J", coo), ell_from_coo(coo).structure, "ell");
  expect_same(structure_on(program("spmm_bsr"), "JO", coo), bsr_from_coo(coo, 4).structure, "bsr");
  expect_same(structure_on(program("spmm_dcsr"), "J", coo), dcsr_from_coo(coo).structure, "dcsr");
  expect_same(structure_on(program("spmm_dbsr"), "JO", coo), dbsr_from_coo(coo, 4).structure, "dbsr");
  expect_same(structure_on(program("spmm_sr_bcrs"), "J", coo), sr_bcrs_from_coo(coo, 8, 4).structure, "sr_bcrs");
  expect_same(structure_on(program("ragged_softmax"), "J", coo), ragged(a.rows, a.cols, a.indptr), "ragged");
  Stage1 wide = program("spmm_ell");
  Axis& places = *std::find_if(wide.axes.begin(), wide.axes.end(), [](const Axis& axis) { return axis.name == "J"; });
  places.nnz = 40;
  const Structure forty = structure_on(wide, "J", coo);
  EXPECT_EQ(forty.nnz(), a.rows * 40);
  EXPECT_EQ(std::count(forty.data()->levels[1].indices.begin(), forty.data()->levels[1].indices.end(), a.cols),
            a.rows * 40 - static_cast<int64_t>(a.indices.size()));
  places.nnz = 1;
  expect_contains(refusal([&] { structure_on(wide, "J", coo); }), "axis 'J' has 1 places a row", "narrow");
  expect_contains(refusal([&] { structure_on(program("mttkrp"), "L", coo); }), "required: axes that a matrix fills",
                  "a tensor's axes");
}

TEST(Formats, MapsThatAreNotInverseAreRefused) {
  FormatRewriteRule rule = bsr_rule(axes(), 2);
  check_inverse(rule, {"I", "J"});
  rule.to_old["I"] = loop::variable("IO_bsr_2") * 2;
  expect_contains(refusal([&] {
                    check_inverse(rule, {"I", "J"});
                  }),
                  "its maps are not inverse to each other: I = 1 comes back as 0", "bsr");
  rule.to_old.erase("J");
  expect_contains(refusal([&] { check_inverse(rule, {"J"}); }), "the inverse map has no 'J'", "bsr");
}

// Each rule makes of a matrix what the conversion of that name makes.
TEST(Formats, RulesStoreWhatConversionsDo) {
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 73);
    const Coordinates all = coordinates(a);
    const auto take = [&](const FormatRewriteRule& rule) { return rule.take(all, true).arrays; };
    const auto expect_level = [&](const std::map<std::string, std::vector<int32_t>>& arrays, const std::string& axis,
                                  const Level& level) {
      if (level.is_variable) {
        EXPECT_EQ(arrays.at(axis + "_indptr"), level.indptr) << axis << ", " << name_of(shape);
      }
      if (level.is_sparse) {
        EXPECT_EQ(arrays.at(axis + "_indices"), level.indices) << axis << ", " << name_of(shape);
      }
    };
    const auto levels = [](const Converted& converted) { return converted.structure.data()->levels; };
    const auto csc = take(csc_rule(axes())), dcsr = take(dcsr_rule(axes())), dbsr = take(dbsr_rule(axes(), 3));
    expect_level(csc, "I_csc", levels(csc_from_coo(a.coo()))[1]);
    expect_level(dcsr, "I_dcsr", levels(dcsr_from_coo(a.coo()))[1]);
    expect_level(dcsr, "J_dcsr", levels(dcsr_from_coo(a.coo()))[2]);
    expect_level(dbsr, "IO_dbsr_3", levels(dbsr_from_coo(a.coo(), 3))[1]);
    expect_level(dbsr, "JO_dbsr_3", levels(dbsr_from_coo(a.coo(), 3))[2]);
    const auto strips = take(sr_bcrs_rule(axes(), 4, 2));
    expect_level(strips, "G_sr_bcrs_4_2", levels(sr_bcrs_from_coo(a.coo(), 4, 2))[1]);
    expect_level(strips, "J_sr_bcrs_4_2", levels(sr_bcrs_from_coo(a.coo(), 4, 2))[2]);
    std::vector<int32_t> offsets = take(dia_rule(axes())).at("D_dia_indices");
    for (int32_t& offset : offsets) offset -= static_cast<int32_t>(a.rows);
    EXPECT_EQ(offsets, dia_from_coo(a.coo()).offsets) << name_of(shape);
    const auto list = take(coo_rule(axes()));
    EXPECT_EQ(list.at("I_coo_indices"), a.coo().rows) << name_of(shape);
    EXPECT_EQ(list.at("J_coo_indices"), a.coo().cols) << name_of(shape);
  }
}

// Each place of a structure is at the coordinates of the element that `order` names, and padding is no element.
TEST(Formats, CooHybAndDiagonalsStoreElementsAtTheirCoordinates) {
  for (const Shape shape : kShapes) {
    const Coo coo = random_matrix(shape, 78).coo();
    const auto expect_at = [&](int64_t e, int64_t row, int64_t col) {
      if (col == coo.num_cols) {
        EXPECT_EQ(e, -1) << name_of(shape);
        return;
      }
      ASSERT_GE(e, 0) << name_of(shape);
      EXPECT_EQ(coo.rows[static_cast<size_t>(e)], row) << name_of(shape);
      EXPECT_EQ(coo.cols[static_cast<size_t>(e)], col) << name_of(shape);
    };
    const Converted list = coo_from_coo(coo);
    const std::vector<Level>& axes_of_list = list.structure.data()->levels;
    EXPECT_EQ(axes_of_list[0].length, static_cast<int64_t>(coo.rows.size()));
    for (size_t e = 0; e < list.order.size(); ++e)
      expect_at(list.order[e], axes_of_list[1].indices[e], axes_of_list[2].indices[e]);

    const std::vector<Converted> buckets = hyb_from_coo(coo, 2, 1);
    ASSERT_EQ(buckets.size(), 4u);
    for (size_t b = 0; b < buckets.size(); ++b) {
      const std::vector<Level>& levels = buckets[b].structure.data()->levels;
      const bool is_last = b % 2 == 1;
      ASSERT_EQ(levels.size(), is_last ? 4u : 3u);
      EXPECT_EQ(levels.back().per_parent, is_last ? 2 : 1);
      size_t place = 0;
      for (size_t r = 0; r < levels[1].indices.size(); ++r) {
        const int32_t pieces = is_last ? levels[2].indptr[r + 1] - levels[2].indptr[r] : 1;
        for (int64_t p = 0; p < pieces * levels.back().per_parent; ++p, ++place)
          expect_at(buckets[b].order[place], levels[1].indices[r], levels.back().indices[place]);
      }
      EXPECT_EQ(place, buckets[b].order.size());
    }

    const Diagonals diagonals = dia_from_coo(coo);
    const Level& numbers = diagonals.structure.data()->levels[1];
    EXPECT_EQ(numbers.length, coo.num_rows + coo.num_cols);
    ASSERT_EQ(numbers.indices.size(), diagonals.offsets.size());
    for (size_t d = 0; d < numbers.indices.size(); ++d)
      EXPECT_EQ(numbers.indices[d], diagonals.offsets[d] + coo.num_rows);
  }
}

// Before another format, only what is at least half full.
TEST(Formats, BlocksTilesAndDiagonalsBeforeOthersAreHalfFull) {
  // The first block is full; row 3 has one element, on a diagonal that is otherwise empty.
  const Coordinates matrix{.num_rows = 4, .num_cols = 4, .rows = {0, 0, 1, 1, 3}, .cols = {0, 1, 0, 1, 0}};
  EXPECT_EQ(dbsr_rule(axes(), 2).take(matrix, false).taken, (std::vector<char>{1, 1, 1, 1, 0}));
  EXPECT_EQ(dbsr_rule(axes(), 2).take(matrix, true).taken, (std::vector<char>{1, 1, 1, 1, 1}));
  EXPECT_EQ(sr_bcrs_rule(axes(), 4, 2).take(matrix, false).taken, (std::vector<char>{1, 1, 1, 1, 1}));
  EXPECT_EQ(sr_bcrs_rule(axes(), 3, 2).take(matrix, false).taken, (std::vector<char>{1, 1, 1, 1, 0}));
  // Diagonals of 2, 1, 1 and 1 elements on 4, 3, 3 and 1 places.
  EXPECT_EQ(dia_rule(axes()).take(matrix, false).taken, (std::vector<char>{1, 0, 0, 1, 1}));
}

TEST(Formats, DefaultBucketIsTheMeanLengthOfARowRoundedUp) {
  EXPECT_EQ(default_bucket(10556, 2708), 2);  // Cora
  EXPECT_EQ(default_bucket(88648, 19717), 3);
  EXPECT_EQ(default_bucket(8, 8), 0);
  EXPECT_EQ(default_bucket(9, 8), 1);
  EXPECT_EQ(default_bucket(16, 8), 1);
  EXPECT_EQ(default_bucket(0, 0), 0);
  EXPECT_EQ(default_bucket(1 << 30, 1), 16);
}

// What has no array over all rows takes neither time nor memory for those that hold nothing.
TEST(Formats, OfRowsThatHoldSomethingPassByAllOthers) {
  const Coo coo{.num_rows = INT32_MAX, .num_cols = 4, .rows = {INT32_MAX - 1, 5, 5}, .cols = {0, 3, 1}};
  const Converted dbsr = dbsr_from_coo(coo, 2);
  const auto& blocks = dbsr.structure.data()->levels;
  EXPECT_EQ(blocks[1].indices, (std::vector<int32_t>{2, (INT32_MAX - 1) / 2}));
  EXPECT_EQ(blocks[2].indptr, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(blocks[2].indices, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(dbsr.order, (std::vector<int64_t>{-1, -1, -1, 2, -1, -1, -1, 1, 0, -1, -1, -1}));
  const Converted elements = coo_from_coo(coo), rows = dcsr_from_coo(coo);
  EXPECT_EQ(elements.order, (std::vector<int64_t>{2, 1, 0}));
  EXPECT_EQ(elements.structure.data()->levels[1].indices, (std::vector<int32_t>{5, 5, INT32_MAX - 1}));
  EXPECT_EQ(rows.structure.data()->levels[1].indices, (std::vector<int32_t>{5, INT32_MAX - 1}));
  const std::vector<Converted> buckets = hyb_from_coo(coo, 1, 1);
  EXPECT_EQ(buckets[0].order, (std::vector<int64_t>{0}));
  EXPECT_EQ(buckets[1].order, (std::vector<int64_t>{2, 1}));
}

// Empty rows before, between and behind.
TEST(Formats, RowsThatHoldNothingBeginWhereTheNextOneDoes) {
  const std::vector<int32_t> rows{2, 2, 5};
  const auto row_of = [&](size_t p) { return rows[p]; };
  EXPECT_EQ(indptr_of(8, 3, row_of), (std::vector<int32_t>{0, 0, 0, 2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(indptr_of(6, 3, row_of), (std::vector<int32_t>{0, 0, 0, 2, 2, 2, 3}));
  EXPECT_EQ(indptr_of(3, 0, row_of), (std::vector<int32_t>(4, 0)));
  EXPECT_EQ(indptr_of(0, 0, row_of), (std::vector<int32_t>{0}));
  // A fall is found wherever it stands.
  for (const size_t at : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{9000}}) {
    std::vector<int32_t> indptr(9001, 1);
    indptr[0] = 0;
    indptr[at] = -1;
    expect_contains(refusal([&] { csr(9000, 4, indptr, std::vector<int32_t>{0}); }),
                    fmt::format("indptr[{}] is -1, less than the {} before it", at, at == 1 ? 0 : 1), "fall");
  }
}

// Among empty rows, at the ends of pieces that are passed by together.
TEST(Formats, TheOnlyRowsThatHoldSomethingAreFoundWhereverTheyStand) {
  for (const size_t row : {size_t{0}, size_t{63}, size_t{64}, size_t{127}, size_t{128}, size_t{199}}) {
    std::vector<int32_t> indptr(201, 0);
    std::fill(indptr.begin() + static_cast<std::ptrdiff_t>(row) + 1, indptr.end(), 2);
    EXPECT_EQ(coordinates_of(*csr(200, 4, indptr, std::vector<int32_t>{1, 3}).data()).rows,
              (std::vector<int32_t>(2, static_cast<int32_t>(row))));
    expect_contains(refusal([&] {
                      csr(200, 4, indptr, std::vector<int32_t>{1, 4});
                    }),
                    fmt::format("indices[1], of row {}, is 4; allowed are 0 to 3", row), "beyond");
    expect_contains(refusal([&] { ragged(200, 1, indptr); }), fmt::format("row {} has 2 elements", row), "too long");
  }
}

TEST(Formats, SrBcrsPadsTheLastGroup) {
  // Rows 0 and 1 hold columns 1 and 3; row 5 holds column 0: strips of 2, groups of 3 tiles.
  const Coo coo{.num_rows = 6, .num_cols = 4, .rows = {0, 1, 5}, .cols = {1, 3, 0}};
  const Converted converted = sr_bcrs_from_coo(coo, 2, 3);
  const auto& levels = converted.structure.data()->levels;
  EXPECT_EQ(levels[1].indptr, (std::vector<int32_t>{0, 1, 1, 2}));
  EXPECT_EQ(levels[2].indices, (std::vector<int32_t>{1, 3, 4, 0, 4, 4}));
  EXPECT_EQ(converted.order, (std::vector<int64_t>{0, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, -1}));
}

}  // namespace
}  // namespace weft::sparse::test
