#include "device/cpu/module.h"

#include <dirent.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "weft/error.h"

namespace weft {
namespace {

std::string bytes_of(int answer) {
  std::ifstream in(std::string(MODULE_FOLDER) + "/module_answer_" + std::to_string(answer) + ".so", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int call(const Module& module, const char* name) { return reinterpret_cast<int (*)()>(module.symbol(name))(); }

int open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(Module, RunsTheBytesItWasGiven) {
  const auto module = Module::load(bytes_of(1), "one");
  EXPECT_EQ(call(*module, "answer"), 1);
  EXPECT_EQ(module->symbol("no_such_symbol"), nullptr);
}

TEST(Module, IsNotTakenForAnotherThatIsStillLoaded) {
  const auto one = Module::load(bytes_of(1), "same name");
  const auto two = Module::load(bytes_of(2), "same name");
  EXPECT_EQ(call(*one, "answer"), 1);
  EXPECT_EQ(call(*two, "answer"), 2);
}

TEST(Module, IsNotTakenForOneThatWasUnloaded) {
  for (int i = 0; i < 50; ++i) {
    const auto module = Module::load(bytes_of(1 + i % 2), "turns");
    EXPECT_EQ(call(*module, "answer"), 1 + i % 2);
  }
}

TEST(Module, HasItsOwnStateEvenWhenTheBytesAreTheSame) {
  const auto first = Module::load(bytes_of(1), "copy");
  const auto second = Module::load(bytes_of(1), "copy");
  EXPECT_EQ(call(*first, "count_calls"), 1);
  EXPECT_EQ(call(*first, "count_calls"), 2);
  EXPECT_EQ(call(*second, "count_calls"), 1);
}

TEST(Module, KeepsNoFileOpen) {
  const int before = open_files();
  std::vector<std::shared_ptr<const Module>> modules;
  for (int i = 0; i < 8; ++i) modules.push_back(Module::load(bytes_of(1), "kept"));
  EXPECT_EQ(open_files(), before);
}

TEST(Module, LoadsThroughAFileWhereThereIsNoProc) {
  const auto one = Module::load_from_file(bytes_of(1), "one");
  const auto two = Module::load_from_file(bytes_of(2), "two");
  EXPECT_EQ(call(*one, "answer"), 1);
  EXPECT_EQ(call(*two, "answer"), 2);
}

TEST(Module, RefusesBytesThatAreNoModuleWithTheLinkersReason) {
  for (auto load : {&Module::load, &Module::load_from_file}) {
    try {
      load("no machine code", "broken");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io_error);
      EXPECT_NE(std::string(error.what()).find("module 'broken' cannot be loaded: "), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("file too short"), std::string::npos) << error.what();
    }
  }
}

TEST(Module, RefusesTruncatedBytes) {
  const std::string bytes = bytes_of(1);
  EXPECT_THROW(Module::load(std::string_view(bytes).substr(0, 40), "truncated"), Error);
  EXPECT_THROW(Module::load("", "empty"), Error);
}

}  // namespace
}  // namespace weft
