// Formats that a text defines, lists with duplicates, passes that are skipped, bounds that are proven.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/formats/definition.h"
#include "sparse/operator.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/grid.h"
#include "tests/sparse/ready_programs.h"
#include "tests/sparse/refusals.h"

namespace weft::sparse::test {
namespace {

std::string with_format(const std::string& format, const std::string& schedule = "") {
  std::string text = kSpmmProgram + format;
  if (!schedule.empty()) text += "schedule:\n  " + schedule + "\n";
  return text;
}

// Rows of 2: what a row has more is left to the next format.
constexpr const char* kPairs = R"(format pairs(I, J):
  IP = dense_fixed(m)
  JP = sparse_fixed(IP, n, 2, indices=pairs_indices)
  buffer(IP, JP)
  to IP = I, JP = J
  from I = IP, J = JP
)";

TEST(Definitions, StructuresFollowFromTheMaps) {
  const ParsedProgram parsed = parse_program(with_format(std::string(kPairs) + kTiles));
  ASSERT_EQ(parsed.formats.size(), 2u);
  const MatrixAxes axes{.row = "I", .col = "J", .num_rows = loop::variable("m"), .num_cols = loop::variable("n")};
  const Coordinates matrix{.num_rows = 3, .num_cols = 6, .rows = {0, 0, 0, 2}, .cols = {1, 4, 5, 0}};
  const FormatArrays pairs = rule_of(parsed.formats[0], axes).take(matrix, false);
  EXPECT_EQ(pairs.arrays.at("pairs_indices"), (std::vector<int32_t>{1, 4, 6, 6, 0, 6}));
  EXPECT_EQ(pairs.taken, (std::vector<char>{1, 1, 0, 1}));
  const FormatArrays tiles = rule_of(parsed.formats[1], axes).take(matrix, true);
  EXPECT_EQ(tiles.arrays.at("tiles_indptr"), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(tiles.arrays.at("tiles_indices"), (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(tiles.scalars.at("num_tiles"), 3);
}

TEST(Definitions, ComposeWithOthers) {
  const int64_t feat = 5;
  for (const char* formats : {"pairs(), csr()", "tiles()", "bsr(2), pairs(), tiles()"}) {
    const Operator op = compile(
        parse(with_format(std::string(kPairs) + kTiles, fmt::format("decompose_format(csrmm, A, {})", formats))));
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, 701);
      Values b = random_values(static_cast<size_t>(a.cols * feat), 702), c(static_cast<size_t>(a.rows * feat));
      expect_everywhere(op,
                        {.structures = {{"J", a.structure()}},
                         .buffers = {{"A", a.values_view()},
                                     {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                                     {"C", {c.data(), DType::fp32, {a.rows, feat}}}}},
                        "C", dense_spmm(a, b, feat), std::string(formats) + ", " + name_of(shape));
    }
  }
}

TEST(Definitions, RefuseWhatIsNoFormat) {
  const auto changed = [](const char* text, const std::string& old, const std::string& now) {
    return with_format(replaced(text, old, now), "decompose_format(csrmm, A, tiles())");
  };
  const auto says = [](const std::string& part, const std::string& text) {
    expect_contains(refusal([&] { compile(parse(text), Device::cpu(), {.stop_after = "schedule stage I"}); }), part,
                    text);
  };
  EXPECT_EQ(refusal([&] { parse(with_format(kTiles)); }), "");
  says("line 13, column 1: format tiles: it is of 3 axes; a matrix has two",
       changed(kTiles, "(I, J) with", "(I, J, Q) with"));
  says("'nnz' is a parameter of the program already", changed(kTiles, "num_tiles", "nnz"));
  says("'J' is not declared", changed(kTiles, "tiles(I, J)", "tiles(I, K)"));
  says("its buffer is missing", changed(kTiles, "  buffer(IO, JO, II, JI)\n", ""));
  says("does not follow its parent", changed(kTiles, "buffer(IO, JO, II, JI)", "buffer(IO, II, JO, JI)"));
  says("its buffer does not have axis 'JI'", changed(kTiles, "buffer(IO, JO, II, JI)", "buffer(IO, JO, II)"));
  says("'to' says nothing of axis 'JI'", changed(kTiles, ", JI = J % 4", ""));
  says("'from' says nothing of axis 'J'", changed(kTiles, ", J = JO * 4 + JI", ""));
  says("'I' is no axis that is mapped here, or is mapped twice", changed(kTiles, "J = JO", "I = JO"));
  says("'from' is expected", changed(kTiles, "from I", "form I"));
  says("is dense and variable",
       changed(kTiles, "sparse_variable(IO, (n + 3) // 4, num_tiles, indptr=tiles_indptr, indices=tiles_indices)",
               "dense_variable(IO, (n + 3) // 4, num_tiles, indptr=tiles_indptr)"));
  says("name a new parameter of 'with'", changed(kTiles, "// 4, num_tiles,", "// 4, 7,"));
  says("its maps are not inverse to each other", changed(kTiles, "IO * 2 + II", "IO * 3 + II"));
  says("required: literals and the matrix' own extents", changed(kTiles, "dense_fixed(2)", "dense_fixed(feat)"));
  says("format tiles: 'I' is declared twice", changed(kTiles, "II", "I"));
  says("format 'tiles' is defined twice", with_format(std::string(kTiles) + kTiles));
  says("sr_bcrs(t, g), hyb(c) and hyb(c, k), tiles()", with_format(kTiles, "decompose_format(csrmm, A, tile())"));
  // Found when there is a matrix.
  const Operator op = compile(parse(changed(kTiles, "(n + 3) // 4", "1")));
  const Matrix a = random_matrix(Shape::one_dense_row, 9);
  Values b(static_cast<size_t>(a.cols)), c(static_cast<size_t>(a.rows));
  expect_contains(refusal([&] {
                    op.run({.structures = {{"J", a.structure()}},
                            .buffers = {{"A", a.values_view()},
                                        {"B", {b.data(), DType::fp32, {a.cols, 1}}},
                                        {"C", {c.data(), DType::fp32, {a.rows, 1}}}}});
                  }),
                  "of axis 'JO', which has 1", "outside");
}

TEST(Definitions, StacksAreForHybAlone) {
  const std::string text = R"(program p(relations, m, n, rows, nnz):
  R = dense_fixed(relations)
  I = sparse_variable(R, m, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  A = buffer(R, I, J): fp32
  Y = buffer(M): fp32
  iterate sums(R, I, J) "RSR" as (r, i, j):
    Y[i] = Y[i] + A[r, i, j]
)";
  const auto made = [&](const std::string& format) {
    return refusal([&] {
      compile(parse(text), "decompose_format(sums, A, " + format + ")\n", Device::cpu(), {.stop_after = "generate"});
    });
  };
  EXPECT_EQ(made("hyb(2, 1)"), "");
  for (const char* format :
       {"csr()", "ell(2)", "bsr(2)", "csc()", "coo()", "dia()", "dcsr()", "dbsr(2)", "sr_bcrs(2, 2)"})
    expect_contains(made(format), "of a stack of matrices: required: a matrix; supported for a stack: hyb(c, k)",
                    format);
  expect_contains(refusal([] {
                    relations_from_coo({.extents = {2, 2}, .coordinates = {{}, {}}});
                  }),
                  "three are expected", "relations");
}

TEST(Merged, ElementsAtOnePlaceAreAddedUp) {
  const Coo coo{.num_rows = 3, .num_cols = 4, .rows = {2, 0, 2, 0, 2}, .cols = {1, 3, 1, 0, 1}};
  const Merged all = merged(coo);
  EXPECT_EQ(all.coo.rows, (std::vector<int32_t>{0, 0, 2}));
  EXPECT_EQ(all.coo.cols, (std::vector<int32_t>{0, 3, 1}));
  EXPECT_EQ(all.place, (std::vector<int64_t>{2, 1, 2, 0, 2}));
  EXPECT_EQ(summed(all, std::vector<float>{1, 2, 4, 8, 16}), (std::vector<float>{8, 2, 21}));
  EXPECT_EQ(csr_from_coo(all.coo).structure.nnz(), 3);
  EXPECT_TRUE(merged({}).coo.rows.empty());
  expect_contains(refusal([&] { summed(all, std::vector<float>{1}); }), "there are 1; the list has 5 elements",
                  "count");
  expect_contains(refusal([] { merged({2, 2, {0, 2}, {0, 0}}); }), "element 1 is at row 2", "outside");
}

// Code without the passes that make it faster computes the same.
TEST(Passes, ThatAreSkippedChangeNoResult) {
  const int64_t feat = 21;
  for (const std::vector<std::string>& skip : {std::vector<std::string>{"join phases"},
                                               {"find regions"},
                                               {"simplify", "peel tails", "simplify again", "join phases"}})
    for (const char* schedule : {"lower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n",
                                 "decompose_format(csrmm, A, hyb(1, 1))\n"}) {
      const Operator op = compile(parse(kSpmmProgram), schedule, Device::cpu(), {.skip = skip});
      for (const PassTime& pass : op.passes()) EXPECT_NE(pass.name, skip[0]);
      const Matrix a = random_matrix(Shape::power_law, 711);
      Values b = random_values(static_cast<size_t>(a.cols * feat), 712), c(static_cast<size_t>(a.rows * feat));
      op.run({.structures = {{"J", a.structure()}},
              .buffers = {{"A", a.values_view()},
                          {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                          {"C", {c.data(), DType::fp32, {a.rows, feat}}}}});
      expect_close(doubles(c), dense_spmm(a, b, feat), 1e-5, skip[0] + ", " + schedule);
    }
  const auto says = [](const std::string& part, const std::string& pass) {
    expect_contains(refusal([&] { compile(parse(kSpmmProgram), Device::cpu(), {.skip = {pass}}); }), part, pass);
  };
  says("skip: 'simplfy' is no pass; did you mean 'simplify'?", "simplfy");
  says("skip: 'lower buffers' is needed", "lower buffers");
  says("skip: 'check bounds' is needed", "check bounds");
}

TEST(Passes, FindWhatEachBlockReadsAndWrites) {
  const std::string schedule =
      "lower()\nko, ki = split(csrmm.k, 8)\nreorder(ko, csrmm.j, ki)\ndecompose_reduction(csrmm.j)\n"
      "tile = blockize(ki)\nparallel(csrmm.i)\n";
  const auto text = [&](const CompileOptions& options, const std::string& stage) {
    return compile(parse(kSpmmProgram), schedule, Device::cpu(), options).text(stage);
  };
  CompileOptions scheduled{.set = {{"feat", 16}}, .stop_after = "schedule stage II"}, found = scheduled,
                                                                                      skipped = scheduled;
  found.stop_after = skipped.stop_after = "generate";
  skipped.skip = {"find regions"};
  const std::string inner =
      "          reads: C[i, ko * 8:ko * 8 + 8], A[i, j], j_indices[i, j], B[j_indices[i, j], ko * 8:ko * 8 + 8]\n"
      "          writes: C[i, ko * 8:ko * 8 + 8]\n";
  EXPECT_NE(text(found, "stage2").find("block tile:\n" + inner), std::string::npos) << text(found, "stage2");
  EXPECT_EQ(text(scheduled, "stage2").find("reads: "), std::string::npos);
  EXPECT_EQ(text(skipped, "stage2"), text(scheduled, "stage2"));
  EXPECT_EQ(text(skipped, "code"), text(found, "code"));
}

// Those for a card run where one of them is asked for, and refuse there alone.
TEST(Passes, ForACardAreNamedAndRunWhereAskedFor) {
  const auto names = [](const std::string& stop_after) {
    std::vector<std::string> result;
    const Operator op = compile(parse(kSpmmProgram), Device::cpu(), {.stop_after = stop_after});
    for (const PassTime& pass : op.passes()) result.push_back(pass.name);
    return result;
  };
  std::vector<std::string> all = names("generate");
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[all.size() - 2], "split launches");
  EXPECT_EQ(all.back(), "generate");
  all.push_back("split threads");
  EXPECT_EQ(names("split threads"), all);
  all.push_back("generate cuda");
  EXPECT_EQ(names("generate cuda"), all);
  const auto text = [](const std::string& stop_after) {
    return compile(parse(kSpmmProgram), Device::cpu(), {.stop_after = stop_after}).text("cuda");
  };
  EXPECT_EQ(text("generate cuda"), text("generate"));
  const std::string shared = "lower()\nparallel(csrmm.i)\nbind(csrmm.k, threadIdx.x)\n";
  EXPECT_NO_THROW(compile(parse(kSpmmProgram), shared, Device::cpu(), {.stop_after = "generate"}));
  expect_contains(
      refusal([&] { compile(parse(kSpmmProgram), shared, Device::cpu(), {.stop_after = "split threads"}); }),
      "within a parallel loop, which takes all threads", "card");
}

// Every access of an operator lies inside.
TEST(Bounds, OfEveryOperatorAreProven) {
  for (const ReadyCase& c : all_cases()) {
    const std::string refused = refusal([&] {
      compile(parse(c.ready.text), c.ready.schedule, Device::cpu(),
              {.set = c.ready.set, .stop_after = "generate", .prove_bounds = true});
    });
    if (c.name == "sddmm_fused") {  // the row is searched in indptr, which is checked when the structure is made
      expect_contains(refused, "1 of 7 accesses are not proven, the first X[i * feat + k]", c.name);
      continue;
    }
    EXPECT_EQ(refused, "") << c.name;
  }
  const char* gather = R"(program gather(n, k):
  N = dense_fixed(n)
  K = dense_fixed(k)
  At = buffer(N): int32
  X = buffer(K): fp32
  Y = buffer(N): fp32
  iterate gather(N) "S" as (i):
    Y[i] = X[At[i]]
)";
  EXPECT_EQ(refusal([&] { compile(parse(gather), Device::cpu(), {.stop_after = "generate", .prove_bounds = true}); }),
            "");
}

}  // namespace
}  // namespace weft::sparse::test
