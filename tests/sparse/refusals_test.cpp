// Hostile structures, and runs that do not fit their program: all refused before a kernel starts.
#include "tests/sparse/refusals.h"

#include <gtest/gtest.h>

#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

using I = std::vector<int32_t>;

TEST(Refusals, StructuresThatBreakTheirRules) {
  const auto says = [](const std::string& part, int64_t m, int64_t n, const I& indptr, const I& indices) {
    expect_contains(refusal([&] { csr(m, n, indptr, indices); }), part, part);
  };
  says("indptr has 2 elements; 2 rows need 3", 2, 3, {0, 1}, {0});
  says("indptr[0] is 1; it begins at 0", 1, 3, {1, 1}, {});
  says("indptr[2] is 1, less than the 2 before it", 2, 3, {0, 2, 1}, {0, 1});
  says("there are 1 indices; indptr or width says 2", 1, 3, {0, 2}, {0});
  says("indices[1], of row 0, is 3; allowed are 0 to 2", 1, 3, {0, 2}, {0, 3});
  says("indices[0], of row 0, is -1; allowed are 0 to 2", 1, 3, {0, 1}, {-1});
  says("indices[1], of row 0, is 0 after 2; the indices of a row rise", 1, 3, {0, 2}, {2, 0});
  says("indices[1], of row 0, is 1 after 1", 1, 3, {0, 2}, {1, 1});
  says("the number of rows is -1", -1, 3, {0}, {});
  says("the number of columns is 4294967296; 0 to 2147483647 fit indices of 32 bits", 0, int64_t{1} << 32, {0}, {});
  expect_contains(refusal([] { ell(2, 3, 2, I{0, 1, 3, 1}); }), "follows a place that is not used", "ell");
  expect_contains(refusal([] { ell(2, 3, 2, I{0, 1, 4, 1}); }), "is 4; allowed are 0 to 2", "ell");
  expect_contains(refusal([] { ell(1 << 20, 3, 1 << 20, I{}); }), "do not fit indices of 32 bits", "ell");
  expect_contains(refusal([] { ragged(1, 2, I{0, 3}); }), "row 0 has 3 elements; at most 2 are allowed", "ragged");
  EXPECT_EQ(refusal([] { csr(0, 0, I{0}, I{}); }), "");
  expect_contains(refusal([] { static_cast<void>(Structure().nnz()); }), "is empty", "empty handle");
}

// Before anything is as large as an extent says.
TEST(Refusals, WhatDoesNotFitIndicesOf32Bits) {
  for (const int64_t extent : {int64_t{1} << 31, int64_t{1} << 60, int64_t{-1}}) {
    const std::string says = fmt::format("there are {} rows; 0 to 2147483647 fit indices of 32 bits", extent);
    const Coo coo{.num_rows = extent, .num_cols = 2};
    expect_contains(refusal([&] { csr_from_coo(coo); }), says, "csr");
    expect_contains(refusal([&] { ell_from_coo(coo); }), says, "ell");
    expect_contains(refusal([&] { bsr_from_coo(coo, 2); }), says, "bsr");
    expect_contains(refusal([&] { dbsr_from_coo(coo, 2); }), says, "dbsr");
    expect_contains(refusal([&] { sr_bcrs_from_coo(coo, 2, 2); }), says, "sr_bcrs");
    expect_contains(refusal([&] { dia_from_coo(coo); }), says, "dia");
    expect_contains(refusal([&] { coo_from_coo(coo); }), says, "coo");
    expect_contains(refusal([&] { ragged_from_coo(coo); }), says, "ragged");
    expect_contains(refusal([&] { hyb_from_coo(coo, 1, 1); }), says, "hyb");
    expect_contains(refusal([&] { merged(coo); }), says, "merged");
    expect_contains(refusal([&] { csc_from_coo(coo); }), fmt::format("there are {} columns", extent), "csc");
    const CooTensor tensor{.extents = {extent, 2, 2}, .coordinates = {{}, {}, {}}};
    const std::string of_tensor = fmt::format("dimension 0 has an extent of {}", extent);
    expect_contains(refusal([&] { csf_from_coo(tensor); }), of_tensor, "csf");
    expect_contains(refusal([&] { relations_from_coo(tensor); }), of_tensor, "relations");
    expect_contains(refusal([&] { relational_from_coo(tensor); }), fmt::format("has an extent of {}", extent),
                    "relational");
  }
  // Places that formats add.
  Coo wide{.num_rows = 1 << 20, .num_cols = 4096, .rows = I(2049, 0), .cols = I(2049)};
  for (size_t e = 0; e < wide.cols.size(); ++e) wide.cols[e] = static_cast<int32_t>(e);
  expect_contains(refusal([&] { ell_from_coo(wide); }), "1048576 rows of 2049 places do not fit", "ell");
  expect_contains(refusal([&] { dia_from_coo(wide); }), "2049 diagonals of 1048576 rows do not fit", "dia");
}

TEST(Refusals, ElementListsWithDuplicatesOrOutsiders) {
  expect_contains(refusal([] {
                    csr_from_coo({2, 2, {1, 0, 1}, {0, 1, 0}});
                  }),
                  "row 1, column 0 stands twice", "duplicate");
  expect_contains(refusal([] {
                    csr_from_coo({2, 2, {0, 2}, {0, 0}});
                  }),
                  "element 1 is at row 2, column 0, outside of 2 x 2", "outside");
  expect_contains(refusal([] { csr_from_coo({2, 2, {0}, {}}); }), "1 rows and 0 columns", "lengths");
  expect_contains(refusal([] { bsr_from_coo({2, 2, {0}, {0}}, 0); }), "blocks are 1 to 256 wide", "block");
}

class BadRun : public ::testing::Test {
 protected:
  BadRun() : op(compile(parse(kSpmmProgram))), a(random_matrix(Shape::uniform, 5)) {
    b = random_values(static_cast<size_t>(a.cols * 3), 1);
    c.assign(static_cast<size_t>(a.rows * 3), 0);
    good = {.structures = {{"J", a.structure()}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, 3}}},
                        {"C", {c.data(), DType::fp32, {a.rows, 3}}}}};
  }
  void says(const std::string& part, const RunArguments& arguments) {
    expect_contains(refusal([&] { op.run(arguments); }), part, part);
  }
  Operator op;
  Matrix a;
  Values b, c;
  RunArguments good;
};

TEST_F(BadRun, IsRefusedNamingWhatIsWrong) {
  ASSERT_EQ(refusal([&] { op.run(good); }), "");
  const auto with = [&](const auto& change) {
    RunArguments arguments = good;
    change(arguments);
    return arguments;
  };
  says("structures['I']: the axis has 0 ancestors", with([&](auto& x) { x.structures = {{"I", a.structure()}}; }));
  says("structures['JJ']: there is no such axis; did you mean 'J'?", with([&](auto& x) {
         x.structures = {{"JJ", a.structure()}};
       }));
  says("structures['J']: is empty", with([&](auto& x) { x.structures = {{"J", Structure()}}; }));
  says("axis 'J' is sparse and variable, and the structure is sparse and fixed there", with([&](auto& x) {
         x.structures = {{"J", ell_from_coo(a.coo()).structure}};
       }));
  says("structures: 'J' is missing; structures are taken by 'J' (I, J)", with([&](auto& x) { x.structures.clear(); }));
  says("buffers: 'B' is missing", with([&](auto& x) {
         x.buffers.erase("B");
         x.scalars = {{"feat", 3}};
       }));
  says("buffers['D']: the program has no such buffer", with([&](auto& x) { x.buffers["D"] = x.buffers["B"]; }));
  says("buffers['B']: extent 0 is", with([&](auto& x) {
         x.buffers["B"] = TensorView(b.data(), DType::fp32, {a.cols - 1, 3});
       }));
  says("buffers['C']: extent 1 is 2; the program has feat = 3", with([&](auto& x) {
         x.buffers["C"] = TensorView(c.data(), DType::fp32, {a.rows, 2});
       }));
  says("buffers['A']: ", with([&](auto& x) {
         x.buffers["A"] = TensorView(a.values.data(), DType::fp32, {static_cast<int64_t>(a.values.size()) - 1});
       }));
  says("buffers['B']: is of bf16; the program has fp32", with([&](auto& x) {
         x.buffers["B"] = TensorView(b.data(), DType::bf16, {a.cols, 3});
       }));
  says("buffers['B']: lies on cuda:0", with([&](auto& x) {
         x.buffers["B"] = TensorView(b.data(), DType::fp32, {a.cols, 3}, Device::cuda());
       }));
  says("buffers['B']: is not contiguous", with([&](auto& x) {
         x.buffers["B"] = TensorView(b.data(), DType::fp32, {3, a.cols}).permute({1, 0});
       }));
  says("buffers['B']: extent 1 is 3; the program has feat = 4", with([&](auto& x) { x.scalars = {{"feat", 4}}; }));
  says("scalars['fea']: there is no such parameter; did you mean 'feat'?", with([&](auto& x) {
         x.scalars = {{"fea", 3}};
       }));
  says("scalars['feat']: is -3; 0 to 2147483647 are allowed", with([&](auto& x) { x.scalars = {{"feat", -3}}; }));
  Values both(static_cast<size_t>((a.rows + a.cols) * 3));
  says("buffers['C'] is written and overlaps with buffers['B']", with([&](auto& x) {
         x.buffers["B"] = TensorView(both.data(), DType::fp32, {a.cols, 3});
         x.buffers["C"] = TensorView(both.data() + a.cols * 3 - 1, DType::fp32, {a.rows, 3});
       }));
}

TEST(Refusals, ArraysOf64BitsWhoseNumbersDoNotFit32) {
  const int64_t beyond = int64_t{INT32_MAX} + 1;
  const auto says = [](const std::vector<int64_t>& indptr, const std::vector<int64_t>& indices, const char* what) {
    expect_contains(refusal([&] { csr(2, 4, std::span(indptr), std::span(indices)); }), what, what);
  };
  says({0, 1, beyond}, {3}, "structure: indptr[2] is 2147483648; 0 to 2147483647 fit indices of 32 bits");
  says({0, -1, 1}, {3}, "structure: indptr[1] is -1; 0 to 2147483647 fit");
  says({0, 1, 1}, {beyond}, "structure: indices[0] is 2147483648; 0 to 2147483647 fit");
  says({0, 1, 1}, {int64_t{1} << 32}, "structure: indices[0] is 4294967296; 0 to 2147483647 fit");
  says({0, 1, 1}, {4}, "structure: indices[0], of row 0, is 4; allowed are 0 to 3");
}

// A second run with other shapes is no worse than the first, and a refused one leaves nothing behind.
TEST(Refusals, AFailedRunLeavesTheOperatorAsItWas) {
  const Operator op = compile(parse(kSpmmProgram), "decompose_format(csrmm, A, hyb(1, 2))\n");
  const Matrix a = random_matrix(Shape::uniform, 6);
  const Structure structure = a.structure();
  for (const int64_t feat : {2, 5}) {
    Values b = random_values(static_cast<size_t>(a.cols * feat), 1), c(static_cast<size_t>(a.rows * feat));
    RunArguments arguments{.structures = {{"J", structure}},
                           .buffers = {{"A", a.values_view()},
                                       {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                                       {"C", {c.data(), DType::fp32, {a.rows, feat}}}}};
    RunArguments bad = arguments;
    bad.buffers.erase("C");
    EXPECT_NE(refusal([&] { op.run(bad); }), "");
    op.run(arguments);
    expect_close(doubles(c), dense_spmm(a, b, feat), 1e-5, "feat " + std::to_string(feat));
  }
}

// A list of formats that leaves elements out.
TEST(Refusals, ElementsThatNoFormatTakes) {
  const Operator op = compile(parse(kSpmmProgram), "decompose_format(csrmm, A, ell(1))\n");
  const Matrix a = random_matrix(Shape::one_dense_row, 8);
  Values b(static_cast<size_t>(a.cols)), c(static_cast<size_t>(a.rows));
  expect_contains(refusal([&] {
                    op.run({.structures = {{"J", a.structure()}},
                            .buffers = {{"A", a.values_view()},
                                        {"B", {b.data(), DType::fp32, {a.cols, 1}}},
                                        {"C", {c.data(), DType::fp32, {a.rows, 1}}}}});
                  }),
                  "elements are in none of the formats, the first at row", "ell(1)");
}

}  // namespace
}  // namespace weft::sparse::test
