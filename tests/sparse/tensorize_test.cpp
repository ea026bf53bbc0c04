// Products whose loops have conditions between them: what those leave out is multiplied as 0, or not stored.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "sparse/operators/ready.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

int num_products(const Operator& op) {
  const std::string code = op.text("code");
  int count = 0;
  for (size_t at = 0; (at = code.find(" weft_product<", at)) != code.npos; ++at) ++count;
  return count;
}

// Groups of four tiles of 8 x 1; the last of a strip has padding. `is_whole`: the matrix has all rows of the last
// strip.
void expect_strips(const std::string& schedule, bool is_whole) {
  const int64_t feat = 6;
  std::string program = example("spmm_sr_bcrs");
  if (is_whole) {
    program.replace(program.find(" where s * 8 + ii < m"), 21, "");
    program.replace(program.find("dense_fixed(m)"), 14, "dense_fixed(strips * 8)");
  }
  const Operator op = compile(parse(program), "lower()\n" + schedule, Device::cpu(), {.set = {{"feat", feat}}});
  EXPECT_GE(num_products(op), 1) << schedule << op.text("stage3");
  uint32_t seed = 500;
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, seed++);
    const Converted strips = sr_bcrs_from_coo(a.coo(), 8, 4);
    // Within a stored tile 0 stands where the matrix has nothing; a tile of padding holds anything.
    Values values = placed(a.values, strips.order, std::nanf("")),
           b = random_values(static_cast<size_t>(a.cols * feat), seed);
    for (size_t tile = 0; tile + 8 <= values.size(); tile += 8) {
      bool is_stored = false;
      for (size_t e = tile; e < tile + 8; ++e) is_stored = is_stored || !std::isnan(values[e]);
      for (size_t e = tile; e < tile + 8 && is_stored; ++e)
        if (std::isnan(values[e])) values[e] = 0;
    }
    std::vector<double> want = dense_spmm(a, b, feat);
    std::vector<bool> used(static_cast<size_t>(a.cols), false);
    for (const int32_t col : a.indices) used[static_cast<size_t>(col)] = true;
    for (size_t e = 0; e < b.size(); ++e)
      if (!used[e / static_cast<size_t>(feat)]) b[e] = std::nanf("");
    const int64_t rows = is_whole ? (a.rows + 7) / 8 * 8 : a.rows;
    want.resize(static_cast<size_t>(rows * feat), 0);
    Values c(want.size());
    expect_everywhere(op,
                      {.structures = {{"J", strips.structure}},
                       .buffers = {{"A", flat(values)}, {"B", view(b, {a.cols, feat})}, {"C", view(c, {rows, feat})}},
                       .scalars = {{"m", a.rows}}},
                      "C", want, schedule + std::string(name_of(shape)));
  }
}

TEST(Tensorize, MultipliesGroupsOfTilesWithPadding) {
  const std::string order = "reorder(spmm.g, spmm.ii, spmm.k, spmm.j)\n",
                    product = "decompose_reduction(spmm.g)\ntensorize(spmm.ii, product)\nparallel(spmm.s)\n";
  for (const bool is_whole : {false, true}) {
    expect_strips(order + product, is_whole);
    expect_strips(order + "cache_write(spmm.s, register)\n" + product, is_whole);
    expect_strips(
        "reorder(spmm.g, spmm.j, spmm.k, spmm.ii)\ncache_write(spmm.s, register)\ndecompose_reduction(spmm.g)\n"
        "tensorize(spmm.j, product)\nparallel(spmm.s)\n",
        is_whole);
    // Columns in tiles, of which the last is not full.
    expect_strips(
        "ko, ki = split(spmm.k, 4)\nreorder(ko, spmm.g, spmm.ii, ki, spmm.j)\ncache_write(ko, register)\n" + product,
        is_whole);
  }
  // Rows of B in memory of their own before: what fills it writes 0 where nothing is.
  const std::string fetched =
      "reorder(spmm.g, spmm.ii, spmm.j, spmm.k)\ncache_write(spmm.s, register)\ncache_read(spmm.g, B, register)\n" +
      product;
  expect_strips(fetched, true);
}

// Rows of a bucket in tiles: gathered, multiplied with the weights of their relation, and scattered.
TEST(Tensorize, MultipliesRowsOfEllBuckets) {
  const int64_t relations = 4, m = 9, n = 11, in = 3, out = 5;
  const Operator op = compile(parse(example("rgms_hyb")),
                              "decompose_format(rgms, A, hyb(1, 2))\nlower()\nio, ii = split(rgms.i, 4)\n"
                              "reorder(rgms_hyb_0_1.j, rgms_hyb_0_1.ii)\ntensorize(rgms_hyb_0_0.ii, product)\n"
                              "tensorize(rgms_hyb_0_1.ii, product)\nparallel(clear.x)\n",
                              Device::cpu(), {.set = {{"feat_in", in}, {"feat_out", out}}});
  EXPECT_EQ(num_products(op), 2) << op.text("stage3");
  for (const size_t count : {0, 1, 5, 70}) {
    CooTensor coo{.extents = {relations, m, n}, .coordinates = {{}, {}, {}}};
    std::mt19937 random(17);
    for (int32_t place = 0; place < relations * m * n; ++place)
      if (random() % static_cast<unsigned>(relations * m * n) < count) {
        coo.coordinates[0].push_back(place / static_cast<int32_t>(m * n));
        coo.coordinates[1].push_back(place / static_cast<int32_t>(n) % static_cast<int32_t>(m));
        coo.coordinates[2].push_back(place % static_cast<int32_t>(n));
      }
    expect_rgms(op, coo, relations_from_coo(coo), in, out);
  }
}

const std::string kTiles =
    "lower()\ndecompose_reduction(product.i)\nio, ii = split(product.i, 4)\njo, ji = split(product.j, 8)\n"
    "lo, li = split(product.l, 4)\nreorder(io, jo, lo, ii, ji, li)\n";

// Each way of loops and extents: tiles of rows, of columns and of the sum are full or not.
TEST(Tensorize, MultipliesTilesThatAreNotFull) {
  for (const char* loops : {"ii, ji, li", "li, ii, ji", "ji, li, ii"}) {
    const Operator op = compile(parse(dense_program("")), kTiles + fmt::format("reorder({})\ntensorize({}, product)\n",
                                                                               loops, std::string(loops).substr(0, 2)));
    EXPECT_GE(num_products(op), 1) << op.text("stage3");
    for (const auto& [m, n, l] : {std::tuple<int64_t, int64_t, int64_t>{8, 16, 8},
                                  {7, 16, 8},
                                  {8, 13, 8},
                                  {8, 16, 3},
                                  {5, 9, 6},
                                  {1, 1, 1},
                                  {0, 3, 2},
                                  {3, 0, 2},
                                  {3, 2, 0}}) {
      Values a = random_values(static_cast<size_t>(m * l), 1), b = random_values(static_cast<size_t>(l * n), 2);
      Values c(static_cast<size_t>(m * n));
      std::vector<double> want(c.size(), 0);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t k = 0; k < l; ++k)
            want[static_cast<size_t>(i * n + j)] +=
                static_cast<double>(a[static_cast<size_t>(i * l + k)]) * b[static_cast<size_t>(k * n + j)];
      expect_everywhere(op, {.buffers = {{"A", view(a, {m, l})}, {"B", view(b, {l, n})}, {"C", view(c, {m, n})}}}, "C",
                        want, fmt::format("{} {} {} {}", loops, m, n, l));
    }
  }
}

// A row that is left out keeps what it has, also where the other operand is not finite.
TEST(Tensorize, LeavesRowsOutThatAreNotThere) {
  const Operator op = compile(parse(dense_program("i % 3 != 1")),
                              "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n", Device::cpu(),
                              {.set = {{"m", 6}, {"n", 4}, {"inner", 2}}});
  EXPECT_EQ(num_products(op), 1);
  Values a(12, 1.f), b(8, INFINITY), c(24, 7.f);
  op.run({.buffers = {{"A", view(a, {6, 2})}, {"B", view(b, {2, 4})}, {"C", view(c, {6, 4})}}});
  for (size_t e = 0; e < c.size(); ++e) EXPECT_EQ(c[e], e / 4 % 3 == 1 ? 7.f : INFINITY) << e;
}

// Places at steps of different lengths, and rows whose elements are not one behind the other.
TEST(Tensorize, CopiesOperandsThatAreInNoRows) {
  for (const char* product :
       {"A[i // 2, l] * B[l, j]", "A[i % 4, l] * B[l, j]", "A[i, l] * B[l, 2 * j]", "A[i, l] * B[j, l]",
        "A[i, l] * A[l + j, 5]", "A[i, l] * B[l, l + j]", "A[l, 7 - i] * B[3 - l, 7 - j]"}) {
    const std::string program = fmt::format(R"(program dense():
  I = dense_fixed(8)
  J = dense_fixed(4)
  L = dense_fixed(4)
  W = dense_fixed(8)
  A = buffer(I, W): fp32
  B = buffer(L, W): fp32
  C = buffer(I, J): fp32
  iterate product(I, J, L) "SSR" as (i, j, l):
    init:
      C[i, j] = 0.0
    C[i, j] = C[i, j] + {}
)",
                                            product);
    const Operator op = compile(
        parse(program), "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n", Device::cpu());
    EXPECT_EQ(num_products(op), 1) << product;
    Values a = random_values(64, 1), b = random_values(32, 2), c(32);
    const RunArguments arguments{.buffers = {{"A", view(a, {8, 8})}, {"B", view(b, {4, 8})}, {"C", view(c, {8, 4})}}};
    expect_everywhere(op, arguments, "C", interpret_operator(op, arguments, Stage::source).buffers.at("C"), product);
  }
}

TEST(Tensorize, CopiesOperandsOfDoublesInDoubles) {
  std::string program = dense_program();
  for (size_t at = 0; (at = program.find("fp32", at)) != program.npos;) program.replace(at, 4, "fp64");
  program.replace(program.find("A[i, l] *"), 9, "A[i * 2 // 3, l] *");
  const Operator op =
      compile(parse(program), "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n", Device::cpu(),
              {.set = {{"m", 8}, {"n", 16}, {"inner", 8}}, .stop_after = "generate"});
  expect_contains(op.text("stage2"), "allocate C_factor_local[8, 8]: fp64", program);
}

std::string why_not(const std::string& program, const std::string& schedule,
                    const std::map<std::string, int64_t>& set = {{"m", 8}, {"n", 16}, {"inner", 8}}) {
  return refusal([&] { compile(parse(program), schedule, Device::cpu(), {.set = set, .stop_after = "generate"}); });
}

TEST(Tensorize, IsRefusedWhereItWouldComputeAnythingElse) {
  const std::string line = "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n";
  // Of sums that meet other elements init is a nest of its own already.
  const std::string without_init = "lower()\ntensorize(product.i, product)\n";
  const auto replaced = [](std::string text, const std::string& old, const std::string& now) {
    for (size_t at = 0; (at = text.find(old, at)) != text.npos; at += now.size()) text.replace(at, old.size(), now);
    return text;
  };
  const std::string plain = dense_program("");
  expect_contains(why_not(dense_program("i + l < 9"), line), "the condition i + l < 9 leaves single products out",
                  "i and l");
  expect_contains(why_not(dense_program("i != j"), line), "leaves single products out", "i and j");
  expect_contains(why_not(dense_program("C[i, j] < 9.0"), line), "asks for what is added up", "C");
  expect_contains(why_not(replaced(plain, "A[i, l] *", "C[i, l] *"), without_init, {{"m", 8}, {"n", 8}, {"inner", 8}}),
                  "'C' is added to and multiplied", "C is a factor");
  expect_contains(why_not(replaced(replaced(plain, "fp32", "int32"), "0.0", "0"), line), "no sum of products of reals",
                  "integers");
  expect_contains(why_not(replaced(dense_program("i < 5"), "C = buffer(I, J): fp32", "C = buffer(I, J): bf16"), line),
                  "use cache_write for sums in fp32", "bf16");
  // Operands are copied one by one: points that another operand is left out at would be asked, too.
  expect_contains(why_not(dense_program("i < 5, 7 // l < 9"), line), "can be asked only where i < 5", "7 // l");
  // Two rows of the product may be one of C.
  expect_contains(why_not(replaced(dense_program("i < 5"), "C[i, j]", "C[i % 4, j]"), without_init),
                  "may be the same element at two places of the product", "i % 4");
  expect_contains(why_not(replaced(dense_program("i < 7"), "C[i, j]", "C[i % 2 + i, j]"), without_init),
                  "may be the same element at two places of the product", "i % 2 + i");
  const std::string diagonals = replaced(replaced(dense_program("i < 7"), "C = buffer(I, J)", "C = buffer(W)"),
                                         "  A = buffer", "  W = dense_fixed(m + n)\n  A = buffer");
  expect_contains(why_not(replaced(diagonals, "C[i, j]", "C[i + j]"), without_init),
                  "may be the same element at two places of the product", "i + j");
}

// Conditions of the sum's loop keep an element inside that both other loops are written at.
TEST(Tensorize, IsRefusedWhereWhatIsLeftOutKeepsElementsInside) {
  const std::string program = R"(program product(outer, p):
  O = dense_fixed(outer)
  P = dense_fixed(p)
  I = dense_fixed(4)
  J = dense_fixed(4)
  L = dense_fixed(4)
  A = buffer(I, L): fp32
  B = buffer(L, J): fp32
  C = buffer(P, I, J): fp32
  iterate product(O, I, J, L) "SSSR" as (o, i, j, l) where o + l < p:
    C[o, i, j] = C[o, i, j] + A[i, l] * B[l, j]
)";
  expect_contains(why_not(program, "lower()\ntensorize(product.i, product)\n", {}),
                  "C[o, i, j] may be there only where o + l < p, which another operand is left out by", program);
  std::string behind = program;
  behind.replace(behind.find("o + l < p"), 9, "l < o");
  for (size_t at = 0; (at = behind.find("C[o,", at)) != behind.npos; ++at) behind.replace(at, 4, "C[o - 1,");
  expect_contains(why_not(behind, "lower()\ntensorize(product.i, product)\n", {{"outer", 4}, {"p", 4}}),
                  "may be there only where l < o, which another operand is left out by", behind);
  // A literal 0 as divisor stands where it may never be asked.
  expect_contains(why_not(dense_program("i < 5, l // 0 < 9"),
                          "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n"),
                  "can be asked only where i < 5", "l // 0");
}

// What depends on none of the loops is asked around the product: it is no condition of another operand.
TEST(Tensorize, AsksConditionsOfNoLoopAroundIt) {
  std::string program = dense_program("n < m");
  program.replace(program.find("A[i, l] *"), 9, "A[i + n, l] *");
  EXPECT_EQ(why_not(program, "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n",
                    {{"inner", 8}, {"n", 8}, {"m", 9}}),
            "");
}

// T is 0 where its one block leaves elements out only if nothing else is lost or written by that.
TEST(Tensorize, FillsMemoryOfOthersWithZerosOnlyWhereThatChangesNothing) {
  const auto program = [](const std::string& element, const std::string& between) {
    return fmt::format(R"(program p():
  I = dense_fixed(4)
  J = dense_fixed(4)
  L = dense_fixed(4)
  A = buffer(I, L): fp32
  B = buffer(L, J): fp32
  T = temporary(I, L): fp32
  Z = buffer(I): fp32
  C = buffer(I, J): fp32
  iterate fill(I, L) "SS" as (i, l) where l < 3:
    T[i, l] = A[i, l]
{}  iterate product(I, J, L) "SSR" as (i, j, l) where l < 3:
    C[i, j] = C[i, j] + {} * B[l, j]
)",
                       between, element);
  };
  const auto expect_same = [](const std::string& text, const std::string& schedule, bool has_copy) {
    const std::string all = "lower()\n" + schedule + "set_scope(T, register)\ntensorize(product.i, product)\n";
    const Operator op = compile(parse(text), all, Device::cpu(), {.stop_after = "generate"});
    EXPECT_EQ(op.text("stage2").find("T_local_local") != std::string::npos, has_copy) << op.text("stage2");
    expect_same_results(text, all, {});
  };
  expect_same(program("T[i, l]", ""), "", false);
  std::string filled = program("T[i, l]", "");
  filled.replace(filled.find("where l < 3"), 11, "where l < 4");
  expect_same(filled, "", true);
  expect_same(program("T[i, l]", "  iterate rest(I, L) \"SS\" as (i, l) where l > 2:\n    T[i, l] = 2.0\n"), "", true);
  expect_same(program("T[i, 3 - l]", ""), "", true);
  expect_same(program("T[i, l]", "  iterate twice(I) \"S\" as (i):\n    Z[i] = 2.0 * A[i, 0]\n"),
              "reverse_compute_at(twice, fill.i)\n", true);
}

// What changes the loops of a product afterwards is right or refused.
TEST(Tensorize, IsTheLastThatIsDoneToItsLoops) {
  const std::string line = "lower()\ndecompose_reduction(product.i)\ntensorize(product.i, product)\n";
  for (const char* after :
       {"a, b = split(product.j, 4)\n", "a, b = split(product.i, 4)\n", "a, b = split(product.l, 4)\n",
        "bind(product.i, threadIdx.x)\n", "bind(product.j, threadIdx.x)\n", "parallel(product.i)\n",
        "unroll(product.l)\n", "a, b = split(product.j, 3)\n"})
    expect_contains(why_not(dense_program(""), line + after), "is tensorised", after);
  for (const char* after : {"reorder(product.l, product.i)\n", "f = fuse(product.i, product.j)\n"})
    EXPECT_EQ(why_not(dense_program(""), line + after), "") << after;
}

// Extents, conditions, splits, orders and copies at random: right by the interpreters, or refused; some compiled.
TEST(Tensorize, ComputesTheSameUnderRandomSchedules) {
  std::mt19937 random(20261127);
  const auto pick = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int num_made = 0;
  for (int round = 0; round < 240; ++round) {
    const int64_t m = 2 + pick(8), n = 2 + pick(8), l = 2 + pick(8);
    std::string where;
    const auto ask = [&](std::initializer_list<const char*> conditions) {
      if (pick(3) == 0)
        where +=
            (where.empty() ? "" : ", ") + std::string(conditions.begin()[pick(static_cast<int>(conditions.size()))]);
    };
    ask({"i % 3 != 1", "i < 5", "i > 1"});
    ask({"l % 2 == 0", "A[0, l] < 0.2", "l < inner - 1"});
    ask({"j != 2", "j + 1 < n", "B[0, j] > 0.0"});
    if (pick(8) == 0) ask({"i + l < 9", "i != j", "A[i, l] > 0.0"});
    std::string schedule = pick(2) == 0 ? "decompose_reduction(product.i)\n" : "";
    std::vector<std::string> outer, inner;
    for (const char* loop : {"i", "j", "l"}) {
      if (pick(2) == 0) {
        inner.push_back(fmt::format("product.{}", loop));
      } else {
        schedule += fmt::format("{0}o, {0}i = split(product.{0}, {1})\n", loop, 2 + pick(4));
        outer.push_back(fmt::format("{}o", loop));
        inner.push_back(fmt::format("{}i", loop));
      }
    }
    std::shuffle(outer.begin(), outer.end(), random);
    std::shuffle(inner.begin(), inner.end(), random);
    std::string order;
    for (const auto* list : {&outer, &inner})
      for (const std::string& loop : *list) order += (order.empty() ? "" : ", ") + loop;
    schedule += "reorder(" + order + ")\n";
    if (!outer.empty() && pick(3) == 0) schedule += "cache_write(" + outer[0] + ", register)\n";
    if (!outer.empty() && pick(4) == 0) schedule += fmt::format("cache_read({}, A, register)\n", outer.back());
    if (!outer.empty() && pick(4) == 0) schedule += fmt::format("cache_read({}, B, register)\n", outer.back());
    if (!schedule.starts_with("decompose"))
      schedule += "decompose_reduction(" + (outer.empty() ? inner : outer)[0] + ")\n";
    schedule += "tensorize(" + inner[0] + ", product)\n";
    const bool is_compiled = round % 40 == 0;
    SCOPED_TRACE(fmt::format("round {}: {} {} {}, where {}\n{}", round, m, n, l, where, schedule));
    Values a = random_values(static_cast<size_t>(m * l), static_cast<uint32_t>(2 * round)),
           b = random_values(static_cast<size_t>(l * n), static_cast<uint32_t>(2 * round + 1));
    Values c(static_cast<size_t>(m * n), 0);
    const RunArguments arguments{.buffers = {{"A", view(a, {m, l})}, {"B", view(b, {l, n})}, {"C", view(c, {m, n})}}};
    std::optional<Operator> op;
    const std::string why = refusal([&] {
      op = compile(parse(dense_program(where)), "lower()\n" + schedule, Device::cpu(),
                   {.set = {{"m", m}, {"n", n}, {"inner", l}}, .stop_after = is_compiled ? "" : "generate"});
    });
    EXPECT_EQ(why.find("internal"), why.npos) << why;
    EXPECT_EQ(why.find("outside of its"), why.npos) << why;
    if (!why.empty()) continue;
    ++num_made;
    const std::vector<double> want = interpret_operator(*op, arguments, Stage::source).buffers.at("C");
    for (const Stage stage : interpreted_stages(Stage::two))
      expect_close(interpret_operator(*op, arguments, stage).buffers.at("C"), want, 1e-6, "interpreted");
    if (!is_compiled) continue;
    op->run(arguments);
    expect_close(doubles(c), want, 1e-5, "compiled");
  }
  EXPECT_GT(num_made, 100);
}

}  // namespace
}  // namespace weft::sparse::test
