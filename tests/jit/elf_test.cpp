#include "jit/host/elf.h"

#include <rapidcheck.h>

#include "jit/host/compile.h"
#include "support.h"

namespace weft::jit {
namespace {

class ElfTest : public JitTest {
 protected:
  // Without sanitizers, whatever this build has: the symbols are to be the text's own.
  std::string shared_object(const std::string& text) {
    const std::string source = write("object.cpp", text), object = folder_ + "/object.so";
    const std::string command = WEFT_TEST_CXX " -shared -fPIC -nostdlib -o " + object + " " + source;
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read(object);
  }
};

TEST_F(ElfTest, NamesWhatMustComeFromElsewhere) {
  const std::string object = shared_object(
      "extern \"C\" double sin(double); extern \"C\" void there(); extern \"C\" __attribute__((weak)) void maybe();\n"
      "extern \"C\" double f(double x) { there(); if (maybe) maybe(); return sin(x); }\n");
  auto undefined = undefined_symbols(object);
  ASSERT_TRUE(undefined);
  std::sort(undefined->begin(), undefined->end());
  EXPECT_EQ(*undefined, (std::vector<std::string>{"sin", "there"}));
}

TEST_F(ElfTest, FindsNothingInACompleteObject) {
  const auto undefined = undefined_symbols(shared_object(text_of(1)));
  ASSERT_TRUE(undefined);
  EXPECT_TRUE(undefined->empty());
}

TEST_F(ElfTest, SurvivesAnyDamage) {
  const std::string object = shared_object(text_of(1));
  EXPECT_FALSE(undefined_symbols(""));
  EXPECT_FALSE(undefined_symbols("#!/bin/sh\n"));
  for (size_t size = 0; size < object.size(); size += 61) EXPECT_FALSE(undefined_symbols(object.substr(0, size)));
  EXPECT_TRUE(rc::check([&] {
    std::string damaged = object;
    for (int i = 0; i < 8; ++i)
      damaged[*rc::gen::inRange<size_t>(0, damaged.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
    undefined_symbols(damaged);  // any answer, as long as it comes
  }));
}

}  // namespace
}  // namespace weft::jit
