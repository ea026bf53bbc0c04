// Attention by warpgroups (kernels/warpgroup_attend.h), broken in one place: the machine says what is wrong, whoever
// goes first. (Keys that are released before their wait are no fault: their stage is filled behind the release of
// values, which come later.)
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/simt/boxes.h"
#include "tests/simt/host/compile.h"
#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

namespace weft::text {
extern const char* const warpgroup;
}  // namespace weft::text

namespace weft::simt {
namespace {

struct Broken {
  const char *name, *file, *from, *to;
  const char* says;  // in each order of threads
  bool gathers = false;
};
const char* const kAttend = "tests/simt/kernels/warpgroup_attend.h";
const char* const kStages = "tile/cuda/stages.h";
const Broken kBroken[] = {
    {"None", kAttend, "", "", ""},
    {"OutputsWithoutAFence", kAttend, "ptx::wgmma_fence(o, p);", "", "that this thread has touched ("},
    {"ScoresBeforeTheirWait", kAttend, "ptx::wgmma_wait<1>(s);", "ptx::wgmma_wait<2>(s);",
     "under way: wait for its group"},
    {"OutputsNotNamed", kAttend, "ptx::wgmma_wait<0>(o, p);\n        release_values();",
     "ptx::wgmma_wait<0>(p);\n        release_values();", "and does not name them"},
    {"ValuesReleasedBeforeTheWait", kAttend, "ptx::wgmma_wait<0>(o, p);\n        release_values();",
     "release_values();\n        ptx::wgmma_wait<0>(o, p);", "a product read it ("},
    {"QueriesReleasedBeforeTheWait", kAttend, "of_queries.wait();", "of_queries.wait();\n      of_queries.release();",
     "multiplies A of 16 bytes"},
    {"ValuesNotWaitedFor", kAttend, "of_values.wait();", "", "multiplies B of 16 bytes"},
    {"KeysOfTheOtherStage", kAttend, "keys(of_keys.stage()).rows(0, k)", "keys(1 - of_keys.stage()).rows(0, k)",
     "multiplies B of 16 bytes"},
    {"EmptyStageOfTheOtherParity", kStages, "parity() ^ 1", "parity()", "no thread can go on: "},
    {"FullStageOfTheOtherParity", kStages, "&barriers_.full[stage()], parity())",
     "&barriers_.full[stage()], parity() ^ 1)", "multiplies A of 16 bytes"},
    {"NobodyHasTheFirstTurn", kAttend, "Turns::begin();", "", "wait in named_sync at "},
    {"OneWarpgroupReleases", kAttend, "barriers().keys.init(kGathers ? 128 : 1, kGroups);",
     "barriers().keys.init(1, 1);", "mbarrier at byte "},
    {"EveryWarpReleases", kStages, "% 128 == 0) ptx::mbarrier_arrive", "% 32 == 0) ptx::mbarrier_arrive",
     "mbarrier at byte "},
    {"BytesOfHalfABox", kAttend, "walk.fill(to.bytes())", "walk.fill(to.bytes() / 2)", "and copies bring 32768"},
    {"MbarriersWithoutAFence", kAttend, "ptx::fence_mbarrier_init();", "",
     "no fence_mbarrier_init() lies between the two"},
    {"DescriptorsOfAnotherSwizzle", kAttend, "static tile::PanelTile<kKeyTile> keys(int stage) {",
     "static tile::PanelTile<abi::MatrixTile{128, 128, abi::Swizzle::bytes_64}> keys(int stage) {",
     "brought it in rows of 128 bytes, and the descriptor's have 64"},
    {"QueriesFromTheMiddle", kAttend, "queries().rows(64 * group, k)", "queries().rows(60 * group, k)",
     "which is no multiple of eight rows"},
    {"ValuesBehindTheLast", kAttend, "values(of_values.stage()).columns(k, 0)",
     "values(of_values.stage()).columns(k + 16, 0)", "outside of its tile"},
    {"ProbabilitiesOfTheNextTile", kAttend,
     "ptx::wgmma_wait<0>(o, p);\n        release_values();\n        tile::pack_a<bf16>(p, s);",
     "tile::pack_a<bf16>(p, s);\n        ptx::wgmma_wait<0>(o, p);\n        release_values();",
     "writes registers of A of a product ("},
    {"OutputsScaledTooLate", kAttend, "ptx::wgmma_commit();\n    };\n    const auto release_values",
     "ptx::wgmma_commit();\n      o[0] *= 2;\n    };\n    const auto release_values", "accumulators of a product ("},
    {"RegistersBeyondThoseGivenUp", kAttend, "ptx::decrease_registers<kOfLoader>();",
     "ptx::decrease_registers<kOfLoader + 8>();", "registers a thread more, of which"},
    {"NoneThatGathers", kAttend, "", "", "", true},
    {"GatheredWithoutAFence", kStages, "ptx::fence_async_shared();", "",
     "through the generic proxy, and no fence_async_shared() lies between", true},
    {"GatheredInFlight", kAttend, "ptx::cp_async_wait<pending>();", "ptx::cp_async_wait<pending + 1>();",
     "multiplies B of 16 bytes at byte ", true},
    {"GatheredByOneWarpForAll", kAttend, "barriers().keys.init(kGathers ? 128 : 1, kGroups);",
     "barriers().keys.init(kGathers ? 32 : 1, kGroups);", "mbarrier at byte ", true},
    {"GatheredBehindTheLast", kAttend, "is_there ? args_.row_of_key[key] : 0", "args_.row_of_key[key]", "out of bounds",
     true},
};

class BrokenWarpgroups : public testing::TestWithParam<Broken> {
 protected:
  // What the machine says of it; empty: nothing.
  std::string run(Order order) {
    std::mt19937 random(20261127);
    const auto matrix = [&](int rows) {
      std::vector<unsigned short> bits(static_cast<size_t>(rows * 128));
      for (unsigned short& b : bits)
        b = static_cast<unsigned short>(std::bit_cast<unsigned>(static_cast<float>(random() % 5)) >> 16);
      return bits;
    };
    Memory memory;
    const int heads = 2, rows = 128, keys = 380;
    WarpgroupAttendArgs args =
        args_of(kAttendShapes[0],
                {memory.make("q", matrix(heads * rows)).data(), memory.make("k", matrix(heads * keys)).data(),
                 memory.make("v", matrix(heads * keys)).data(),
                 memory.make<float>("o", static_cast<size_t>(heads * rows * 128)).data(),
                 memory.make<float>("lse", static_cast<size_t>(heads * rows)).data()},
                heads, rows, keys, false);
    std::vector<int> row_of_key(static_cast<size_t>(keys));
    std::iota(row_of_key.rbegin(), row_of_key.rend(), 0);
    args.k_rows = args.k.layout.data, args.v_rows = args.v.layout.data;
    args.row_of_key = memory.make("row of key", row_of_key).data();
    try {
      simt::run(memory,
                {.threads = kAttendShapes[0].threads(),
                 .shared_bytes = static_cast<size_t>(kAttendShapes[0].shared_bytes()),
                 .order = order},
                [&] { kernel_(args); });
    } catch (const Fault& fault) {
      return fault.what();
    }
    return {};
  }

  void (*kernel_)(WarpgroupAttendArgs) = nullptr;
};

TEST_P(BrokenWarpgroups, AreFound) {
  const Broken& broken = GetParam();
  const bool is_broken = *broken.from != '\0';
  if (is_broken) break_kernels({broken.file, broken.from, broken.to});
  std::string error;
  const char* const kernel = broken.gathers ? "WEFT_WARPGROUP_GATHER(0)" : "WEFT_WARPGROUP_ATTEND(0)";
  void* const module = compile(fmt::format("#include \"{}\"\n{}\n", kAttend, kernel), text::warpgroup, error);
  break_kernels({});
  ASSERT_NE(module, nullptr) << error;
  kernel_ = reinterpret_cast<void (*)(WarpgroupAttendArgs)>(
      dlsym(module, broken.gathers ? "weft_warpgroup_gather_0" : "weft_warpgroup_attend_0"));
  for (const Order order : {Order::up, Order::down, Order::random}) {
    const std::string found = run(order);
    EXPECT_EQ(found.empty(), !is_broken) << found;
    EXPECT_NE(found.find(broken.says), std::string::npos) << found;
  }
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenWarpgroups, testing::ValuesIn(kBroken),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::simt
