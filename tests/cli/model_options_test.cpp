#include "cli/model_options.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(StepForm, IsSaidUnlessStepsAreLayeredAsAsked) {
  ::testing::internal::CaptureStderr();
  say_step_form("layered: as asked");
  say_step_form("layered: the fused step: required device cpu");
  say_step_form("steps of up to 8 rows fused, others layered");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "weft: steps: layered: the fused step: required device cpu\n"
            "weft: steps: steps of up to 8 rows fused, others layered\n");
}

}  // namespace
}  // namespace weft::cli
