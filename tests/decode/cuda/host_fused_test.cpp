// The fused step on a card, its generated kernels in the host machine, against the reference in fp64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "forward_errors.h"
#include "tests/ops/cuda/host_card.h"
#include "weft/error.h"

namespace weft {
namespace {

using testing::errors_on_card;
using testing::GgufWriter;
using testing::random_ids;
using testing::random_model;
using testing::RandomModelOptions;
using testing::TempFolder;
using Ids = std::vector<int32_t>;

constexpr double kMeanError = 0.025;  // as on a card

class FusedOnACard : public testing::HostCard {
 protected:
  FusedOnACard() { testing::host_multiprocessors = 3; }
  ~FusedOnACard() override { testing::host_multiprocessors = 1; }
  std::string write(const RandomModelOptions& options) {
    const std::string path = folder_.path("model" + std::to_string(count_++) + ".gguf");
    random_model(options).write(path);
    return path;
  }
  TempFolder folder_;
  int count_ = 0;
};

RandomModelOptions bf16_model(const char* architecture = "llama") {
  RandomModelOptions options = testing::small_model(architecture);
  options.weights = GgufWriter::kBF16;
  return options;
}

TEST_F(FusedOnACard, AgreesWithTheReferenceInEveryArchitecture) {
  for (const char* architecture : testing::kArchitectures)
    EXPECT_LE(errors_on_card(write(bf16_model(architecture)), random_ids(13, 3), 8, {.step = StepForm::fused}).mean,
              kMeanError)
        << architecture;
}

}  // namespace
}  // namespace weft
