// RGMS: relations one by one, with what they multiply kept in memory, and fused: in 3-D hyb, and in tiles of rows.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "bench/sparse/candidates.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/vector_unit.h"

namespace weft::bench {
namespace {

using sparse::Operator;

// T = X W of one relation.
constexpr const char* kProduct = R"(program product(n, feat_in, feat_out):
  J = dense_fixed(n)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  X = buffer(J, L): fp32
  W = buffer(L, K): fp32
  T = buffer(J, K): fp32
  iterate product(J, L, K) "SRS" as (j, l, k):
    init:
      T[j, k] = 0.0
    T[j, k] = T[j, k] + X[j, l] * W[l, k]
)";

// T = X W of every relation and each of its sources.
constexpr const char* kTransform = R"(program transform(relations, n, sources, feat_in, feat_out):
  R = dense_fixed(relations)
  S = sparse_variable(R, n, sources, indptr=s_indptr, indices=s_indices)
  N = dense_fixed(n)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  X = buffer(N, L): fp32
  W = buffer(R, L, K): fp32
  T = buffer(R, S, K): fp32
  iterate transform(R, S, L, K) "SSRS" as (r, s, l, k):
    init:
      T[r, s, k] = 0.0
    T[r, s, k] = T[r, s, k] + X[s, l] * W[r, l, k]
)";

constexpr const char* kStack = R"(program rgms_hyb(relations, m, n, rows, nnz, feat_in, feat_out):
  R = dense_fixed(relations)
  I = sparse_variable(R, m, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  N = dense_fixed(n)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  A = buffer(R, I, J): fp32
  X = buffer(N, L): fp32
  W = buffer(R, L, K): fp32
  Y = buffer(M, K): fp32
  iterate clear(M, K) "SS" as (x, y):
    Y[x, y] = 0.0
  iterate rgms(R, I, J, L, K) "RSRRS" as (r, i, j, l, k):
    Y[i, k] = Y[i, k] + A[r, i, j] * X[j, l] * W[r, l, k]
)";

// Every relation and bucket adds to any row: the team shares tiles of output features, so that no two workers write
// one element.
std::string stack_schedule(int64_t feat_out, const sparse::VectorUnit& unit) {
  std::string text = "decompose_format(rgms, A, hyb(1, 5))\nlower()\nparallel(clear.x)\n";
  if (feat_out % unit.lanes != 0 || feat_out == unit.lanes) return text;
  text += fmt::format("ko, ki = split(rgms.k, {})\n", unit.lanes);
  for (const char* loop : {"l", "j", "s", "i", "r"}) text += fmt::format("reorder(ko, rgms.{})\n", loop);
  return text + "vectorize(ki)\ncache_write(rgms.i, register)\nparallel(ko)\n";
}

// Edges of one relation, or of all of them.
struct Edges {
  const sparse::CooTensor& coo;
  size_t size() const { return coo.coordinates[0].size(); }
  int32_t relation(size_t e) const { return coo.coordinates[0][e]; }
  int32_t row(size_t e) const { return coo.coordinates[1][e]; }
  int32_t col(size_t e) const { return coo.coordinates[2][e]; }
  int64_t relations() const { return coo.extents[0]; }
  int64_t rows() const { return coo.extents[1]; }
  int64_t cols() const { return coo.extents[2]; }
};

std::string tiled_rows(const std::string& block, const std::string& reduction, const std::string& around,
                       int64_t feat_out, const sparse::VectorUnit& unit) {
  return sparse::tiled(
             {.block = block, .feat = feat_out, .within = {reduction}, .around = block + "." + around, .unit = unit}) +
         fmt::format("parallel({}.{})\n", block, around);
}

TensorView weights_of(const TensorView& w, int64_t relation) {
  const int64_t size = w.shape(1) * w.shape(2);
  return {static_cast<float*>(w.data()) + relation * size, DType::fp32, {w.shape(1), w.shape(2)}};
}

void clear(const TensorView& y) { std::fill_n(static_cast<float*>(y.data()), y.size(), 0.f); }

// A product of all nodes and an SpMM for each relation that has edges.
class RelationByRelation {
 public:
  explicit RelationByRelation(const Ablation& ablation)
      : x_(ablation.x->view), w_(ablation.y->view), y_(ablation.out->view), t_({x_.shape(0), w_.shape(2)}, 4) {
    const sparse::VectorUnit unit = sparse::vector_unit(current_isa());
    const int64_t feat_in = w_.shape(1), feat_out = w_.shape(2);
    product_ = sparse::compile(sparse::parse(kProduct), "lower()\n" + tiled_rows("product", "l", "j", feat_out, unit),
                               Device::cpu(), {.set = {{"feat_in", feat_in}, {"feat_out", feat_out}}});
    for (const auto& [relation, structure] : edges_by_relation(ablation.elements))
      // An operator each, which is bound once.
      parts_.push_back(
          {relation, structure,
           sparse::compile(sparse::parse(kAddOfRelation), "lower()\n" + tiled_rows("add", "j", "i", feat_out, unit),
                           Device::cpu(), {.set = {{"feat_out", feat_out}}})});
  }
  void run(Stream stream) const {
    clear(y_);
    for (const Part& part : parts_) {
      product_->run({.buffers = {{"X", x_}, {"W", weights_of(w_, part.relation)}, {"T", t_.view}}}, stream);
      part.add.run({.structures = {{"J", part.structure}}, .buffers = {{"T", t_.view}, {"Y", y_}}}, stream);
    }
  }

 private:
  struct Part {
    int64_t relation;
    sparse::Structure structure;
    Operator add;
  };
  TensorView x_, w_, y_;
  Floats t_;
  std::optional<Operator> product_;
  std::vector<Part> parts_;
};

// Products of what each relation's edges gather, all of them kept, and an SpMM that adds them to their rows.
class TransformedThenAdded {
 public:
  explicit TransformedThenAdded(const Ablation& ablation)
      : x_(ablation.x->view), w_(ablation.y->view), y_(ablation.out->view) {
    const Edges edges{ablation.elements};
    std::vector<std::pair<int32_t, int32_t>> sources;  // of a relation
    for (size_t e = 0; e < edges.size(); ++e) sources.emplace_back(edges.relation(e), edges.col(e));
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    std::vector<int32_t> indptr(static_cast<size_t>(edges.relations()) + 1, 0), indices;
    for (const auto& [relation, source] : sources) {
      ++indptr[static_cast<size_t>(relation) + 1];
      indices.push_back(source);
    }
    std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
    sources_ = sparse::csr(edges.relations(), edges.cols(), indptr, indices);
    sparse::Coo sums{.num_rows = edges.rows(), .num_cols = static_cast<int64_t>(sources.size())};
    for (size_t e = 0; e < edges.size(); ++e) {
      const auto at = std::lower_bound(sources.begin(), sources.end(), std::pair(edges.relation(e), edges.col(e)));
      sums.rows.push_back(edges.row(e));
      sums.cols.push_back(static_cast<int32_t>(at - sources.begin()));
    }
    sums_ = sparse::csr_from_coo(sums).structure;
    ones_.assign(edges.size(), 1.f);
    const int64_t feat_in = w_.shape(1), feat_out = w_.shape(2);
    t_ = Floats({static_cast<int64_t>(sources.size()), feat_out}, 4);
    transform_ = sparse::compile(sparse::parse(kTransform),
                                 "sparse_fuse(transform, R, S)\nlower()\n" +
                                     tiled_rows("transform", "l", "r_s", feat_out, sparse::vector_unit(current_isa())),
                                 Device::cpu(), {.set = {{"feat_in", feat_in}, {"feat_out", feat_out}}});
  }
  void run(Stream stream) const {
    transform_->run({.structures = {{"S", sources_}}, .buffers = {{"X", x_}, {"W", w_}, {"T", t_.view}}}, stream);
    sparse::spmm(sums_, {ones_.data(), DType::fp32, {static_cast<int64_t>(ones_.size())}}, t_.view, y_, {}, stream);
  }

 private:
  TensorView x_, w_, y_;
  sparse::Structure sources_, sums_;
  std::vector<float> ones_;
  Floats t_;
  std::optional<Operator> transform_;
};

class StackInHyb {
 public:
  explicit StackInHyb(const Ablation& ablation)
      : stack_(sparse::relations_from_coo(ablation.elements).structure),
        ones_(ablation.elements.coordinates[0].size(), 1.f),
        run_(candidate_of("", program_of(ablation.y->view),
                          {.structures = {{"J", stack_}},
                           .buffers = {{"A", {ones_.data(), DType::fp32, {static_cast<int64_t>(ones_.size())}}},
                                       {"X", ablation.x->view},
                                       {"W", ablation.y->view},
                                       {"Y", ablation.out->view}}})
                 .run) {}
  void run(Stream stream) const { run_(stream); }

 private:
  static CandidateProgram program_of(const TensorView& w) {
    return {kStack,
            stack_schedule(w.shape(2), sparse::vector_unit(current_isa())),
            {{"feat_in", w.shape(1)}, {"feat_out", w.shape(2)}}};
  }
  sparse::Structure stack_;
  std::vector<float> ones_;
  std::function<void(Stream)> run_;
};

class TilesOfRows {
 public:
  explicit TilesOfRows(const Ablation& ablation)
      : edges_(sparse::relational_from_coo(ablation.elements).structure),
        x_(ablation.x->view),
        w_(ablation.y->view),
        y_(ablation.out->view) {}
  void run(Stream stream) const { sparse::rgms(edges_, {}, x_, w_, y_, stream); }

 private:
  sparse::Structure edges_;
  TensorView x_, w_, y_;
};

// What the candidate stores is made by its first run.
template <class Made>
void add_candidate(const std::shared_ptr<const Ablation>& operands, Ablation& ablation, const char* name) {
  const auto made = std::make_shared<std::optional<Made>>();
  ablation.candidates.push_back({.name = name, .run = [made, operands](Stream stream) {
                                   if (!*made) made->emplace(*operands);
                                   (*made)->run(stream);
                                 }});
}

}  // namespace

const char* const kAddOfRelation = R"(program add(m, n, rows, nnz, feat_out):
  O = dense_fixed(1)
  I = sparse_variable(O, m, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  N = dense_fixed(n)
  K = dense_fixed(feat_out)
  T = buffer(N, K): fp32
  Y = buffer(M, K): fp32
  iterate add(O, I, J, K) "RSRS" as (o, i, j, k):
    Y[i, k] = Y[i, k] + T[j, k]
)";

std::vector<std::pair<int64_t, sparse::Structure>> edges_by_relation(const sparse::CooTensor& edges) {
  const Edges of{edges};
  std::vector<sparse::Coo> lists(static_cast<size_t>(of.relations()), {.num_rows = of.rows(), .num_cols = of.cols()});
  for (size_t e = 0; e < of.size(); ++e) {
    lists[static_cast<size_t>(of.relation(e))].rows.push_back(of.row(e));
    lists[static_cast<size_t>(of.relation(e))].cols.push_back(of.col(e));
  }
  std::vector<std::pair<int64_t, sparse::Structure>> parts;
  for (size_t r = 0; r < lists.size(); ++r)
    if (!lists[r].rows.empty()) parts.emplace_back(static_cast<int64_t>(r), sparse::dcsr_from_coo(lists[r]).structure);
  return parts;
}

Ablation relational(const std::string& name, const sparse::CooTensor& edges, int64_t feat_in, int64_t feat_out) {
  check(edges.extents.size() == 3 && edges.coordinates.size() == 3, ErrorCode::invalid_argument,
        "edges: there are {} dimensions; three are expected: relation, row, column", edges.extents.size());
  const auto [relations, rows, cols] = std::tuple(edges.extents[0], edges.extents[1], edges.extents[2]);
  // Products before sums, or behind them: one for each relation and column, or relation and row.
  const auto pairs_with = [&](size_t dimension) {
    std::set<std::pair<int32_t, int32_t>> pairs;
    for (size_t e = 0; e < edges.coordinates[0].size(); ++e)
      pairs.emplace(edges.coordinates[0][e], edges.coordinates[dimension][e]);
    return static_cast<double>(pairs.size());
  };
  auto operands = std::make_shared<Ablation>();
  operands->x = std::make_shared<Floats>(std::vector<int64_t>{cols, feat_in}, 1);
  operands->y = std::make_shared<Floats>(std::vector<int64_t>{relations, feat_in, feat_out}, 2);
  operands->out = std::make_shared<Floats>(std::vector<int64_t>{rows, feat_out}, 3);
  operands->elements = edges;
  Ablation ablation = *operands;
  ablation.name = fmt::format("ablation {} {} -> {}", name, feat_in, feat_out);
  ablation.flops = 2. * std::min(pairs_with(1), pairs_with(2)) * static_cast<double>(feat_in * feat_out);
  ablation.bytes = 8. * static_cast<double>(edges.coordinates[0].size()) +
                   4. * static_cast<double>(cols * feat_in + rows * feat_out + relations * feat_in * feat_out);
  add_candidate<RelationByRelation>(operands, ablation, "a relation at a time");
  add_candidate<TransformedThenAdded>(operands, ablation, "products kept, then added");
  add_candidate<StackInHyb>(operands, ablation, "3-D hyb(1, 5)");
  add_candidate<TilesOfRows>(operands, ablation, "tiles of rows");
  return ablation;
}

}  // namespace weft::bench
