// A grid of operators x formats x pairs of primitives: what is accepted computes what the program says without a
// schedule. Lines are made of whatever loops, iterations and buffers an operator has. Every primitive meets every
// format alone, and every other primitive in one format or another; some of each are compiled.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>

#include "sparse/operator.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "tests/sparse/ready_programs.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

constexpr int64_t kWidth = 5;

struct GridOperator {
  std::string name = {}, text = {};
  std::string axis = "J";
  std::function<Structure(const Matrix& a)> structure = [](const Matrix& a) { return a.structure(); };
  std::map<std::string, int64_t> set = {}, scalars = {};
  std::map<std::string, double> reals = {};
  std::string decomposed = {};            // "sddmm, A": what formats are made of
  std::vector<std::string> formats = {};  // beside the program's own
};

void PrintTo(const GridOperator& grid, std::ostream* out) { *out << grid.name; }

std::vector<GridOperator> grid_operators() {
  const DType fp32 = DType::fp32;
  const std::string relations = example("rgms_hyb");
  const std::map<std::string, int64_t> feat{{"feat", kWidth}}, heads{{"heads", 2}};
  const std::vector<std::string> formats = {"csr()",         "ell(2), csr()", "bsr(2)",    "csc()",
                                            "coo()",         "dcsr()",        "dbsr(2)",   "dia()",
                                            "sr_bcrs(2, 3)", "hyb(1, 2)",     "hyb(2, 1)", "bsr(2), csr()"};
  return {
      {.name = "sddmm", .text = kSddmmProgram, .set = feat, .decomposed = "sddmm, A", .formats = formats},
      {.name = "weighted_spmm",
       .text = weighted_spmm_program(kWidth).text,
       .set = feat,
       .decomposed = "spmm, A",
       .formats = {"csr()", "hyb(1, 2)"}},
      {.name = "transposed_spmm", .text = transposed_spmm_program(kWidth, true).text, .axis = "I", .set = feat},
      {.name = "edge_dots", .text = edge_dots_program(kWidth).text, .set = feat},
      {.name = "graph_attention",
       .text = attention_program(kWidth, 4, fp32).text,
       .set = {{"feat", kWidth}, {"feat_v", 4}},
       .reals = {{"scale", 0.7}}},
      {.name = "fused_mm", .text = fused_mm_program(kWidth, fp32).text, .set = feat},
      {.name = "batched_spmm", .text = batched_spmm_program(kWidth, fp32).text, .set = feat, .scalars = heads},
      {.name = "batched_sddmm", .text = batched_sddmm_program(kWidth, fp32).text, .set = feat, .scalars = heads},
      {.name = "block_spmm",
       .text = block_spmm_program(1, 4, kWidth, fp32).text,
       .axis = "JO",
       .structure = [](const Matrix& a) { return bsr_from_coo(a.coo(), 4).structure; },
       .set = feat,
       .scalars = {{"heads", 1}}},
      {.name = "block_sddmm",
       .text = block_sddmm_program(1, 16, 2, fp32).text,
       .axis = "JO",
       .structure = [](const Matrix& a) { return bsr_from_coo(a.coo(), 16).structure; },
       .set = {{"feat", 2}},
       .scalars = {{"heads", 1}}},
      {.name = "dbsr_spmm",
       .text = dbsr_spmm_program(4, kWidth, fp32).text,
       .axis = "JO",
       .structure = [](const Matrix& a) { return dbsr_from_coo(a.coo(), 4).structure; },
       .set = feat},
      {.name = "sr_bcrs_spmm",
       .text = sr_bcrs_spmm_program(2, 3, kWidth, fp32).text,
       .structure = [](const Matrix& a) { return sr_bcrs_from_coo(a.coo(), 2, 3).structure; },
       .set = feat},
      {.name = "rgms",
       .text = rgms_program(8, true, 2, kWidth, fp32).text,
       .structure = [](const Matrix& a) { return relational_from_coo(in_relations(a), 8).structure; },
       .set = {{"feat_in", 2}, {"feat_out", kWidth}},
       .scalars = {{"m", 40}}},
      {.name = "relations",
       .text = relations.substr(0, relations.find("schedule:")),
       .structure = [](const Matrix& a) { return relations_from_coo(in_relations(a)).structure; },
       .set = {{"feat_in", 2}, {"feat_out", kWidth}},
       .decomposed = "rgms, A",
       .formats = {"hyb(1, 2)", "hyb(2, 1)"}},
  };
}

struct Line {
  std::string primitive, text;
  bool stage1 = false;
};

// All lines that a program's iterations and loops allow to be written, legal or not.
class Lines {
 public:
  explicit Lines(const Compilation& made) {
    const bool is_decomposed = !made.schedule.decompositions().empty();
    for (const Iteration& it : made.source.iterations) {
      const std::vector<std::string> axes = it.flat_axes();
      for (size_t a = 0; a + 1 < axes.size() && !is_decomposed; ++a) {
        std::vector<std::string> order = axes;
        std::swap(order[a], order[a + 1]);
        add("sparse_reorder", fmt::format("sparse_reorder({}, {})\n", it.name, fmt::join(order, ", ")), true);
        add("sparse_fuse", fmt::format("sparse_fuse({}, {}, {})\n", it.name, axes[a], axes[a + 1]), true);
      }
    }
    walk(made.compute2.body, {});
    for (const auto& [block, loops] : nests_)
      for (const auto& [other, others] : nests_)
        if (block != other)
          for (const std::string& loop : others) {
            add("compute_at", fmt::format("compute_at({}, {}.{})\n", block, other, loop));
            add("reverse_compute_at", fmt::format("reverse_compute_at({}, {}.{})\n", block, other, loop));
          }
    for (const SparseBuffer& buffer : made.stage1.buffers)
      if (buffer.temporary) add("set_scope", fmt::format("set_scope({}, register)\n", buffer.name));
  }
  std::vector<const Line*> of(const std::string& primitive) const {
    std::vector<const Line*> found;
    for (const Line& line : all_)
      if (line.primitive == primitive) found.push_back(&line);
    return found;
  }

 private:
  void add(const char* primitive, std::string text, bool stage1 = false) {
    all_.push_back({primitive, std::move(text), stage1});
  }
  void walk(const Body& body, const std::vector<std::pair<std::string, bool>>& above) {
    for (const Stmt& stmt : body) {
      auto loops = above;
      if (stmt.kind == Stmt::Kind::loop) loops.emplace_back(stmt.name, stmt.reduction);
      if (stmt.kind == Stmt::Kind::block) add_nest(stmt, loops);
      walk(stmt.body, loops);
    }
  }
  void add_nest(const Stmt& block, const std::vector<std::pair<std::string, bool>>& loops) {
    const std::string& b = block.name;
    add("atomic", fmt::format("atomic({})\n", b));
    add("compute_inline", fmt::format("compute_inline({})\n", b));
    for (size_t l = 0; l < loops.size(); ++l) {
      const auto& [v, reduction] = loops[l];
      const std::string loop = b + "." + v;
      const auto with_inner = [&](const char* stem, int factor, const char* then) {
        const std::string inner = fmt::format("{}_{}_{}_i", stem, b, v);
        add(stem, fmt::format("{0}_{1}_{2}_o, {3} = split({4}, {5})\n", stem, b, v, inner, loop, factor) +
                      fmt::format(fmt::runtime(then), inner));
      };
      with_inner("split", 3, "");
      with_inner("vectorize", 4, "vectorize({0})\n");
      with_inner("unroll", 2, "unroll({0})\n");
      with_inner("fuse", 2, "");
      all_.back().text += fmt::format("fused_{1}_{2} = fuse({0}_{1}_{2}_o, {0}_{1}_{2}_i)\n", "fuse", b, v);
      if (reduction) with_inner("rfactor", 2, "rfactor({0}, register)\n");
      add("parallel", fmt::format("parallel({})\n", loop));
      add("bind", fmt::format("bind({}, blockIdx.x)\n", loop));
      add("cache_write", fmt::format("cache_write({}, register)\n", loop));
      add("decompose_reduction", fmt::format("decompose_reduction({})\n", loop));
      add("blockize", fmt::format("whole_{}_{} = blockize({})\n", b, v, loop));
      add("annotate", fmt::format("annotate({}, prefetch, 2)\n", loop));
      nests_[b].push_back(v);
      if (l + 1 < loops.size()) {
        const std::string inner = b + "." + loops[l + 1].first;
        add("reorder", fmt::format("reorder({}, {})\n", inner, loop));
        add("cache_write", fmt::format("reorder({}, {})\ncache_write({}, register)\n", inner, loop, inner));
      }
      Names loaded;
      for (const Stmt& store : block.body)
        if (store.value)
          loop::visit(store.value, [&](const Expr& e) {
            if (e->op == Op::load) loaded.insert(e->name);
          });
      for (const std::string& buffer : loaded)
        add("cache_read", fmt::format("cache_read({}, {}, register)\n", loop, buffer));
    }
  }

  std::vector<Line> all_;
  std::map<std::string, std::vector<std::string>> nests_;  // blocks -> loops, outer ones first
};

constexpr const char* kKinds[] = {"sparse_reorder", "sparse_fuse", "compute_at", "reverse_compute_at",
                                  "compute_inline", "set_scope",   "split",      "fuse",
                                  "reorder",        "cache_write", "cache_read", "rfactor",
                                  "blockize",       "vectorize",   "unroll",     "decompose_reduction",
                                  "annotate",       "atomic",      "parallel",   "bind"};

// The operator over one matrix, and what the program computes of it without a schedule.
struct OperatorCase {
  OperatorCase(const GridOperator& grid, const Operator& op, Shape shape)
      : matrix(random_matrix(shape, 840 + static_cast<uint32_t>(shape))),
        memory(op, {.structures = {{grid.axis, grid.structure(matrix)}}, .scalars = grid.scalars, .reals = grid.reals},
               850) {
    const loop::Memory computed = interpret_operator(op, memory.arguments, Stage::source);
    for (const std::string& output : outputs_of(op)) want[output] = computed.buffers.at(output);
  }
  void expect_stage(const Operator& op, Stage stage, const std::string& what) const {
    const loop::Memory computed = interpret_operator(op, memory.arguments, stage);
    for (const auto& [output, values] : want)
      expect_close(computed.buffers.at(output), values, 1e-6,
                   fmt::format("{}: {}, stage {}", what, output, static_cast<int>(stage)));
  }
  void expect_compiled(const Operator& op, const std::string& what) {
    for (const auto& [output, values] : want) {
      const TensorView& target = memory.arguments.buffers.at(output);
      std::fill_n(target.as<float>(), target.size(), std::nanf(""));
    }
    op.run(memory.arguments);
    for (const auto& [output, values] : want)
      expect_close(values_of(memory.arguments.buffers.at(output)), values, 1e-5, what + ": " + output + ", compiled");
  }
  Matrix matrix;
  RunMemory memory;
  std::map<std::string, std::vector<double>> want;
};

class OperatorGrid : public ::testing::TestWithParam<GridOperator> {
 protected:
  struct Format {
    std::string lines;
    Lines all;
  };
  void SetUp() override {
    const GridOperator& grid = GetParam();
    std::vector<std::string> decompositions = {""};
    for (const std::string& format : grid.formats)
      decompositions.push_back(fmt::format("decompose_format({}, {})\n", grid.decomposed, format));
    for (const std::string& lines : decompositions)
      formats_.push_back({lines, Lines(compiled(lines + "lower()\n", "schedule stage II").impl().made)});
    const Operator op = compiled("", "generate");
    for (const Shape shape : {Shape::uniform, Shape::power_law, Shape::empty_rows, Shape::one_dense_row, Shape::blocks})
      cases_.emplace_back(grid, op, shape);
  }
  static Operator compiled(const std::string& schedule, const char* stop_after) {
    return compile(parse(GetParam().text), schedule, Device::cpu(), {.set = GetParam().set, .stop_after = stop_after});
  }
  // Runs what is accepted; whether it was.
  bool run(const Format& format, const std::vector<const Line*>& lines) {
    std::string stage1, stage2;
    for (const Line* line : lines) (line->stage1 ? stage1 : stage2) += line->text;
    const std::string schedule = stage1 + format.lines + "lower()\n" + stage2;
    const bool compiles = is_to_be_compiled(lines);
    std::optional<Operator> op;
    try {
      op = compiled(schedule, "generate");
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
          << schedule << error.what();
      return false;
    } catch (const InternalError& error) {
      ADD_FAILURE() << schedule << error.what();
      return false;
    }
    OperatorCase& on = cases_[num_accepted_++ % cases_.size()];
    try {
      for (const Stage stage : interpreted_stages())
        if (lines.size() == 1 || stage == Stage::three) on.expect_stage(*op, stage, schedule);
      if (compiles) {
        for (const Line* line : lines) compiled_.insert(line->primitive);
        on.expect_compiled(compiled(schedule, ""), schedule);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << schedule << error.what();
    }
    return true;
  }
  // Pairs of primitives that were in none before, a few for each operator.
  bool is_to_be_compiled(const std::vector<const Line*>& lines) const {
    constexpr size_t kMost = 4;
    if (lines.size() < 2 || compiled_.size() >= 2 * kMost) return false;
    return std::ranges::none_of(lines, [&](const Line* line) { return compiled_.contains(line->primitive); });
  }
  // The first lines of the primitives, in an order of its own for each pair, that are accepted together.
  void run_some(const Format& format, const char* first, const char* second, int tries) {
    std::vector<const Line*> a = format.all.of(first), b = format.all.of(second);
    std::shuffle(a.begin(), a.end(), random_);
    std::shuffle(b.begin(), b.end(), random_);
    for (size_t t = 0; t < static_cast<size_t>(tries) && !a.empty() && !b.empty(); ++t)
      if (run(format, {a[t % a.size()], b[t % b.size()]}) || HasFailure()) return;
  }

  std::vector<Format> formats_;
  std::vector<OperatorCase> cases_;
  std::set<std::string> compiled_;
  std::mt19937 random_{860};
  size_t num_accepted_ = 0;
};

TEST_P(OperatorGrid, EveryPairOfPrimitivesComputesTheSame) {
  for (const Format& format : formats_) {
    ASSERT_TRUE(run(format, {})) << format.lines;
    for (const char* primitive : kKinds) {
      std::vector<const Line*> lines = format.all.of(primitive);
      std::shuffle(lines.begin(), lines.end(), random_);
      for (size_t t = 0; t < std::min<size_t>(lines.size(), 4); ++t)
        if (run(format, {lines[t]}) || HasFailure()) break;
      ASSERT_FALSE(HasFailure());
    }
  }
  size_t number = 0;
  for (const char* const* first = std::begin(kKinds); first != std::end(kKinds); ++first)
    for (const char* const* second = first; second != std::end(kKinds); ++second) {
      const Format& format = formats_[number++ % formats_.size()];
      if (testing::kUnderSanitizer && number % 10 != 0) continue;  // what is interpreted alike is watched alike
      run_some(format, *first, *second, 3);
      ASSERT_FALSE(HasFailure());
    }
  EXPECT_GE(num_accepted_, testing::kUnderSanitizer ? 10u : 40u);
  EXPECT_GE(compiled_.size(), testing::kUnderSanitizer ? 2u : 6u);
}
INSTANTIATE_TEST_SUITE_P(Operators, OperatorGrid, ::testing::ValuesIn(grid_operators()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace weft::sparse::test
