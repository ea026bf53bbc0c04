#include <numeric>

#include "attention/params.h"
#include "tests/attention/variant/leaf_harness.h"

namespace weft::test {
namespace {

constexpr float kScale = 0.125f;
constexpr double kScaleD = 0.125;

LeafRun make_run(const LeafHandle& handle, const AttentionSpec& spec, Target target, std::vector<abi::ScoreRow> rows,
                 const std::vector<ScalarArg>& scalars = {}, const std::vector<TensorArg>& tensors = {}) {
  return LeafRun(*handle.leaf, target, pack_params(spec, kScale, scalars, tensors), std::move(rows));
}

std::optional<double> plain(const Cell&, double raw) { return raw * kScaleD; }

bool in_row_interval(const Cell& c) {
  return (c.kv_pos >= c.row.lower[0] && c.kv_pos < c.row.upper[0]) ||
         (c.kv_pos >= c.row.lower[1] && c.kv_pos < c.row.upper[1]);
}

TEST(Leaf, PlainSoftmaxCarriesItsStateOverFullAndPartialTiles) {
  std::mt19937 random(1);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const AttentionSpec spec;
    const LeafHandle handle = find_leaf(spec, target.isa);
    LeafRun run = make_run(handle, spec, target, rows_of(5, 5, 300));
    run.tile({.num_kv = 64}, plain, random);
    run.tile({.num_kv = 128, .kv_begin = 64}, plain, random);
    for (const int num_kv : {1, 31, 32, 33, 45})
      run.tile({.num_kv = num_kv, .kv_begin = 192, .boundary = true}, plain, random, kNan);
  }
}

TEST(Leaf, ABoundaryTileThatHidesNothingGivesTheBitsOfAFullOne) {
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    AttentionSpec spec;
    spec.variant = variants::logits_soft_cap();
    const LeafHandle handle = find_leaf(spec, target.isa);
    std::vector<float> m[2], l[2];
    for (const bool boundary : {false, true}) {
      std::mt19937 random(7);
      LeafRun run = make_run(handle, spec, target, rows_of(4, 4, 128), {{"cap", 5.0}});
      run.tile(
          {.num_kv = 128, .boundary = boundary},
          [](const Cell&, double raw) { return 5.0 * std::tanh(raw * kScaleD / 5.0); }, random);
      m[boundary] = run.m();
      l[boundary] = run.l();
    }
    EXPECT_EQ(m[0], m[1]);
    EXPECT_EQ(l[0], l[1]);
  }
}

TEST(Leaf, ABoundaryTileGivesTheBitsOfAFullOneUnderAnyScale) {
  for (const Target& target : targets())
    for (const float scale : {0.125f, 0.1020620726f, -0.3f, 0.f, 1e-41f}) {
      SCOPED_TRACE(to_string(target) + " scale " + std::to_string(scale));
      const AttentionSpec spec;
      const LeafHandle handle = find_leaf(spec, target.isa);
      std::vector<float> m[2], l[2];
      for (const bool boundary : {false, true}) {
        std::mt19937 random(7);
        LeafRun run(*handle.leaf, target, pack_params(spec, scale, {}, {}), rows_of(4, 4, 128));
        run.tile(
            {.num_kv = 128, .boundary = boundary}, [&](const Cell&, double raw) { return raw * double{scale}; },
            random);
        m[boundary] = run.m();
        l[boundary] = run.l();
      }
      EXPECT_EQ(m[0], m[1]);
      EXPECT_EQ(l[0], l[1]);
    }
}

// Of large maxima a rounding is much: what was summed before must move on by what the base of probabilities does.
TEST(Leaf, ATileThatLeavesTheMaximumAsItIsLeavesWhatWasSummedAsItIs) {
  std::mt19937 random(3);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const AttentionSpec spec;
    const LeafHandle handle = find_leaf(spec, target.isa);
    const auto rows = rows_of(8, 8, 32);
    std::vector<int> positions(32);
    std::iota(positions.begin(), positions.end(), 0);
    for (const float top : {3.7f, 1234.567f, -16383.3f}) {
      std::vector<float> m(8, top), l(8, 1.f), alpha(8), scores(8 * 32);
      std::vector<uint16_t> halves(8 * 32);
      for (float& x : m) x += std::normal_distribution<float>()(random);
      for (size_t i = 0; i < scores.size(); ++i) scores[i] = m[i / 32] - 40;
      const std::vector<float> before = m;
      attention::cpu::core_for(target.isa)
          .softmax({.rows = rows.data(),
                    .kv_positions = positions.data(),
                    .num_rows = 8,
                    .num_kv_padded = 32,
                    .use_softmax = 1,
                    .boundary = 0,
                    .scale = 1,
                    .scores = scores.data(),
                    .ld = 32,
                    .probs_bf16 = target.compute == DType::bf16 ? halves.data() : nullptr,
                    .m = m.data(),
                    .l = l.data(),
                    .alpha = alpha.data()});
      EXPECT_EQ(m, before);
      EXPECT_EQ(alpha, std::vector<float>(8, 1.f)) << top;
    }
  }
}

TEST(Leaf, RowsSeeTheUnionOfTwoIntervalsAndNothingOutside) {
  std::mt19937 random(2);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const AttentionSpec spec;
    const LeafHandle handle = find_leaf(spec, target.isa);
    LeafRun run = make_run(handle, spec, target, rows_of(4, 4, 96));
    // Sinks and a window; a row that sees nothing; overlapping intervals; an empty second one.
    const int lower[4][2] = {{0, 40}, {96, 0}, {10, 20}, {5, 0}}, upper[4][2] = {{4, 60}, {96, 0}, {30, 25}, {6, 0}};
    for (size_t r = 0; r < 4; ++r)
      for (size_t k = 0; k < 2; ++k) {
        run.rows()[r].lower[k] = lower[r][k];
        run.rows()[r].upper[k] = upper[r][k];
      }
    for (const float poison : {0.f, kNan, std::numeric_limits<float>::infinity()})
      run.tile(
          {.num_kv = 90, .boundary = true},
          [](const Cell& c, double raw) { return in_row_interval(c) ? std::optional(raw * kScaleD) : std::nullopt; },
          random, poison);
    EXPECT_EQ(run.l()[1], 0.f);
  }
}

TEST(Leaf, AFullyMaskedRowStaysEmptyAndLaterTilesStartIt) {
  std::mt19937 random(3);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const AttentionSpec spec;
    const LeafHandle handle = find_leaf(spec, target.isa);
    LeafRun run = make_run(handle, spec, target, rows_of(2, 2, 64));
    run.rows()[0].upper[0] = 0;
    const Expected inside = [](const Cell& c, double raw) {
      return in_row_interval(c) ? std::optional(raw * kScaleD) : std::nullopt;
    };
    run.tile({.num_kv = 32, .boundary = true}, inside, random, kNan);
    EXPECT_TRUE(std::isinf(run.m()[0]));
    run.rows()[0].upper[0] = 64;
    run.tile({.num_kv = 32, .kv_begin = 32, .boundary = true}, inside, random, kNan);
    EXPECT_EQ(run.alpha()[0], 0.f);
    EXPECT_GT(run.l()[0], 0.f);
  }
}

TEST(Leaf, ASoftCapThatIsNotAboveZeroOrIsInfiniteIsNone) {
  std::mt19937 random(14);
  const AttentionSpec spec{.variant = variants::logits_soft_cap()};
  for (const Target& target : targets())
    for (const double cap : {std::numeric_limits<double>::infinity(), 1e300, 0.0, -0.0, -5.0}) {
      SCOPED_TRACE(to_string(target) + ", cap " + std::to_string(cap));
      LeafRun run = make_run(find_leaf(spec, target.isa), spec, target, rows_of(6, 2, 128), {{"cap", cap}});
      run.tile({.num_kv = 77, .kv_begin = 32, .boundary = true}, plain, random);
    }
}

TEST(Leaf, SoftCapAlibiAndSigmoidAgreeWithTheirFormulas) {
  std::mt19937 random(4);
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f};
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    for (const bool boundary : {false, true}) {
      const TileShape shape{.num_kv = boundary ? 77 : 96, .kv_begin = 32, .boundary = boundary};
      AttentionSpec spec{.variant = variants::logits_soft_cap()};
      LeafHandle handle = find_leaf(spec, target.isa);
      LeafRun cap = make_run(handle, spec, target, rows_of(6, 2, 128), {{"cap", 2.5}});
      cap.tile(
          shape, [](const Cell&, double raw) { return 2.5 * std::tanh(raw * kScaleD / 2.5); }, random);

      spec.variant = variants::alibi();
      handle = find_leaf(spec, target.isa);
      LeafRun alibi = make_run(handle, spec, target, rows_of(6, 2, 128), {},
                               {{"slopes", TensorView(slopes.data(), DType::fp32, {3})}});
      const Expected biased = [&](const Cell& c, double raw) {
        return raw * kScaleD +
               static_cast<double>(slopes[static_cast<size_t>(c.row.qo_head)]) * (c.kv_pos - c.row.q_pos);
      };
      alibi.tile(shape, biased, random);
      TileShape scattered = shape;
      for (int j = 0; j < shape.num_kv; ++j) scattered.positions.push_back(j * 37 % 128);
      alibi.tile(scattered, biased, random);

      spec.variant = variants::sigmoid();
      handle = find_leaf(spec, target.isa);
      EXPECT_EQ(handle.leaf->use_softmax, 0);
      LeafRun sigmoid = make_run(handle, spec, target, rows_of(6, 2, 128), {{"bias", -1.0}});
      sigmoid.tile(
          shape, [](const Cell&, double raw) { return 1 / (1 + std::exp(1 - raw * kScaleD)); }, random);
    }
  }
}

// Two requests in one array: the second's mask begins behind the first's.
struct Masks {
  static constexpr int kQo[2] = {3, 5}, kKv[2] = {41, 77};
  std::vector<uint8_t> bools, packed;
  std::vector<int64_t> indptr = {0}, byte_indptr = {0};
  Masks() {
    std::mt19937 random(5);
    for (int r = 0; r < 2; ++r) {
      const int elements = kQo[r] * kKv[r];
      std::vector<uint8_t> bits(static_cast<size_t>((elements + 7) / 8));
      for (int e = 0; e < elements; ++e) {
        const bool see = random() % 3 != 0;
        bools.push_back(see ? 1 : 0);
        if (see)
          bits[static_cast<size_t>(e / 8)] = static_cast<uint8_t>(bits[static_cast<size_t>(e / 8)] | (1 << (e % 8)));
      }
      packed.insert(packed.end(), bits.begin(), bits.end());
      indptr.push_back(static_cast<int64_t>(bools.size()));
      byte_indptr.push_back(static_cast<int64_t>(packed.size()));
    }
    packed.resize(packed.size() + 4);
  }
  bool see(const Cell& c) const {
    return bools[static_cast<size_t>(indptr[static_cast<size_t>(c.row.batch)] + c.row.qo_idx * c.row.kv_len +
                                     c.kv_idx)];
  }
};

TEST(Leaf, CustomMasksAsBoolAndAsBitsHideTheSameKeysWithEveryVariant) {
  const Masks masks;
  std::mt19937 random(6);
  for (const Target& target : targets())
    for (const Mask mask : {Mask::custom, Mask::custom_packed})
      for (const bool capped : {false, true}) {
        SCOPED_TRACE(to_string(target) + (mask == Mask::custom ? " bool" : " bits") + (capped ? " capped" : ""));
        const AttentionSpec spec{.mask = mask, .variant = capped ? variants::logits_soft_cap() : Variant{}};
        const LeafHandle handle = find_leaf(spec, target.isa);
        EXPECT_EQ(handle.leaf->has_predicate, 1);
        const auto& flat = mask == Mask::custom ? masks.bools : masks.packed;
        const auto& starts = mask == Mask::custom ? masks.indptr : masks.byte_indptr;
        const std::vector<TensorArg> tensors = {
            {"mask", TensorView(flat.data(), DType::uint8, {static_cast<int64_t>(flat.size())})},
            {"mask_indptr", TensorView(starts.data(), DType::int64, {3})}};
        std::vector<ScalarArg> scalars;
        if (capped) scalars.push_back({"cap", 4.0});
        for (int r = 0; r < 2; ++r) {
          LeafRun run =
              make_run(handle, spec, target, rows_of(Masks::kQo[r], Masks::kQo[r], Masks::kKv[r], r), scalars, tensors);
          const Expected expected = [&](const Cell& c, double raw) {
            const double s = raw * kScaleD;
            return masks.see(c) ? std::optional(capped ? 4.0 * std::tanh(s / 4.0) : s) : std::nullopt;
          };
          run.tile({.num_kv = 32, .boundary = false}, expected, random);
          run.tile({.num_kv = Masks::kKv[r] - 32, .kv_begin = 32, .boundary = true}, expected, random, kNan);
          run.tile({.num_kv = Masks::kKv[r] - 3, .kv_begin = 3, .boundary = true}, expected, random, kNan);
        }
      }
}

TEST(Leaf, WithoutSoftmaxHiddenKeysHaveProbabilityZeroWhateverTheyHold) {
  std::mt19937 random(8);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const AttentionSpec spec{.variant = variants::sigmoid()};
    const LeafHandle handle = find_leaf(spec, target.isa);
    LeafRun run = make_run(handle, spec, target, rows_of(3, 3, 64), {});
    run.rows()[1].lower[0] = 20;
    run.tile(
        {.num_kv = 50, .boundary = true},
        [](const Cell& c, double raw) {
          return in_row_interval(c) ? std::optional(1 / (1 + std::exp(-raw * kScaleD))) : std::nullopt;
        },
        random, kNan);
  }
}

TEST(Leaf, NanInAnAttendedSlotMakesItsRowNanAndNoOther) {
  for (const Target& target : targets())
    for (const uint32_t payload : {0x7fc00000u, 0x7fc00001u, 0x7fffffffu, 0xffc00000u, 0x7fa00000u, 0xffffffffu}) {
      const auto rows = rows_of(2, 2, 32);
      std::vector<float> scores(64, 1.f), m(2, -std::numeric_limits<float>::infinity()), l(2), alpha(2);
      std::vector<uint16_t> halves(64);
      std::vector<int> positions(32);
      std::iota(positions.begin(), positions.end(), 0);
      scores[7] = std::bit_cast<float>(payload);
      attention::cpu::core_for(target.isa)
          .softmax({.rows = rows.data(),
                    .kv_positions = positions.data(),
                    .num_rows = 2,
                    .num_kv_padded = 32,
                    .use_softmax = 1,
                    .boundary = 0,
                    .scale = kScale,
                    .scores = scores.data(),
                    .ld = 32,
                    .probs_bf16 = target.compute == DType::bf16 ? halves.data() : nullptr,
                    .m = m.data(),
                    .l = l.data(),
                    .alpha = alpha.data()});
      EXPECT_TRUE(std::isnan(l[0])) << std::hex << payload;
      EXPECT_TRUE(std::isnan(target.compute == DType::bf16 ? from_bf16(halves[7]) : scores[7])) << std::hex << payload;
      EXPECT_EQ(l[1], 32.f);
    }
}

TEST(Leaf, NegativeAndZeroScalesAreLikeAnyOther) {
  std::mt19937 random(9);
  for (const double scale : {-0.5, 0.0}) {
    const AttentionSpec spec;
    const Target target = targets().back();
    const LeafHandle handle = find_leaf(spec, target.isa);
    for (const bool boundary : {false, true}) {
      LeafRun run(*handle.leaf, target, pack_params(spec, static_cast<float>(scale), {}, {}), rows_of(3, 3, 64));
      run.tile(
          {.num_kv = 64, .boundary = boundary}, [&](const Cell&, double raw) { return raw * scale; }, random);
    }
  }
}

}  // namespace
}  // namespace weft::test
