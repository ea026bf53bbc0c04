// What a step of a token asks of a card's driver.
#include <map>
#include <string>

#include "tests/decode/random_forward.h"
#include "tests/device/cuda/fake_card.h"
#include "weft/model.h"

namespace weft {
namespace {

class StepCalls : public testing::FakeCard, protected testing::RandomModels {
 protected:
  StepCalls() { have_memory_without_bytes(); }
  static std::map<std::string, int64_t> calls() {
    std::map<std::string, int64_t> all;
    for (const auto& call : driver().calls) ++all[std::string(call)];
    return all;
  }
};

TEST_F(StepCalls, AreUploadsAGraphAndAWait) {
  const std::string path = write(testing::small_model("llama"));
  ForwardPass forward(ModelFile(path), {.device = Device::cuda(0), .max_tokens = 64, .step = StepForm::layered});
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> token{7};
  const auto step = [&] { forward.run({{.sequence = sequence, .tokens = token}}); };
  for (int i = 0; i < 20; ++i) step();  // a graph, and slots of pinned memory that were used before
  forget_driver_calls();
  step();
  EXPECT_EQ(calls(), (std::map<std::string, int64_t>{{"cuMemcpyHtoDAsync", 2},   // the plan; ids, places and angles
                                                     {"cuEventSynchronize", 1},  // the plan's slot of pinned memory
                                                     {"cuEventRecord", 1},  // that slot's, which orders streams too
                                                     {"cuGraphLaunch", 1},
                                                     {"cuStreamSynchronize", 1}}));
}

// That no worker gave up is seen in the host's memory.
TEST_F(StepCalls, OfFusedStepsAreAnUploadALaunchAndTheLogits) {
  const std::string path = write(testing::small_model("llama", testing::GgufWriter::kBF16));
  ForwardPass forward(ModelFile(path), {.device = Device::cuda(0), .max_tokens = 64, .step = StepForm::fused});
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> token{7};
  const auto step = [&] { forward.run({{.sequence = sequence, .tokens = token}}); };
  for (int i = 0; i < 20; ++i) step();
  forget_driver_calls();
  step();
  EXPECT_EQ(calls(), (std::map<std::string, int64_t>{{"cuMemcpyHtoDAsync", 1},   // ids, tables, angles
                                                     {"cuEventSynchronize", 1},  // their slot of pinned memory
                                                     {"cuEventRecord", 1},
                                                     {"cuLaunchKernelEx", 1},
                                                     {"cuMemcpyDtoHAsync", 1},
                                                     {"cuStreamSynchronize", 1}}));
}

}  // namespace
}  // namespace weft
