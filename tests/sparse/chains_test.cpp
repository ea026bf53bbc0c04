// Structures that are made axis by axis: every chain of kinds of axes runs, and every array is checked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::chains {
namespace {

constexpr AxisKind kBelow[] = {AxisKind::dense_variable, AxisKind::sparse_fixed, AxisKind::sparse_variable};
constexpr int64_t kRows = 6, kLengths[] = {5, 7, 4}, kWidth = 2;

struct ChainLevel {
  AxisKind kind;
  int64_t length, num_positions = 0;
  std::vector<int32_t> indptr = {}, indices = {};
};
using Chain = std::vector<ChainLevel>;

// Rows of none to three elements; of a fixed axis, places that are not used.
Chain random_chain(const std::vector<AxisKind>& kinds, std::mt19937& random) {
  Chain chain;
  int64_t parents = kRows;
  for (size_t l = 0; l < kinds.size(); ++l) {
    ChainLevel level{.kind = kinds[l], .length = kLengths[l]};
    if (kinds[l] != AxisKind::sparse_fixed) level.indptr = {0};
    for (int64_t p = 0; p < parents; ++p) {
      std::vector<int32_t> row;
      for (int32_t x = 0; x < level.length; ++x) row.push_back(x);
      std::shuffle(row.begin(), row.end(), random);
      row.resize(random() % 4);
      std::sort(row.begin(), row.end());
      if (kinds[l] == AxisKind::sparse_fixed) row.resize(kWidth, static_cast<int32_t>(level.length));
      level.num_positions += static_cast<int64_t>(row.size());
      if (kinds[l] != AxisKind::dense_variable) level.indices.insert(level.indices.end(), row.begin(), row.end());
      if (kinds[l] != AxisKind::sparse_fixed) level.indptr.push_back(static_cast<int32_t>(level.num_positions));
    }
    for (size_t p = 0; kinds[l] == AxisKind::sparse_fixed && p < level.indices.size(); p += kWidth)
      std::sort(level.indices.begin() + static_cast<std::ptrdiff_t>(p),
                level.indices.begin() + static_cast<std::ptrdiff_t>(p + kWidth));
    parents = level.num_positions;
    chain.push_back(std::move(level));
  }
  return chain;
}

Structure structure_of(const Chain& chain) {
  std::vector<StoredAxis> axes{{.length = kRows}};
  for (const ChainLevel& level : chain)
    axes.push_back({.kind = level.kind,
                    .length = level.length,
                    .nnz_cols = level.kind == AxisKind::sparse_fixed ? kWidth : 0,
                    .indptr = level.indptr,
                    .indices = level.indices});
  return sparse::structure_of(axes);
}

// The sum below one position of the level above: values times a weight for each coordinate.
double sum_below(const Chain& chain, size_t l, int64_t parent, const std::vector<Values>& weights,
                 const Values& values) {
  const ChainLevel& level = chain[l];
  const bool is_fixed = level.kind == AxisKind::sparse_fixed;
  const int64_t begin = is_fixed ? parent * kWidth : level.indptr[static_cast<size_t>(parent)];
  const int64_t end = is_fixed ? begin + kWidth : level.indptr[static_cast<size_t>(parent) + 1];
  double sum = 0;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t coordinate =
        level.kind == AxisKind::dense_variable ? p - begin : level.indices[static_cast<size_t>(p)];
    if (coordinate == level.length) continue;  // a place that is not used
    const double inner =
        l + 1 == chain.size() ? values[static_cast<size_t>(p)] : sum_below(chain, l + 1, p, weights, values);
    sum += inner * weights[l][static_cast<size_t>(coordinate)];
  }
  return sum;
}

// Every chain of up to three kinds of axes below the rows.
std::vector<std::vector<AxisKind>> all_kinds() {
  std::vector<std::vector<AxisKind>> all, last = {{}};
  for (int depth = 0; depth < 3; ++depth) {
    std::vector<std::vector<AxisKind>> next;
    for (const auto& kinds : last)
      for (const AxisKind kind : kBelow) {
        next.push_back(kinds);
        next.back().push_back(kind);
      }
    all.insert(all.end(), next.begin(), next.end());
    last = std::move(next);
  }
  return all;
}

// One program with an iteration for each chain: Y[i] = sum of V[i, a, b, c] * W0[a] * W1[b] * W2[c].
std::string program_of(const std::vector<std::vector<AxisKind>>& chains) {
  std::string params, axes, buffers, iterations;
  for (size_t l = 0; l < std::size(kLengths); ++l) {
    axes += fmt::format("  N{0} = dense_fixed({1})\n", l, kLengths[l]);
    buffers += fmt::format("  W{0} = buffer(N{0}): fp32\n", l);
  }
  for (size_t c = 0; c < chains.size(); ++c) {
    std::string parent = "I", list = "I", iterators = "i", product = fmt::format("V{}[i", c), weights;
    for (size_t l = 0; l < chains[c].size(); ++l) {
      const std::string axis = fmt::format("A{}_{}", c, l), iterator = fmt::format("a{}", l);
      const AxisKind kind = chains[c][l];
      const bool is_fixed = kind == AxisKind::sparse_fixed;
      if (!is_fixed) params += fmt::format(", nnz{}_{}", c, l);
      axes += fmt::format("  {} = {}({}, {}, {}", axis,
                          is_fixed                           ? "sparse_fixed"
                          : kind == AxisKind::dense_variable ? "dense_variable"
                                                             : "sparse_variable",
                          parent, kLengths[l], is_fixed ? std::to_string(kWidth) : fmt::format("nnz{}_{}", c, l));
      if (!is_fixed) axes += fmt::format(", indptr={}_indptr", axis);
      if (kind != AxisKind::dense_variable) axes += fmt::format(", indices={}_indices", axis);
      axes += ")\n";
      parent = axis;
      list += ", " + axis;
      iterators += ", " + iterator;
      product += ", " + iterator;
      weights += fmt::format(" * W{}[{}]", l, iterator);
    }
    buffers += fmt::format("  V{0} = buffer({1}): fp32\n  Y{0} = buffer(I): fp32\n", c, list);
    iterations += fmt::format(
        "  iterate sum{0}({1}) \"S{2}\" as ({3}):\n    init:\n      Y{0}[i] = 0.0\n    Y{0}[i] = Y{0}[i] + {4}]{5}\n",
        c, list, std::string(chains[c].size(), 'R'), iterators, product, weights);
  }
  return fmt::format("program chains(m{}):\n  I = dense_fixed(m)\n{}{}{}", params, axes, buffers, iterations);
}

TEST(Chains, OfEveryKindOfAxesComputeTheSame) {
  std::mt19937 random(991);
  const auto kinds = all_kinds();
  const Operator op = compile(parse(program_of(kinds)));
  std::vector<Values> weights, values, results(kinds.size(), Values(kRows, std::nanf("")));
  for (const int64_t length : kLengths)
    weights.push_back(random_values(static_cast<size_t>(length), static_cast<uint32_t>(random())));
  RunArguments arguments;
  std::vector<Chain> chains;
  for (const auto& chain : kinds) {
    chains.push_back(random_chain(chain, random));
    values.push_back(
        random_values(static_cast<size_t>(chains.back().back().num_positions), static_cast<uint32_t>(random())));
  }
  for (size_t l = 0; l < weights.size(); ++l)
    arguments.buffers[fmt::format("W{}", l)] = {weights[l].data(), DType::fp32, {kLengths[l]}};
  for (size_t c = 0; c < chains.size(); ++c) {
    arguments.structures[fmt::format("A{}_{}", c, chains[c].size() - 1)] = structure_of(chains[c]);
    arguments.buffers[fmt::format("V{}", c)] = {
        values[c].data(), DType::fp32, {static_cast<int64_t>(values[c].size())}};
    arguments.buffers[fmt::format("Y{}", c)] = {results[c].data(), DType::fp32, {kRows}};
  }
  op.run(arguments);
  for (size_t c = 0; c < chains.size(); ++c) {
    std::vector<double> want;
    for (int64_t i = 0; i < kRows; ++i) want.push_back(sum_below(chains[c], 0, i, weights, values[c]));
    expect_close(doubles(results[c]), want, 1e-5, fmt::format("chain {}", c));
  }
  for (const Stage stage : interpreted_stages()) {
    const loop::Memory memory = interpret_operator(op, arguments, stage);
    for (size_t c = 0; c < chains.size(); ++c)
      expect_close(memory.buffers.at(fmt::format("Y{}", c)), doubles(results[c]), 1e-5, fmt::format("chain {}", c));
  }
}

TEST(Chains, TakeArraysOfEitherWidth) {
  const std::vector<int64_t> indptr = {0, 2, 3}, indices = {0, 4, 2};
  const std::vector<int32_t> narrow_indptr = {0, 2, 3}, narrow_indices = {0, 4, 2};
  const auto made = [](const IndexArray& p, const IndexArray& i) {
    return csr_arrays(sparse::structure_of(
        {{.length = 2}, {.kind = AxisKind::sparse_variable, .length = 5, .indptr = p, .indices = i}}));
  };
  EXPECT_EQ(made(indptr, indices), std::pair(narrow_indptr, narrow_indices));
  EXPECT_EQ(made(narrow_indptr, indices), std::pair(narrow_indptr, narrow_indices));
}

TEST(Chains, NameTheAxisAndThePlaceOfWhatIsWrong) {
  using Axes = std::vector<StoredAxis>;
  const auto says = [](const Axes& axes, const std::string& part) {
    expect_contains(refusal([&] { sparse::structure_of(axes); }), part, part);
  };
  const auto below = [](StoredAxis axis) { return Axes{{.length = 2}, std::move(axis)}; };
  using enum AxisKind;
  const std::vector<int32_t> ok = {0, 2, 3}, falls = {0, 2, 1}, late = {1, 2, 3}, cols = {0, 4, 2};
  const std::vector<int32_t> beyond = {0, 5, 2}, twice = {4, 4, 2}, gap = {5, 0, 1, 2};
  const std::vector<int64_t> wide = {0, 2, int64_t{1} << 31}, negative = {0, -1, 2};
  says({}, "structure: there are 0 axes; 1 to 7 are allowed");
  says({{.kind = sparse_variable}}, "axis 0: is sparse_variable; the first axis is dense_fixed");
  says(below({.length = 3}), "axis 1: is dense_fixed; the first axis is dense_fixed, and those below it are one of");
  says(below({.kind = dense_variable, .length = 5, .indptr = ok, .indices = cols}),
       "axis 1: indices is given, and an axis that is dense_variable has none");
  says(below({.kind = sparse_variable, .length = 5, .nnz_cols = 2, .indptr = ok, .indices = cols}),
       "axis 1: nnz_cols is 2, and an axis that is sparse_variable has none");
  says(below({.kind = sparse_variable, .length = 5, .indptr = falls, .indices = cols, .name = "J"}),
       "structure: axis 1 'J': indptr[2] is 1, less than the 2 before it");
  says(below({.kind = sparse_variable, .length = 5, .indptr = late, .indices = cols}), "axis 1: indptr[0] is 1");
  says(below({.kind = sparse_variable, .length = 5, .indptr = cols, .indices = cols}), "axis 1: indptr[2] is 2");
  says(below({.kind = sparse_variable, .length = 5, .indices = cols}), "axis 1: indptr has 0 elements; 2 rows need 3");
  says(below({.kind = sparse_variable, .length = 5, .indptr = ok}),
       "axis 1: there are 0 indices; indptr or width says 3");
  says(below({.kind = sparse_variable, .length = 5, .indptr = ok, .indices = beyond}),
       "axis 1: indices[1], of row 0, is 5; allowed are 0 to 4");
  says(below({.kind = sparse_variable, .length = 5, .indptr = ok, .indices = twice}),
       "axis 1: indices[1], of row 0, is 4 after 4");
  says(below({.kind = sparse_variable, .length = 5, .indptr = wide, .indices = cols}),
       "axis 1: indptr[2] is 2147483648; 0 to 2147483647 fit indices of 32 bits");
  says(below({.kind = sparse_variable, .length = 5, .indptr = ok, .indices = negative}), "axis 1: indices[1] is -1");
  says(below({.kind = sparse_fixed, .length = 5, .nnz_cols = 2, .indices = gap}),
       "axis 1: indices[1], of row 0, follows a place that is not used");
  says(below({.kind = dense_variable, .length = 1, .indptr = ok}),
       "axis 1: row 0 has 2 elements; at most 1 are allowed");
  // Positions of a deep chain do not fit 32 bits, whatever 64 would say.
  const StoredAxis many{.kind = sparse_fixed, .length = 1, .nnz_cols = INT32_MAX};
  says({{.length = 3}, many}, "axis 1: 3 rows of 2147483647 places do not fit indices of 32 bits");
  says({{.length = -1}}, "axis 0: the number of rows is -1");
}

}  // namespace
}  // namespace weft::sparse::test::chains
