// C = A B for a sparse A.
#include "base/check.h"
#include "sparse/formats/rule.h"
#include "sparse/operators/card.h"
#include "sparse/operators/format_loops.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/long_rows.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/card_choice.h"
#include "sparse/tune/chosen.h"

namespace weft::sparse {

const char* const kSpmmProgram = R"(program spmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  B = buffer(J_, K): fp32
  C = buffer(I, K): fp32
  iterate csrmm(I, J, K) "SRS" as (i, j, k):
    init:
      C[i, k] = 0.0
    C[i, k] = C[i, k] + A[i, j] * B[j, k]
)";

// 8 KiB of rows on their way hide the memory behind all caches, and stay in the first one until their turn.
int64_t default_prefetch(int64_t feat) { return std::clamp<int64_t>(2048 / std::max<int64_t>(feat, 1), 4, 64); }

namespace {

// Groups of rows in place of rows, shared by the team: of hyb's bucket i 2^(k-i) times as many, so that all groups have
// as many elements.
std::string grouped(const Formats& formats, int64_t group) {
  if (formats.empty() || formats[0].kind != Format::Kind::hyb)
    return fmt::format("rows, row = split(csrmm.i, {})\nparallel(rows)\n", group);
  const int64_t partitions = formats[0].numbers[0], k = formats[0].numbers[1];
  std::string text = "parallel(csrmm_init.i)\n";
  for (int64_t p = 0; p < partitions; ++p)
    for (int64_t i = 0; i <= k; ++i)
      text += fmt::format("rows_{0}_{1}, row_{0}_{1} = split(csrmm_hyb_{0}_{1}.i, {2})\nparallel(rows_{0}_{1})\n", p, i,
                          std::max<int64_t>(2, group << (k - i)));
  return text;
}

}  // namespace

// Sums stay in registers while elements pass by: of a row, or of all rows of a block.
std::string spmm_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch,
                          int64_t outer_tile, int64_t group) {
  ensure(has_rows_in_registers(formats), "a schedule of rows in registers for {}", to_text(formats));
  const auto is_kind = [&](Format::Kind kind) { return !formats.empty() && formats[0].kind == kind; };
  const bool blocked = is_kind(Format::Kind::bsr), pieces = is_kind(Format::Kind::hyb);
  const int64_t block = blocked ? formats[0].numbers[0] : 1;
  // Pieces of one element have no loop over elements: the loop over a row's pieces is that one.
  const bool single = pieces && formats[0].numbers[1] == 0;
  const std::string elements = blocked ? "csrmm.jo" : single ? "csrmm.s" : "csrmm.j";
  std::string text;
  if (!formats.empty()) text += fmt::format("decompose_format(csrmm, A, {})\n", to_text(formats));
  text += "lower()\n";
  const std::string rows = blocked ? "csrmm.io" : "csrmm.i";
  const bool tiles_outside = outer_tile > 0 && outer_tile < feat && formats.empty();
  const std::string parallel_lines =
      group > 0 && !blocked && !tiles_outside
          ? grouped(formats, group)
          : fmt::format("parallel({})\n", rows) + (blocked ? "parallel(csrmm_init.i)\n" : "");
  const RowTiles tiles = row_tiles(tiles_outside ? outer_tile : feat, unit, block);
  if (tiles.lanes == 1 && (blocked || is_kind(Format::Kind::ell))) return text + parallel_lines;
  // ko: tiles of what registers hold; ku: their vectors; ki: lanes.
  const int64_t tile = tiles_outside ? outer_tile : tiles.lanes * tiles.vectors;
  const bool several = tiles.lanes == 1 || feat > tile, has_vectors = tiles.vectors > 1;
  std::string inner = "csrmm.k";
  if (several) {
    inner = has_vectors ? "kt" : "ki";
    text += fmt::format("ko, {} = split(csrmm.k, {})\n", inner, tiles.lanes == 1 ? unit.lanes : tile);
  }
  if (has_vectors) {
    text += fmt::format("ku, ki = split({}, {})\n", inner, tiles.lanes);
    inner = "ki";
  }
  // With a group, tiles pass by its rows; else by all.
  const bool tiles_of_groups = tiles_outside && group > 0;
  if (tiles_of_groups) text += fmt::format("rows, row = split(csrmm.i, {})\n", group);
  const std::string outer = !several ? "" : tiles_of_groups ? "ko, row, " : tiles_outside ? "ko, csrmm.i, " : "ko, ";
  text += fmt::format("reorder({}{}{}{})\n", outer, blocked ? elements + ", csrmm.ji, csrmm.ii, " : elements + ", ",
                      has_vectors ? "ku, " : "", inner);
  if (several && pieces && !single) text += "reorder(ko, csrmm.s)\n";  // of long rows
  text += fmt::format("vectorize({})\n", inner);
  if (has_vectors) text += "unroll(ku)\n";
  if (blocked && block <= 16) text += "unroll(csrmm.ii)\n";
  if (tiles_outside && !tiles_of_groups) text += "tiles = fuse(ko, csrmm.i)\n";
  text += fmt::format("cache_write({}, register)\n", tiles_of_groups ? "row"
                                                     : tiles_outside ? "tiles"
                                                     : several       ? "ko"
                                                                     : rows);
  if (prefetch > 0) text += fmt::format("annotate({}, prefetch, {})\n", elements, prefetch);
  return text + (tiles_of_groups ? "parallel(rows)\n" : tiles_outside ? "parallel(tiles)\n" : parallel_lines);
}

bool has_rows_in_registers(const Formats& formats) {
  using Kind = Format::Kind;
  if (formats.size() != 1) return formats.empty();
  const Kind kind = formats[0].kind;
  return kind == Kind::csr || kind == Kind::ell || kind == Kind::bsr ||
         (kind == Kind::hyb && formats[0].numbers.size() == 2);
}

// The team shares rows where a format stores rows outside of all else; where it does not, features. On a card rows and
// features lie over CTAs and lanes, as those of CSR do, so that formats that have no row in common are one launch.
std::string spmm_formats_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, const CardCut& cut) {
  const RowTiles tiles = row_tiles(feat, unit);
  const int64_t width = tiles.lanes == 1 ? unit.lanes : tiles.lanes;
  std::string text = fmt::format("decompose_format(csrmm, A, {})\nlower()\n", to_text(formats));
  text += unit.is_of_card ? card_rows({.iteration = "csrmm_init", .cta = "i", .feat = feat, .cut = cut})
                          : "parallel(csrmm_init.i)\n";
  int number = 0;
  for (const FormatLoops& part : loops_of_formats("csrmm", formats)) {
    if (unit.is_of_card && part.has_rows_outside && !part.has_rows_within) {
      const std::vector<std::string> reductions(part.loops.begin() + 1, part.loops.end());
      text += card_rows(
          {.iteration = part.iteration, .cta = part.outer(), .reductions = reductions, .feat = feat, .cut = cut});
      continue;
    }
    const bool has_tiles = tiles.lanes == 1 || feat > width;
    const std::string outer = fmt::format("ko_{}", number), inner = fmt::format("ki_{}", number);
    ++number;
    if (has_tiles) text += fmt::format("{}, {} = split({}.k, {})\n", outer, inner, part.iteration, width);
    if (has_tiles && !part.has_rows_outside) {
      text += fmt::format("reorder({}", outer);
      for (const std::string& loop : part.loops) text += fmt::format(", {}.{}", part.iteration, loop);
      text += fmt::format(", {})\nparallel({})\n", inner, outer);
    }
    text += fmt::format("vectorize({})\n", has_tiles ? inner : part.iteration + ".k");
    if (part.has_rows_outside) text += fmt::format("parallel({}.{})\n", part.iteration, part.outer());
  }
  return text;
}

ReadyProgram rounded_spmm(int64_t feat, const std::string& schedule, const VectorUnit& unit) {
  std::string text = replaced(replaced(kSpmmProgram, "fp32", "bf16"), "C[i, k]", "S[i, k]");
  text = replaced(text, "  iterate", "  S = temporary(I, K): fp32\n  iterate");
  text += "  iterate rounded(I, K) \"SS\" as (i, k):\n    C[i, k] = S[i, k]\n";
  const std::string vectors =
      feat > unit.lanes ? fmt::format("rounded_o, rounded_i = split(rounded.k, {})\nvectorize(rounded_i)\n", unit.lanes)
                        : "";
  return {text, schedule + vectors + "parallel(rounded.i)\n", {{"feat", feat}}};
}

Formats formats_for(const std::string& text, const Structure& a) {
  Formats formats = parse_formats(text);
  for (Format& format : formats)
    if (format.kind == Format::Kind::hyb && format.numbers.size() == 1)
      format.numbers.push_back(default_bucket(a.nnz(), a.num_rows()));
  return formats;
}

void spmm(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
          const SparseOptions& options, Stream stream) {
  check_rank(b, "b", 2, "[n, feat]");
  const int64_t feat = b.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  const Device device = device_of(b);
  const GatherCall call{.feat = feat,
                        .element_bytes = bits_of(dtype) / 8,
                        .keeps_values = options.values_unchanged,
                        .workers = workers_of(device, stream),
                        .device = device};
  const FormatChoice choice = options.format == "auto" ? choice_of(data_of(a, "a"), call)
                                                       : FormatChoice{formats_for(options.format, a),
                                                                      call.is_on_card() ? 0 : default_prefetch(feat)};
  if (call.is_on_card() && cuts_rows(choice))
    return sum_long_rows(a, {.values = values, .b = b, .c = c}, stream, card_cut(choice));
  gather_operator(call.op, choice, feat, dtype, device)
      .run({.structures = {{"J", a}},
            .buffers = {{"A", values}, {"B", b}, {"C", c}},
            .values_unchanged = options.values_unchanged},
           stream);
}

}  // namespace weft::sparse
