// The text form: what is read, what is refused and where.
#include "sparse/stage1/parse.h"

#include <gtest/gtest.h>

#include "sparse/operators/gather_schedules.h"
#include "sparse/stage1/program.h"
#include "tests/sparse/refusals.h"

namespace weft::sparse::test {
namespace {

TEST(Parse, ReadsAllAxesBuffersIterationsCommentsAndTheSchedule) {
  const std::string text = R"(program all(a, b, c):   # a comment
  I = dense_fixed(a)

  R = dense_variable(I, b, c, indptr=r_indptr)
  E = sparse_fixed(I, b, 4, indices=e_indices)
  L = sparse_variable(R, 2 * b + 1, c, indptr=l_indptr, indices=l_indices): int64
  X = buffer(I, R): fp64
  Y = buffer(I): bf16
  N = buffer(I): int32
  iterate one(fuse(I, R)) "SS" as (i, r) where i % 2 == 0, not (r < 1 or r > 3):
    X[i, r] = max(X[i, r], select(N[i] >= 2, exp(-Y[i]), 1e-3)) / 2.5
  preprocess two(I) "S" as (i):
    Y[i] = real(N[i] // 2 % 3) - inf
schedule:
  decompose_format(one, X, hyb(1, -5), csr())
  p, q = split(one.i, 16)
)";
  const ParsedProgram parsed = parse_program(text);
  EXPECT_EQ(parse_program(to_text(parsed.stage1)).stage1, parsed.stage1);
  EXPECT_EQ(parse_schedule(to_text(parsed.schedule)), parsed.schedule);
  EXPECT_EQ(parsed.stage1.axes[3].index_type, DType::int64);
  EXPECT_TRUE(parsed.stage1.iterations[1].preprocess);
  EXPECT_EQ(parsed.schedule[0].operands[2].operands[1].integer, -5);
}

struct BadText {
  const char* from;  // of the SpMM program
  const char* to;
  const char* says;
};

// What a primitive makes of init is named as its iteration in errors, also when the text is read again.
TEST(Parse, ReadsWhoseInitAnIterationIs) {
  const std::string text = compile(parse(kSpmmProgram), "decompose_format(csrmm, A, ell(2), csr())\n", Device::cpu(),
                                   {.stop_after = "schedule stage I"})
                               .text("stage1");
  EXPECT_NE(text.find("iterate csrmm_init(I, K) \"SS\" as (i, k) of csrmm:"), text.npos) << text;
  const Stage1 again = parse_program(text).stage1;
  EXPECT_EQ(again.find_iteration("csrmm_init")->name_in_errors(), "csrmm");
  EXPECT_EQ(again.find_iteration("csrmm_csr")->name_in_errors(), "csrmm_csr");
  EXPECT_EQ(to_text(again), text);
}

TEST(Parse, RefusesWrongTextAtItsLineAndColumn) {
  const BadText cases[] = {
      {"program spmm(m, n, nnz, feat):", "progam spmm(m):", "line 1, column 1: 'program' is expected here"},
      {"program spmm(m, n, nnz, feat):", "program spmm(m, n, nnz, feat)", "line 1, column 30: the line ends where ':'"},
      {"program spmm(m, n, nnz, feat):", "program spmm(m, n, m, feat):", "line 1, column 20: 'm' is declared twice"},
      {"program spmm(m, n, nnz, feat):", "program spmm(m, n, nnz, spmm):", "'spmm' is declared twice"},
      {"program spmm(m, n, nnz, feat):", "program for(m, n, nnz, feat):", "'for' is a word of the language"},
      {"program spmm(m, n, nnz, feat):", "program spmm(m n):", "line 1, column 16: ')' is expected here"},
      {"  I = dense_fixed(m)", "   I = dense_fixed(m)", "line 2, column 4: a line begins after 3 spaces"},
      {"  I = dense_fixed(m)", "\tI = dense_fixed(m)", "line 2, column 1: tabs"},
      {"  I = dense_fixed(m)", "    I = dense_fixed(m)", "line 2, column 5: this line stands too deep"},
      {"  I = dense_fixed(m)", "  I = dense_fixd(m)", "line 2, column 7: 'dense_fixd' declares nothing"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(mm)", "line 2, column 19: 'mm' is not declared; did you mean 'm'?"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(m", "the line ends where ')' is expected"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(1.5)", "line 2, column 19: an integer is expected here"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(99999999999999999999)", "is no integer of 64 bits"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(m // 0)", "the divisor is 0"},
      {"  I = dense_fixed(m)", "  I = dense_fixed(m) m", "line 2, column 22: the line should end here"},
      {"  I = dense_fixed(m)", "  m = dense_fixed(m)", "line 2, column 3: 'm' is declared twice"},
      {"  I = dense_fixed(m)", "  fuse = dense_fixed(m)", "'fuse' is a word of the language"},
      {"sparse_variable(I,", "sparse_variable(H,", "the parent 'H' of axis 'J' is not declared before it"},
      {"indptr=j_indptr, ", "", "'indptr' is expected here"},
      {", indices=j_indices", "", "',' is expected here"},
      {"indices=j_indices", "indices=j_indptr", "'j_indptr' is declared twice"},
      {"indices=j_indices)", "indices=j_indices): fp32", "indices are of type int32 or int64"},
      {"  A = buffer(I, J): fp32", "  A = buffer(J, I): fp32",
       "axis 'J' of buffer 'A' does not follow its parent 'I' directly"},
      {"  A = buffer(I, J): fp32", "  A = buffer(I, K, J): fp32", "axis 'J' of buffer 'A' does not follow its parent"},
      {"  A = buffer(I, J): fp32", "  A = buffer(J): fp32", "axis 'J' of buffer 'A' does not follow its parent"},
      {"  A = buffer(I, J): fp32", "  A = buffer(I, I): fp32", "axis 'I' stands twice in buffer 'A'"},
      {"  A = buffer(I, J): fp32", "  A = buffer(I, Q): fp32", "axis 'Q' of buffer 'A' is not declared"},
      {"  A = buffer(I, J): fp32", "  A = buffer(I, J): fp31", "'fp31' is no element type"},
      {"  A = buffer(I, J): fp32", "  A = buffer(I, J)", "the line ends where ':' is expected"},
      {"  A = buffer(I, J): fp32", "  I = buffer(I, J): fp32", "'I' is declared twice"},
      {"iterate csrmm(I, J, K)", "iterate csrmm(J, I, K)", "axis 'J' of iteration 'csrmm' depends on its parent 'I'"},
      {"iterate csrmm(I, J, K)", "iterate csrmm(I, J)", "has 2 axes and 3 kinds"},
      {"iterate csrmm(I, J, K)", "iterate csrmm(I, J, I)", "axis 'I' stands twice in iteration"},
      {"iterate csrmm(I, J, K)", "iterate csrmm(I, J, Q)", "axis 'Q' of iteration 'csrmm' is not declared"},
      {"iterate csrmm(I, J, K)", "iterate csrmm(I, fuse(J, K))", "fuse(J, K) is no chain of axes"},
      {"\"SRS\"", "\"SXS\"", "the kinds of axes are S (spatial) and R (reduction)"},
      {"\"SRS\"", "\"SRS", "the closing '\"' is missing"},
      {"\"SRS\"", "\"SSS\"", "'j' is a spatial iterator of 'csrmm', but 'C' is not written at it"},
      {"\"SRS\"", "\"SRR\"", "init of 'csrmm' uses the reduction iterator 'k'"},
      {"    init:\n      C[i, k] = 0.0\n    C[i, k] = C[i, k] +", "    C[i, k + j] = C[i, k] +",
       "'j' is a reduction iterator of 'csrmm', and 'C' is written at it"},
      {"as (i, j, k)", "as (i, j)", "has 3 axes and 2 iterators"},
      {"as (i, j, k)", "as (i, i, k)", "'i' is declared twice"},
      {"as (i, j, k)", "as (i, m, k)", "iterator 'm' of 'csrmm' has a name that something else has"},
      {"as (i, j, k):", "as (i, j, k) where i + j:", "a condition is expected here, not i + j"},
      {"      C[i, k] = 0.0", "      C[i, k] = real(j)", "init of 'csrmm' uses the reduction iterator 'j'"},
      {"      C[i, k] = 0.0\n", "", "line 11, column 1: init computes nothing"},
      {"    C[i, k] = C[i, k] + A[i, j] * B[j, k]\n", "", "iteration 'csrmm' computes nothing"},
      {"+ A[i, j]", "+ A[i]", "'A' is accessed with 1 indices; its axes are 2"},
      {"+ A[i, j]", "+ A[i, j, k]", "'A' is accessed with 3 indices"},
      {"+ A[i, j]", "+ A[i, 0.5]", "an index that is no integer"},
      {"+ A[i, j]", "+ A", "'A' is a buffer: its indices are missing"},
      {"+ A[i, j]", "+ D[i, j]", "no buffer 'D' is declared"},
      {"+ A[i, j]", "+ A[i, jj]", "'jj' is not declared"},
      {"+ A[i, j]", "+ (A[i, j]", "the line ends where ')' is expected"},
      {"+ A[i, j]", "+ A[i, j", "the line ends where ']' is expected"},
      {"+ A[i, j]", "+ A[i, j] // 2", "'//' and '%' take integers"},
      {"+ A[i, j]", "+ i / j", "'/' divides reals"},
      {"+ A[i, j]", "+ (i < j)", "a condition is no number"},
      {"+ A[i, j]", "+ select(i, 1.0, 2.0)", "operand 1 of select is no condition"},
      {"+ A[i, j]", "+ select(i < j, 1, 2.0)", "select chooses between an integer and a real"},
      {"+ A[i, j]", "+ exp(i)", "exp takes a real"},
      {"+ A[i, j]", "+ max(1.0)", "max takes 2 operands, not 1"},
      {"+ A[i, j]", "+ --A[i, j]", "two minus signs follow each other"},
      {"+ A[i, j]", "+ 1.5e", "is no number that fits 64 bits"},
      {"+ A[i, j]", "+ 12x", "'12' runs into a name"},
      {"+ A[i, j]", "+ find(A[i, j], 1, 2)", "find searches an integer buffer"},
      {"    C[i, k] = C[i, k] +", "    C[i, k] == 1.0 +", "an assignment is expected here"},
      {"    C[i, k] = C[i, k] +", "    C[i, k] C[i, k] +", "'=' is expected here"},
      {"    C[i, k] = C[i, k] +", "    i = C[i, k] +", "an assignment is expected here"},
      {"    C[i, k] = C[i, k] + A[i, j] * B[j, k]\n", "    C[i, k] = C[i, k] + A[i, j] * B[j, k]\nfoo\n",
       "line 13, column 1: 'schedule' is expected here"},
  };
  for (const BadText& c : cases) {
    std::string text = kSpmmProgram;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    expect_contains(refusal([&] { parse_program(text); }), c.says, text);
  }
}

TEST(Parse, RefusesWhatIsNoProgramAtAll) {
  expect_contains(refusal([] { parse_program(""); }), "a program is expected", "empty");
  expect_contains(refusal([] { parse_program("program p():\n"); }), "computes nothing", "no iteration");
  expect_contains(refusal([] { parse_program(std::string(2 << 20, ' ')); }), "bytes; at most", "large");
  expect_contains(refusal([] {
                    parse_program("program p(a):\n  I = dense_fixed(" + std::string(300, '(') + "a" +
                                  std::string(300, ')') + ")\n");
                  }),
                  "deep", "deep");
  std::string program = kSpmmProgram;
  const std::pair<const char*, const char*> schedules[] = {
      {"a b\n", "'(' is expected here"},
      {"split(csrmm.k\n", "the line ends where ')'"},
      {"x, y\n", "the line ends where '='"},
      {"split(csrmm.k, 1.5)\n", "an integer is expected here"},
      {"split(csrmm., 2)\n", "the name after the dot"},
      {"3 = split(a)\n", "a primitive is expected here"},
      {"f(a(b(c(d(e(f(g(h(i(j(k))))))))))\n", "operands stand more than 8 deep"}};
  for (const auto& [schedule, says] : schedules)
    expect_contains(refusal([&, s = schedule] { parse_schedule(s); }), says, schedule);
}

}  // namespace
}  // namespace weft::sparse::test
