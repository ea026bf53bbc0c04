#include "tests/sparse/support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "sparse/formats/structure.h"
#include "tests/sparse/ready_programs.h"
#include "tests/sparse/refusals.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::test {

std::vector<Shape> some_shapes() {
  static size_t turn = 0;
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  if (!testing::kUnderSanitizer) return shapes;
  std::rotate(shapes.begin(), shapes.begin() + static_cast<std::ptrdiff_t>(turn++ * 3 % shapes.size()), shapes.end());
  shapes.resize(3);
  return shapes;
}

const char* name_of(Shape shape) {
  constexpr const char* kNames[] = {"uniform", "power_law", "empty_rows", "one_dense_row",
                                    "empty",   "no_rows",   "blocks"};
  return kNames[static_cast<size_t>(shape)];
}

Coo Matrix::coo() const {
  Coo result{.num_rows = rows, .num_cols = cols, .cols = indices};
  for (size_t r = 0; r + 1 < indptr.size(); ++r)
    result.rows.insert(result.rows.end(), static_cast<size_t>(indptr[r + 1] - indptr[r]), static_cast<int32_t>(r));
  return result;
}

Matrix random_matrix(Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Matrix m{.rows = 5 + below(30), .cols = 3 + below(40)};
  if (shape == Shape::no_rows) m.rows = 0;
  m.dense.assign(static_cast<size_t>(m.rows * m.cols), 0);
  m.indptr = {0};
  std::uniform_real_distribution<float> value(0.1f, 1.f);
  for (int64_t r = 0; r < m.rows; ++r) {
    std::set<int64_t> row;
    int64_t length = below(std::min<int64_t>(m.cols, 8));
    if (shape == Shape::power_law)
      length = std::min(m.cols, static_cast<int64_t>(8.0 / (1.0 + static_cast<double>(below(20)))));
    if (shape == Shape::empty_rows && r % 3 != 1) length = 0;
    if (shape == Shape::one_dense_row) length = r == m.rows / 2 ? m.cols : below(2);
    if (shape == Shape::empty) length = 0;
    while (static_cast<int64_t>(row.size()) < length) row.insert(below(m.cols));
    if (shape == Shape::blocks)
      for (int64_t j = 0; j < m.cols; ++j)
        if ((r / 2 * 7 + j / 2 * 3) % 5 == 0) row.insert(j);
    for (const int64_t j : row) {
      m.indices.push_back(static_cast<int32_t>(j));
      m.values.push_back(value(random) * (below(2) == 0 ? 1.f : -1.f));
      m.dense[static_cast<size_t>(r * m.cols + j)] = m.values.back();
    }
    m.indptr.push_back(static_cast<int32_t>(m.indices.size()));
  }
  return m;
}

Values random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1.f, 1.f);
  Values values(count);
  for (float& v : values) v = value(random);
  return values;
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> csr_arrays(const Structure& structure) {
  const Level& level = structure.data()->levels.at(1);
  return {level.indptr, level.indices};
}

std::vector<double> dense_spmm(const Matrix& a, const Values& b, int64_t feat) {
  std::vector<double> c(static_cast<size_t>(a.rows * feat), 0);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j)
      for (int64_t k = 0; k < feat; ++k)
        c[static_cast<size_t>(i * feat + k)] += a.at(i, j) * b[static_cast<size_t>(j * feat + k)];
  return c;
}

std::vector<double> dense_sddmm(const Matrix& a, const Values& x, const Values& y, int64_t feat) {
  std::vector<double> out;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int32_t p = a.indptr[static_cast<size_t>(i)]; p < a.indptr[static_cast<size_t>(i) + 1]; ++p) {
      double dot = 0;
      for (int64_t k = 0; k < feat; ++k)
        dot += static_cast<double>(x[static_cast<size_t>(i * feat + k)]) *
               y[static_cast<size_t>(a.indices[static_cast<size_t>(p)] * feat + k)];
      out.push_back(dot * a.values[static_cast<size_t>(p)]);
    }
  return out;
}

CooTensor in_relations(const Matrix& a) {
  const Coo coo = a.coo();
  CooTensor tensor{.extents = {3, coo.num_rows, coo.num_cols}, .coordinates = {{}, coo.rows, coo.cols}};
  for (size_t e = 0; e < coo.rows.size(); ++e) tensor.coordinates[0].push_back(static_cast<int32_t>(e % 2) * 2);
  return tensor;
}

const char* const kNamedAsWords = R"(program class(int, restrict, unsigned, i_end):
  new = dense_fixed(int)
  J = sparse_variable(new, restrict, unsigned, indptr=worker, indices=buffers)
  J_ = dense_fixed(restrict)
  K = dense_fixed(i_end)
  float = buffer(new, J): fp32
  weft_find = buffer(J_, K): fp32
  scalars = buffer(new, K): fp32
  iterate typename(new, J, K) "SRS" as (i, workers, threadIdx):
    init:
      scalars[i, threadIdx] = 0.0
    scalars[i, threadIdx] = scalars[i, threadIdx] + float[i, workers] * weft_find[workers, threadIdx]
schedule:
  lower()
  double, auto = split(typename.threadIdx, 4)
  vectorize(auto)
  parallel(typename.i)
)";

std::string example(const std::string& name) {
  std::ifstream file(std::string(WEFT_SPARSE_EXAMPLES) + "/" + name + ".txt");
  // A program that was built elsewhere, as for a machine with a card, runs from the top folder of the sources.
  if (!file.good()) file.open("examples/sparse/" + name + ".txt");
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<double> doubles(const Values& values) { return {values.begin(), values.end()}; }

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    ASSERT_FALSE(std::isnan(got[i])) << what << ", element " << i << ": NaN";
    if (got[i] == want[i]) continue;
    ASSERT_LE(std::fabs(got[i] - want[i]), tolerance * (1 + std::fabs(want[i]))) << what << ", element " << i;
  }
}

std::span<const Stage> interpreted_stages(Stage first) {
  static constexpr Stage kStages[] = {Stage::source, Stage::one, Stage::two, Stage::three};
  if (testing::kUnderThreadSanitizer) return {};
  return std::span(kStages).subspan(static_cast<size_t>(first));
}

void expect_everywhere(const Operator& op, const RunArguments& arguments, const std::string& output,
                       const std::vector<double>& want, const std::string& what) {
  // What is written begins as NaN: nobody may read what nobody set.
  const TensorView& target = arguments.buffers.at(output);
  const auto poison = [&] { std::fill_n(target.as<float>(), target.size(), std::nanf("")); };
  for (const Stage stage : interpreted_stages(Stage::source)) {
    poison();
    const loop::Memory memory = interpret_operator(op, arguments, stage);
    expect_close(memory.buffers.at(output), want, 1e-6, what + ", stage " + std::to_string(static_cast<int>(stage)));
  }
  poison();
  op.run(arguments);
  expect_close(values_of(target), want, 1e-5, what + ", compiled");
}

Values placed(const Values& values, const std::vector<int64_t>& order, float nothing) {
  Values placed;
  for (const int64_t e : order) placed.push_back(e < 0 ? nothing : values[static_cast<size_t>(e)]);
  return placed;
}

void expect_rgms(const Operator& op, const CooTensor& edges, const Converted& stored, int64_t in, int64_t out) {
  const int64_t relations = edges.extents[0], m = edges.extents[1], n = edges.extents[2];
  const size_t count = edges.coordinates[0].size();
  const Values a = random_values(count, 52);
  Values values = placed(a, stored.order), x = random_values(static_cast<size_t>(n * in), 53);
  Values w = random_values(static_cast<size_t>(relations * in * out), 54), y(static_cast<size_t>(m * out));
  std::vector<double> want(y.size(), 0);
  for (size_t e = 0; e < count; ++e)
    for (int64_t l = 0; l < in; ++l)
      for (int64_t k = 0; k < out; ++k)
        want[static_cast<size_t>(edges.coordinates[1][e] * out + k)] +=
            static_cast<double>(a[e]) * x[static_cast<size_t>(edges.coordinates[2][e] * in + l)] *
            w[static_cast<size_t>((edges.coordinates[0][e] * in + l) * out + k)];
  expect_everywhere(op,
                    {.structures = {{"J", stored.structure}},
                     .buffers = {{"A", flat(values)},
                                 {"X", view(x, {n, in})},
                                 {"W", view(w, {relations, in, out})},
                                 {"Y", view(y, {m, out})}}},
                    "Y", want, std::to_string(count) + " edges");
}

void expect_failure(const std::string& text, const std::string& schedule, const RunArguments& arguments,
                    const std::string& says, const std::map<std::string, int64_t>& set) {
  const Operator op = compile(parse(text), schedule, Device::cpu(), {.set = set});
  for (const Stage stage : {Stage::source, Stage::one, Stage::two, Stage::three})
    expect_contains(refusal([&] { interpret_operator(op, arguments, stage); }), says, schedule);
  for (int workers = 1; workers <= 4; ++workers) {
    WorkerTeam team(workers);
    for (int again = 0; again < 2; ++again)
      expect_contains(refusal([&] { op.run(arguments, Stream::cpu(team)); }), says, schedule);
  }
}

namespace {

void expect_same_results(const Operator& op, const RunArguments& given, uint32_t seed, const std::string& what) {
  const RunMemory memory(op, given, seed);
  const loop::Memory want = interpret_operator(op, memory.arguments, Stage::source);
  for (const Stage stage : interpreted_stages(Stage::one)) {
    const loop::Memory got = interpret_operator(op, memory.arguments, stage);
    for (const std::string& output : outputs_of(op))
      expect_close(got.buffers.at(output), want.buffers.at(output), 1e-9,
                   fmt::format("{}, stage {}, {}", what, static_cast<int>(stage), output));
  }
}

}  // namespace

void expect_same_results(const std::string& program, const std::string& schedule,
                         const std::map<std::string, int64_t>& set) {
  const Operator op = compile(parse(program.c_str()), schedule, Device::cpu(), {.set = set, .stop_after = "generate"});
  if (program.find("J = sparse_variable(I") == std::string::npos) return expect_same_results(op, {}, 901, schedule);
  uint32_t seed = 0;
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 900 + seed);
    expect_same_results(op, {.structures = {{"J", a.structure()}}}, 901 + seed++, schedule + name_of(shape));
  }
}

void expect_same_results_on(const Structure& structure, const std::string& program, const std::string& schedule,
                            const std::map<std::string, int64_t>& set) {
  const Operator op = compile(parse(program.c_str()), schedule, Device::cpu(), {.set = set, .stop_after = "generate"});
  expect_same_results(op, {.structures = {{"J", structure}}}, 17, schedule);
}

}  // namespace weft::sparse::test
