// SpMM and SDDMM of sparse attention: one structure for all heads, element by element or in blocks.
#include "base/check.h"
#include "base/format_tensor.h"
#include "sparse/formats/structure.h"
#include "sparse/machine.h"
#include "sparse/operators/card.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/searched.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/search.h"

namespace weft::sparse {
namespace {

constexpr const char* kBatchedSpmm = R"(program batched_spmm(heads, m, n, nnz, feat):
  H = dense_fixed(heads)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(H, I, J): DTYPE
  B = buffer(H, J_, K): DTYPE
  C = buffer(H, I, K): DTYPE
  iterate spmm(H, I, J, K) "SSRS" as (h, i, j, k):
    init:
      C[h, i, k] = 0.0
    C[h, i, k] = C[h, i, k] + A[h, i, j] * B[h, j, k]
)";

constexpr const char* kBatchedSddmm = R"(program batched_sddmm(heads, m, n, nnz, feat):
  H = dense_fixed(heads)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  X = buffer(H, I, K): DTYPE
  Y = buffer(H, J_, K): DTYPE
  O = buffer(H, I, J): DTYPE
  iterate sddmm(H, I, J, K) "SSSR" as (h, i, j, k):
    init:
      O[h, i, j] = 0.0
    O[h, i, j] = O[h, i, j] + X[h, i, k] * Y[h, j, k]
)";

// BLOCK is a literal: rows and columns of a block.
constexpr const char* kBlockAxes = R"(  H = dense_fixed(heads)
  IO = dense_fixed(mb)
  JO = sparse_variable(IO, nb, nnzb, indptr=jo_indptr, indices=jo_indices)
  II = dense_fixed(BLOCK)
  JI = dense_fixed(BLOCK)
  I = dense_fixed(mb * BLOCK)
  J = dense_fixed(nb * BLOCK)
  K = dense_fixed(feat)
)";

constexpr const char* kBlockSpmm = R"(  A = buffer(H, IO, JO, II, JI): DTYPE
  B = buffer(H, J, K): DTYPE
  C = buffer(H, I, K): DTYPE
  iterate spmm(H, IO, II, JO, JI, K) "SSSRRS" as (h, io, ii, jo, ji, k):
    init:
      C[h, io * BLOCK + ii, k] = 0.0
    C[h, io * BLOCK + ii, k] = C[h, io * BLOCK + ii, k] + A[h, io, jo, ii, ji] * B[h, jo * BLOCK + ji, k]
)";

// Columns holds y's rows of each block transposed, so that a vector is of sixteen columns' elements: products of a tile
// add up in its lanes.
constexpr const char* kBlockSddmm = R"(  JB = dense_fixed(nb)
  X = buffer(H, I, K): DTYPE
  Y = buffer(H, J, K): DTYPE
  O = buffer(H, IO, JO, II, JI): DTYPE
  Columns = temporary(H, JB, K, JI): fp32
  iterate transpose(H, JB, K, JI) "SSSS" as (h, jb, k, ji):
    Columns[h, jb, k, ji] = Y[h, jb * BLOCK + ji, k]
  iterate sddmm(H, IO, JO, II, K, JI) "SSSSRS" as (h, io, jo, ii, k, ji):
    init:
      O[h, io, jo, ii, ji] = 0.0
    O[h, io, jo, ii, ji] = O[h, io, jo, ii, ji] + X[h, io * BLOCK + ii, k] * Columns[h, jo, k, ji]
)";

// The same with two features of a column side by side.
constexpr const char* kBlockSddmmInPairs = R"(  JB = dense_fixed(nb)
  KP = dense_fixed(feat // 2)
  KK = dense_fixed(2)
  X = buffer(H, I, K): bf16
  Y = buffer(H, J, K): bf16
  O = buffer(H, IO, JO, II, JI): bf16
  Columns = temporary(H, JB, KP, JI, KK): bf16
  iterate transpose(H, JB, KP, JI, KK) "SSSSS" as (h, jb, kp, ji, kk):
    Columns[h, jb, kp, ji, kk] = Y[h, jb * BLOCK + ji, kp * 2 + kk]
  iterate sddmm(H, IO, JO, II, KP, JI, KK) "SSSSRSR" as (h, io, jo, ii, kp, ji, kk):
    init:
      O[h, io, jo, ii, ji] = 0.0
    O[h, io, jo, ii, ji] = O[h, io, jo, ii, ji] + X[h, io * BLOCK + ii, kp * 2 + kk] * Columns[h, jo, kp, ji, kk]
)";

// Of narrow blocks: a dot product for each element.
constexpr const char* kNarrowSddmm = R"(  X = buffer(H, I, K): DTYPE
  Y = buffer(H, J, K): DTYPE
  O = buffer(H, IO, JO, II, JI): DTYPE
  iterate sddmm(H, IO, JO, II, JI, K) "SSSSSR" as (h, io, jo, ii, ji, k):
    init:
      O[h, io, jo, ii, ji] = 0.0
    O[h, io, jo, ii, ji] = O[h, io, jo, ii, ji] + X[h, io * BLOCK + ii, k] * Y[h, jo * BLOCK + ji, k]
)";

std::string in_blocks(const char* name, const char* body, int64_t block) {
  return replaced(fmt::format("program {}(heads, mb, nb, nnzb, feat):\n{}{}", name, kBlockAxes, body), "BLOCK",
                  std::to_string(block));
}

// Rows of all heads are shared by the team; of one head, balanced by what they store.
std::string shared_rows(const std::string& block, const std::string& rows, bool one_head) {
  if (one_head) return fmt::format("parallel({}.{})\n", block, rows);
  return fmt::format("{0}_rows = fuse({0}.h, {0}.{1})\nparallel({0}_rows)\n", block, rows);
}

// A vector of sums for each dot product, then those: two stages of reduction.
std::string dot_products(const std::string& block, const std::string& around, int64_t feat, const VectorUnit& unit) {
  const std::string sums = partial_sums(block, feat, unit);
  return sums + fmt::format("cache_write({}{}.{}, register)\n", block, sums.empty() ? "" : "_sum", around);
}

// The copy of X's rows has so many features at a time that it stays in the nearest cache.
std::string widened_in_parts(BlockTile& tile, int64_t feat) {
  const int64_t vector = tile.tile.unit.lanes, part = feat % (4 * vector) == 0 ? 4 * vector : vector;
  tile.is_tall = true;
  tile.tile.widened = "X";
  tile.tile.within = {"sddmm_kq", "sddmm_kr"};
  return fmt::format("sddmm_kq, sddmm_kr = split(sddmm.k, {})\n", part);
}

void check_block(int64_t block) {
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "values: blocks are {} wide; 1 to 256 are allowed",
        block);
}

// [heads, rest...] of a tensor that may have no heads.
TensorView with_heads(const TensorView& tensor, const char* name, int rank, const char* shape) {
  if (tensor.rank() == rank) return tensor;
  check(tensor.rank() == rank - 1, ErrorCode::invalid_shape, "{}: has shape {}; {} is expected, or without heads", name,
        tensor, shape);
  check(tensor.is_contiguous(), ErrorCode::invalid_stride, "{}: is not contiguous", name);
  std::vector<int64_t> extents{1};
  for (int d = 0; d < tensor.rank(); ++d) extents.push_back(tensor.shape(d));
  return {tensor.data(), tensor.dtype(), extents, tensor.device()};
}

}  // namespace

ReadyProgram batched_spmm_program(int64_t feat, DType dtype, const VectorUnit& unit) {
  if (unit.is_of_card)
    return {with_dtype(kBatchedSpmm, dtype),
            "lower()\n" +
                card_rows(
                    {.iteration = "spmm", .cta = "i", .reductions = {"j"}, .heads = "h", .feat = feat, .dtype = dtype}),
            {{"feat", feat}}};
  return {with_dtype(kBatchedSpmm, dtype),
          "lower()\n" + tiled({.block = "spmm", .feat = feat, .within = {"j"}, .around = "spmm.i", .unit = unit}) +
              shared_rows("spmm", "i", false),
          {{"feat", feat}}};
}

ReadyProgram batched_sddmm_program(int64_t feat, DType dtype, const VectorUnit& unit) {
  if (unit.is_of_card)
    return {with_dtype(kBatchedSddmm, dtype),
            card_edges({.iteration = "sddmm", .heads = "h", .feat = feat, .dtype = dtype}),
            {{"feat", feat}}};
  return {with_dtype(kBatchedSddmm, dtype),
          "lower()\n" + dot_products("sddmm", "j", feat, unit) + shared_rows("sddmm", "i", false),
          {{"feat", feat}}};
}

// What a pass over rows of one vector reads of b and of the blocks stays in the nearest cache. Factors of bf16 that are
// widened one by one, where blocks or features are no multiple of a vector, are shared by several vectors instead.
ReadyProgram block_spmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots,
                                const VectorUnit& unit, int64_t rows) {
  ReadyProgram ready{with_dtype(in_blocks("block_spmm", kBlockSpmm, block), dtype), "lower()\n", {{"feat", feat}}};
  if (has_card_product(unit, block, block, feat, dtype)) {
    ready.schedule += card_product({.iteration = "spmm",
                                    .cta = "io",
                                    .stage = "jo",
                                    .depth = "ji",
                                    .heads = "h",
                                    .rows = block,
                                    .depths = block,
                                    .feat = feat});
    return ready;
  }
  if (unit.is_of_card) {
    ready.schedule += card_rows({.iteration = "spmm",
                                 .cta = "io",
                                 .row = "ii",
                                 .reductions = {"jo", "ji"},
                                 .heads = "h",
                                 .feat = feat,
                                 .dtype = dtype});
    return ready;
  }
  const BlockTile tile{.name = "spmm",
                       .above = "io",
                       .block = block,
                       .rows = rows,
                       .tile = {.feat = feat, .within = {"jo", "ji"}, .unit = unit}};
  ready.schedule += block_rows_tiled(tile, dtype, dots) + shared_rows("spmm", "io", heads == 1);
  if (heads == 1) ready.set["heads"] = 1;
  return ready;
}

ReadyProgram block_sddmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots,
                                 const VectorUnit& unit) {
  if (has_card_block_products(unit, block, feat, dtype))
    return {with_dtype(in_blocks("block_sddmm", kNarrowSddmm, block), dtype),
            "lower()\n" + card_block_products("sddmm", block, feat),
            {{"feat", feat}}};
  if (unit.is_of_card)
    return {with_dtype(in_blocks("block_sddmm", kNarrowSddmm, block), dtype),
            card_blocks({.iteration = "sddmm", .heads = "h", .feat = feat, .dtype = dtype}),
            {{"feat", feat}}};
  const bool is_narrow = block % unit.lanes != 0, pairs = !is_narrow && has_pairs(feat, block, dtype, dots, unit);
  const char* body = is_narrow ? kNarrowSddmm : pairs ? kBlockSddmmInPairs : kBlockSddmm;
  ReadyProgram ready{with_dtype(in_blocks("block_sddmm", body, block), dtype), "lower()\n", {{"feat", feat}}};
  if (is_narrow) {
    ready.schedule += dot_products("sddmm", "ji", feat, unit);
  } else {
    BlockTile tile{.name = "sddmm",
                   .above = "jo",
                   .block = block,
                   .is_tall = pairs || dtype == DType::fp32,
                   .tile = {.loop = "ji", .feat = block, .within = {pairs ? "kp" : "k"}, .unit = unit}};
    if (pairs) tile.tile.pairs = "sddmm.kk";
    if (has_widened(block, feat, dtype, pairs, unit)) ready.schedule += widened_in_parts(tile, feat);
    ready.schedule += block_tiled(tile);
    ready.schedule += shared_rows("transpose", "jb", heads == 1);
  }
  ready.schedule += shared_rows("sddmm", "io", heads == 1);
  if (heads == 1) ready.set["heads"] = 1;
  return ready;
}

void batched_spmm(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
                  Stream stream) {
  check_rank(b, "b", 3, "[heads, n, feat]");
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  kept_operator(batched_spmm_program(last_extent(b), dtype, vector_unit(device_of(b))), device_of(b))
      .run({.structures = {{"J", a}}, .buffers = {{"A", values}, {"B", b}, {"C", c}}}, stream);
}

void batched_sddmm(const Structure& a, const TensorView& x, const TensorView& y, const TensorView& out, Stream stream) {
  check_rank(x, "x", 3, "[heads, m, feat]");
  const DType dtype = common_dtype({{"x", &x}, {"y", &y}, {"out", &out}});
  kept_operator(batched_sddmm_program(last_extent(x), dtype, vector_unit(device_of(x))), device_of(x))
      .run({.structures = {{"J", a}}, .buffers = {{"X", x}, {"Y", y}, {"O", out}}}, stream);
}

std::string block_spmm_call(int64_t heads, int64_t block, int64_t feat, DType dtype, int64_t workers) {
  return fmt::format("block_spmm {} {} {} {} {}", heads, block, feat, to_string(dtype), workers);
}

Operator block_spmm_operator(int64_t heads, int64_t block, int64_t feat, DType dtype, const std::string& candidate,
                             Device device) {
  const bool dots = machine(device).prefers_bf16_dots && number_in(candidate, "dots", 1) > 0;
  return kept_operator(
      block_spmm_program(heads, block, feat, dtype, dots, unit_of(device), number_in(candidate, "rows", 0)), device);
}

void block_spmm(const Structure& blocks, const TensorView& values, const TensorView& b, const TensorView& c,
                Stream stream) {
  const TensorView a = with_heads(values, "values", 4, "[heads, nnzb, block, block]");
  const TensorView b3 = with_heads(b, "b", 3, "[heads, n, feat]"), c3 = with_heads(c, "c", 3, "[heads, m, feat]");
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  const int64_t block = last_extent(a);
  check_block(block);
  const Device device = device_of(b);
  const std::string call = block_spmm_call(b3.shape(0), block, last_extent(b), dtype, workers_of(device, stream));
  block_spmm_operator(b3.shape(0), block, last_extent(b), dtype, tuned_candidate(data_of(blocks, "blocks"), call),
                      device)
      .run({.structures = {{"JO", blocks}}, .buffers = {{"A", a}, {"B", b3}, {"C", c3}}}, stream);
}

void block_sddmm(const Structure& blocks, const TensorView& x, const TensorView& y, const TensorView& out,
                 Stream stream) {
  const TensorView o = with_heads(out, "out", 4, "[heads, nnzb, block, block]");
  const TensorView x3 = with_heads(x, "x", 3, "[heads, m, feat]"), y3 = with_heads(y, "y", 3, "[heads, n, feat]");
  const DType dtype = common_dtype({{"x", &x}, {"y", &y}, {"out", &out}});
  const int64_t block = last_extent(o);
  check_block(block);
  const Device device = device_of(x);
  kept_operator(block_sddmm_program(x3.shape(0), block, last_extent(x), dtype, machine(device).prefers_bf16_dots,
                                    unit_of(device)),
                device)
      .run({.structures = {{"JO", blocks}}, .buffers = {{"X", x3}, {"Y", y3}, {"O", o}}}, stream);
}

}  // namespace weft::sparse
