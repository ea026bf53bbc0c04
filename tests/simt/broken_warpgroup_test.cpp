// Attention by warpgroups (kernels/warpgroup_attend.h), broken in one place: the machine says what is wrong, whoever
// goes first.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
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
  const char *name, *from, *to;
  const char* says;  // in each order of threads
};
// (Keys that are released before their wait are no fault: their stage is filled behind the release of values, which
// come later.)
const Broken kBroken[] = {
    {"None", "", "", ""},
    {"OutputsWithoutAFence", "ptx::wgmma_fence(o, p);", "", "that this thread has touched ("},
    {"ScoresBeforeTheirWait", "ptx::wgmma_wait<1>(s);", "ptx::wgmma_wait<2>(s);", "under way: wait for its group"},
    {"OutputsNotNamed", "ptx::wgmma_wait<0>(o, p);\n      release(", "ptx::wgmma_wait<0>(p);\n      release(",
     "and does not name them"},
    {"ValuesReleasedBeforeTheWait", "ptx::wgmma_wait<0>(o, p);\n      release(&all.no_values[(tile - 1) % 2]);",
     "release(&all.no_values[(tile - 1) % 2]);\n      ptx::wgmma_wait<0>(o, p);", "a product read it ("},
    {"ValuesNotWaitedFor", "ptx::mbarrier_wait(&all.values[tile % 2], parity(tile));", "", "multiplies B of 16 bytes"},
    {"KeysOfTheOtherStage", "keys(tile).rows(0, k), k > 0)", "keys(tile + 1).rows(0, k), k > 0)",
     "multiplies B of 16 bytes"},
    {"EmptyStageOfTheOtherParity", "ptx::mbarrier_wait(&all.no_keys[tile % 2], parity(tile) ^ 1);",
     "ptx::mbarrier_wait(&all.no_keys[tile % 2], parity(tile));", "no thread can go on: "},
    {"NobodyHasTheFirstTurn", "if (group == kGroups - 1) give_turn();", "", "wait in named_sync at "},
    {"OneWarpgroupReleases", "ptx::mbarrier_init(&all.no_keys[i], kGroups);", "ptx::mbarrier_init(&all.no_keys[i], 1);",
     "mbarrier at byte "},
    {"BytesOfHalfABox", "ptx::mbarrier_arrive_expect(barrier, to.bytes());",
     "ptx::mbarrier_arrive_expect(barrier, to.bytes() / 2);", "and copies bring 32768"},
    {"MbarriersWithoutAFence", "ptx::fence_mbarrier_init();", "", "no fence_mbarrier_init() lies between the two"},
    {"DescriptorsOfAnotherSwizzle", "static tile::PanelTile<kKeyTile> keys(int tile) {",
     "static tile::PanelTile<abi::MatrixTile{128, 128, abi::Swizzle::bytes_64}> keys(int tile) {",
     "brought it in rows of 128 bytes, and the descriptor's have 64"},
    {"QueriesFromTheMiddle", "queries().rows(64 * group, k)", "queries().rows(60 * group, k)",
     "which is no multiple of eight rows"},
    {"ValuesBehindTheLast", "values(tile).columns(k, 0)", "values(tile).columns(k + 16, 0)", "outside of its tile"},
    {"ProbabilitiesOfTheNextTile",
     "ptx::wgmma_wait<0>(o, p);\n      release(&all.no_values[(tile - 1) % 2]);\n"
     "      tile::pack_a<bf16>(p, s);",
     "tile::pack_a<bf16>(p, s);\n      ptx::wgmma_wait<0>(o, p);\n      release(&all.no_values[(tile - 1) % 2]);",
     "writes registers of A of a product ("},
    {"OutputsScaledTooLate", "ptx::wgmma_commit();\n    };\n    const auto make_probabilities",
     "ptx::wgmma_commit();\n      o[0] *= 2;\n    };\n    const auto make_probabilities",
     "accumulators of a product ("},
    {"RegistersBeyondThoseGivenUp", "kOfLoader = kGroups == 2 ? 24 : 32", "kOfLoader = 32",
     "registers a thread more, of which"},
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
    const int rows = 128, keys = 512;
    const WarpgroupAttendArgs args =
        args_of(kAttendShapes[0],
                {memory.make("q", matrix(rows)).data(), memory.make("k", matrix(keys)).data(),
                 memory.make("v", matrix(keys)).data(), memory.make<float>("o", static_cast<size_t>(rows * 128)).data(),
                 memory.make<float>("lse", static_cast<size_t>(rows)).data()},
                rows, keys, false);
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
  if (is_broken) break_kernels({"tests/simt/kernels/warpgroup_attend.h", broken.from, broken.to});
  std::string error;
  void* const module =
      compile("#include \"tests/simt/kernels/warpgroup_attend.h\"\nWEFT_WARPGROUP_ATTEND(0)\n", text::warpgroup, error);
  break_kernels({});
  ASSERT_NE(module, nullptr) << error;
  kernel_ = reinterpret_cast<void (*)(WarpgroupAttendArgs)>(dlsym(module, "weft_warpgroup_attend_0"));
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
