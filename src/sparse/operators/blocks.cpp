// Pruned weights: blocks of rows that hold something (DBSR), and strips of tiles t x 1 (SR-BCRS).
#include "base/check.h"
#include "sparse/formats/structure.h"
#include "sparse/machine.h"
#include "sparse/operators/card.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

// BLOCK is a literal.
constexpr const char* kDbsr = R"(program dbsr_spmm(mb, nb, rowsb, nnzb, feat):
  O = dense_fixed(1)
  IO = sparse_variable(O, mb, rowsb, indptr=io_indptr, indices=io_indices)
  JO = sparse_variable(IO, nb, nnzb, indptr=jo_indptr, indices=jo_indices)
  II = dense_fixed(BLOCK)
  JI = dense_fixed(BLOCK)
  I = dense_fixed(mb * BLOCK)
  J = dense_fixed(nb * BLOCK)
  K = dense_fixed(feat)
  A = buffer(O, IO, JO, II, JI): DTYPE
  B = buffer(J, K): DTYPE
  C = buffer(I, K): DTYPE
  iterate clear(I, K) "SS" as (x, y):
    C[x, y] = 0.0
  iterate spmm(O, IO, II, JO, JI, K) "RSSRRS" as (o, io, ii, jo, ji, k):
    C[io * BLOCK + ii, k] = C[io * BLOCK + ii, k] + A[o, io, jo, ii, ji] * B[jo * BLOCK + ji, k]
)";

// TILE rows a strip, GROUP tiles a group.
constexpr const char* kSrBcrs = R"(program sr_bcrs_spmm(n, strips, most, groups, feat):
  S = dense_fixed(strips)
  G = dense_variable(S, most, groups, indptr=g_indptr)
  J = sparse_fixed(G, n, GROUP, indices=j_indices)
  II = dense_fixed(TILE)
  I = dense_fixed(strips * TILE)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(S, G, J, II): DTYPE
  B = buffer(J_, K): DTYPE
  C = buffer(I, K): DTYPE
  iterate spmm(S, II, G, J, K) "SSRRS" as (s, ii, g, j, k):
    init:
      C[s * TILE + ii, k] = 0.0
    C[s * TILE + ii, k] = C[s * TILE + ii, k] + A[s, g, j, ii] * B[j, k]
)";

}  // namespace

ReadyProgram dbsr_spmm_program(int64_t block, int64_t feat, DType dtype, bool dots, const VectorUnit& unit) {
  if (has_card_product(unit, block, block, feat, dtype))
    return {replaced(with_dtype(kDbsr, dtype), "BLOCK", std::to_string(block)),
            "lower()\n" + card_elements("clear", "x", "y") +
                card_product({.iteration = "spmm",
                              .cta = "io",
                              .stage = "jo",
                              .depth = "ji",
                              .rows = block,
                              .depths = block,
                              .feat = feat,
                              .has_init = false}),
            {{"feat", feat}}};
  if (unit.is_of_card)
    return {replaced(with_dtype(kDbsr, dtype), "BLOCK", std::to_string(block)),
            "lower()\n" + card_elements("clear", "x", "y") +
                card_rows({.iteration = "spmm",
                           .cta = "io",
                           .row = "ii",
                           .reductions = {"jo", "ji"},
                           .feat = feat,
                           .dtype = dtype}),
            {{"feat", feat}}};
  const BlockTile tile{
      .name = "spmm", .above = "io", .block = block, .tile = {.feat = feat, .within = {"jo", "ji"}, .unit = unit}};
  return {replaced(with_dtype(kDbsr, dtype), "BLOCK", std::to_string(block)),
          "lower()\n" + block_rows_tiled(tile, dtype, dots) + "parallel(clear.x)\nparallel(spmm.io)\n",
          {{"feat", feat}}};
}

ReadyProgram sr_bcrs_spmm_program(int64_t t, int64_t g, int64_t feat, DType dtype, const VectorUnit& unit) {
  const std::string program =
      replaced(replaced(with_dtype(kSrBcrs, dtype), "TILE", std::to_string(t)), "GROUP", std::to_string(g));
  if (has_card_product(unit, t, g, feat, dtype))
    return {program,
            "lower()\n" + card_product({.iteration = "spmm",
                                        .cta = "s",
                                        .stage = "g",
                                        .depth = "j",
                                        .is_depth_first = true,
                                        .rows = t,
                                        .depths = g,
                                        .feat = feat}),
            {{"feat", feat}}};
  if (unit.is_of_card)
    return {
        program,
        "lower()\n" +
            card_rows(
                {.iteration = "spmm", .cta = "s", .row = "ii", .reductions = {"g", "j"}, .feat = feat, .dtype = dtype}),
        {{"feat", feat}}};
  FeatureTile tile{.block = "spmm", .feat = feat, .within = {"g", "j"}, .around = "spmm.ii", .unit = unit};
  if (t >= 2 && t <= unit.registers / 2) {
    tile.rows = "spmm.ii";
    tile.num_rows = t;
    tile.around = "spmm.s";
  }
  return {program, "lower()\n" + tiled(tile) + "parallel(spmm.s)\n", {{"feat", feat}}};
}

void dbsr_spmm(const Structure& blocks, const TensorView& values, const TensorView& b, const TensorView& c,
               Stream stream) {
  check_rank(values, "values", 3, "[nnzb, block, block]");
  check_rank(b, "b", 2, "[n, feat]");
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  const int64_t block = last_extent(values);
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "values: blocks are {} wide; 1 to 256 are allowed",
        block);
  const Device device = device_of(b);
  kept_operator(dbsr_spmm_program(block, last_extent(b), dtype, machine(device).prefers_bf16_dots, unit_of(device)),
                device)
      .run({.structures = {{"JO", blocks}}, .buffers = {{"A", values}, {"B", b}, {"C", c}}}, stream);
}

void sr_bcrs_spmm(const Structure& strips, const TensorView& values, const TensorView& b, const TensorView& c,
                  Stream stream) {
  check_rank(values, "values", 3, "[groups, g, t]");
  check_rank(b, "b", 2, "[n, feat]");
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  const int64_t t = values.shape(2), g = values.shape(1);
  check(t >= 1 && t <= 256 && g >= 1 && g <= 4096, ErrorCode::invalid_argument,
        "values: groups of {} tiles of {} rows; 1 to 4096 and 1 to 256 are allowed", g, t);
  check(values.is_contiguous(), ErrorCode::invalid_stride, "values: is not contiguous");
  kept_operator(sr_bcrs_spmm_program(t, g, last_extent(b), dtype, unit_of(device_of(b))), device_of(b))
      .run({.structures = {{"J", strips}},
            .buffers = {{"A", {values.data(), dtype, {values.size()}, values.device()}}, {"B", b}, {"C", c}}},
           stream);
}

}  // namespace weft::sparse
