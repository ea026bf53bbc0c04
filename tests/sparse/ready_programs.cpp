#include "tests/sparse/ready_programs.h"

#include <bit>

#include "base/fp16.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
#include "tests/sparse/programs.h"

namespace weft::sparse::test {
namespace {

// The largest element of each row, and the least one.
constexpr const char* kExtremesProgram = R"(program extremes(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  X = buffer(I, J): fp32
  Largest = buffer(I): fp32
  Least = buffer(I): fp32
  iterate largest(I, J) "SR" as (i, j):
    init:
      Largest[i] = -inf
    Largest[i] = max(Largest[i], X[i, j])
  iterate least(I, J) "SR" as (i, j):
    init:
      Least[i] = inf
    Least[i] = min(Least[i], X[i, j])
)";

// What a structure keeps of a dense matrix, which holds nothing else.
constexpr const char* kCompressProgram = R"(program compress(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  D = buffer(I, N): fp32
  Z = buffer(I, J): fp32
  iterate clear(I, J) "SS" as (i, j):
    Z[i, j] = 0.0
  iterate compress(I, N) "SS" as (x, y) where D[x, y] != 0.0:
    Z[x, y] = D[x, y]
)";

// Functions of reals, in fp16, with a real parameter.
constexpr const char* kActivationsProgram = R"(program activations(m, n, nnz, feat, alpha: real):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  K = dense_fixed(feat)
  A = buffer(I, J): fp16
  X = buffer(I, K): fp16
  Z = buffer(I, K): fp16
  S = buffer(I): fp32
  iterate activate(I, K) "SS" as (i, k):
    Z[i, k] = alpha * tanh(X[i, k]) + sigmoid(X[i, k]) * log(1.0 + abs(X[i, k]))
  iterate sums(I, J) "SR" as (i, j):
    init:
      S[i] = 0.0
    S[i] = S[i] + pow(abs(A[i, j]), 1.5)
)";

// Divisors of any sign, and 0 where the column is 3.
constexpr const char* kQuotientsProgram = R"(program quotients(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  X = buffer(I, J): int32
  Y = buffer(N): int32
  Q = buffer(I, J): int32
  R = buffer(I, J): int32
  iterate divide(I, J) "SS" as (i, j):
    Q[i, j] = (X[i, j] - 40) // (Y[j] - 3)
    R[i, j] = (X[i, j] - 40) % (Y[j] - 3)
)";

// What comes last to a column counts most.
constexpr const char* kScatteredProgram = R"(program scattered(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  Y = buffer(N): fp32
  iterate clear(N) "S" as (x):
    Y[x] = 0.0
  iterate scatter(I, J) "RS" as (i, j):
    Y[j] = Y[j] * 0.5 + A[i, j]
)";

// Elements by the sum of all of them.
constexpr const char* kScaledProgram = R"(program scaled(m, n, nnz):
  O = dense_fixed(1)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  X = buffer(I, J): fp32
  T = temporary(O): fp32
  Z = buffer(I, J): fp32
  iterate sums(O, I, J) "SRR" as (o, i, j):
    init:
      T[o] = 0.0
    T[o] = T[o] + X[i, j]
  iterate scale(I, J) "SS" as (i, j):
    Z[i, j] = X[i, j] * T[0]
)";

}  // namespace

std::vector<ReadyCase> ready_cases(const VectorUnit& unit) {
  const DType fp32 = DType::fp32, bf16 = DType::bf16;
  const auto plain = [](const Matrix& a) { return a.structure(); };
  const auto blocks = [](const Matrix& a) { return bsr_from_coo(a.coo(), 4).structure; };
  const auto tall_blocks = [](const Matrix& a) { return bsr_from_coo(a.coo(), 16).structure; };
  const auto edges = [](const Matrix& a) { return relational_from_coo(in_relations(a), 64).structure; };
  const std::map<std::string, int64_t> heads{{"heads", 2}};
  return {
      {"graph_attention", attention_program(32, 32, fp32, unit), "J", plain, {}, {{"scale", 0.75}}},
      {"fused_mm", fused_mm_program(32, fp32, unit), "J", plain},
      {"batched_spmm", batched_spmm_program(32, bf16, unit), "J", plain, heads},
      {"batched_sddmm", batched_sddmm_program(32, bf16, unit), "J", plain, heads},
      {"block_spmm", block_spmm_program(2, 4, 32, bf16, false, unit), "JO", blocks, heads},
      {"block_spmm_dots", block_spmm_program(2, 4, 32, bf16, true, unit), "JO", blocks, heads},
      {"block_spmm_widened", block_spmm_program(2, 16, 32, bf16, false, unit), "JO", tall_blocks, heads},
      {"block_sddmm", block_sddmm_program(2, 4, 32, bf16, false, unit), "JO", blocks, heads},
      {"block_sddmm_transposed", block_sddmm_program(2, 16, 8, fp32, false, unit), "JO", tall_blocks, heads},
      {"block_sddmm_widened", block_sddmm_program(2, 16, 48, bf16, false, unit), "JO", tall_blocks, heads},
      {"block_sddmm_dots", block_sddmm_program(2, 16, 8, bf16, true, unit), "JO", tall_blocks, heads},
      {"dbsr_spmm", dbsr_spmm_program(8, 32, fp32, false, unit), "JO",
       [](const Matrix& a) { return dbsr_from_coo(a.coo(), 8).structure; }},
      {"dbsr_spmm_widened", dbsr_spmm_program(16, 32, bf16, false, unit), "JO",
       [](const Matrix& a) { return dbsr_from_coo(a.coo(), 16).structure; }},
      {"sr_bcrs_spmm", sr_bcrs_spmm_program(4, 8, 32, fp32, unit), "J",
       [](const Matrix& a) { return sr_bcrs_from_coo(a.coo(), 4, 8).structure; }},
      {"rgms", rgms_program(64, true, 16, 32, fp32, unit), "J", edges, {{"m", 40}}},
      {"convolution", rgms_program(64, false, 16, 16, bf16, unit), "J", edges, {{"m", 40}}},
      {"transposed_spmm", transposed_spmm_program(32, true, unit), "I", plain},
      {"weighted_spmm", weighted_spmm_program(32, unit), "J", plain},
      {"edge_dots", edge_dots_program(32, unit), "J", plain},
  };
}

std::vector<ReadyCase> mma_cases() {
  const VectorUnit unit{.is_of_card = true};
  // Rows of blocks with none, one, fewer than stages and more.
  const auto blocks = [](const Matrix&) {
    const std::vector<int32_t> indptr{0, 0, 1, 3, 12}, indices{4, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    return csr(4, 9, indptr, indices);
  };
  const auto strips = [](const Matrix&) {
    Coo coo{.num_rows = 24, .num_cols = 150};
    for (int32_t j = 0; j < 150; ++j)
      for (int32_t i = 0; i < 24; ++i)
        if (i < 8 ? j % 2 == 0 : i < 16 && j == 70) coo.rows.push_back(i), coo.cols.push_back(j);
    return sr_bcrs_from_coo(coo, 8, 32).structure;
  };
  const std::map<std::string, int64_t> heads{{"heads", 2}};
  // Rows one after another in a CTA, whose stages are filled anew.
  ReadyProgram in_turn = block_spmm_program(2, 16, 16, DType::fp16, false, unit);
  in_turn.schedule = replaced(in_turn.schedule, "bind(spmm.io, blockIdx.x)\n", "");
  return {
      {"block_spmm_mma", block_spmm_program(2, 32, 128, DType::bf16, false, unit), "JO", blocks, heads},
      {"block_spmm_mma_in_turn", in_turn, "JO", blocks, heads},
      {"block_sddmm_mma", block_sddmm_program(2, 32, 64, DType::bf16, false, unit), "JO", blocks, heads},
      {"sr_bcrs_mma", sr_bcrs_spmm_program(8, 32, 64, DType::bf16, unit), "J", strips},
  };
}

std::vector<ReadyCase> all_cases() {
  const auto plain = [](const Matrix& a) { return a.structure(); };
  const auto spmm = [&](const char* name, const std::string& schedule, std::map<std::string, int64_t> set = {}) {
    return ReadyCase{name, {kSpmmProgram, schedule, std::move(set)}, "J", plain};
  };
  const auto sddmm = [&](const char* name, const std::string& schedule, std::map<std::string, int64_t> set = {}) {
    return ReadyCase{name, {kSddmmProgram, schedule, std::move(set)}, "J", plain};
  };
  std::vector<ReadyCase> all = {
      spmm("spmm_csr", spmm_schedule(128, {}, {}, 16), {{"feat", 128}}),
      spmm("spmm_tail",
           "lower()\nko, ki = split(csrmm.k, 16)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n"
           "cache_write(ko, register)\nparallel(csrmm.i)\n"),
      spmm("spmm_bsr_ell", "decompose_format(csrmm, A, bsr(2), ell(2))\n"),
      spmm("spmm_hyb", spmm_schedule(64, parse_formats("hyb(1, 2)"), {}, 0), {{"feat", 64}}),
      sddmm("sddmm", sddmm_schedule(64, DType::fp32, {}, 16), {{"feat", 64}}),
      sddmm("sddmm_fused", "sparse_fuse(sddmm, I, J)\nlower()\nparallel(sddmm.i_j)\n"),
      sddmm("sddmm_rows", "sparse_fuse(sddmm, I, J)\nlower()\nmaterialise_rows(sddmm.i_j)\nparallel(sddmm.i_j)\n"),
      spmm("spmm_prefetch",
           "lower()\nku, ki = split(csrmm.k, 16)\nvectorize(ki)\nunroll(ku)\n"
           "annotate(csrmm.j, prefetch)\nparallel(csrmm.i)\n",
           {{"feat", 32}}),
      spmm("spmm_bound",
           "lower()\nreorder(csrmm.k, csrmm.j)\nbind(csrmm.i, blockIdx.x)\nbind(csrmm.k, threadIdx.x)\n"
           "cache_write(csrmm.k, register)\n"),
      // A CTA's threads read a row of X from shared memory.
      sddmm("sddmm_shared",
            "lower()\ncache_read(sddmm.i, X, shared)\nbind(sddmm.i, blockIdx.x)\nbind(sddmm_fetch.k, threadIdx.x)\n"
            "bind(sddmm.j, threadIdx.x)\n",
            {{"feat", 48}}),
      // Two stages of reduction: a lane adds up its part of an edge's features, a warp its lanes.
      sddmm("sddmm_warps",
            "lower()\nko, ki = split(sddmm.k, 32)\nreorder(ki, ko)\nbind(sddmm.i, blockIdx.x)\n"
            "bind(sddmm.j, threadIdx.y)\nbind(ki, threadIdx.x)\n",
            {{"feat", 64}}),
      // A sum over all threads of a CTA, of however many features there are.
      sddmm("sddmm_cta", "lower()\nbind(sddmm.i, blockIdx.x)\nbind(sddmm.k, threadIdx.x)\n"),
      // A row's sum over all threads, which they take from shared memory.
      {"rest_shared",
       {steps_program("rest(m, n, nnz)", kCsrAxis),
        "lower()\ncompute_at(sums, rest.i)\ncompute_at(twice, rest.i)\nset_scope(S, shared)\nbind(rest.i, blockIdx.x)\n"
        "bind(twice.b, threadIdx.x)\nbind(sums.j, threadIdx.x)\nbind(rest.j, threadIdx.x)\n"},
       "J",
       plain},
      // Over all threads of a CTA, and over a warp for each row.
      {"extremes",
       {kExtremesProgram,
        "lower()\nbind(largest.i, blockIdx.x)\nbind(largest.j, threadIdx.x)\nbind(least.i, blockIdx.x)\n"
        "bind(least.j, threadIdx.x)\n"},
       "J",
       plain},
      {"extremes_warps",
       {kExtremesProgram,
        "lower()\no, w = split(largest.i, 2)\nbind(o, blockIdx.x)\nbind(w, threadIdx.y)\nbind(largest.j, threadIdx.x)\n"
        "p, v = split(least.i, 2)\nbind(p, blockIdx.x)\nbind(v, threadIdx.y)\nbind(least.j, threadIdx.x)\n"},
       "J",
       plain},
      // What gathers asks arrays where elements stand.
      sddmm("sddmm_places", sddmm_format_schedule(64, parse_formats("sr_bcrs(4, 2), coo()"), {}), {{"feat", 64}}),
      // Places are searched for; one that is absent is a failure.
      {"compress", {kCompressProgram, "lower()\nparallel(clear.i)\nparallel(compress.x)\n"}, "J", plain},
      {"activations",
       {kActivationsProgram,
        "lower()\nko, ki = split(activate.k, 8)\nvectorize(ki)\nparallel(activate.i)\nparallel(sums.i)\n",
        {{"feat", 16}}},
       "J",
       plain,
       {},
       {{"alpha", 0.75}}},
      // Threads store at places that each has copied first.
      {"scattered_copied",
       {kScatteredProgram,
        "lower()\ncache_read(scatter.j, j_indices, register)\nbind(clear.x, blockIdx.x)\n"
        "bind(scatter.j, threadIdx.x)\n"},
       "J",
       plain},
      // Every CTA adds up what it needs of all elements.
      {"scaled_by_ctas",
       {kScaledProgram, "lower()\nset_scope(T, register)\nbind(scale.i, blockIdx.x)\nbind(scale.j, threadIdx.x)\n"},
       "J",
       plain},
      // Divisions by 0 are failures.
      {"quotients", {kQuotientsProgram, "lower()\nparallel(divide.i)\n"}, "J", plain},
      // Rows of C in shared memory, each element one thread's: nobody waits.
      spmm("spmm_shared",
           "lower()\nreorder(csrmm.k, csrmm.j)\nbind(csrmm.i, blockIdx.x)\nbind(csrmm.k, threadIdx.x)\n"
           "cache_write(csrmm.i, shared)\n",
           {{"feat", 40}}),
      // Partial sums in shared memory, which the first thread adds up.
      sddmm("sddmm_partial",
            "lower()\nko, ki = split(sddmm.k, 32)\nrfactor(ki, shared)\nbind(sddmm.i, blockIdx.x)\n"
            "bind(sddmm_zero.ki, threadIdx.x)\nbind(sddmm.ki, threadIdx.x)\n",
            {{"feat", 64}}),
  };
  // A group of tiles by the rows of B that they gather, both in shared memory with zeros for the padding: a product
  // that the threads of a CTA share.
  ReadyProgram strips = sr_bcrs_spmm_program(4, 8, 32, DType::fp32);
  strips.schedule =
      "lower()\nreorder(spmm.g, spmm.ii, spmm.j, spmm.k)\ncache_write(spmm.s, shared)\n"
      "cache_read(spmm.g, B, shared)\ndecompose_reduction(spmm.g)\ntensorize(spmm.ii, product)\n"
      "bind(spmm.s, blockIdx.x)\nbind(spmm_fetch.k, threadIdx.x)\nbind(spmm_init.k, threadIdx.x)\n"
      "bind(spmm_write.k, threadIdx.x)\n";
  all.push_back(
      {"sr_bcrs_tensorized", strips, "J", [](const Matrix& a) { return sr_bcrs_from_coo(a.coo(), 4, 8).structure; }});
  // Rows of ELL buckets in tiles: of the first bucket gathered, multiplied and scattered by the threads of a CTA, of
  // the second by each thread alike.
  all.push_back({"rgms_hyb_tensorized",
                 {example("rgms_hyb"),
                  "decompose_format(rgms, A, hyb(1, 2))\nlower()\nio, ii = split(rgms.i, 4)\n"
                  "ko, ki = split(rgms.k, 8)\nreorder(ko, rgms.l)\nreorder(ko, rgms.j)\nreorder(ko, rgms.s)\n"
                  "reorder(ko, ii)\nreorder(ko, io)\nreorder(ko, rgms.r)\n"
                  "reorder(rgms_hyb_0_1.j, rgms_hyb_0_1.ii)\ntensorize(rgms_hyb_0_0.ii, product)\n"
                  "tensorize(rgms_hyb_0_1.ii, product)\nset_scope(Y_factor_local, shared)\n"
                  "set_scope(Y_local, shared)\nbind(ko, blockIdx.x)\n"
                  "bind(rgms_hyb_0_0_fetch_Y_factor.l, threadIdx.x)\nbind(rgms_hyb_0_0_read.ki, threadIdx.x)\n"
                  "bind(rgms_hyb_0_0_write.ki, threadIdx.x)\nparallel(clear.x)\n",
                  {{"feat_in", 6}, {"feat_out", 16}}},
                 "J",
                 [](const Matrix& a) { return relations_from_coo(in_relations(a)).structure; }});
  for (ReadyCase& c : ready_cases()) all.push_back(std::move(c));
  return all;
}

RunMemory::RunMemory(const Operator& op, RunArguments given, uint32_t seed) : arguments(std::move(given)) {
  for (const RunSize::Tensor& wanted : size_of_run(op, arguments).tensors) {
    std::vector<char>& memory = bytes[wanted.name];
    const auto count = static_cast<size_t>(wanted.count);
    memory.resize(count * static_cast<size_t>(bits_of(wanted.dtype)) / 8);
    const Values values = random_values(count, seed++);
    for (size_t e = 0; e < count; ++e) {
      if (wanted.dtype == DType::fp32) reinterpret_cast<float*>(memory.data())[e] = values[e];
      if (wanted.dtype == DType::int32) reinterpret_cast<int32_t*>(memory.data())[e] = static_cast<int32_t>(e);
      if (wanted.dtype == DType::fp16) reinterpret_cast<uint16_t*>(memory.data())[e] = to_fp16(values[e]);
      if (wanted.dtype == DType::bf16)
        reinterpret_cast<uint16_t*>(memory.data())[e] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[e]) >> 16);
    }
    arguments.buffers[wanted.name] = TensorView(memory.data(), wanted.dtype, {wanted.count});
  }
}

}  // namespace weft::sparse::test
