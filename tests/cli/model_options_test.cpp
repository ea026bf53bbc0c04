#include "cli/model_options.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(StepForm, IsSaidOnACardAloneAndWhereItWasAskedFor) {
  ::testing::internal::CaptureStderr();
  say_step_form("cpu", "layered");
  say_step_form("cuda:1", "layered: as asked");
  say_step_form("cuda:1", "fused");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "weft: steps: fused\n");
}

}  // namespace
}  // namespace weft::cli
