#include "sparse/operators/relation_groups.h"

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "base/format_tensor.h"
#include "loop/threads/fragments.h"
#include "sparse/backend.h"
#include "sparse/formats/structure.h"

namespace weft::sparse {
namespace {

// ROWS and WIDTH are literals.
constexpr const char* kProgram =
    R"(program rgms_groups(tiles, most, groups, rows, nnz, m, n, relations, feat_in, feat_out):
  T = dense_fixed(tiles)
  G = dense_variable(T, most, groups, indptr=g_indptr)
  Q = sparse_variable(G, ROWS, rows, indptr=q_indptr, indices=q_rows)
  E = sparse_variable(Q, n, nnz, indptr=e_indptr, indices=e_indices)
  I = dense_fixed(ROWS)
  Z = dense_fixed(nnz)
  M = dense_fixed(m)
  N = dense_fixed(n)
  R = dense_fixed(relations)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  KO = dense_fixed(feat_out // WIDTH)
  KI = dense_fixed(WIDTH)
  Relation = buffer(T, G): int32
  Column = buffer(T, G, Q): int32
  At = buffer(T, G, Q, E): int32
  A = buffer(Z): DTYPE
  X = buffer(N, L): DTYPE
  W = buffer(R, L, K): DTYPE
  Gathered = temporary(T, G, Q, KO, L): DTYPE
  Products = temporary(T, G, Q, KO, KI): fp32
  Sums = temporary(T, KO, I, KI): fp32
  Y = buffer(M, K): DTYPE
  iterate clear(T, KO, I, KI) "SSSS" as (t, ko, i, k):
    Sums[t, ko, i, k] = 0.0
  iterate gather(T, KO, G, Q, E, L) "SSSSRS" as (t, ko, g, i, e, l):
    init:
      Gathered[t, g, i, ko, l] = 0.0
    Gathered[t, g, i, ko, l] = Gathered[t, g, i, ko, l] + A[At[t, g, i, e]] * X[e, l]
  iterate multiply(T, KO, G, Q, L, KI) "SSSSRS" as (t, ko, g, i, l, k):
    init:
      Products[t, g, i, ko, k] = 0.0
    Products[t, g, i, ko, k] = Products[t, g, i, ko, k] + FACTOR * W[Relation[t, g], l, ko * WIDTH + k]
  iterate add(T, KO, G, Q, KI) "SSRSS" as (t, ko, g, i, k):
    Sums[t, ko, i, k] = Sums[t, ko, i, k] + Products[t, g, i, ko, k]
  iterate write(T, KO, I, KI) "SSSS" as (t, ko, i, k) where t * ROWS + i < m:
    Y[t * ROWS + i, ko * WIDTH + k] = Sums[t, ko, i, k]
)";

constexpr std::array<int64_t, 3> kSlots = {16, 32, 64};
constexpr int64_t kMostShared = 99 << 10, kSharedOfMultiprocessor = 227 << 10;
constexpr int64_t kPadding = 8;  // elements behind a row in shared memory, so that rows lie in different banks

void remove_lines(std::string& text, const std::string& begin, int count = 1) {
  const size_t at = text.find("  " + begin);
  size_t end = at;
  for (int line = 0; line < count; ++line) end = text.find('\n', end) + 1;
  text.erase(at, end - at);
}

// Features of a CTA.
int64_t width_of(int64_t feat_out) {
  int64_t width = 64;
  while (feat_out % width != 0) width -= 16;
  return width;
}
int64_t depth_of(int64_t feat_in) { return feat_in % 32 == 0 ? 32 : 16; }

// Shared memory of a CTA with so many iterations' factors on their way.
int64_t shared_bytes(const RelationGroupsForm& form, int64_t stages) {
  const int64_t width = width_of(form.feat_out), depth = depth_of(form.feat_in), bytes = bits_of(form.dtype) / 8;
  const int64_t kept = std::min(stages, form.feat_in / depth);
  const int64_t gathered = form.slots * (form.feat_in + kPadding) * bytes;
  const int64_t row_piece = form.slots * (depth + kPadding) * bytes, weights = depth * (width + kPadding) * bytes;
  return 4 * kRowsOfTile * (width + kPadding) + 4 * form.slots + (form.is_gathered ? gathered : kept * row_piece) +
         kept * weights;
}

// As many as leave a multiprocessor as many CTAs.
int64_t stages_of(const RelationGroupsForm& form) {
  const auto ctas = [&](int64_t stages) { return kSharedOfMultiprocessor / (shared_bytes(form, stages) + 1024); };
  int64_t stages = 2;
  while (stages < std::min<int64_t>(4, form.feat_in / depth_of(form.feat_in)) &&
         shared_bytes(form, stages + 1) <= kMostShared && ctas(stages + 1) == ctas(2))
    ++stages;
  return stages;
}

// Rows of a relation in a tile, in the order of tiles, relations and rows, and where their edges are.
struct Reached {
  int64_t tile, relation, row;
  int32_t begin, end;
};

std::vector<Reached> reached_rows(const Structure::Data& edges) {
  const Level &tiles = edges.levels[1], &relations = edges.levels[2], &rows = edges.levels[3], &cols = edges.levels[4];
  std::vector<Reached> found;
  for (size_t p = 0; p < tiles.indices.size(); ++p)
    for (auto r = static_cast<size_t>(relations.indptr[p]); r < static_cast<size_t>(relations.indptr[p + 1]); ++r)
      for (auto i = static_cast<size_t>(rows.indptr[r]); i < static_cast<size_t>(rows.indptr[r + 1]); ++i) {
        const int64_t row = tiles.indices[p] * rows.length + rows.indices[i];
        found.push_back(
            {row / kRowsOfTile, relations.indices[r], row % kRowsOfTile, cols.indptr[i], cols.indptr[i + 1]});
      }
  std::sort(found.begin(), found.end(), [](const Reached& a, const Reached& b) {
    return std::tie(a.tile, a.relation, a.row) < std::tie(b.tile, b.relation, b.row);
  });
  return found;
}

// Calls once for each group, with the rows from `first` to before `last`.
template <class Call>
void for_groups(const std::vector<Reached>& rows, const Call& call) {
  for (size_t first = 0, last = 0; first < rows.size(); first = last) {
    const auto is_same = [&](const Reached& r) {
      return r.tile == rows[first].tile && r.relation == rows[first].relation;
    };
    while (last < rows.size() && is_same(rows[last])) ++last;
    call(first, last);
  }
}

KeptRelationGroups& kept_of(const Structure::Data& edges) {
  const std::lock_guard lock(edges.choices.mutex);
  if (edges.relation_groups == nullptr) {
    edges.relation_groups = std::make_shared<KeptRelationGroups>();
    edges.relation_groups->has_single_edges = has_single_edges(edges);
  }
  return *edges.relation_groups;
}

// Says in `form` how many slots they have.
const RelationGroups& groups_of(const Structure::Data& edges, RelationGroupsForm& form) {
  KeptRelationGroups& kept = kept_of(edges);
  const std::lock_guard lock(kept.mutex);
  int64_t& slots = kept.slots[{form.feat_in, form.feat_out, form.dtype, form.is_gathered}];
  if (slots == 0) slots = likely_slots(edges, form);
  form.slots = slots;
  std::unique_ptr<const RelationGroups>& found = kept.groups[form.is_gathered];
  if (found == nullptr) found = std::make_unique<const RelationGroups>(relation_groups(edges, form.is_gathered));
  return *found;
}

// Rows of memory that products read, `feat` elements each: matrices of eight rows lie in different banks.
std::string aligned_rows(const std::string& memory, DType dtype) {
  return dtype == DType::fp32 ? fmt::format("storage_align({}, 8, 4)\n", memory)
                              : fmt::format("storage_align({}, 16, 8)\n", memory);
}

// A vector of features a lane, and as many rows at once as there are threads.
std::string gather_lines(const RelationGroupsForm& form) {
  const int64_t vector = 128 / bits_of(form.dtype);
  return fmt::format(
             "gather_lo, gather_li = split(gather.l, {})\nreorder(gather_lo, gather.e, gather_li)\n"
             "gather_sl = fuse(gather_s, gather_lo)\nvectorize(gather_li)\nbind(gather_sl, threadIdx.x)\n"
             "cache_write(gather_sl, register)\nannotate(gather.e, prefetch, 4)\nset_scope(Gathered, shared)\n",
             vector) +
         aligned_rows("Gathered_local_1", form.dtype);
}

}  // namespace

bool has_relation_groups(const VectorUnit& unit, int64_t feat_in, int64_t feat_out, DType dtype) {
  const auto is_whole = [](int64_t feat) { return feat > 0 && feat % loop::kTileDepth == 0; };
  if (!unit.is_of_card || !unit.has_mma || !is_whole(feat_in) || !is_whole(feat_out)) return false;
  const RelationGroupsForm least{
      .slots = 16, .feat_in = feat_in, .feat_out = feat_out, .dtype = dtype, .is_gathered = true};
  return shared_bytes(least, 2) <= kMostShared;
}

bool has_single_edges(const Structure::Data& edges) {
  const std::vector<int32_t>& ends = edges.levels[4].indptr;  // a structure of a caller's own may have rows of none
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i] != static_cast<int32_t>(i)) return false;
  return true;
}

RelationGroups relation_groups(const Structure::Data& edges, bool is_gathered) {
  const std::vector<Reached> rows = reached_rows(edges);
  const std::vector<int32_t>& columns = edges.levels[4].indices;
  const int64_t num_rows = edges.levels[1].length * edges.levels[3].length;
  const int64_t num_tiles = (num_rows + kRowsOfTile - 1) / kRowsOfTile;
  RelationGroups made;
  std::vector<int32_t> of_tile(static_cast<size_t>(num_tiles) + 1), of_group{0}, of_row{0}, places, gathered;
  for_groups(rows, [&](size_t first, size_t last) {
    ++of_tile[static_cast<size_t>(rows[first].tile) + 1];
    of_group.push_back(static_cast<int32_t>(last));
    made.relation.push_back(static_cast<int32_t>(rows[first].relation));
  });
  const int32_t most = *std::max_element(of_tile.begin(), of_tile.end());
  for (size_t t = 1; t < of_tile.size(); ++t) of_tile[t] += of_tile[t - 1];
  for (const Reached& r : rows) {
    places.push_back(static_cast<int32_t>(r.row));
    if (!is_gathered) made.column.push_back(columns[static_cast<size_t>(r.begin)]);
    for (int32_t e = r.begin; is_gathered && e < r.end; ++e) {
      made.order.push_back(e);
      gathered.push_back(columns[static_cast<size_t>(e)]);
    }
    of_row.push_back(static_cast<int32_t>(gathered.size()));
  }
  std::vector<StoredAxis> axes = {
      {.length = num_tiles},
      {.kind = AxisKind::dense_variable, .length = std::max(most, 1), .indptr = of_tile},
      {.kind = AxisKind::sparse_variable, .length = kRowsOfTile, .indptr = of_group, .indices = places}};
  if (is_gathered)
    axes.push_back(
        {.kind = AxisKind::sparse_variable, .length = edges.levels[4].length, .indptr = of_row, .indices = gathered});
  made.structure = structure_of(axes);
  return made;
}

// In clocks of a multiprocessor: a product's start, its weights, which the second cache gives, and all its slots.
int64_t likely_slots(const Structure::Data& edges, RelationGroupsForm form) {
  constexpr int64_t kStart = 600, kBytesOfClock = 24, kNarrowOfClock = 1400, kWideOfClock = 230;
  const std::vector<Reached> rows = reached_rows(edges);
  const int64_t elements = form.feat_in * form.feat_out, ctas = form.feat_out / width_of(form.feat_out);
  const int64_t weights = elements * bits_of(form.dtype) / 8 / kBytesOfClock;
  int64_t best = 0, least = 0;
  for (const int64_t slots : kSlots) {
    form.slots = slots;
    if (best != 0 && shared_bytes(form, 2) > kMostShared) continue;
    const int64_t products = slots * elements / (form.dtype == DType::fp32 ? kWideOfClock : kNarrowOfClock);
    int64_t clocks = 0;
    for_groups(rows, [&](size_t first, size_t last) {
      const int64_t count = (static_cast<int64_t>(last - first) + slots - 1) / slots;
      clocks += count * (ctas * kStart + weights + products);
    });
    if (best != 0 && clocks >= least) continue;
    best = slots;
    least = clocks;
  }
  return best;
}

ReadyProgram relation_groups_program(const RelationGroupsForm& form) {
  ensure(form.is_gathered || !form.has_values, "values of rows that are not gathered");
  std::string text = kProgram;
  if (form.is_gathered) {
    remove_lines(text, "Column =");
    text = replaced(text, "FACTOR", "Gathered[t, g, i, ko, l]");
  } else {
    for (const char* line : {"E =", "Gathered ="}) remove_lines(text, line);
    remove_lines(text, "iterate gather(", 4);
    text = replaced(replaced(text, "FACTOR", "X[Column[t, g, i], l]"), "rows, nnz, ", "rows, ");
  }
  if (!form.has_values) {
    for (const char* line : {"Z =", "At =", "A ="}) remove_lines(text, line);
    text = replaced(text, "A[At[t, g, i, e]] * ", "");
  }
  const int64_t width = width_of(form.feat_out);
  text = replaced(with_dtype(text, form.dtype), "ROWS", fmt::format("{}", kRowsOfTile));
  text = replaced(text, "WIDTH", fmt::format("{}", width));
  std::string lines = "lower()\n";
  for (const char* iteration : {"gather", "multiply", "add"})
    if (form.is_gathered || std::string(iteration) != "gather")
      lines += fmt::format("{0}_p, {0}_s = split({0}.i, {1})\n", iteration, form.slots);
  lines += "compute_at(multiply, add_p)\n";
  if (form.is_gathered) lines += "compute_at(gather, add_p)\n";
  lines += fmt::format(
      "compute_at(add, write.ko)\ncompute_at(clear, write.ko)\n"
      "lo, li = split(multiply.l, {})\nreorder(lo, multiply_s, li, multiply.k)\n"
      "set_scope(Products, fragment)\nset_scope(Sums, shared)\nstorage_align(Sums_local, 16, 8)\n"
      "decompose_reduction(lo)\ncache_read(add_p, q_rows, shared)\n",
      depth_of(form.feat_in));
  lines += form.is_gathered ? gather_lines(form) : "cache_read(lo, X, shared)\n" + aligned_rows("X_local", form.dtype);
  lines += fmt::format(
      "cache_read(lo, W, shared)\nstorage_align(W_local, 16, 8)\ntensorize(multiply_s, mma)\n"
      "annotate(lo, stages, {})\nclear_ik = fuse(clear.i, clear.k)\nbind(clear_ik, threadIdx.x)\n"
      "bind(write.k, threadIdx.x)\nbind(write.ko, blockIdx.y)\nbind(write.t, blockIdx.x)\n",
      stages_of(form));
  return {text, lines, {{"feat_in", form.feat_in}, {"feat_out", form.feat_out}}};
}

int64_t bytes_on_cards(const Structure& edges) {
  const auto copied = [](const Structure::Data& structure) {
    const std::lock_guard lock(structure.copies.mutex);
    size_t bytes = 0;
    for (const auto& [key, copy] : structure.copies.arrays) bytes += copy.bytes();
    return static_cast<int64_t>(bytes);
  };
  const Structure::Data& data = data_of(edges, "edges");
  int64_t bytes = copied(data);
  const std::shared_ptr<KeptRelationGroups> kept = [&] {
    const std::lock_guard lock(data.choices.mutex);
    return data.relation_groups;
  }();
  if (kept == nullptr) return bytes;  // it is not of relations, or no call has made groups of it
  const std::lock_guard lock(kept->mutex);
  for (const auto& [key, groups] : kept->groups) bytes += copied(*groups->structure.data());
  return bytes;
}

void run_in_groups(const Structure& edges, const RunArguments& arguments, Stream stream) {
  const TensorView &x = arguments.buffers.at("X"), &w = arguments.buffers.at("W"), &y = arguments.buffers.at("Y");
  const Structure::Data& data = data_of(edges, "edges");
  const Device device = device_of(x);
  check(w.shape(0) == data.levels[2].length, ErrorCode::invalid_shape,
        "w: has shape {}; the structure has {} relations", w, data.levels[2].length);
  check(x.shape(0) == data.levels[4].length, ErrorCode::invalid_shape, "x: has shape {}; the structure has {} columns",
        x, data.levels[4].length);
  const bool has_values = arguments.buffers.contains("A");
  RelationGroupsForm form{.feat_in = w.shape(1),
                          .feat_out = w.shape(2),
                          .dtype = x.dtype(),
                          .is_gathered = has_values || !kept_of(data).has_single_edges,
                          .has_values = has_values};
  const RelationGroups& groups = groups_of(data, form);
  const auto placed = [&](const std::vector<int32_t>& array) { return kept_array(data, array, device); };
  RunArguments of_groups{.structures = {{form.is_gathered ? "E" : "Q", groups.structure}},
                         .buffers = {{"X", x}, {"W", w}, {"Y", y}, {"Relation", placed(groups.relation)}}};
  if (!form.is_gathered) of_groups.buffers["Column"] = placed(groups.column);
  if (has_values) {
    of_groups.buffers["A"] = arguments.buffers.at("A");
    of_groups.buffers["At"] = placed(groups.order);
  }
  kept_operator(relation_groups_program(form), device).run(of_groups, stream);
}

}  // namespace weft::sparse
