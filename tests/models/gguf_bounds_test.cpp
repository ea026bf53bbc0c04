// No byte of a file is believed: cut or changed anywhere it is refused with a true message, and nothing is read that it
// does not hold.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/byte_source.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/guarded_arrays.h"
#include "weft/error.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::encode;
using testing::encode_array;
using testing::GgufWriter;
using testing::GuardedArrays;

// A byte read behind the header ends the program.
ModelFile open_guarded(const std::string& name, std::string_view bytes) {
  const GuardedArrays guard;
  return open_model(open_memory(name, bytes));
}

TEST(GgufBounds, a_byte_behind_a_guarded_array_ends_the_program) {
  for (const size_t size : {size_t{1}, size_t{33}, size_t{4096}, size_t{100000}})
    EXPECT_DEATH(
        {
          const GuardedArrays guard;
          auto array = std::make_unique_for_overwrite<char[]>(size);
          array[size - 1] = 'x';
          const volatile char* behind = array.get() + size;
          (void)*behind;
          std::_Exit(0);
        },
        "");
}

// What a message says of a field that is cut off must be true: where it begins, what it takes, where the file ends.
void expect_true_of_a_cut(const std::string& message, unsigned long long file_bytes) {
  unsigned long long needs = 0, at = 0, end = 0;
  if (const size_t found = message.find(" needs "); found != std::string::npos) {
    ASSERT_EQ(std::sscanf(message.c_str() + found, " needs %llu bytes at byte %llu, but the file ends at byte %llu",
                          &needs, &at, &end),
              3)
        << message;
    EXPECT_EQ(end, file_bytes) << message;
    EXPECT_LE(at, file_bytes) << message;
    EXPECT_GT(needs, file_bytes - at) << message;
    return;
  }
  bool names_the_end = false;
  for (const char* words : {"bytes left hold at most", "bytes left", "tensor data start at byte", "reach beyond the"})
    names_the_end = names_the_end || message.find(words) != std::string::npos;
  EXPECT_TRUE(names_the_end) << message;
}

// Every length short of the whole file is an error, whatever stands at the cut.
TEST(GgufBounds, truncation_at_every_byte_is_refused_with_the_place_of_the_cut) {
  GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("a.texts", std::vector<std::string>{"x", "", "yz"});
  gguf.add("a.number", 1.5f).add("a.flag", true).add("a.list", std::vector<int32_t>{1, 2, 3});
  gguf.add_tensor({.name = "a", .extents = {4, 2}, .data = std::string(32, '\1')});
  gguf.add_tensor({.name = "b", .extents = {32}, .type = GgufWriter::kQ8_0, .data = std::string(34, '\2')});
  const std::string bytes = gguf.bytes();
  ASSERT_NO_THROW(open_guarded("whole", bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    try {
      open_guarded("part", part);
      FAIL() << "accepted " << size << " of " << bytes.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file) << error.what();
      expect_true_of_a_cut(error.what(), size);
    }
  }
}

// The last field may end where the file does, and every byte short of it is one too few.
TEST(GgufBounds, a_value_of_any_kind_may_end_with_the_file) {
  using Add = void (*)(GgufWriter&);
  const Add adds[] = {
      [](GgufWriter& g) { g.add("last", 7u); },
      [](GgufWriter& g) { g.add("last", "text"); },
      [](GgufWriter& g) { g.add("last", ""); },
      [](GgufWriter& g) {
        g.add("last", std::vector<int32_t>{1, 2, 3});
      },
      [](GgufWriter& g) {
        g.add("last", std::vector<std::string>{"", "", ""});
      },
      [](GgufWriter& g) {
        g.add("last", std::vector<std::string>{"x", "yz"});
      },
      [](GgufWriter& g) { g.add("last", std::vector<std::string>{}); },
      [](GgufWriter& g) {
        g.add_raw("last", GgufWriter::kArray, encode_array(GgufWriter::kU64, 2, std::string(16, '\1')));
      },
      [](GgufWriter& g) { g.add_raw("last", GgufWriter::kBool, "\1"); },
  };
  for (const Add add : adds) {
    GgufWriter gguf;
    add(gguf);
    const std::string bytes = gguf.bytes();
    EXPECT_TRUE(open_guarded("whole", bytes).has("last"));
    for (size_t size = bytes.size() - 1; size + 24 > bytes.size(); --size) {
      const std::string part = bytes.substr(0, size);
      try {
        open_guarded("part", part);
        ADD_FAILURE() << "accepted " << size << " of " << bytes.size() << " bytes";
      } catch (const Error& error) {
        expect_true_of_a_cut(error.what(), size);
      }
    }
  }
}

// Any byte of the header may have any value: the file is accepted or refused, nothing else.
TEST(GgufBounds, any_changed_byte_is_accepted_or_refused_with_an_error) {
  GgufWriter gguf;
  gguf.add("general.architecture", "llama")
      .add("a.texts", std::vector<std::string>{"x", "", "yz"})
      .add("general.alignment", 64u);
  gguf.alignment = 64;
  gguf.add_tensor({.name = "a", .extents = {4, 2}, .data = std::string(32, '\1')});
  const std::string bytes = gguf.bytes();
  int accepted = 0, refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      try {
        const ModelFile file = open_guarded("changed", changed);
        if (file.has("a.texts")) (void)file.get_strings("a.texts");
        for (const WeightInfo& weight : file.weights()) {
          std::string data(weight.bytes, '\0');
          file.read(weight, 0, weight.rows, data.data());
        }
        ++accepted;
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

// Zeros, but for what is put in.
class SparseSource : public ByteSource {
 public:
  SparseSource(uint64_t size, std::vector<std::pair<uint64_t, std::string>> pieces)
      : size_(size), pieces_(std::move(pieces)) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return size_; }
  void read(uint64_t offset, void* to, uint64_t bytes) const override {
    ASSERT_LE(offset + bytes, size_);
    std::memset(to, 0, bytes);
    for (const auto& [at, piece] : pieces_)
      for (size_t i = 0; i < piece.size(); ++i)
        if (at + i >= offset && at + i < offset + bytes) static_cast<char*>(to)[at + i - offset] = piece[i];
  }

 private:
  std::string name_ = "sparse";
  uint64_t size_;
  std::vector<std::pair<uint64_t, std::string>> pieces_;
};

TEST(GgufBounds, a_header_of_more_than_256_mib_is_refused_before_it_is_read) {
  constexpr uint64_t kMany = uint64_t{200} << 20, kLimit = uint64_t{256} << 20;
  GgufWriter gguf;
  gguf.num_values = 2;
  gguf.add_raw("a", GgufWriter::kString, encode(kMany));
  const std::string begin = gguf.bytes();
  const std::string second = encode(std::string_view("b")) + encode(uint32_t{GgufWriter::kString});
  const uint64_t second_at = begin.size() + kMany, text_at = second_at + second.size() + 8;
  const auto open = [&](uint64_t text_bytes) {
    const GuardedArrays guard;
    return open_model(std::make_unique<SparseSource>(
        uint64_t{1} << 30,
        std::vector<std::pair<uint64_t, std::string>>{{0, begin}, {second_at, second + encode(text_bytes)}}));
  };
  EXPECT_TRUE(open(kLimit - text_at).has("b"));
  try {
    open(kLimit - text_at + 1);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_file);
    EXPECT_NE(std::string(error.what()).find("allowed are headers of up to 268435456 bytes"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft
