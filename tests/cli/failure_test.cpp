#include <gtest/gtest.h>

#include "cli/cli.h"

namespace weft::cli {
namespace {

TEST(FailureText, IsOneLine) {
  EXPECT_EQ(failure_text(Error(ErrorCode::io_error, "a\nfile:\r\nis missing")), "io_error: a file:  is missing");
}

TEST(FailureText, KeepsTheLinesOfAnExcerpt) {
  EXPECT_EQ(failure_text(Error(ErrorCode::compile_failed, "variant 'V':\n  >  3 | x;\r\n")),
            "compile_failed: variant 'V':\n  >  3 | x;");
}

TEST(ExitCode, TellsBadInputFromWhatTheMachineLacks) {
  EXPECT_EQ(exit_code_of(Error(ErrorCode::invalid_file, "")), 3);
  EXPECT_EQ(exit_code_of(Error(ErrorCode::no_compiler, "")), 4);
}

}  // namespace
}  // namespace weft::cli
