#include "jit/entry.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace weft::jit {
namespace {

StoredModule sample() {
  return {.key = "k1",
          .name = "leaf",
          .compiler = "g++ 12",
          .identity = "id",
          .target = "x86_64-linux avx2",
          .flags = "-O3\n",
          .text = "int x;\n",
          .module = std::string("\x7f"
                                "ELF\0\1",
                                6)};
}

TEST(StoredModule, ComesBackAsItWasStored) {
  const auto back = decode(encode(sample()), "k1");
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), encode(sample()));
  EXPECT_EQ(back->name, "leaf");
  EXPECT_EQ(back->text, "int x;\n");
  EXPECT_EQ(back->module, sample().module);
}

TEST(StoredModule, IsRefusedUnderAnotherKey) { EXPECT_FALSE(decode(encode(sample()), "k2")); }

TEST(StoredModule, IsRefusedWhenCutAnywhere) {
  const std::string file = encode(sample());
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(decode(file.substr(0, size), "k1")) << size;
  EXPECT_FALSE(decode(file + "x", "k1"));
}

TEST(StoredModule, IsRefusedWithAnyBitFlipped) {
  const std::string file = encode(sample());
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(decode(flipped, "k1")) << "bit " << bit;
  }
}

TEST(StoredModule, SurvivesAnyContent) {
  EXPECT_TRUE(rc::check([](const std::string& name, const std::string& text, const std::string& module) {
    StoredModule stored = sample();
    stored.name = name;
    stored.text = text;
    stored.module = module;
    const auto back = decode(encode(stored), stored.key);
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->name == name && back->text == text && back->module == module);
  }));
}

}  // namespace
}  // namespace weft::jit
