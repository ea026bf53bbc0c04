#include "tests/sparse/extent_cases.h"

#include <fmt/format.h>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse::test {
namespace {

constexpr const char* kExtentFormats[] = {
    "csr",           "csr()",     "csc()",     "coo()",   "dcsr()",        "dia()",         "ell(9)",
    "bsr(1)",        "bsr(2)",    "dbsr(1)",   "dbsr(2)", "sr_bcrs(1, 1)", "sr_bcrs(1, 3)", "sr_bcrs(2, 1)",
    "sr_bcrs(2, 3)", "hyb(1, 0)", "hyb(2, 1)", "hyb(1)",  "ell(1), coo()", "bsr(2), csr()"};

Matrix matrix_of(int64_t rows, int64_t cols, const std::vector<std::pair<int64_t, int64_t>>& places) {
  Matrix m{.rows = rows, .cols = cols, .dense = std::vector<double>(static_cast<size_t>(rows * cols), 0)};
  m.indptr.assign(static_cast<size_t>(rows) + 1, 0);
  for (const auto& [i, j] : places) {
    m.indices.push_back(static_cast<int32_t>(j));
    m.values.push_back(0.5f + 0.25f * static_cast<float>(m.values.size()));
    m.dense[static_cast<size_t>(i * cols + j)] = m.values.back();
    for (size_t r = static_cast<size_t>(i) + 1; r < m.indptr.size(); ++r) ++m.indptr[r];
  }
  return m;
}

std::string schedule_of_spmm(int64_t feat, const Formats& formats) {
  const VectorUnit unit;
  return has_rows_in_registers(formats) ? spmm_schedule(feat, formats, unit, default_prefetch(feat))
                                        : spmm_formats_schedule(feat, formats, unit);
}

}  // namespace

std::span<const char* const> extent_formats() { return kExtentFormats; }

std::vector<Edge> edges() {
  std::vector<Edge> all = {
      {"0 x 0", matrix_of(0, 0, {})},
      {"no rows", matrix_of(0, 5, {})},
      {"no columns", matrix_of(5, 0, {})},
      {"one empty place", matrix_of(1, 1, {})},
      {"one full place", matrix_of(1, 1, {{0, 0}})},
      {"one row", matrix_of(1, 9, {{0, 0}, {0, 3}, {0, 4}, {0, 8}})},
      {"one column", matrix_of(9, 1, {{0, 0}, {4, 0}, {8, 0}})},
      {"ragged",
       matrix_of(6, 7, {{0, 2}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {2, 4}, {2, 5}, {2, 6}, {3, 6}, {5, 0}, {5, 1}})},
  };
  return all;
}

std::vector<ReadyCase> extent_cases(int64_t feat) {
  const VectorUnit unit;
  const DType fp32 = DType::fp32, bf16 = DType::bf16;
  const auto plain = [](const Matrix& a) { return a.structure(); };
  const auto blocks = [](int64_t block) {
    return [block](const Matrix& a) { return bsr_from_coo(a.coo(), block).structure; };
  };
  const std::map<std::string, int64_t> set{{"feat", feat}}, heads{{"heads", 2}};
  std::vector<ReadyCase> all;
  for (const char* format : kExtentFormats) {
    const Formats formats = formats_for(format, edges().back().matrix.structure());
    all.push_back({fmt::format("spmm {}", format), {kSpmmProgram, schedule_of_spmm(feat, formats), set}, "J", plain});
    all.push_back(
        {fmt::format("sddmm {}", format),
         {kSddmmProgram,
          formats.empty() ? sddmm_schedule(feat, fp32, unit, 8) : sddmm_format_schedule(feat, formats, unit, 8), set},
         "J",
         plain});
  }
  for (const auto& [tile, group] : {std::pair<int64_t, int64_t>{1, 0}, {0, 2}, {2, 2}, {2, 5}})
    all.push_back({fmt::format("spmm tile {} group {}", tile, group),
                   {kSpmmProgram, spmm_schedule(feat, {}, unit, 8, tile, group), set},
                   "J",
                   plain});
  all.push_back(
      {"spmm rounded", rounded_spmm(feat, schedule_of_spmm(feat, parse_formats("bsr(2)")), unit), "J", plain});
  all.push_back({"sddmm groups", {kSddmmProgram, sddmm_schedule(feat, bf16, unit, 8, 2), set}, "J", plain});
  for (const int64_t feat_v : {int64_t{0}, int64_t{1}, feat})
    for (const bool is_apart : {false, true})
      all.push_back({fmt::format("attention {} {}", feat_v, is_apart),
                     attention_program(feat, feat_v, fp32, unit, {.is_apart = is_apart}),
                     "J",
                     plain,
                     {},
                     {{"scale", 1}}});
  all.push_back({"fused_mm", fused_mm_program(feat, fp32, unit), "J", plain});
  all.push_back({"batched_spmm", batched_spmm_program(feat, fp32, unit), "J", plain, heads});
  all.push_back({"batched_sddmm", batched_sddmm_program(feat, bf16, unit), "J", plain, heads});
  for (const int64_t block : {1, 2, 16})
    for (const int64_t of_heads : {1, 2})
      for (const DType dtype : {fp32, bf16}) {
        const std::string what = fmt::format("block {} heads {} {}", block, of_heads, weft::to_string(dtype));
        const std::map<std::string, int64_t> scalars =
            of_heads == 1 ? std::map<std::string, int64_t>{} : std::map<std::string, int64_t>{{"heads", of_heads}};
        all.push_back({"block_spmm " + what, block_spmm_program(of_heads, block, feat, dtype, true, unit), "JO",
                       blocks(block), scalars});
        all.push_back({"block_sddmm " + what, block_sddmm_program(of_heads, block, feat, dtype, true, unit), "JO",
                       blocks(block), scalars});
        if (of_heads == 1)
          all.push_back({"dbsr_spmm " + what, dbsr_spmm_program(block, feat, dtype, false, unit), "JO",
                         [block](const Matrix& a) { return dbsr_from_coo(a.coo(), block).structure; }});
      }
  for (const auto& [t, g] : {std::pair<int64_t, int64_t>{1, 1}, {1, 3}, {4, 1}, {2, 2}})
    all.push_back({fmt::format("sr_bcrs_spmm {} {}", t, g), sr_bcrs_spmm_program(t, g, feat, fp32, unit), "J",
                   [t = t, g = g](const Matrix& a) { return sr_bcrs_from_coo(a.coo(), t, g).structure; }});
  for (const int64_t tile : {1, 4})
    for (const int64_t feat_out : {int64_t{0}, int64_t{1}, feat})
      for (const DType dtype : {fp32, bf16})
        all.push_back({fmt::format("rgms tile {} out {} {}", tile, feat_out, weft::to_string(dtype)),
                       rgms_program(tile, dtype == fp32, feat, feat_out, dtype, unit, 4, 8), "J",
                       [tile](const Matrix& a) { return relational_from_coo(in_relations(a), tile).structure; }});
  all.push_back({"transposed_spmm", transposed_spmm_program(feat, true, unit), "I", plain});
  all.push_back({"weighted_spmm", weighted_spmm_program(feat, unit), "J", plain});
  all.push_back({"edge_dots", edge_dots_program(feat, unit), "J", plain});
  return all;
}

}  // namespace weft::sparse::test
