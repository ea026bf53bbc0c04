#include "tests/sparse/grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "tests/sparse/ready_programs.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

constexpr GridFormat kFormats[] = {
    {"", "i", "j"},          {"csr()", "i", "j"},           {"ell(2), csr()", "i", "j"}, {"bsr(2)", "io", "jo"},
    {"csc()", "i", "j"},     {"coo()", "k", "e"},           {"dcsr()", "i", "j"},        {"dbsr(2)", "io", "jo"},
    {"dia()", "i", "d"},     {"sr_bcrs(2, 3)", "s", "g"},   {"hyb(1, 2)", "i", "j"},     {"hyb(2, 1)", "i", "j"},
    {"tiles()", "io", "jo"}, {"bsr(2), csr()", "jo", "ji"},
};

constexpr GridPrimitive kPrimitives[] = {
    {"sparse_reorder", "sparse_reorder(csrmm, K, I, J)\n", true},
    {"sparse_fuse", "sparse_fuse(csrmm, I, J)\n", true},
    {"decompose_reduction", "decompose_reduction(csrmm.ROWS)\n"},
    {"split", "split_o, split_i = split(csrmm.k, 3)\n"},
    {"split rows", "rows_o, rows_i = split(csrmm.ROWS, 3)\n"},
    {"split places", "places_o, places_i = split(csrmm.PLACES, 2)\n"},
    {"fuse", "fuse_o, fuse_i = split(csrmm.k, 2)\nfused = fuse(fuse_o, fuse_i)\n"},
    {"reorder", "reorder(csrmm.k, csrmm.PLACES)\n"},
    {"reorder rows", "reorder(csrmm.k, csrmm.ROWS)\n"},
    {"cache_write", "reorder(csrmm.k, csrmm.PLACES)\ncache_write(csrmm.k, register)\n"},
    {"cache_read", "cache_read(csrmm.PLACES, B, register)\n"},
    {"set_scope", "reorder(csrmm.k, csrmm.PLACES)\ncache_write(csrmm.k, register)\nset_scope(C_local, shared)\n"},
    {"blockize", "whole = blockize(csrmm.k)\n"},
    {"rfactor", "reorder(csrmm.k, csrmm.PLACES)\nrf_o, rf_i = split(csrmm.PLACES, 2)\nrfactor(rf_i, register)\n"},
    {"vectorize", "vector_o, vector_i = split(csrmm.k, 4)\nvectorize(vector_i)\n"},
    {"unroll", "unroll_o, unroll_i = split(csrmm.k, 2)\nunroll(unroll_i)\n"},
    {"annotate", "annotate(csrmm.PLACES, prefetch, 2)\n"},
    {"atomic", "atomic(csrmm)\n"},
    {"parallel", "parallel(csrmm.ROWS)\n"},
    {"bind", "bind(csrmm.ROWS, blockIdx.x)\n"},
};

}  // namespace

std::span<const GridFormat> grid_formats() { return kFormats; }
std::span<const GridPrimitive> grid_primitives() { return kPrimitives; }

std::string grid_schedule(const GridFormat& format, const std::vector<const GridPrimitive*>& primitives) {
  std::string stage1, stage2;
  for (const GridPrimitive* p : primitives) (p->stage1 ? stage1 : stage2) += p->lines;
  std::string text = *format.format == 0 ? stage1 : fmt::format("decompose_format(csrmm, A, {})\n", format.format);
  if (*format.format != 0 && !stage1.empty()) text = stage1 + text;
  return replaced(replaced(text + "lower()\n" + stage2, "ROWS", format.rows), "PLACES", format.places);
}

Operator grid_operator(const std::string& schedule, const std::string& stop_after) {
  static const std::string text = std::string(kSpmmProgram) + kTiles;
  return compile(parse(text), schedule, Device::cpu(), {.set = {{"feat", kGridFeat}}, .stop_after = stop_after});
}

std::optional<Operator> accepted_in_grid(const std::string& schedule) {
  try {
    return grid_operator(schedule, "generate");
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
        << schedule << ": " << error.what();
    return std::nullopt;
  }
}

}  // namespace weft::sparse::test
