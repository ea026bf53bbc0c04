// What the host machine believes of sm_90a's own instructions, asked of a card.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <ostream>
#include <tuple>
#include <utility>

#include "jit/cuda/tensor_map.h"
#include "tests/simt/boxes.h"
#include "tests/simt/card.h"
#include "tests/simt/kernels/args.h"

extern "C" void weft_boxes(weft::BoxArgs args);
extern "C" void weft_cluster(weft::PersistentArgs args);
extern "C" void weft_warpgroup_attend(int shape, weft::WarpgroupAttendArgs args);
extern "C" void weft_warpgroup_gather(int shape, weft::WarpgroupAttendArgs args);
extern "C" void weft_warpgroup_gemm(weft::WarpgroupGemmArgs args);
extern "C" void weft_wgmma_form(int form, weft::WgmmaFormArgs args);

namespace weft::text {
extern const char* const warpgroup;
}  // namespace weft::text

namespace weft::simt {
namespace {

class SimtHopper : public SimtCard {
 protected:
  void SetUp() override {
    SimtCard::SetUp();
    if (!IsSkipped() && cuda::Card::at(0).capability_major() != 9) GTEST_SKIP() << "the card is no sm_90a";
  }
  // For the card; the machine reads layouts.
  static void encode(std::initializer_list<abi::TensorMap*> maps) {
    for (abi::TensorMap* map : maps)
      *map = cuda::tensor_map(cuda::cards(), Device::cuda(0), map->layout, "a tensor of the test");
  }
};

// A card that meets an instruction which it cannot run ends the process's work on it: what each instruction makes of
// each box is a test of its own.
struct BoxSteps {
  const char* name;
  bool prefetches, stores;
  friend std::ostream& operator<<(std::ostream& out, const BoxSteps& steps) { return out << steps.name; }
};
class SimtHopperBoxes : public SimtHopper, public testing::WithParamInterface<std::tuple<BoxCase, BoxSteps>> {
 public:
  static std::string name(const testing::TestParamInfo<ParamType>& info) {
    std::string name = fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param).name);
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }
};
TEST_P(SimtHopperBoxes, LieInSharedMemoryAsInTheMachine) {
  const auto& [test, steps] = GetParam();
  std::vector<unsigned> values(test.tensor_bytes() / 4);
  for (unsigned& value : values) value = static_cast<unsigned>(random_());
  const auto from = memory_.make("from", values), to = memory_.make<unsigned>("to", values.size()),
             shared = memory_.make<unsigned>("shared", static_cast<size_t>(test.layout(nullptr).box_bytes() / 4));
  compare(text::warpgroup, "weft_boxes", weft_boxes, {.threads = 64, .shared_bytes = kMostBoxBytes + 8},
          [&, &test = test, &steps = steps](const auto& at) {
            BoxArgs args = test.args(at(from.data()), at(to.data()), at(shared.data()));
            args.prefetches = steps.prefetches, args.stores = steps.stores;
            if (args.shared != shared.data()) encode({&args.from, &args.to});
            return args;
          });
}
constexpr BoxSteps kBoxSteps[] = {{"loaded", false, false}, {"prefetched", true, false}, {"stored", false, true}};
INSTANTIATE_TEST_SUITE_P(Cases, SimtHopperBoxes,
                         testing::Combine(testing::ValuesIn(kBoxCases), testing::ValuesIn(kBoxSteps)),
                         SimtHopperBoxes::name);

TEST_F(SimtHopper, ProductsOfWarpgroupsAreTheSameInEveryForm) {
  for (int i = 0; i < kWgmmaForms; ++i) {
    const WgmmaForm& form = forms::kAll[i];
    memory_ = {};
    const auto a = memory_.make("a", halves(64 * kFormDepth, form.bf16, 8)),
               b = memory_.make("b", halves(form.n * kFormDepth, form.bf16, 8));
    const auto d = memory_.make<float>("d", static_cast<size_t>(64 * form.n));
    compare(
        text::warpgroup + fmt::format("WEFT_WGMMA_FORM({})\n", i), fmt::format("weft_wgmma_form_{}", i),
        [&](const WgmmaFormArgs& args) { weft_wgmma_form(i, args); }, {.threads = 128, .shared_bytes = kFormShared},
        [&](const auto& at) {
          return WgmmaFormArgs{at(a.data()), at(b.data()), at(d.data())};
        });
  }
}

class SimtHopperClusters : public SimtHopper, public testing::WithParamInterface<int> {};
TEST_P(SimtHopperClusters, ExchangeTheSame) {
  std::vector<unsigned> values(256 * 16);
  for (unsigned& value : values) value = static_cast<unsigned>(random_());
  const auto x = memory_.make("x", values), y = memory_.make<unsigned>("y", values.size());
  compare(text::warpgroup, "weft_cluster", weft_cluster,
          {.ctas = 16, .threads = 256, .shared_bytes = 2048, .cluster = GetParam()}, [&](const auto& at) {
            return PersistentArgs{at(x.data()), at(y.data()), nullptr, nullptr};
          });
}
INSTANTIATE_TEST_SUITE_P(Of, SimtHopperClusters, testing::Values(1, 2, 4, 8), testing::PrintToStringParamName());

// Boxes, a ring of two stages, products and their fragments at once; three times, as a card's order of threads is any.
TEST_F(SimtHopper, ProductsOfMatricesAreTheSame) {
  struct Shape {
    int m, n, k;
  };
  for (const auto& [m, n, k] : {Shape{64, 128, 128}, Shape{640, 400, 1000}})
    for (int i = 0; i < 3; ++i) {
      memory_ = {};
      const auto a = memory_.make("a", halves(m * k, true, 8)), b = memory_.make("b", halves(n * k, true, 8));
      const auto c = memory_.make<float>("c", static_cast<size_t>(m * n));
      compare(text::warpgroup, "weft_warpgroup_gemm", weft_warpgroup_gemm,
              {.ctas = (m + 63) / 64 * ((n + 127) / 128), .threads = 160, .shared_bytes = kWarpgroupGemmShared},
              [&, m = m, n = n, k = k](const auto& at) {
                WarpgroupGemmArgs args = {};
                args.a.layout = layout_of(at(a.data()), m, k, kGemmA);
                args.b.layout = layout_of(at(b.data()), n, k, kGemmB);
                args.c = at(c.data()), args.m = m, args.n = n, args.k = k;
                if (args.c != c.data()) encode({&args.a, &args.b});
                return args;
              });
    }
}

struct AttendForm {
  const char* name;
  bool causal, gathers;
  friend std::ostream& operator<<(std::ostream& out, const AttendForm& form) { return out << form.name; }
};
class SimtHopperAttention : public SimtHopper, public testing::WithParamInterface<std::tuple<int, AttendForm>> {
 public:
  static std::string name(const testing::TestParamInfo<ParamType>& info) {
    const AttendShape& shape = kAttendShapes[std::get<0>(info.param)];
    return fmt::format("{}_{}_{}", shape.dim_qk, shape.dim_vo, std::get<1>(info.param).name);
  }
};
// Exponentials differ in their last bits, and with them probabilities' rounding: the outputs are near.
TEST_P(SimtHopperAttention, IsNear) {
  const int i = std::get<0>(GetParam());
  const AttendForm form = std::get<1>(GetParam());
  const AttendShape& shape = kAttendShapes[i];
  const int heads = form.causal ? 3 : 1, rows = form.causal ? 300 : 130, n = form.causal ? 500 : 260;
  const auto q = memory_.make("q", halves(heads * rows * shape.dim_qk, true, 2)),
             k = memory_.make("k", halves(heads * n * shape.dim_qk, true, 2)),
             v = memory_.make("v", halves(heads * n * shape.dim_vo, true, 2));
  const auto o = memory_.make<float>("o", static_cast<size_t>(heads * rows * (shape.dim_vo + 1)));
  std::vector<int> rows_of_keys(static_cast<size_t>(n));
  std::iota(rows_of_keys.rbegin(), rows_of_keys.rend(), 0);
  const auto row_of_key = memory_.make("row of key", rows_of_keys);
  compare(
      text::warpgroup + fmt::format("WEFT_WARPGROUP_{}({})\n", form.gathers ? "GATHER" : "ATTEND", i),
      fmt::format("weft_warpgroup_{}_{}", form.gathers ? "gather" : "attend", i),
      [&](const WarpgroupAttendArgs& args) {
        form.gathers ? weft_warpgroup_gather(i, args) : weft_warpgroup_attend(i, args);
      },
      {.ctas = 5, .threads = shape.threads(), .shared_bytes = static_cast<size_t>(shape.shared_bytes())},
      [&](const auto& at) {
        float* const out = at(o.data());
        WarpgroupAttendArgs args =
            args_of(shape, {at(q.data()), at(k.data()), at(v.data()), out, out + heads * shape.dim_vo * rows}, heads,
                    rows, n, form.causal);
        args.k_rows = at(k.data()), args.v_rows = at(v.data()), args.row_of_key = at(row_of_key.data());
        if (out != o.data()) encode({&args.q, &args.k, &args.v});
        return args;
      },
      "o", 0.02f);
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtHopperAttention,
                         testing::Combine(testing::Range(0, kNumAttendShapes),
                                          testing::Values(AttendForm{"whole", false, false},
                                                          AttendForm{"causal", true, false},
                                                          AttendForm{"gathered", true, true})),
                         SimtHopperAttention::name);

}  // namespace
}  // namespace weft::simt
