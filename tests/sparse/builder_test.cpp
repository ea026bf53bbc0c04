// ProgramBuilder says whatever the text form says, and refuses the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sparse/operators/gather_schedules.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/ready_programs.h"
#include "tests/sparse/refusals.h"

namespace weft::sparse::test {
namespace {

std::vector<std::string> texts(const std::vector<Expr>& list) {
  std::vector<std::string> result;
  for (const Expr& e : list) result.push_back(loop::to_text(e));
  return result;
}

std::vector<std::string> lines(const Body& stores) {
  std::istringstream text(loop::to_text(stores, 0));
  std::vector<std::string> result;
  for (std::string line; std::getline(text, line);) result.push_back(line);
  return result;
}

// Of the groups of axes from `begin` to `end`.
IterationSpec spec_of(const Iteration& it, const std::string& name, size_t begin, size_t end) {
  IterationSpec spec{.name = name, .preprocess = it.preprocess && begin == 0};
  size_t place = 0;
  for (size_t g = 0; g < end; ++g) {
    std::string axes;
    for (const std::string& axis : it.axes[g]) {
      axes += (axes.empty() ? "" : ", ") + axis;
      if (g >= begin) {
        spec.kinds += it.kinds[place];
        spec.iterators.push_back(it.iterators[place]);
      }
      ++place;
    }
    if (g >= begin) spec.axes.push_back(it.axes[g].size() == 1 ? axes : "fuse(" + axes + ")");
  }
  return spec;
}

IterationSpec whole_spec_of(const Iteration& it) {
  IterationSpec spec = spec_of(it, it.name, it.num_shared_axes(), it.axes.size());
  spec.where = texts(it.where);
  spec.init = lines(it.init);
  spec.body = lines(it.body);
  return spec;
}

// Of iterations that stand within the same ones down to that depth, the first of which may stand deeper.
IterationSpec spec_of_nest(std::span<const Iteration> list, size_t depth) {
  const Iteration& it = list[0];
  if (it.around.size() == depth) return whole_spec_of(it);
  IterationSpec spec =
      spec_of(it, it.around[depth].name, depth == 0 ? 0 : it.around[depth - 1].num_axes, it.around[depth].num_axes);
  for (size_t begin = 0, end; begin < list.size(); begin = end) {
    end = begin + 1;
    while (end < list.size() && num_common(list[begin], list[end]) > depth + 1) ++end;
    spec.within.push_back(spec_of_nest(list.subspan(begin, end - begin), depth + 1));
  }
  return spec;
}

// A call for each declaration of the program.
ProgramBuilder rebuilt(const ParsedProgram& parsed) {
  const Stage1& program = parsed.stage1;
  std::vector<std::string> params = program.params;
  for (const std::string& real : program.reals) params.push_back(real + ": real");
  ProgramBuilder builder(program.name, params);
  for (const Axis& a : program.axes) {
    const std::string length = loop::to_text(a.length), nnz = a.nnz ? loop::to_text(a.nnz) : "";
    if (a.is_sparse && a.is_variable)
      builder.sparse_variable(a.name, a.parent, length, nnz, a.indptr, a.indices, a.index_type);
    else if (a.is_sparse)
      builder.sparse_fixed(a.name, a.parent, length, nnz, a.indices, a.index_type);
    else if (a.is_variable)
      builder.dense_variable(a.name, a.parent, length, nnz, a.indptr, a.index_type);
    else
      builder.dense_fixed(a.name, length);
  }
  for (const SparseBuffer& b : program.buffers)
    b.temporary ? builder.temporary(b.name, b.axes, b.dtype) : builder.buffer(b.name, b.axes, b.dtype);
  for (const auto& axes : program.apart) builder.apart(axes);
  for (size_t i = 0; i < program.iterations.size(); ++i) {
    const size_t first = i;
    while (i + 1 < program.iterations.size() && num_common(program.iterations[first], program.iterations[i + 1]) > 0)
      ++i;
    builder.iterate(spec_of_nest(std::span(program.iterations).subspan(first, i + 1 - first), 0));
  }
  for (const FormatDefinition& f : parsed.formats) {
    FormatSpec spec{.name = f.name, .old_axes = f.old_axes, .params = f.new_params, .buffer_axes = f.buffer_axes};
    for (const Axis& axis : f.declared.axes) spec.axes.push_back(to_text(axis));
    for (const auto& [axis, map] : f.to_new) spec.to.push_back(axis + " = " + loop::to_text(map));
    for (const auto& [axis, map] : f.to_old) spec.from.push_back(axis + " = " + loop::to_text(map));
    builder.format(spec);
  }
  for (const ScheduleLine& line : parsed.schedule) {
    std::string text = to_text(Schedule{line});
    text.pop_back();
    builder.schedule(text);
  }
  return builder;
}

void expect_round_trip(const std::string& text, const std::string& what) {
  const ParsedProgram parsed = parse_program(text);
  const ProgramBuilder builder = rebuilt(parsed);
  EXPECT_EQ(parse_program(builder.text()), parsed) << what << "\n" << builder.text();
  EXPECT_EQ(builder.build().text(), to_text(parsed)) << what;
  EXPECT_EQ(ProgramBuilder(builder).text(), builder.text()) << what;
}

// Everything that the language has, in one program.
constexpr const char* kAll = R"(program all(a, b, c):
  I = dense_fixed(a)
  R = dense_variable(I, b, c, indptr=r_indptr)
  E = sparse_fixed(I, b, 4, indices=e_indices): int64
  L = sparse_variable(R, 2 * b + 1, c, indptr=l_indptr, indices=l_indices): int64
  F = sparse_fixed(I, b, 3, indices=f_indices)
  J = sparse_variable(I, b, c, indptr=j_indptr, indices=j_indices)
  Q = dense_fixed(2)
  X = buffer(I, R): fp64
  Y = buffer(I): bf16
  T = temporary(I, R): fp32
  A = buffer(I, J): fp32
  Z = buffer(I): fp32
  W = buffer(I, J, Q): fp32
  apart(E, F)
  preprocess first(I, R) "SS" as (i, r):
    T[i, r] = X[i, r] * 2.0
  iterate one(fuse(I, R)) "SS" as (i, r) where i % 2 == 0, not (r < 1 or r > 3):
    X[i, r] = max(T[i, r], select(i >= 2, exp(-Y[i]), 0.001)) / 2.5
  iterate rows(I) "S" as (i):
    iterate inner(J) "R" as (j) where j > 0:
      init:
        Z[i] = 0.0
      Z[i] = Z[i] + A[i, j]
    iterate elements(J) "S" as (j):
      iterate scaled(Q) "S" as (q):
        W[i, j, q] = A[i, j]
      iterate shifted(Q) "S" as (q):
        W[i, j, q] = A[i, j] + Z[i]
format tiles(I, J) with (num_tiles):
  IO = dense_fixed((a + 1) // 2)
  JO = sparse_variable(IO, (b + 3) // 4, num_tiles, indptr=tiles_indptr, indices=tiles_indices)
  II = dense_fixed(2)
  JI = dense_fixed(4)
  buffer(IO, JO, II, JI)
  to IO = I // 2, II = I % 2, JI = J % 4, JO = J // 4
  from I = IO * 2 + II, J = JO * 4 + JI
schedule:
  lower()
  ro, ri = split(one.i_r, 4)
  parallel(rows.i)
)";

TEST(Builder, RoundTripsEveryProgram) {
  expect_round_trip(kAll, "all");
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(WEFT_SPARSE_EXAMPLES)) {
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    expect_round_trip(text.str(), file.path().string());
    ++count;
  }
  EXPECT_GE(count, 16u);
  for (const ReadyCase& c : all_cases()) expect_round_trip(c.ready.text, c.name);
}

ProgramBuilder spmm() {
  return ProgramBuilder("spmm", {"m", "n", "nnz", "feat"})
      .dense_fixed("I", "m")
      .sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
      .dense_fixed("J_", "n")
      .dense_fixed("K", "feat")
      .buffer("A", {"I", "J"})
      .buffer("B", {"J_", "K"})
      .buffer("C", {"I", "K"});
}
const IterationSpec kCsrmm{.name = "csrmm",
                           .axes = {"I", "J", "K"},
                           .kinds = "SRS",
                           .iterators = {"i", "j", "k"},
                           .init = {"C[i, k] = 0.0"},
                           .body = {"C[i, k] = C[i, k] + A[i, j] * B[j, k]"}};

TEST(Builder, MakesTheProgramThatTheTextMakes) { EXPECT_EQ(spmm().iterate(kCsrmm).text(), kSpmmProgram); }

// At the call, not at build(); and the call changes nothing.
TEST(Builder, EveryCallChecks) {
  ProgramBuilder builder = spmm();
  const auto refuses = [&](const std::string& part, const auto& call) {
    const std::string before = builder.text();
    expect_contains(refusal([&] { call(builder); }), part, part);
    EXPECT_EQ(builder.text(), before) << part;
  };
  refuses("it computes nothing", [](ProgramBuilder& b) { b.build(); });
  refuses("'I' is declared twice", [](ProgramBuilder& b) { b.dense_fixed("I", "m"); });
  refuses("'q' is not declared", [](ProgramBuilder& b) { b.dense_fixed("Q", "q"); });
  refuses("the parent 'Q' of axis 'P' is not declared before it",
          [](ProgramBuilder& b) { b.dense_variable("P", "Q", "n", "nnz", "p_indptr"); });
  refuses("the parent 'Q'", [](ProgramBuilder& b) { b.sparse_fixed("P", "Q", "n", "4", "p_indices"); });
  refuses("indices are of type int32 or int64",
          [](ProgramBuilder& b) { b.sparse_variable("P", "I", "n", "nnz", "p_indptr", "p_indices", DType::fp32); });
  refuses("does not follow its parent", [](ProgramBuilder& b) { b.buffer("D", {"I", "K", "J"}); });
  refuses("is not declared", [](ProgramBuilder& b) { b.temporary("D", {"Q"}); });
  refuses("is dense: it stores every coordinate", [](ProgramBuilder& b) { b.apart({"J", "K"}); });
  refuses("one declaration is expected", [](ProgramBuilder& b) { b.dense_fixed("Q", "m)\n  P = dense_fixed(m"); });
  refuses("nothing may follow here", [](ProgramBuilder& b) {
    IterationSpec two = kCsrmm;
    two.body.push_back("C[i, k] = C[i, k]\nschedule:");
    b.iterate(two);
  });
  refuses("has 3 axes and 2 kinds", [](ProgramBuilder& b) {
    IterationSpec it = kCsrmm;
    it.kinds = "SR";
    b.iterate(it);
  });
  refuses("it has a body, and iterations within it", [](ProgramBuilder& b) {
    IterationSpec it = kCsrmm;
    it.within = {kCsrmm};
    b.iterate(it);
  });
  refuses("'to' says nothing of axis 'P'", [](ProgramBuilder& b) {
    b.format({.name = "f",
              .old_axes = {"I", "J"},
              .axes = {"P = dense_fixed(m)", "Q = dense_fixed(n)"},
              .buffer_axes = {"P", "Q"},
              .to = {"Q = J"},
              .from = {"I = P", "J = Q"}});
  });
  refuses("'(' is expected", [](ProgramBuilder& b) { b.schedule("lower"); });
  builder.iterate(kCsrmm);
  refuses("iteration 'csrmm' is declared twice", [](ProgramBuilder& b) { b.iterate(kCsrmm); });
  expect_contains(refusal([] { ProgramBuilder("p q", {}); }), "line 1", "name");
}

}  // namespace
}  // namespace weft::sparse::test
