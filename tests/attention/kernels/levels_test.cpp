// Levels against the fp64 reference: random trees of shared pages, every mask, variants that read positions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attention/cpu/leaf.h"
#include "attention/plan/planner.h"
#include "device/cpu/cpuid.h"
#include "problem.h"
#include "tests/attention/random_levels.h"

namespace weft::test::levels {
namespace {

using testing::Target;

using testing::get;
using testing::LevelOptions;
using testing::put;
using testing::RandomLevels;

struct Setting {
  DType dtype = DType::bf16;
  Layout layout = Layout::nhd;
  int group = 4, kv_heads = 2, head_dim = 64, page_size = 16;
  Mask mask = Mask::causal;
  int window = -2;
  Variant variant = {};
};

class Shared {
 public:
  Shared(const Setting& setting, const LevelOptions& options, unsigned seed)
      : setting_(setting), random_(seed), levels_(options, random_) {
    spec_ = {.q_dtype = setting.dtype,
             .kv_dtype = setting.dtype,
             .o_dtype = DType::fp32,
             .head_dim_qk = setting.head_dim,
             .head_dim_vo = setting.head_dim,
             .layout = setting.layout,
             .mask = setting.mask,
             .sliding_window = setting.window > -2,
             .variant = setting.variant};
    const int64_t rows = levels_.qo_indptr().back(), heads = setting.group * setting.kv_heads, dim = setting.head_dim;
    const std::vector<int64_t> pool =
        setting.layout == Layout::nhd
            ? std::vector<int64_t>{levels_.num_pages(), options.page_size, setting.kv_heads, dim}
            : std::vector<int64_t>{levels_.num_pages(), setting.kv_heads, options.page_size, dim};
    q_ = make({rows, heads, dim}, q_bytes_, setting.dtype);
    cache_ = KvCache(make(pool, k_bytes_, setting.dtype), make(pool, v_bytes_, setting.dtype));
    o_ = make({rows, heads, dim}, o_bytes_, DType::fp32);
    lse_ = make({rows, heads}, lse_bytes_, DType::fp32);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < q_.size(); ++i) put(q_.data(), setting.dtype, i, normal(random_));
    kill_pages(options.page_size);
    for (size_t r = 0; r + 1 < levels_.qo_indptr().size(); ++r) {
      const int64_t qo_len = levels_.qo_indptr()[r + 1] - levels_.qo_indptr()[r];
      for (int64_t i = 0; i < qo_len * levels_.kv_len()[r]; ++i) mask_.push_back(random_() % 3 != 0);
      mask_indptr_.push_back(static_cast<int64_t>(mask_.size()));
    }
    mask_.push_back(0);
    slopes_.assign(static_cast<size_t>(heads), 0.125f);
  }

  PlanInput input(int workers, PlanMode mode = PlanMode::balanced, int split = 0) {
    PlanInput in{.num_qo_heads = setting_.group * setting_.kv_heads,
                 .num_kv_heads = setting_.kv_heads,
                 .num_workers = workers,
                 .mode = mode,
                 .fixed_split_size = split};
    if (setting_.mask == Mask::custom) in.mask_indptr = mask_indptr_;
    if (setting_.window > -2) in.scalars = {{"window_left", static_cast<double>(setting_.window)}};
    levels_.give(in);
    return in;
  }
  PlanInput plain_input(int workers, PlanMode mode, int split) {
    PlanInput in = input(workers, mode, split);
    levels_.give_plain(in);
    return in;
  }

  AttentionTensors tensors() {
    AttentionTensors t{.q = q_, .kv = cache_, .o = o_};
    if (setting_.variant.use_softmax) t.lse = lse_;
    if (setting_.mask == Mask::custom)
      t.tensors = {{"mask", TensorView(mask_.data(), DType::uint8, {static_cast<int64_t>(mask_.size())})}};
    for (const TensorDecl& tensor : setting_.variant.tensors)
      t.tensors.push_back(
          {tensor.name, TensorView(slopes_.data(), DType::fp32, {static_cast<int64_t>(slopes_.size())})});
    return t;
  }

  // Runs the plan over poisoned outputs; the output's bytes.
  std::string run(const PlanInput& in, const Target& target) {
    const AttentionKernel kernel = build_on(target, spec_);
    const Plan plan = kernel.plan(in);
    for (std::vector<char>* out : {&o_bytes_, &lse_bytes_}) std::fill(out->begin(), out->end(), '\xff');
    run_on(target, kernel, plan, tensors());
    return std::string(o_bytes_.begin(), o_bytes_.end()) + std::string(lse_bytes_.begin(), lse_bytes_.end());
  }

  // The first thing that is wrong; empty when all is right.
  std::string compare(const Target& target) {
    if (reference_.o.empty()) reference_ = testing::measured_reference(spec_, input(1), tensors());
    const ErrorBound error_bound(spec_, testing::rounding(spec_, target.compute_types(spec_).back(), target));
    const size_t dim = static_cast<size_t>(setting_.head_dim), heads = static_cast<size_t>(o_.shape(1));
    for (size_t r = 0; r + 1 < levels_.qo_indptr().size(); ++r)
      for (size_t state = levels_.qo_indptr()[r] * heads; state < levels_.qo_indptr()[r + 1] * heads; ++state) {
        for (size_t i = state * dim; i < (state + 1) * dim; ++i) {
          const double o = o_.as<float>()[i], expected = reference_.o[i];
          const double bound = error_bound(levels_.kv_len()[r], reference_, i);
          if (!(std::abs(o - expected) <= bound))
            return "request " + std::to_string(r) + " o[" + std::to_string(i) + "] = " + std::to_string(o) +
                   ", reference " + std::to_string(expected);
        }
        if (reference_.lse.empty()) continue;
        const double lse = lse_.as<float>()[state], expected = reference_.lse[state];
        if (!(lse == expected || std::abs(lse - expected) <= error_bound.of_lse(reference_, state)))
          return "request " + std::to_string(r) + " lse " + std::to_string(lse) + ", reference " +
                 std::to_string(expected);
      }
    return "";
  }

  // NaN in the first value of the level's middle page.
  void spoil_value(size_t level) {
    PlanInput in;
    levels_.give(in);
    const auto& ids = in.levels[level].pages.kv_page_indices;
    if (ids.empty()) return;
    const int64_t at = ids[ids.size() / 2] * cache_.v.stride(0);
    put(cache_.v.data(), setting_.dtype, at, std::numeric_limits<double>::quiet_NaN());
  }
  std::span<char> value_bytes() { return v_bytes_; }
  ReferenceResult reference() { return attention_reference(spec_, input(1), tensors()); }
  const AttentionSpec& spec() const { return spec_; }
  RandomLevels& levels() { return levels_; }

 private:
  static TensorView make(const std::vector<int64_t>& shape, std::vector<char>& bytes, DType dtype) {
    int64_t size = bits_of(dtype) / 8;
    for (const int64_t extent : shape) size *= extent;
    bytes.assign(static_cast<size_t>(std::max<int64_t>(size, 64)), '\xff');
    return {bytes.data(), dtype, shape};
  }

  // Numbers where a request reads, NaN in dead pages and behind the end of an entry's last page.
  void kill_pages(int page_size) {
    PlanInput in;
    levels_.give(in);
    std::normal_distribution<double> normal;
    const bool nhd = setting_.layout == Layout::nhd;
    for (const Level& level : in.levels)
      for (size_t e = 0; e + 1 < level.pages.kv_page_indptr.size(); ++e)
        for (int i = level.pages.kv_page_indptr[e]; i < level.pages.kv_page_indptr[e + 1]; ++i) {
          const bool last = i + 1 == level.pages.kv_page_indptr[e + 1];
          for (const TensorView& side : {cache_.k, cache_.v})
            for (int slot = 0; slot < (last ? level.pages.kv_last_page_len[e] : page_size); ++slot)
              for (int head = 0; head < setting_.kv_heads; ++head)
                for (int d = 0; d < setting_.head_dim; ++d)
                  put(side.data(), setting_.dtype,
                      level.pages.kv_page_indices[static_cast<size_t>(i)] * side.stride(0) +
                          slot * side.stride(nhd ? 1 : 2) + head * side.stride(nhd ? 2 : 1) + d,
                      normal(random_));
        }
  }

  Setting setting_;
  std::mt19937 random_;
  RandomLevels levels_;
  AttentionSpec spec_;
  std::vector<char> q_bytes_, k_bytes_, v_bytes_, o_bytes_, lse_bytes_;
  std::vector<uint8_t> mask_;
  std::vector<int64_t> mask_indptr_{0};
  std::vector<float> slopes_;
  TensorView q_, o_, lse_;
  KvCache cache_;
  MeasuredReference reference_;
};

struct ModeChoice {
  PlanMode mode;
  int split, workers;
};
constexpr ModeChoice kModes[] = {{PlanMode::balanced, 0, 1},  {PlanMode::balanced, 0, 3},
                                 {PlanMode::balanced, 0, 40}, {PlanMode::paper, 0, 5},
                                 {PlanMode::no_split, 0, 2},  {PlanMode::fixed_split, 64, 4}};

TEST(AttentionLevels, AgreeWithTheReferenceForRandomTrees) {
  unsigned seed = 0;
  for (const Setting& setting :
       {Setting{}, Setting{.dtype = DType::fp32, .layout = Layout::hnd, .group = 3, .kv_heads = 3, .mask = Mask::none},
        Setting{.group = 1, .window = 40}, Setting{.dtype = DType::fp32, .mask = Mask::custom},
        Setting{.group = 7, .kv_heads = 1, .variant = variants::alibi()},
        Setting{.mask = Mask::none, .variant = variants::sigmoid()}, Setting{.variant = variants::attention_sink()}})
    for (const int num_levels : {1, 2, 3, 5}) {
      const bool split = ++seed % 3 == 0;
      Shared problem(setting,
                     {.num_levels = num_levels,
                      .requests = 2 + static_cast<int>(seed * 7 % 12),
                      .page_size = seed % 2 == 0 ? 16 : 5,
                      .max_qo_len = seed % 4 == 0 ? 40 : 3,
                      .max_pages = 12,
                      .border = split ? 64 : 1,
                      .shuffled = seed % 2 == 1},
                     seed);
      for (const ModeChoice& mode : kModes) {
        if (mode.mode == PlanMode::fixed_split && !split) continue;
        for (const Target* target : testing::targets_of_case(seed)) {
          problem.run(problem.input(mode.workers, mode.mode, mode.split), *target);
          ASSERT_EQ(problem.compare(*target), "")
              << "seed " << seed << " levels " << num_levels << " mode " << to_string(mode.mode) << " workers "
              << mode.workers << " " << target->name();
        }
      }
    }
}

TEST(AttentionLevels, EveryTileClassAgreesWithItsRowsIntervals) {
  ASSERT_EQ(setenv("WEFT_CHECK", "1", 1), 0);
  for (unsigned seed = 50; seed < 56; ++seed) {
    Shared problem({.window = seed % 2 == 0 ? 25 : -2}, {.num_levels = 3, .requests = 7, .shuffled = true}, seed);
    problem.run(problem.input(3), *testing::targets().back());
    EXPECT_EQ(problem.compare(*testing::targets().back()), "") << seed;
  }
  unsetenv("WEFT_CHECK");
}

TEST(AttentionLevels, FixedSplitGivesTheBitsOfThePlainPlan) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Setting setting{.group = 1 + static_cast<int>(seed % 4), .window = seed % 3 == 0 ? 100 : -2};
    Shared problem(setting,
                   {.num_levels = 2 + static_cast<int>(seed % 3),
                    .requests = 9,
                    .max_qo_len = seed % 2 == 0 ? 40 : 3,
                    .max_pages = 20,
                    .border = 64,
                    .shuffled = true,
                    .whole_pages = true},
                   seed);
    for (const Target* target : testing::targets_of_case(seed)) {
      const std::string plain = problem.run(problem.plain_input(1, PlanMode::fixed_split, 64), *target);
      EXPECT_TRUE(problem.run(problem.input(3, PlanMode::fixed_split, 64), *target) == plain)
          << "seed " << seed << " " << target->name();
    }
  }
}

// Rows of several requests share a tile of the level, and windows of different beginnings look into it.
TEST(AttentionLevels, NanInASharedValueStaysWithTheRowsThatSeeIt) {
  int spoilt = 0, clean = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Setting setting{.dtype = seed % 2 == 0 ? DType::fp32 : DType::bf16, .window = 20 * static_cast<int>(seed)};
    Shared problem(setting, {.requests = 9, .max_qo_len = 20, .max_pages = 20, .whole_pages = true}, seed);
    for (const Target* target : testing::targets_of_case(seed)) {
      const std::string before = problem.run(problem.input(3), *target);
      const std::vector<char> values(problem.value_bytes().begin(), problem.value_bytes().end());
      for (const size_t level : {0, 1}) problem.spoil_value(level);
      const std::string after = problem.run(problem.input(3), *target);
      const ReferenceResult reference = problem.reference();
      const int64_t dim = setting.head_dim;
      for (int64_t i = 0; i < static_cast<int64_t>(reference.o.size()); ++i) {
        const double value = get(after.data(), DType::fp32, i);
        const bool sees = std::isnan(reference.o[static_cast<size_t>(i / dim * dim)]);
        ASSERT_EQ(std::isnan(value), std::isnan(reference.o[static_cast<size_t>(i)])) << seed << " element " << i;
        if (!sees) {
          ASSERT_EQ(value, get(before.data(), DType::fp32, i)) << seed << " element " << i;
        }
        ++(sees ? spoilt : clean);
      }
      std::copy(values.begin(), values.end(), problem.value_bytes().begin());
    }
  }
  EXPECT_GT(spoilt, 0);
  EXPECT_GT(clean, 0);
}

TEST(AttentionLevels, OneWorkspaceReplaysPlansWithAndWithoutLevels) {
  const Target* target = testing::targets().back();
  const AttentionKernel kernel = build(Shared({}, {}, 1).spec(), Device::cpu());
  Workspace workspace(Device::cpu(), 16 << 20);
  WorkerTeam team(2);
  for (unsigned seed = 0; seed < 6; ++seed) {
    Shared problem({}, {.num_levels = 3, .requests = 8, .whole_pages = true}, seed);
    for (const bool plain : {false, true, false}) {
      const PlanInput in = plain ? problem.plain_input(4, PlanMode::balanced, 0) : problem.input(4);
      const std::string fresh = problem.run(in, *target);
      kernel.plan(in).upload(workspace);
      for (int layer = 0; layer < 2; ++layer) {
        kernel.run(workspace, problem.tensors(), Stream::cpu(team));
        EXPECT_EQ(problem.compare(*target), "") << seed << plain;
      }
    }
  }
}

}  // namespace
}  // namespace weft::test::levels
