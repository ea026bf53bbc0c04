// Products by tensor cores: what their schedules become, compute, and are refused for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "loop/threads/fragments.h"
#include "sparse/formats/structure.h"
#include "sparse/interpret.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/relation_groups.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

// BLOCK rows and columns a block.
constexpr const char* kBlocks = R"(program blocks(mb, nb, nnzb, feat):
  IO = dense_fixed(mb)
  JO = sparse_variable(IO, nb, nnzb, indptr=jo_indptr, indices=jo_indices)
  II = dense_fixed(BLOCK)
  JI = dense_fixed(BLOCK)
  I = dense_fixed(mb * BLOCK)
  J = dense_fixed(nb * BLOCK)
  K = dense_fixed(feat)
  A = buffer(IO, JO, II, JI): bf16
  B = buffer(J, K): bf16
  C = buffer(I, K): bf16
  iterate spmm(IO, II, JO, JI, K) "SSRRS" as (io, ii, jo, ji, k):
    init:
      C[io * BLOCK + ii, k] = 0.0
    C[io * BLOCK + ii, k] = C[io * BLOCK + ii, k] + A[io, jo, ii, ji] * B[jo * BLOCK + ji, k]
)";
constexpr const char* kOrder = "lower()\nreorder(spmm.jo, spmm.ii, spmm.ji, spmm.k)\n";
constexpr const char* kSums = "cache_write(spmm.io, fragment)\ndecompose_reduction(spmm.jo)\n";
constexpr const char* kFactors = "cache_read(spmm.jo, A, shared)\ncache_read(spmm.jo, B, shared)\n";
constexpr const char* kAligned = "storage_align(A_local, 16, 8)\nstorage_align(B_local, 16, 8)\n";
constexpr const char* kProduct = "tensorize(spmm.ii, mma)\n";

std::string lines(std::initializer_list<const char*> parts) {
  std::string all;
  for (const char* part : parts) all += part;
  return all;
}

Operator compiled(const std::string& schedule, int block = 16, int64_t feat = 32) {
  return compile(parse(replaced(kBlocks, "BLOCK", std::to_string(block))), schedule, Device::cpu(),
                 {.set = {{"feat", feat}}, .stop_after = "generate"});
}

std::string kernel_of(const std::string& schedule) {
  const std::string text = compiled(schedule).text("cuda");
  return text.substr(text.find("\nextern \"C\"") + 1);
}

void expect_refused(const std::string& schedule, const std::string& says, int block = 16, int64_t feat = 32) {
  expect_contains(refusal([&] { compiled(schedule, block, feat).text("cuda"); }), says, schedule);
}

TEST(Mma, HoldsSumsInAFragmentAndCopiesAhead) {
  const std::string plain = lines({kOrder, kSums, kFactors, kAligned, kProduct});
  const std::string text = kernel_of(plain + "annotate(spmm.jo, stages, 3)\nbind(spmm.io, blockIdx.x)\n");
  for (const char* part :
       {"weft::loop::multiply<true, 1, 1, 1, 4, 16, true, false>(C_local, A_local + weft_stage_1 * 384, 24, B_local + ",
        "float C_local[4];", "if (blockDim.x != 128 || weft_threads() != 128) __trap();",
        "weft::ptx::cp_async_wait<1>();", "// Launched with 6144 bytes of shared memory.", "weft_aligned(B, \"B\");",
        "weft_store<2, 2>(C + ",
        // Of a CTA that goes on with another row: all have read what is filled anew.
        "__syncthreads();\n    #pragma unroll 1\n    for (int weft_ahead_1 = 0;"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  // Which block a copy reads was loaded behind the copies before it, and where the row begins, once.
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("cp_async_16(B_local + "), 2) << text;
  EXPECT_EQ(count(", B + (long long)weft_place_1_1[0] * 512 + "), 2) << text;
  EXPECT_EQ(count("weft_place_1_1[0] = jo_indices["), 3) << text;
  EXPECT_EQ(count("jo_indices["), 3) << text;
  EXPECT_EQ(count("weft_place_1_0[0] = jo_indptr[io];"), 1) << text;
  EXPECT_EQ(count("if (0 < weft_extent_1) {\n      weft_place_1_0[0] = "), 1) << text;  // rows without any read nothing
  // Without stages each iteration waits for its own.
  const std::string waits = kernel_of(plain + "bind(spmm.io, blockIdx.x)\n");
  EXPECT_NE(waits.find("weft::ptx::cp_async_wait<0>();"), waits.npos) << waits;
  EXPECT_EQ(waits.find("weft_stage"), waits.npos) << waits;
  // The CPU has loops.
  const std::string code = compiled(plain).text("code");
  EXPECT_EQ(code.find("weft_product<", code.find("extern \"C\"")), code.npos);
}

// The head is the kernels' header, with what it includes, only where a kernel needs it.
TEST(Mma, TextIsCompleteByItself) {
  const std::string text = compiled(lines({kOrder, kSums, kFactors, kAligned, kProduct})).text("cuda");
  EXPECT_NE(text.find("mma.sync.aligned.m16n8k16.row.col.f32.bf16"), text.npos);
  EXPECT_EQ(text.find("#include"), text.npos);
  EXPECT_EQ(compiled(kOrder).text("cuda").find("mma.sync"), std::string::npos);
}

// Factors of fp32 are copied as they are, and multiplied as sums of two numbers of tf32.
TEST(Mma, MultipliesFp32) {
  const std::string blocks = replaced(replaced(kBlocks, "BLOCK", "16"), "bf16", "fp32");
  const auto text = [&](const std::string& aligned) {
    return compile(parse(blocks), lines({kOrder, kSums, kFactors}) + aligned + kProduct, Device::cpu(),
                   {.set = {{"feat", 32}}, .stop_after = "generate"})
        .text("cuda");
  };
  const std::string kernel = text("storage_align(A_local, 8, 4)\nstorage_align(B_local, 16, 8)\n");
  EXPECT_NE(kernel.find("multiply<false, 1, 1, 1, 4, 16, true, false>(C_local, A_local + 0, 20, B_local + 0, 40)"),
            kernel.npos)
      << kernel;
  EXPECT_NE(kernel.find("float* const A_local"), kernel.npos);
  EXPECT_NE(kernel.find("mma.sync.aligned.m16n8k8.row.col.f32.tf32"), kernel.npos);
  expect_contains(refusal([&] { text("storage_align(A_local, 8, 2)\n"); }), "do not begin at multiples of 4", "2");
  const std::string doubles = replaced(blocks, "fp32", "fp64");
  expect_contains(refusal([&] {
                    compile(parse(doubles), lines({kOrder, kSums, kFactors, kProduct}), Device::cpu(),
                            {.set = {{"feat", 32}}, .stop_after = "generate"});
                  }),
                  "mma: 'A_local' holds fp64; required: numbers of bf16, fp16 or fp32", "fp64");
}

TEST(Mma, ComputesTheSameAtEveryStage) {
  const Operator op = compiled(lines({kOrder, kSums, kFactors, kAligned, kProduct}) + "annotate(spmm.jo, stages, 2)\n");
  const std::vector<int32_t> indptr{0, 2, 2, 3}, indices{0, 2, 1};
  std::vector<uint16_t> a(3 * 256), b(48 * 32), c(48 * 32);
  for (size_t e = 0; e < a.size(); ++e) a[e] = static_cast<uint16_t>(0x3f00 + e % 251);
  for (size_t e = 0; e < b.size(); ++e) b[e] = static_cast<uint16_t>(0xbe80 + e % 127);
  const RunArguments arguments{.structures = {{"JO", csr(3, 3, indptr, indices)}},
                               .buffers = {{"A", {a.data(), DType::bf16, {3, 16, 16}}},
                                           {"B", {b.data(), DType::bf16, {48, 32}}},
                                           {"C", {c.data(), DType::bf16, {48, 32}}}}};
  const std::vector<double> want = interpret_operator(op, arguments, Stage::source).buffers.at("C");
  for (const Stage stage : interpreted_stages(Stage::two))
    expect_close(interpret_operator(op, arguments, stage).buffers.at("C"), want, 1e-6, "interpreted");
}

TEST(Mma, RefusesByTheSchedulesLine) {
  expect_refused(lines({kOrder, "cache_write(spmm.io, register)\ndecompose_reduction(spmm.jo)\n", kFactors, kProduct}),
                 "line 7, column 1: tensorize(spmm.ii): mma: 'C_local' does not lie in memory of scope fragment; "
                 "cache_write makes some");
  expect_refused(lines({kOrder, kSums, "cache_read(spmm.jo, A, shared)\n", kProduct}),
                 "line 6, column 1: tensorize(spmm.ii): mma: 'B' does not lie in memory of scope shared");
  expect_refused(lines({kOrder, kSums, kFactors, kProduct}),
                 "mma: it is a product of 8 x 32 x 8; required: multiples of 16 x 8 or of 8 x 16, of up to 128 x 128 "
                 "elements, and a reduction of a multiple of 16",
                 8);
  expect_refused(lines({kOrder, kSums, kFactors, kProduct}), "mma: it is a product of 16 x 12 x 16", 16, 12);
  const std::string product = lines({kOrder, kSums, kFactors, kAligned, kProduct});
  expect_refused(product + "annotate(spmm.jo, stages, 9)\n", "9 stages; 2 to 8 are allowed");
  expect_refused(product + "bind(spmm.io, threadIdx.x)\n", "'C_local' is a fragment within a loop that threads share");
  expect_refused(product + "parallel(spmm.io)\n", "in fragment memory within a parallel loop");
  expect_refused(lines({kOrder, "cache_write(spmm.io, fragment)\ndecompose_reduction(spmm.jo)\n"}),
                 "line 3: blocks: 'C_local' is a fragment that no product by mma adds to");
  expect_refused(lines({kOrder, kSums, kFactors, kProduct, "storage_align(A_local, 8, 4)\n"}),
                 "line 7: blocks: loop 'ii' is a product by mma: rows of 'A_local' do not begin at multiples of 8");
  expect_refused(lines({kOrder, kSums, kFactors, kAligned, kProduct, "split_o, split_i = split(spmm_init.ii, 4)\n"}),
                 "line 3: blocks: 'C_local' is a fragment, which warps hold together, and is accessed at");
  expect_refused(lines({kOrder, "annotate(spmm.jo, stages)\nbind(spmm.io, blockIdx.x)\n"}),
                 "line 3: blocks: loop 'jo' has stages; required: a kernel whose sums lie in a fragment");
}

// Schedules of ready operators fit whatever they say that they multiply by tensor cores.
TEST(Mma, ReadyOperatorsHaveSchedulesForAllTheyTake) {
  const VectorUnit card{.is_of_card = true}, older{.is_of_card = true, .has_mma = false};
  const auto multiplies = [](const ReadyProgram& ready) {
    const Operator op =
        compile(parse(ready.text), ready.schedule, Device::cpu(), {.set = ready.set, .stop_after = "generate"});
    return op.text("cuda").find("weft::loop::multiply<true") != std::string::npos;
  };
  const DType bf16 = DType::bf16;
  for (const int64_t feat : {16, 48, 80, 128, 512}) {
    for (const int64_t block : {16, 32, 64}) {
      SCOPED_TRACE(fmt::format("blocks of {}, {} features", block, feat));
      EXPECT_TRUE(multiplies(block_spmm_program(2, block, feat, bf16, false, card)));
      EXPECT_TRUE(multiplies(dbsr_spmm_program(block, feat, bf16, false, card)));
      const bool fits = feat <= 128 && !(block == 64 && feat == 128);  // a row's x, and two of y's, in shared memory
      EXPECT_EQ(multiplies(block_sddmm_program(2, block, feat, bf16, false, card)), fits);
    }
    for (const int64_t t : {8, 24, 64})
      for (const int64_t g : {16, 64}) {
        SCOPED_TRACE(fmt::format("tiles of {} in groups of {}, {} features", t, g, feat));
        EXPECT_TRUE(multiplies(sr_bcrs_spmm_program(t, g, feat, bf16, card)));
      }
  }
  EXPECT_FALSE(multiplies(block_spmm_program(2, 32, 64, bf16, false, older)));
  EXPECT_FALSE(multiplies(block_spmm_program(2, 32, 64, DType::fp32, false, card)));
  EXPECT_FALSE(multiplies(block_spmm_program(2, 32, 40, bf16, false, card)));
  EXPECT_FALSE(multiplies(sr_bcrs_spmm_program(4, 32, 64, bf16, card)));
}

// Of every width that has_relation_groups() names, with as many rows a group as fit.
TEST(Mma, RelationsHaveSchedulesForAllTheyTake) {
  const VectorUnit card{.is_of_card = true};
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t feat_in : {16, 96, 256})
      for (const int64_t feat_out : {16, 32, 80, 256})
        for (const bool is_gathered : {false, true}) {
          SCOPED_TRACE(fmt::format("{} to {} features of {}", feat_in, feat_out, weft::to_string(dtype)));
          EXPECT_TRUE(has_relation_groups(card, feat_in, feat_out, dtype));
          const ReadyProgram ready = relation_groups_program({.slots = 16,
                                                              .feat_in = feat_in,
                                                              .feat_out = feat_out,
                                                              .dtype = dtype,
                                                              .is_gathered = is_gathered,
                                                              .has_values = is_gathered});
          const Operator op =
              compile(parse(ready.text), ready.schedule, Device::cpu(), {.set = ready.set, .stop_after = "generate"});
          const std::string text = op.text("cuda");
          EXPECT_NE(text.find(dtype == DType::fp32 ? "multiply<false" : "multiply<true"), text.npos);
        }
  EXPECT_FALSE(has_relation_groups(card, 40, 32, DType::fp32));
  EXPECT_FALSE(has_relation_groups(card, 32, 8, DType::fp32));
  EXPECT_FALSE(has_relation_groups(card, 4096, 64, DType::fp32));
  EXPECT_FALSE(has_relation_groups({.is_of_card = true, .has_mma = false}, 32, 32, DType::bf16));
  EXPECT_FALSE(has_relation_groups({}, 32, 32, DType::bf16));
}

// Rows of products that a tile's rows are told for: how many only the structure knows.
constexpr const char* kRows = R"(program rows(tiles, count):
  T = dense_fixed(tiles)
  Q = sparse_variable(T, 64, count, indptr=q_indptr, indices=q_rows)
  I = dense_fixed(64)
  L = dense_fixed(32)
  K = dense_fixed(16)
  A = buffer(T, Q, L): bf16
  B = buffer(L, K): bf16
  P = temporary(T, Q, K): fp32
  Y = buffer(T, I, K): fp32
  iterate multiply(T, Q, L, K) "SSRS" as (t, i, l, k):
    init:
      P[t, i, k] = 0.0
    P[t, i, k] = P[t, i, k] + A[t, i, l] * B[l, k]
  iterate add(T, Q, K) "SSS" as (t, i, k):
    Y[t, i, k] = Y[t, i, k] + P[t, i, k]
)";
constexpr const char* kPieces =
    "lower()\nmp, ms = split(multiply.i, 16)\nap, ai = split(add.i, 16)\ncompute_at(multiply, ap)\n"
    "lo, li = split(multiply.l, 16)\nreorder(lo, ms, li, multiply.k)\nset_scope(P, fragment)\n"
    "decompose_reduction(lo)\ncache_read(lo, A, shared)\nstorage_align(A_local, 16, 8)\n"
    "cache_read(lo, B, shared)\nstorage_align(B_local, 16, 8)\n";
constexpr const char* kOfPieces = "tensorize(ms, mma)\nannotate(lo, stages, 2)\nbind(add.t, blockIdx.x)\n";

Operator rows_compiled(const std::string& program, const std::string& schedule) {
  return compile(parse(program), schedule, Device::cpu(), {.stop_after = "generate"});
}

// Sums of rows that are not there are any numbers where nobody reads them.
TEST(Mma, LeavesOutSumsThatNobodyReads) {
  const Operator op = rows_compiled(kRows, lines({kPieces, kOfPieces}));
  EXPECT_NE(op.text("cuda").find("(q_rows[q_indptr[t] + ap * 16 + ai] * 16 + "), std::string::npos);
  EXPECT_NE(op.text("stage2").find("allocate P_local[16, 16]: fp32 in fragment"), std::string::npos);
  const std::vector<int32_t> indptr{0, 3, 3, 21},
      indices{1, 40, 63, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 31, 32};
  std::vector<uint16_t> a(21 * 32), b(32 * 16);
  std::vector<float> y(3 * 64 * 16, 1.f);
  for (size_t e = 0; e < a.size(); ++e) a[e] = static_cast<uint16_t>(0x3f00 + e % 251);
  for (size_t e = 0; e < b.size(); ++e) b[e] = static_cast<uint16_t>(0xbe80 + e % 127);
  const RunArguments arguments{
      .structures = {{"Q",
                      structure_of(
                          {{.length = 3},
                           {.kind = AxisKind::sparse_variable, .length = 64, .indptr = indptr, .indices = indices}})}},
      .buffers = {{"A", {a.data(), DType::bf16, {21, 32}}},
                  {"B", {b.data(), DType::bf16, {32, 16}}},
                  {"Y", {y.data(), DType::fp32, {3, 64, 16}}}}};
  const std::vector<double> want = interpret_operator(op, arguments, Stage::source).buffers.at("Y");
  for (const Stage stage : interpreted_stages(Stage::two))
    expect_close(interpret_operator(op, arguments, stage).buffers.at("Y"), want, 1e-6, "interpreted");
  // Rows that are there, and are read, too.
  const std::string some = replaced(kRows, "as (t, i, l, k):", "as (t, i, l, k) where i < 32:");
  expect_contains(refusal([&] {
                    rows_compiled(some, lines({kPieces, kOfPieces}));
                  }),
                  "mma: a condition leaves some of its sums out, and P_local[ai, k] may be one of them", "read");
  EXPECT_EQ(refusal([&] {
              rows_compiled(replaced(some, "as (t, i, k):", "as (t, i, k) where i < 32:"), lines({kPieces, kOfPieces}));
            }),
            "");
}

// Whether sums are there is asked anew where they are read: of another loop's variable, of a buffer that has changed.
TEST(Mma, LeavesOutNoSumsThatAreThereElsewhere) {
  const std::string program = R"(program kept(m):
  R = dense_fixed(m)
  G = dense_fixed(3)
  II = dense_fixed(16)
  L = dense_fixed(16)
  N = dense_fixed(16)
  Count = buffer(R, G): int32
  A = buffer(R, G, II, L): bf16
  B = buffer(G, L, N): bf16
  T = temporary(R, II, N): fp32
  D = buffer(R, G, II, N): fp32
  iterate one(R, II, N, G, L) "SSSRR" as (r, ii, x, g, l) where ii < Count[r, g]:
    init:
      T[r, ii, x] = 0.0
    T[r, ii, x] = T[r, ii, x] + A[r, g, ii, l] * B[g, l, x]
  iterate out(R, G, II, N) "SSSS" as (r, g, ii, x) where ii < Count[r, g]:
    D[r, g, ii, x] = T[r, ii, x]
)";
  const std::string read = "mma: a condition leaves some of its sums out, and T_local[ii, x] may be one of them";
  const std::string product =
      "reorder(one.g, one.ii, one.l, one.x)\nset_scope(T, fragment)\ndecompose_reduction(one.g)\n"
      "cache_read(one.g, A, shared)\ncache_read(one.g, B, shared)\ntensorize(one.ii, mma)\n";
  expect_contains(refusal([&] { rows_compiled(program, "lower()\ncompute_at(one, out.r)\n" + product); }), read,
                  "of each g");
  const std::string changed =
      replaced(replaced(program, "Count[r, g]", "Count[r, 0]"), "  iterate out(R, G, II, N) \"SSSS\" as (r, g, ii, x)",
               "  iterate change(R, G) \"SS\" as (r, g):\n    Count[r, g] = 16\n"
               "  iterate out(R, G, II, N) \"SSSS\" as (r, g, ii, x)");
  expect_contains(refusal([&] {
                    rows_compiled(
                        changed,
                        "lower()\nreverse_compute_at(change, one.r)\nreverse_compute_at(out, one.r)\n" + product);
                  }),
                  read, "changed");
}

// Threads add a fragment's elements at once: rows that are loaded from a buffer may be one.
TEST(Mma, StoresAnElementForEachOfAFragment) {
  const std::string scattered =
      replaced(replaced(kRows, "  P =", "  Row = buffer(T, Q): int32\n  P ="),
               "  iterate add(T, Q, K) \"SSS\" as (t, i, k):\n    Y[t, i, k] = Y[t, i, k] + P[t, i, k]\n",
               "  iterate add(T, Q, K) \"SRS\" as (t, i, k) where Row[t, i] >= 0, Row[t, i] < 64:\n"
               "    Y[t, Row[t, i], k] = Y[t, Row[t, i], k] + P[t, i, k]\n");
  expect_contains(refusal([&] {
                    rows_compiled(scattered, lines({kPieces, kOfPieces})).text("cuda");
                  }),
                  "rows: Y[t, Row[t, ap * 16 + ai], k] may be the same element in two of its iterations of loop 'ai', "
                  "which threads share as they hold a fragment",
                  "scattered");
  const std::string added =
      replaced(replaced(kRows, "iterate add(T, Q, K) \"SSS\"", "iterate add(T, Q, K) \"SSR\""),
               "    Y[t, i, k] = Y[t, i, k] + P[t, i, k]", "    Y[t, i, 0] = Y[t, i, 0] + P[t, i, k]");
  expect_contains(refusal([&] {
                    rows_compiled(added, lines({kPieces, kOfPieces})).text("cuda");
                  }),
                  "may be the same element in two of its iterations of loop 'k', which threads share", "added");
}

// The first copies of a loop with stages stand before all that they need nothing of.
TEST(Mma, CopiesBeginBehindWhatTheyAreMadeOf) {
  const Operator op = compile(parse(R"(program s(mb, nb, nnzb):
  IO = dense_fixed(mb)
  JO = sparse_variable(IO, nb, nnzb, indptr=jo_indptr, indices=jo_indices)
  NB = dense_fixed(nb)
  II = dense_fixed(16)
  JI = dense_fixed(16)
  L = dense_fixed(32)
  X = buffer(IO, II, L): bf16
  Y = buffer(NB, JI, L): bf16
  O = buffer(IO, JO, II, JI): fp32
  iterate sddmm(IO, JO, II, JI, L) "SSSSR" as (io, jo, ii, ji, l):
    init:
      O[io, jo, ii, ji] = 0.0
    O[io, jo, ii, ji] = O[io, jo, ii, ji] + X[io, ii, l] * Y[jo, ji, l]
)"),
                              "sparse_fuse(sddmm, IO, JO)\nlower()\nmaterialise_rows(sddmm.io_jo)\n"
                              "lo, li = split(sddmm.l, 16)\nreorder(lo, sddmm.ii, sddmm.ji, li)\n"
                              "cache_write(sddmm.io_jo, fragment)\ndecompose_reduction(lo)\n"
                              "cache_read(lo, X, shared)\ncache_read(lo, Y, shared)\nstorage_align(X_local, 16, 8)\n"
                              "storage_align(Y_local, 16, 8)\ntensorize(sddmm.ii, mma)\nannotate(lo, stages, 2)\n"
                              "bind(sddmm.io_jo, blockIdx.x)\n",
                              Device::cpu(), {.stop_after = "generate"});
  const std::string text = op.text("cuda");
  const size_t row = text.find("const int io = JO_rows[io_jo];"), copy = text.find("cp_async_16(X_local");
  ASSERT_NE(row, text.npos) << text;
  EXPECT_LT(row, copy) << text;
  EXPECT_LT(copy, text.find("O_local[weft_pair")) << text;
}

// What tells where copies read is loaded ahead where it is there: a row may end within the loop with stages.
TEST(Mma, PlacesOfCopiesAreLoadedWhereTheyAre) {
  const std::string text =
      kernel_of(lines({"lower()\njo, jp = split(spmm.jo, 2)\nreorder(jo, jp, spmm.ii, spmm.ji, spmm.k)\n"
                       "cache_write(spmm.io, fragment)\ndecompose_reduction(jo)\n"
                       "cache_read(jp, A, shared)\ncache_read(jp, B, shared)\n",
                       kAligned, kProduct, "annotate(jp, stages, 2)\n"}));
  for (const char* part : {"weft_place_1_0[0] = jo_indptr[io];",
                           "weft_place_1_1[0] = (jo * 2 < weft_place_1_2[0] - weft_place_1_0[0] ? jo_indices[",
                           "weft_place_1_1[0] = (jo * 2 + (jp + 1 + 1) < weft_place_1_2[0] - weft_place_1_0[0] ? jo"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  // Whether it is there is another question for each row of the copy: these ask it themselves.
  const Operator op = compile(parse(R"(program picked(m):
  R = dense_fixed(m)
  II = dense_fixed(16)
  L = dense_fixed(32)
  S = dense_fixed(20)
  N = dense_fixed(16)
  Row = buffer(R): int32
  A = buffer(S, II, L): bf16
  B = buffer(L, N): bf16
  D = buffer(R, II, N): fp32
  iterate one(R, II, N, L) "SSSR" as (r, ii, x, l) where ii + r + 1 < m:
    init:
      D[r, ii, x] = 0.0
    D[r, ii, x] = D[r, ii, x] + A[min(abs(Row[r + 1]), 19), ii, l] * B[l, x]
)"),
                              "lower()\nlo, li = split(one.l, 16)\nreorder(lo, one.ii, li, one.x)\n"
                              "cache_write(one.r, fragment)\ndecompose_reduction(lo)\ncache_read(lo, A, shared)\n"
                              "cache_read(lo, B, shared)\nstorage_align(A_local, 16, 8)\n"
                              "storage_align(B_local, 16, 8)\ntensorize(one.ii, mma)\nannotate(lo, stages, 2)\n"
                              "bind(one.r, blockIdx.x)\n",
                              Device::cpu(), {.stop_after = "generate"});
  EXPECT_EQ(op.text("cuda").find("weft_place_"), std::string::npos);
  EXPECT_NE(op.text("cuda").find("(ii + r + 1 < m && (weft_min(weft_abs(0ll + Row[r + 1]), 19) >= 0"),
            std::string::npos)
      << op.text("cuda");
}

// A tail that has its own loop with stages has its own memory: that stands around the loop.
TEST(Mma, LoopsWithStagesSideBySideHaveMemoryOfTheirOwn) {
  const std::string program = R"(program tails(m):
  R = dense_fixed(m)
  G = dense_fixed(3)
  II = dense_fixed(16)
  L = dense_fixed(16)
  N = dense_fixed(16)
  A = buffer(R, G, II, L): bf16
  B = buffer(G, L, N): bf16
  D = buffer(R, II, N): fp32
  iterate one(R, II, N, G, L) "SSSRR" as (r, ii, x, g, l):
    init:
      D[r, ii, x] = 0.0
    D[r, ii, x] = D[r, ii, x] + A[r, g, ii, l] * B[g, l, x]
)";
  const auto text_of = [](const std::string& of) {
    return rows_compiled(
               of, lines({"lower()\ngo, gi = split(one.g, 2)\nreorder(go, gi, one.ii, one.l, one.x)\n"
                          "cache_write(one.r, fragment)\ndecompose_reduction(go)\n"
                          "cache_read(gi, A, shared)\ncache_read(gi, B, shared)\n",
                          kAligned, "tensorize(one.ii, mma)\nannotate(gi, stages, 2)\nbind(one.r, blockIdx.x)\n"}))
        .text("cuda");
  };
  // Of a tail that does nothing, nothing is left.
  const std::string whole = text_of(replaced(program, "as (r, ii, x, g, l):", "as (r, ii, x, g, l) where g < 2:"));
  EXPECT_EQ(whole.find("A_local_1"), whole.npos) << whole;
  const std::string text = text_of(program);
  for (const char* part : {" const A_local = ", " const B_local = ", " const A_local_1 = ", " const B_local_1 = ",
                           "multiply<true, 1, 1, 1, 2, 16, true, false>(D_local, A_local_1 + "}) {
    const size_t at = text.find(part);
    ASSERT_NE(at, text.npos) << part << "\n" << text;
    EXPECT_EQ(text.find(part, at + 1), text.npos) << part;
  }
}

// A tile's rows are known before the products are there, and nobody waits between these and the sums.
TEST(Mma, RelationsAreAddedFromAFragment) {
  const auto kernel = [](int64_t feat, bool is_gathered) {
    const ReadyProgram ready = relation_groups_program(
        {.slots = 32, .feat_in = feat, .feat_out = feat, .dtype = DType::fp32, .is_gathered = is_gathered});
    const std::string text =
        compile(parse(ready.text), ready.schedule, Device::cpu(), {.set = ready.set, .stop_after = "generate"})
            .text("cuda");
    return text.substr(text.find("\nextern \"C\""));
  };
  for (const bool is_gathered : {false, true}) {
    const std::string text = kernel(64, is_gathered);
    const auto count = [&](const std::string& part) {
      int found = 0;
      for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
      return found;
    };
    // Before sums are cleared, before a group's copies, before each product, and before sums are written.
    EXPECT_EQ(count("__syncthreads"), 4) << text;
    // Copies of rows' numbers are none that could be waited for.
    EXPECT_EQ(count("cp_async_wait<0>"), 1) << text;
    EXPECT_NE(text.find("Sums_local[q_rows_local[add_s] * 72 + "), text.npos) << text;
    EXPECT_NE(text.find("int* const q_rows_local"), text.npos) << text;
    EXPECT_NE(text.find(" ? q_rows["), text.npos) << text;
    EXPECT_EQ(text.find(" : 0.0f)"), text.npos) << text;
    EXPECT_LT(text.find("cp_async_16(W_local"), text.find(is_gathered ? "gather_sl = threadIdx.x" : "multiply<"))
        << text;
  }
  // Memory of one iteration where there is one: sums, rows, weights and the rows' numbers.
  EXPECT_NE(kernel(32, true).find("Launched with 30336 bytes"), std::string::npos);
}

// Rows are by tile, relation and row; every edge is one's.
TEST(Mma, RelationsStandInGroups) {
  // relation, row, column; structures of tiles of 100 rows.
  const CooTensor coo{.extents = {2, 200, 5},
                      .coordinates = {{0, 0, 1, 1, 1, 0}, {0, 130, 1, 2, 3, 0}, {3, 0, 1, 2, 4, 1}}};
  const Structure edges = relational_from_coo(coo, 100).structure;
  const RelationGroups groups = relation_groups(data_of(edges, "edges"), true);
  EXPECT_EQ(groups.relation, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(groups.order, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  const std::vector<Level>& levels = groups.structure.data()->levels;
  EXPECT_EQ(levels[1].indptr, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(levels[2].indptr, (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(levels[2].indices, (std::vector<int32_t>{0, 1, 2, 3, 2}));
  EXPECT_EQ(levels[3].indptr, (std::vector<int32_t>{0, 2, 3, 4, 5, 6}));
  EXPECT_EQ(levels[3].indices, (std::vector<int32_t>{1, 3, 1, 2, 4, 0}));
  EXPECT_FALSE(has_single_edges(data_of(edges, "edges")));
  // Rows of one relation alone, in two tiles.
  const Structure tiles =
      relational_from_coo({.extents = {1, 200, 1}, .coordinates = {{0, 0}, {5, 150}, {0, 0}}}).structure;
  EXPECT_EQ(relation_groups(data_of(tiles, "edges"), true).relation, (std::vector<int32_t>{0, 0}));
  const Structure single =
      relational_from_coo({.extents = {2, 4, 5}, .coordinates = {{0, 1}, {2, 2}, {4, 4}}}, 16).structure;
  EXPECT_TRUE(has_single_edges(data_of(single, "edges")));
  EXPECT_EQ(relation_groups(data_of(single, "edges"), false).column, (std::vector<int32_t>{4, 4}));
}

// Relations with few rows want small groups, wide weights large ones.
TEST(Mma, GroupsAreAsLargeAsTheirRows) {
  const auto slots_of = [](int rows_of_relation, int64_t feat, DType dtype) {
    CooTensor coo{.extents = {8, 128, 1}, .coordinates = {{}, {}, {}}};
    for (int32_t relation = 0; relation < 8; ++relation)
      for (int32_t row = 0; row < rows_of_relation; ++row) {
        coo.coordinates[0].push_back(relation);
        coo.coordinates[1].push_back(row);
        coo.coordinates[2].push_back(0);
      }
    const Structure edges = relational_from_coo(coo).structure;
    return likely_slots(data_of(edges, "edges"), {.feat_in = feat, .feat_out = feat, .dtype = dtype});
  };
  EXPECT_EQ(slots_of(5, 256, DType::fp32), 16);
  EXPECT_EQ(slots_of(60, 256, DType::bf16), 64);
  EXPECT_EQ(slots_of(30, 256, DType::bf16), 32);
}

// Every element is some thread's, and one thread's alone.
TEST(Mma, FragmentsHaveAThreadForEachElement) {
  for (const int64_t rows : {8, 16, 24, 32, 48, 64, 128})
    for (const int64_t columns : {8, 16, 32, 48, 64, 96, 128}) {
      const std::optional<loop::Fragment> f = loop::fragment_of(rows, columns);
      const bool fits = (rows % 16 == 0) || (columns % 16 == 0);
      ASSERT_EQ(f.has_value(), fits && rows * columns <= 128 * 128) << rows << " x " << columns;
      if (!f) continue;
      EXPECT_EQ(f->warps_m * f->tiles_m * 16, f->is_turned ? columns : rows);
      EXPECT_EQ(f->warps_n * f->tiles_n * 8, f->is_turned ? rows : columns);
      EXPECT_LE(f->num_warps() * 32, loop::kFragmentThreads);
    }
  EXPECT_FALSE(loop::fragment_of(256, 128).has_value());
  EXPECT_FALSE(loop::fragment_of(12, 16).has_value());
}

}  // namespace
}  // namespace weft::sparse::test
