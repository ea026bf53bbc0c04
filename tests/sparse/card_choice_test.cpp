// What a search on a card tries: every format and schedule once, each of which computes what the program says.
#include "sparse/tune/card_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sparse/interpret.h"
#include "sparse/operators/card.h"
#include "sparse/operators/long_rows.h"
#include "sparse/tune/chosen.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

GatherCall on_card(GatherOperator op, int64_t feat) {
  return {.feat = feat, .workers = 0, .device = Device::cuda(), .op = op};
}

TEST(CardCandidates, AreEveryChoiceOnceTheLikelyOneFirst) {
  const Structure structure = random_matrix(Shape::one_dense_row, 3).structure();
  for (const GatherOperator op : {GatherOperator::spmm, GatherOperator::sddmm})
    for (const int64_t feat : {1, 3, 32, 128, 4096}) {
      SCOPED_TRACE(fmt::format("{} of {} features", to_string(op), feat));
      const GatherCall call = on_card(op, feat);
      const std::vector<FormatChoice> all = candidates_on_card(*structure.data(), call);
      EXPECT_EQ(all.front(), likely_on_card(*structure.data(), call));
      std::set<std::string> texts;
      for (const FormatChoice& choice : all) {
        texts.insert(to_text(choice));
        EXPECT_EQ(parse_choice(to_text(choice)), choice);
        const CardLanes lanes = op == GatherOperator::spmm ? card_lanes(feat, DType::fp32, card_cut(choice))
                                                           : card_edge_lanes(feat, DType::fp32, card_cut(choice));
        EXPECT_LE(lanes.lanes * lanes.rows_of_cta, 512) << to_text(choice);
        EXPECT_TRUE(!cuts_rows(choice) || op == GatherOperator::sddmm ||
                    has_memory_for_groups(feat, DType::fp32, card_cut(choice)));
      }
      EXPECT_EQ(texts.size(), all.size());
      const auto has = [&](const auto& is) { return std::any_of(all.begin(), all.end(), is); };
      EXPECT_EQ(has([](const FormatChoice& c) { return c.lanes > 0; }), feat % 4 == 0);
      EXPECT_EQ(has([](const FormatChoice& c) { return c.group > 0; }), true);
      for (const int64_t each : {1, 2, 8})
        EXPECT_EQ(has([&](const FormatChoice& c) { return c.tile == each; }), op == GatherOperator::sddmm);
      for (const int64_t c : {1, 2, 4, 8, 16})
        EXPECT_EQ(has([&](const FormatChoice& choice) {
                    return !choice.formats.empty() && choice.formats[0].numbers[0] == c;
                  }),
                  op == GatherOperator::spmm);
    }
}

TEST(CardCandidates, CutRowsWhereSomeAreLong) {
  std::vector<int32_t> one_row, five_rows;
  for (int32_t e = 0; e < 100; ++e) {
    one_row.push_back(e);
    five_rows.push_back(e % 20);
  }
  const std::vector<int32_t> one{0, 100, 100}, five{0, 20, 40, 60, 80, 100};
  const Structure longer = csr(2, 100, one, one_row), shorter = csr(5, 20, five, five_rows);
  const GatherCall call = on_card(GatherOperator::spmm, 32);
  EXPECT_EQ(likely_on_card(*longer.data(), call).tile, kPieceOfRow);
  EXPECT_EQ(likely_on_card(*shorter.data(), call).tile, 0);
  EXPECT_EQ(likely_on_card(*longer.data(), on_card(GatherOperator::sddmm, 32)).tile, 0);
  const auto pieces_of = [&](const Structure& a) {
    std::set<int64_t> pieces;
    for (const FormatChoice& choice : candidates_on_card(*a.data(), call)) pieces.insert(choice.tile);
    return pieces;
  };
  EXPECT_EQ(pieces_of(longer), (std::set<int64_t>{0, 16, 32, 64}));
  EXPECT_EQ(pieces_of(shorter), (std::set<int64_t>{0, 16}));
}

// Each by a schedule of its own.
TEST(CardCandidates, ComputeWhatTheProgramSays) {
  constexpr int64_t kFeat = 8;
  const Matrix a = random_matrix(Shape::one_dense_row, 4);
  for (const GatherOperator op : {GatherOperator::spmm, GatherOperator::sddmm}) {
    int num_read = 0;
    std::set<std::string> schedules;
    for (const FormatChoice& choice : candidates_on_card(*a.structure().data(), on_card(op, kFeat))) {
      if (op == GatherOperator::spmm && cuts_rows(choice)) continue;  // programs of their own
      const bool is_large = !choice.formats.empty() && choice.formats[0].numbers[0] > 1;
      if (is_large && ++num_read > 2) continue;  // compiling takes long
      SCOPED_TRACE(to_text(choice));
      const ReadyProgram ready = gather_program(op, choice, kFeat, DType::fp32, Device::cuda());
      EXPECT_TRUE(schedules.insert(ready.schedule).second) << "another choice runs so, too";
      expect_same_results_on(a.structure(), ready.text, ready.schedule, ready.set);
    }
  }
}

// Registers of four elements of a warp each would leave five CTAs of eight.
TEST(CardChoice, ThreadsHaveFewerElementsThatTakeAWarp) {
  const auto lines = [](int64_t feat, DType dtype, int64_t each = 0) {
    return card_edges({.iteration = "sddmm", .feat = feat, .dtype = dtype, .cut = {.each = each}});
  };
  expect_contains(lines(32, DType::fp32), "split(sddmm.i_j, 128)\nsddmm_em, sddmm_er = split(sddmm_ei, 32)", "8 lanes");
  expect_contains(lines(128, DType::fp32), "split(sddmm.i_j, 16)\nsddmm_em, sddmm_er = split(sddmm_ei, 8)", "a warp");
  expect_contains(lines(128, DType::bf16), "split(sddmm.i_j, 64)\nsddmm_em, sddmm_er = split(sddmm_ei, 16)", "half");
  expect_contains(lines(128, DType::fp32, 4), "split(sddmm.i_j, 32)", "as a search says");
}

}  // namespace
}  // namespace weft::sparse::test
