#include "cli/model_options.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(StepForm, IsSaidOnceAndOnACardAlone) {
  ::testing::internal::CaptureStderr();
  say_step_form("cpu", "layered");
  say_step_form("cuda:1", "layered: as asked");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "weft: steps: layered: as asked\n");
}

}  // namespace
}  // namespace weft::cli
