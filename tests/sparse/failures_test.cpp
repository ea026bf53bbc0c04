// Writes at coordinates that a buffer does not store: refused where that is known, an error of the run where it is not.
#include "sparse/failures.h"

#include <gtest/gtest.h>

#include "sparse/operator.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

// Scattered sums, without a condition that keeps them inside.
constexpr const char* kScatter = R"(program scatter(e, n):
  E = dense_fixed(e)
  N = dense_fixed(n)
  T = buffer(E): int32
  X = buffer(E): fp32
  Y = buffer(N): fp32
  iterate clear(N) "S" as (i):
    Y[i] = 0.0
  iterate add(E) "R" as (i):
    Y[T[i]] = Y[T[i]] + X[i]
)";

// Elements of one structure added to those of another.
constexpr const char* kInto = R"(program into(m, n, nnz, all):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  L = sparse_variable(I, n, all, indptr=l_indptr, indices=l_indices)
  T = buffer(I, J): fp32
  Z = buffer(I, L): fp32
  iterate into(I, J) "SS" as (a, b):
    Z[a, b] = Z[a, b] + T[a, b] * 2.0
)";

struct Scatter {
  explicit Scatter(std::vector<int32_t> places) : t(std::move(places)), x(t.size(), 1.f), y(5, 0.f) {}
  RunArguments arguments() {
    const auto e = static_cast<int64_t>(t.size());
    return {.buffers = {{"T", {t.data(), DType::int32, {e}}},
                        {"X", {x.data(), DType::fp32, {e}}},
                        {"Y", {y.data(), DType::fp32, {5}}}}};
  }
  std::vector<int32_t> t;
  Values x, y;
};

TEST(Failures, NameOperatorBufferAndTheLeastCoordinate) {
  Scatter below({1, 2, 7, -3, 5}), beyond({4, 9, 0, 5});
  for (const char* schedule : {"", "lower()\no, i = split(add.i, 2)\nunroll(i)\n"}) {
    expect_failure(kScatter, schedule, below.arguments(),
                   "scatter: iteration 'add' writes 'Y' at (below 0), where it stores nothing");
    expect_failure(kScatter, schedule, beyond.arguments(), "iteration 'add' writes 'Y' at (5 or beyond)");
  }
}

TEST(Failures, AreNoneWhereEverythingIsStored) {
  Scatter inside({4, 1, 1, 0});
  const Operator op = compile(parse(kScatter));
  op.run(inside.arguments());
  EXPECT_EQ(inside.y, (Values{1, 2, 0, 0, 1}));
  // The same operator after a run that failed.
  Scatter outside({4, 1, 6, 0});
  EXPECT_THROW(op.run(outside.arguments()), Error);
  op.run(inside.arguments());
  EXPECT_EQ(inside.y, (Values{1, 2, 0, 0, 1}));
}

TEST(Failures, OfSearchedCoordinatesAreTheFirstOfTheirRows) {
  const std::vector<int32_t> indptr = {0, 2, 2, 5}, indices = {1, 3, 0, 2, 4};
  const Structure target = csr(3, 6, indptr, indices);
  Values t = {1, 2, 3}, z(5, 10.f);
  const auto arguments = [&](const Structure& structure) {
    return RunArguments{.structures = {{"J", structure}, {"L", target}},
                        .buffers = {{"T", {t.data(), DType::fp32, {3}}}, {"Z", {z.data(), DType::fp32, {5}}}}};
  };
  const std::vector<int32_t> rows = {0, 1, 1, 3}, within = {3, 0, 4}, absent = {3, 1, 5}, earlier = {2, 1, 5};
  for (const char* schedule : {"", "lower()\nparallel(into.a)\n", "lower()\no, i = split(into.b, 2)\n"}) {
    const Operator op = compile(parse(kInto), schedule);
    std::fill(z.begin(), z.end(), 10.f);
    op.run(arguments(csr(3, 6, rows, within)));
    EXPECT_EQ(z, (Values{10, 12, 14, 10, 16})) << schedule;
    for (const Stage stage : {Stage::source, Stage::one, Stage::two, Stage::three}) {
      std::fill(z.begin(), z.end(), 10.f);
      EXPECT_EQ(interpret_operator(op, arguments(csr(3, 6, rows, within)), stage).buffers.at("Z"),
                (std::vector<double>{10, 12, 14, 10, 16}));
    }
    expect_failure(kInto, schedule, arguments(csr(3, 6, rows, absent)), "iteration 'into' writes 'Z' at (2, 1), where");
    expect_failure(kInto, schedule, arguments(csr(3, 6, rows, earlier)),
                   "iteration 'into' writes 'Z' at (0, 2), where");
  }
}

// What init sets is absent where the reduction has no iteration, too.
TEST(Failures, OfInitAreSeenInEmptyRows) {
  constexpr const char* kSums = R"(program sums(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  X = buffer(I, J): fp32
  S = buffer(I): fp32
  iterate sums(I, J) "SR" as (i, j):
    init:
      S[i + 1] = 0.0
    S[i + 1] = S[i + 1] + X[i, j]
)";
  const std::vector<int32_t> indptr = {0, 1, 1}, indices = {0};
  Values x = {3}, s(2);
  const RunArguments arguments{.structures = {{"J", csr(2, 2, indptr, indices)}},
                               .buffers = {{"X", {x.data(), DType::fp32, {1}}}, {"S", {s.data(), DType::fp32, {2}}}}};
  expect_failure(kSums, "", arguments, "iteration 'sums' writes 'S' at (2 or beyond)");
  expect_failure(kSums, "lower()\ndecompose_reduction(sums.i)\n", arguments, "writes 'S' at (2 or beyond)");
  EXPECT_EQ(s[1], 3);
}

// Init is an iteration of its own then, which also runs over rows that store nothing; errors name the program's.
TEST(Failures, OfFusedAxesAreThoseOfTheProgram) {
  constexpr const char* kBeyond = R"(program beyond(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  K = dense_fixed(2)
  X = buffer(I, J): fp32
  S = buffer(K, I): fp32
  iterate sums(I, J, K) "SRS" as (i, j, k) where i < 3:
    init:
      S[k + 1, i] = 0.0
    S[k + 1, i] = S[k + 1, i] + X[i, j]
)";
  const std::vector<int32_t> indptr = {0, 0, 2, 2, 3}, indices = {0, 1, 1};
  Values x = {1, 2, 4}, s(8, 9.f);
  const RunArguments arguments{
      .structures = {{"J", csr(4, 2, indptr, indices)}},
      .buffers = {{"X", {x.data(), DType::fp32, {3}}}, {"S", {s.data(), DType::fp32, {2, 4}}}}};
  for (const char* schedule : {"", "sparse_fuse(sums, I, J)\n", "sparse_fuse(sums, I, J)\nlower()\nparallel(sums.i)\n"})
    expect_failure(kBeyond, schedule, arguments, "iteration 'sums' writes 'S' at (2 or beyond, 0), where");
  EXPECT_EQ(s, (Values{9, 9, 9, 9, 0, 3, 0, 9}));
}

// Places of a row that are not used hold the length, which is no coordinate: it is read as 0, and written nowhere.
TEST(Failures, OfTheLengthAreNotWrittenToPadding) {
  constexpr const char* kMoved = R"(program moved(m, n, w):
  I = dense_fixed(m)
  J = sparse_fixed(I, n, w, indices=j_indices)
  T = buffer(I): int32
  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  Z = buffer(I, J): fp32
  iterate read(I) "S" as (i):
    Y[i] = X[i, T[i]]
  iterate write(I) "S" as (i):
    Z[i, T[i]] = 1.0
)";
  const std::vector<int32_t> indices = {1, 4, 4, 4, 0, 3};
  std::vector<int32_t> t = {1, 4, 3};
  Values x = {1, 8, 8, 8, 2, 3}, y(3, 9.f), z(6, 9.f);
  const RunArguments arguments{.structures = {{"J", ell(3, 4, 2, indices)}},
                               .buffers = {{"T", {t.data(), DType::int32, {3}}},
                                           {"X", {x.data(), DType::fp32, {6}}},
                                           {"Y", {y.data(), DType::fp32, {3}}},
                                           {"Z", {z.data(), DType::fp32, {6}}}}};
  expect_failure(kMoved, "", arguments, "iteration 'write' writes 'Z' at (1, 4 or beyond)");
  EXPECT_EQ(y, (Values{1, 0, 3}));
  EXPECT_EQ(z, (Values{1, 9, 9, 9, 9, 1}));
}

TEST(Failures, AreRefusedBeforeARunWhereTheyAreCertain) {
  for (const auto& [place, says] :
       {std::pair("i + n", "line 5, column 11: iteration 'move' writes Y[i + n], where 'Y' never stores anything: "),
        std::pair("-1 - i", "where 'Y' never stores anything: ")}) {
    const std::string text = std::string("program shift(n):\n  N = dense_fixed(n)\n  X = buffer(N): fp32\n") +
                             "  Y = buffer(N): fp32\n  iterate move(N) \"S\" as (i):\n    Y[" + place + "] = X[i]\n";
    expect_contains(refusal([&] { compile(parse(text), Device::cpu(), {.stop_after = "lower iterations"}); }), says,
                    place);
  }
}

// What would be written there is not computed: its divisions do not fail, at any stage.
TEST(Failures, OfWritesLeaveOutTheirValues) {
  constexpr const char* kMoved =
      "program moved(n):\n  N = dense_fixed(n)\n  X = buffer(N): int32\n"
      "  Y = buffer(N): int32\n  iterate move(N) \"S\" as (i):\n    Y[i + 1] = 6 // X[i]\n";
  std::vector<int32_t> x = {1, 2, 0}, y = {7, 7, 7};
  const RunArguments arguments{.buffers = {{"X", {x.data(), DType::int32, {3}}}, {"Y", {y.data(), DType::int32, {3}}}}};
  expect_failure(kMoved, "", arguments, "iteration 'move' writes 'Y' at (3 or beyond)");
  EXPECT_EQ(y, (std::vector<int32_t>{7, 6, 3}));
}

// A primitive that changes sums says that it does not know whether they are there.
TEST(Failures, PrimitivesAskForWritesThatAreThere) {
  for (const char* line : {"atomic(into)", "cache_write(into.b, register)"}) {
    const std::string said = refusal([&] {
      compile(parse(kInto), std::string("lower()\n") + line + "\n", Device::cpu(), {.stop_after = "generate"});
    });
    expect_contains(said, "'Z' is written where it may store nothing", line);
  }
}

TEST(Failures, OfManyDimensionsAreReadBack) {
  Declarations declared{.name = "p", .params = {"a", "b"}};
  declared.axes = {{.name = "A", .length = loop::variable("a")},
                   {.name = "B", .length = loop::variable("b")},
                   {.name = "C", .length = 4}};
  declared.buffers = {{"X", {"A", "B", "C"}}};
  const loop::Memory numbers{.scalars = {{"a", 3}, {"b", 1}}};
  FailureLog log(declared, numbers);
  EXPECT_NO_THROW(log.raise());
  log.add({"it", "X"}, {2, 7, 1});
  log.add({"it", "X"}, {2, 0, -9});
  log.add({"other", "X"}, {0, 0, 0});
  expect_contains(refusal([&] { log.raise(); }), "p: iteration 'it' writes 'X' at (2, 0, below 0), where", "least");
}

}  // namespace
}  // namespace weft::sparse::test
