// The search for formats and schedules, and what "auto" takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/searched.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/stage1/parse.h"
#include "sparse/tune/card_choice.h"
#include "sparse/tune/chosen.h"
#include "sparse/tune/results.h"
#include "sparse/tune/search.h"
#include "tests/sparse/extent_cases.h"
#include "tests/sparse/own_results.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

FormatChoice choice_in(const char* formats, int64_t prefetch, int64_t tile = 0, int64_t lanes = 0, int64_t group = 0) {
  return {parse_formats(formats), prefetch, tile, lanes, group};
}

TEST(Choice, ReadsBackWhatItIsWrittenAs) {
  for (const FormatChoice& choice : {choice_in("csr", 0), choice_in("hyb(2, 5)", 16), choice_in("csr", 1024, 64),
                                     choice_in("hyb(1, 3)", 8, 0, 8, 16), choice_in("bsr(4), coo()", 4)})
    EXPECT_EQ(parse_choice(to_text(choice)), choice);
  for (const char* text :
       {"", "csr", "csr prefetch 1", "csr prefetch 16 tile 0", "csr prefetch x tile 0 lanes 0 group 0",
        "csr prefetch 16 tile 0 lanes 0 group 0 ", "csr prefetch -1 tile 0 lanes 0 group 0",
        "csr prefetch 1025 tile 0 lanes 0 group 0", "csr tile 0 prefetch 1 lanes 0 group 0",
        "csr prefetch 99999999999999999999 tile 0 lanes 0 group 0", "csr prefetch 16 tile 0 lanes 65 group 0",
        "csr prefetch 16 tile 0 lanes 0 group 65537"})
    EXPECT_THROW(parse_choice(text), Error) << text;
  // What earlier versions have kept.
  EXPECT_EQ(parse_choice("csr prefetch 16 tile 128 lanes 0 group 0"), choice_in("csr", 16, 128));
  EXPECT_EQ(parse_choice("hyb(2, 5) prefetch 16 tile 0 lanes 8 group 4"), choice_in("hyb(2, 5)", 16, 0, 8, 4));
  EXPECT_EQ(to_text(choice_in("hyb(2,5)", 16, 0, 8, 4)), "hyb(2, 5) prefetch 16 tile 0 lanes 8 group 4");
}

TEST(RowLengths, AreCountedByPowersOfTwo) {
  // Lengths 0, 1, 2, 3, 4, 5.
  const std::vector<int32_t> indptr = {0, 0, 1, 3, 6, 10, 15};
  std::vector<int32_t> indices;
  for (int32_t row = 0; row < 6; ++row)
    for (int32_t j = 0; j < row; ++j) indices.push_back(j);
  const RowLengths rows = row_lengths(*csr(6, 8, indptr, indices).data(), {.feat = 64});
  EXPECT_EQ(rows.nnz, 15);
  EXPECT_EQ((std::vector<int64_t>(rows.rows.begin(), rows.rows.begin() + 5)), (std::vector<int64_t>{1, 1, 2, 1, 0}));
  EXPECT_EQ((std::vector<int64_t>(rows.elements.begin(), rows.elements.begin() + 4)),
            (std::vector<int64_t>{1, 2, 7, 5}));
}

TEST(RowLengths, KnowHowFullBlocksAre) {
  // Full blocks of 4 on the diagonal: 16 elements in each.
  std::vector<int32_t> indptr = {0}, indices;
  for (int32_t row = 0; row < 32; ++row) {
    for (int32_t j = 0; j < 4; ++j) indices.push_back(row / 4 * 4 + j);
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const RowLengths rows = row_lengths(*csr(32, 32, indptr, indices).data(), {.feat = 64});
  EXPECT_DOUBLE_EQ(rows.fill[0], 4);
  EXPECT_DOUBLE_EQ(rows.fill[1], 16);
  EXPECT_DOUBLE_EQ(rows.fill[2], 32);
}

TEST(Candidates, AreEveryFormatOfTheSearchOnceTheLikelyOneFirst) {
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 3);
    const RowLengths rows = row_lengths(*a.structure().data(), {.feat = 64});
    for (const auto& [op, keeps] : {std::pair(GatherOperator::spmm, false), std::pair(GatherOperator::spmm, true),
                                    std::pair(GatherOperator::sddmm, true)}) {
      const GatherCall call{.feat = 64, .keeps_values = keeps, .workers = 2, .op = op};
      const std::vector<FormatChoice> all = candidates_of(rows, call);
      std::set<std::string> texts;
      for (const FormatChoice& choice : all) texts.insert(to_text(choice));
      EXPECT_EQ(texts.size(), all.size()) << name_of(shape);
      for (const char* format : {"csr", "bsr(2)", "bsr(8)", "hyb(1, 3)", "hyb(16, 3)"})
        EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                                [&](const FormatChoice& c) { return c.formats == parse_formats(format); }))
            << format << ", " << name_of(shape);
      EXPECT_EQ(likely_choice(rows, call), all.front());
      for (size_t i = 0; i + 1 < all.size(); ++i)
        EXPECT_LE(expected_cost(rows, all[i], call), expected_cost(rows, all[i + 1], call));
      EXPECT_TRUE(std::isfinite(expected_cost(rows, all.back(), call)));
    }
  }
}

// Lengths of vectors and groups of rows, for CSR and for hyb; what is likely is the machine's length and single rows.
TEST(Candidates, VaryLanesAndGroupsOfRows) {
  const RowLengths rows = row_lengths(*random_matrix(Shape::power_law, 3).structure().data(), {.feat = 512});
  for (const int64_t feat : {64, 512})
    for (const bool keeps : {false, true}) {
      const GatherCall call{.feat = feat, .keeps_values = keeps, .workers = 2};
      const std::vector<FormatChoice> all = candidates_of(rows, call);
      const auto has = [&](const auto& is) { return std::any_of(all.begin(), all.end(), is); };
      for (const bool is_hyb : {false, true}) {
        const int64_t lanes = vector_unit(current_isa()).lanes;
        const auto is_format = [&](const FormatChoice& c) {
          if (!is_hyb || c.formats.empty()) return is_hyb != c.formats.empty();
          return c.formats[0].kind == Format::Kind::hyb && c.formats[0].numbers[0] == 1;
        };
        EXPECT_EQ(has([&](const FormatChoice& c) { return is_format(c) && c.lanes == lanes / 2; }), lanes > 4);
        EXPECT_TRUE(has([&](const FormatChoice& c) { return is_format(c) && c.group > 0; })) << is_hyb;
      }
      EXPECT_EQ(has([&](const FormatChoice& c) { return c.tile > 0 && c.group > 0; }), feat == 512);
      EXPECT_EQ(all.front().lanes, 0);
      EXPECT_EQ(all.front().group, 0);
      for (const FormatChoice& choice : all) {
        const FormatChoice plain{choice.formats, choice.prefetch, choice.tile};
        EXPECT_TRUE(choice == plain || expected_cost(rows, choice, call) > expected_cost(rows, plain, call));
      }
    }
}

// A format's values are copied at each call unless the caller promises that they stay.
TEST(Candidates, AreCsrWhereValuesMayChange) {
  const Matrix a = random_matrix(Shape::power_law, 4);
  EXPECT_EQ(likely_choice(row_lengths(*a.structure().data(), {.feat = 64}), {.feat = 64}).formats, Formats());
}

// What a format computes of SDDMM is looked up for each element, in each of its parts.
TEST(Candidates, OfSddmmCostMoreTheMorePartsAFormatHas) {
  const GatherCall call{.feat = 512, .keeps_values = true, .workers = 2, .op = GatherOperator::sddmm};
  const RowLengths rows = row_lengths(*random_matrix(Shape::blocks, 4).structure().data(), call);
  const auto cost = [&](const char* format) { return expected_cost(rows, {parse_formats(format)}, call); };
  EXPECT_LT(cost("csr"), cost("bsr(2)"));
  EXPECT_LT(cost("csr"), cost("hyb(1, 2)"));
  EXPECT_LT(cost("hyb(1, 2)"), cost("hyb(1, 3)"));
  EXPECT_LT(cost("hyb(1, 3)"), cost("hyb(4, 3)"));
  for (const FormatChoice& choice : candidates_of(rows, call)) EXPECT_EQ(choice.tile, 0);
}

// A search fails with the first candidate whose schedule is refused: those of the most parts have lines for each.
TEST(Candidates, HaveSchedulesThatCanBeRead) {
  const Matrix a = random_matrix(Shape::one_dense_row, 4);
  RowLengths rows = row_lengths(*a.structure().data(), {.feat = 64});
  rows.nnz = 128 * rows.num_rows;  // a mean length of 128: hyb(16, 10) is the last
  const GatherCall call{.feat = 64, .keeps_values = true, .workers = 2, .op = GatherOperator::sddmm};
  size_t longest = 0;
  for (const FormatChoice& choice : candidates_of(rows, call)) {
    if (choice.formats.empty()) continue;
    const std::string text = sddmm_format_schedule(64, choice.formats, {}, choice.prefetch, choice.group);
    EXPECT_NO_THROW(parse_schedule(text)) << to_text(choice);
    longest = std::max<size_t>(longest, static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
  }
  EXPECT_GT(longest, 1000u);
}

TEST(Results, AreKeptByStructureAndKindOfCall) {
  const OwnResults own;
  const Matrix a = random_matrix(Shape::uniform, 5), b = random_matrix(Shape::uniform, 6);
  const GatherCall call{.feat = 32, .workers = 2};
  const auto key_of = [](const Matrix& matrix, const GatherCall& spmm) {
    return results_key(*matrix.structure().data(), to_text(spmm));
  };
  const std::string key = key_of(a, call);
  EXPECT_EQ(key, key_of(a, call));
  EXPECT_NE(key, key_of(b, call));
  EXPECT_NE(key, key_of(a, {.feat = 64, .workers = 2}));
  EXPECT_NE(key, key_of(a, {.feat = 32, .keeps_values = true, .workers = 2}));
  EXPECT_TRUE(read_results(key).empty());
  const Measured faster{to_text(choice_in("bsr(4)", 0)), 1e-6};
  ASSERT_TRUE(keep_results(key, {{to_text(choice_in("csr", 8)), 2e-6}, faster, {"what nobody knows", 1e-7}}));
  const std::vector<Measured> back = read_results(key);
  ASSERT_EQ(back.size(), 3u);
  EXPECT_EQ(back[1].choice, faster.choice);
  EXPECT_DOUBLE_EQ(back[1].seconds, 1e-6);
  // Another process would find the same; a structure of its own asks the cache.
  EXPECT_EQ(choice_of(*a.structure().data(), call), choice_in("bsr(4)", 0));
}

TEST(Choice, TellsHowFarAheadAPartOfSomethingLargerFetches) {
  const Structure structure = random_matrix(Shape::power_law, 7).structure();
  const GatherCall call{.feat = 64, .workers = 2};
  keep_choice(*structure.data(), call, choice_in("csr", 24));
  EXPECT_EQ(prefetch_of(*structure.data(), call), 24);
  keep_choice(*structure.data(), call, choice_in("csr", 0));
  EXPECT_EQ(prefetch_of(*structure.data(), call), 0);
  keep_choice(*structure.data(), call, choice_in("hyb(1, 3)", 0));  // says nothing of rows in CSR
  EXPECT_EQ(prefetch_of(*structure.data(), call), default_prefetch(64));
}

TEST(Tune, GoesOnWhereItsTimeEndedAndAutoTakesTheFastest) {
  const OwnResults own;
  const Matrix a = random_matrix(Shape::power_law, 7);
  constexpr int64_t kFeat = 16;
  const Structure structure = a.structure();
  const Tuned first = tune_spmm(structure, kFeat, {.seconds = 0});
  EXPECT_EQ(first.num_tried, 1);
  EXPECT_GT(first.num_left, 10);
  EXPECT_EQ(first.choice, first.likely_choice);
  Tuned second;  // a busy machine may measure nothing in its time
  for (double seconds = 0.3; second.num_tried == 0 && seconds < 60; seconds *= 2)
    second = tune_spmm(structure, kFeat, {.seconds = seconds});
  EXPECT_GE(second.num_tried, 1);
  EXPECT_EQ(second.num_tried + second.num_left, first.num_left);
  EXPECT_LE(second.seconds, first.seconds);
  EXPECT_LE(second.likely_seconds, first.likely_seconds);  // measured again beside the others
  const GatherCall call{.feat = kFeat, .workers = WorkerTeam::shared().num_workers()};
  EXPECT_EQ(to_text(choice_of(*structure.data(), call)), second.choice);
  Values b = random_values(static_cast<size_t>(a.cols * kFeat), 8), c(static_cast<size_t>(a.rows * kFeat));
  spmm(structure, a.values_view(), {b.data(), DType::fp32, {a.cols, kFeat}}, {c.data(), DType::fp32, {a.rows, kFeat}});
  expect_close(doubles(c), dense_spmm(a, b, kFeat), 1e-5, second.choice);
}

TEST(Tune, RefusesWhatItCannotSearch) {
  const Matrix a = random_matrix(Shape::uniform, 9);
  EXPECT_THROW(tune_spmm(a.structure(), 0), Error);
  EXPECT_THROW(tune_spmm(a.structure(), 16, {.seconds = -1}), Error);
  EXPECT_THROW(tune_spmm(ell_from_coo(a.coo()).structure, 16), Error);
  EXPECT_THROW(tune_spmm(Structure(), 16), Error);
  EXPECT_THROW(tune_sddmm(ell_from_coo(a.coo()).structure, 16), Error);
  EXPECT_THROW(tune_block_spmm(a.structure(), 1, 0, 16, DType::fp32), Error);
  EXPECT_THROW(tune_block_spmm(a.structure(), 1, 8, 16, DType::fp16), Error);
  EXPECT_THROW(tune_rgms(a.structure(), 16, 16), Error);
}

// One feature, over matrices of one row or column, of none, and of no element.
TEST(Tune, OfOneFeatureFindsWhatComputesTheSame) {
  const OwnResults own;
  for (const Edge& edge : edges()) {
    const Matrix& a = edge.matrix;
    const Structure structure = a.structure();
    EXPECT_EQ(tune_spmm(structure, 1, {.seconds = 0}).num_tried, 1) << edge.name;
    EXPECT_EQ(tune_sddmm(structure, 1, {.seconds = 0}).num_tried, 1) << edge.name;
    EXPECT_EQ(tune_block_spmm(structure, 1, 1, 1, DType::fp32, {.seconds = 0}).num_tried, 1) << edge.name;
    const Structure relations = relational_from_coo(in_relations(a), 1).structure;
    EXPECT_EQ(tune_rgms(relations, 1, 1, {.seconds = 0}).num_tried, 1) << edge.name;
    const Values b = random_values(static_cast<size_t>(a.cols), 3);
    Values c(static_cast<size_t>(a.rows));
    spmm(structure, a.values_view(), {b.data(), DType::fp32, {a.cols, 1}}, {c.data(), DType::fp32, {a.rows, 1}});
    expect_close(doubles(c), dense_spmm(a, b, 1), 1e-5, edge.name);
  }
}

// Every candidate of the search computes the same.
TEST(Tune, EveryCandidateIsDenseArithmetic) {
#if defined(WEFT_UNDER_SANITIZER)
  const std::vector<FormatChoice> choices = {choice_in("csr", 5, 16), choice_in("bsr(4)", 5),
                                             choice_in("csr", 5, 16, 4, 4)};  // compiling takes long
#else
  const std::vector<FormatChoice> choices = {choice_in("csr", 5),
                                             choice_in("csr", 3, 16),
                                             choice_in("bsr(2)", 5),
                                             choice_in("bsr(4)", 0),
                                             choice_in("bsr(8)", 5),
                                             choice_in("hyb(2, 3)", 5),
                                             choice_in("hyb(1, 0)", 5),
                                             choice_in("csr", 5, 0, 4),
                                             choice_in("csr", 5, 0, 0, 16),
                                             choice_in("csr", 5, 16, 8, 4),
                                             choice_in("hyb(2, 2)", 5, 0, 8),
                                             choice_in("hyb(2, 3)", 5, 0, 0, 2),
                                             choice_in("hyb(1, 0)", 5, 0, 4, 16)};
#endif
  constexpr int64_t kFeat = 32;
  for (const Shape shape : {Shape::power_law, Shape::blocks, Shape::empty, Shape::no_rows}) {
    const Matrix a = random_matrix(shape, 10);
    Values b = random_values(static_cast<size_t>(a.cols * kFeat), 11), c(static_cast<size_t>(a.rows * kFeat));
    for (const FormatChoice& choice : choices) {
      std::fill(c.begin(), c.end(), std::nanf(""));
      gather_operator(GatherOperator::spmm, choice, kFeat, DType::fp32)
          .run({.structures = {{"J", a.structure()}},
                .buffers = {{"A", a.values_view()},
                            {"B", {b.data(), DType::fp32, {a.cols, kFeat}}},
                            {"C", {c.data(), DType::fp32, {a.rows, kFeat}}}}});
      expect_close(doubles(c), dense_spmm(a, b, kFeat), 1e-5, to_text(choice) + ", " + name_of(shape));
    }
  }
}

// The others' searches: every candidate is measured, and calls take the fastest.
void expect_tuned(const Tuned& tuned, int candidates, const Structure& structure, const std::string& call) {
  EXPECT_EQ(tuned.num_tried, candidates) << call;
  EXPECT_EQ(tuned.num_left, 0) << call;
  EXPECT_LE(tuned.seconds, tuned.likely_seconds) << call;
  EXPECT_EQ(tuned_candidate(*structure.data(), call), tuned.choice);
}

// What another search has found of a format is what later calls run.
TEST(Tune, SearchesFormatsOfSddmm) {
  const OwnResults own;
  const Matrix a = random_matrix(Shape::power_law, 21);
  const GatherCall call{.feat = 32, .workers = WorkerTeam::shared().num_workers(), .op = GatherOperator::sddmm};
  const FormatChoice blocks = choice_in("bsr(2)", 0);
  for (const bool is_found : {false, true}) {
    const Structure structure = a.structure();
    const std::string key = results_key(*structure.data(), to_text(call));
    if (is_found)
      keep_results(
          key, {{to_text(likely_choice(row_lengths(*structure.data(), call), call)), 1e-3}, {to_text(blocks), 1e-12}});
    const Tuned tuned = tune_sddmm(structure, 32, {.seconds = 0});
    EXPECT_EQ(tuned.num_tried, is_found ? 0 : 1);
    EXPECT_GT(tuned.num_left, 50);
    EXPECT_EQ(tuned.choice, is_found ? to_text(blocks) : tuned.likely_choice);
    EXPECT_EQ(to_text(choice_of(*structure.data(), call)), tuned.choice);
    const Values x = random_values(static_cast<size_t>(a.rows * 32), 1);
    const Values y = random_values(static_cast<size_t>(a.cols * 32), 2);
    Values out(a.values.size(), std::nanf(""));
    sddmm(structure, a.values_view(), {x.data(), DType::fp32, {a.rows, 32}}, {y.data(), DType::fp32, {a.cols, 32}},
          {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}});
    expect_close(doubles(out), dense_sddmm(a, x, y, 32), 1e-5, tuned.choice);
  }
}

TEST(Tune, EverySddmmIsDenseArithmetic) {
#if defined(WEFT_UNDER_SANITIZER)
  const std::vector<FormatChoice> choices = {choice_in("csr", 4), choice_in("bsr(2)", 4),
                                             choice_in("hyb(1, 2)", 4, 0, 4, 2)};
#else
  const std::vector<FormatChoice> choices = {choice_in("csr", 4),           choice_in("csr", 0, 0, 8, 16),
                                             choice_in("csr", 4, 0, 0, 16), choice_in("bsr(2)", 4),
                                             choice_in("bsr(8)", 0, 0, 4),  choice_in("hyb(2, 3)", 4),
                                             choice_in("hyb(1, 0)", 4, 0),  choice_in("hyb(1, 2)", 4, 0, 4, 2)};
#endif
  for (const Shape shape : {Shape::power_law, Shape::one_dense_row, Shape::empty, Shape::no_rows}) {
    const Matrix a = random_matrix(shape, 22);
    const Values x = random_values(static_cast<size_t>(a.rows * 32), 1);
    const Values y = random_values(static_cast<size_t>(a.cols * 32), 2);
    for (const FormatChoice& choice : choices) {
      Values out(a.values.size(), std::nanf(""));
      gather_operator(GatherOperator::sddmm, choice, 32, DType::fp32)
          .run({.structures = {{"J", a.structure()}},
                .buffers = {{"A", a.values_view()},
                            {"X", {x.data(), DType::fp32, {a.rows, 32}}},
                            {"Y", {y.data(), DType::fp32, {a.cols, 32}}},
                            {"O", {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}}}});
      expect_close(doubles(out), dense_sddmm(a, x, y, 32), 1e-5, to_text(choice) + ", " + name_of(shape));
    }
  }
}

TEST(Tune, SearchesSchedulesOfBlocksAndRelations) {
  const OwnResults own;
  const int64_t workers = WorkerTeam::shared().num_workers();
  const Structure blocks = band(4, 1);
  expect_tuned(tune_block_spmm(blocks, 1, 8, 32, DType::fp32), 4, blocks,
               block_spmm_call(1, 8, 32, DType::fp32, workers));
  const Structure edges =
      relational_from_coo({.extents = {2, 3, 3}, .coordinates = {{0, 1, 1}, {0, 1, 2}, {2, 0, 1}}}).structure;
  EXPECT_EQ(tune_rgms(edges, 16, 16, {.seconds = 0}).choice, "vectors 4 prefetch 8");
  EXPECT_EQ(tune_rgms(edges, 16, 16, {.seconds = 0}).num_left, 8);
}

// Of a list of edges the tile is searched, too, and the structure that is named runs the candidate that is named.
TEST(Tune, SearchesTilesOfRelations) {
  const OwnResults own;
  const CooTensor edges{.extents = {2, 70, 3}, .coordinates = {{0, 1, 1}, {0, 69, 2}, {2, 0, 1}}};
  const TunedRgms first = tune_rgms(edges, 16, 16, {.seconds = 0});
  EXPECT_EQ(first.choice, "tile 64 vectors 4 prefetch 8");
  EXPECT_EQ(tune_rgms(edges, 65, 16, {.seconds = 0}).choice, "tile 64 vectors 4 prefetch 0");  // rows that are long
  EXPECT_EQ(first.likely_choice, first.choice);
  EXPECT_EQ(first.num_tried, 1);
  EXPECT_EQ(first.num_left, 44);
  // What a search of another tile has found is told with it.
  const Structure tiles = relational_from_coo(edges, 16).structure;
  const std::string call = rgms_call(false, 16, 16, DType::fp32, WorkerTeam::shared().num_workers());
  keep_results(results_key(*tiles.data(), call), {{"vectors 2 prefetch 8", 1e-12}});
  TunedRgms second;
  for (double seconds = 2; second.tile != 16 && seconds < 60; seconds *= 4)
    second = tune_rgms(edges, 16, 16, {.seconds = seconds});
  EXPECT_EQ(second.tile, 16);
  EXPECT_EQ(second.choice, "tile 16 vectors 2 prefetch 8");
  EXPECT_EQ(second.likely_choice, first.likely_choice);
  EXPECT_THROW(tune_rgms(CooTensor{.extents = {2, 2}, .coordinates = {{0}, {0}}}, 16, 16), Error);
  EXPECT_THROW(tune_rgms(edges, 0, 16), Error);
  EXPECT_THROW(tune_rgms(edges, 16, 16, {.seconds = -1}), Error);
}

// A candidate for which there is no memory is left, and what the others made is forgotten when they are measured.
TEST(Tune, LeavesWhatFindsNoMemory) {
  const OwnResults own;
  int forgotten = 0;
  const auto refuse = [] { throw Error(ErrorCode::out_of_memory, "no memory"); };
  const auto forget = [&] { ++forgotten; };
  const std::unique_ptr<const Stopwatch> stopwatch = cpu_backend().stopwatch(Device::cpu(), {});
  const Tuned tuned =
      search("left", {{"plain", [] {}, forget}, {"huge", refuse, forget}, {"other", [] {}, forget}}, 5, *stopwatch);
  EXPECT_EQ(tuned.num_tried, 2);
  EXPECT_EQ(tuned.num_left, 1);
  EXPECT_NE(tuned.choice, "huge");
  EXPECT_EQ(forgotten, 3);
  EXPECT_THROW(search("none", {{"huge", refuse}, {"plain", [] {}}}, 5, *stopwatch), Error);
  const auto fail = [] { throw Error(ErrorCode::invalid_argument, "a schedule that is none"); };
  EXPECT_THROW(search("wrong", {{"plain", [] {}}, {"wrong", fail}}, 5, *stopwatch), Error);
}

// A card whose time is a function of what was run last.
class SimulatedCard : public Stopwatch {
 public:
  Stream stream() const override { return {}; }
  std::function<double()> timed(const std::function<void()>& run) const override {
    return [run, this] { return run(), seconds; };
  }
  double seconds = 0;
};

// Of formats and schedules together: the best of either alone would be another one.
TEST(Tune, FindsTheBestOfFormatsAndSchedulesOnASimulatedCard) {
  const OwnResults own;
  const Structure structure = random_matrix(Shape::power_law, 5).structure();
  const GatherCall call{.feat = 128, .keeps_values = true, .workers = 0, .device = Device::cuda()};
  const std::vector<FormatChoice> choices = candidates_on_card(*structure.data(), call);
  FormatChoice best = choices.front();
  for (const FormatChoice& choice : choices)
    if (to_text(choice).starts_with("hyb(1, ") && choice.group != 0) best = choice;
  ASSERT_NE(best, choices.front());
  SimulatedCard card;
  int runs = 0;
  std::vector<Candidate> candidates;
  for (const FormatChoice& choice : choices)
    candidates.push_back({to_text(choice), [&card, &runs, choice, best] {
                            ++runs;
                            const bool has_format = choice.formats == best.formats,
                                       has_group = choice.group == best.group;
                            card.seconds = choice == best ? 1e-3 : has_format != has_group ? 9e-3 : 3e-3;
                          }});
  const Tuned tuned = search("simulated", candidates, 60, card);
  EXPECT_EQ(tuned.choice, to_text(best));
  EXPECT_EQ(tuned.seconds, 1e-3);
  EXPECT_EQ(tuned.likely_choice, to_text(choices.front()));
  EXPECT_EQ(static_cast<size_t>(tuned.num_tried), choices.size());
  EXPECT_EQ(tuned.num_left, 0);
  std::set<std::string> kinds;  // c of hyb, and CSR
  for (const FormatChoice& choice : choices)
    kinds.insert(to_text(choice).substr(0, to_text(choice).find_first_of(", ")));
  EXPECT_EQ(kinds, (std::set<std::string>{"csr", "hyb(1", "hyb(2", "hyb(4", "hyb(8", "hyb(16"}));
  // What is known is not run again.
  runs = 0;
  EXPECT_EQ(search("simulated", candidates, 60, card).choice, to_text(best));
  EXPECT_EQ(runs, 0);
}

TEST(Tune, NumbersOfACandidateAreRead) {
  EXPECT_EQ(number_in("vectors 2 prefetch 8", "prefetch", 3), 8);
  for (const char* candidate : {"", "prefetch", "prefetch x", "prefetch -1", "prefetch 99999"})
    EXPECT_EQ(number_in(candidate, "prefetch", 3), 3) << candidate;
}

}  // namespace
}  // namespace weft::sparse::test
