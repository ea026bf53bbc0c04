// Models in several files: whichever part is named, all are read as one, and parts that do not belong together are
// refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "models/byte_source.h"
#include "models/layers.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::encode;
using testing::encode_array;
using testing::GgufWriter;
using testing::TempFolder;

// As gguf-split cuts: all metadata in the first part, and so many of the tensors in each.
std::vector<GgufWriter> parts_of(const GgufWriter& whole, const std::vector<size_t>& tensors) {
  std::vector<GgufWriter> parts(tensors.size());
  parts[0].values = whole.values;
  size_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto two_bytes = [](size_t number) { return encode(static_cast<uint32_t>(number)).substr(0, 2); };
    parts[i].add_raw("split.no", GgufWriter::kU16, two_bytes(i));
    parts[i].add_raw("split.count", GgufWriter::kU16, two_bytes(parts.size()));
    parts[i].add_raw("split.tensors.count", GgufWriter::kI32, encode(static_cast<uint32_t>(whole.tensors.size())));
    for (size_t k = 0; k < tensors[i]; ++k) parts[i].add_tensor(whole.tensors.at(next++));
  }
  EXPECT_EQ(next, whole.tensors.size());
  return parts;
}

class SplitFile : public ::testing::Test {
 protected:
  std::string path(size_t part, size_t count) const {
    const auto digits = [](size_t number) { return std::string("0000") + std::to_string(number); };
    return folder_.path("model-" + digits(part + 1) + "-of-" + digits(count) + ".gguf");
  }
  void write(const std::vector<GgufWriter>& parts) const {
    for (size_t i = 0; i < parts.size(); ++i) parts[i].write(path(i, parts.size()));
  }
  // Two tensors, eight and the rest.
  std::vector<GgufWriter> good_parts() const { return parts_of(whole_, {2, 8, whole_.tensors.size() - 10}); }

  void expect_refusal(const std::string& name, ErrorCode code, const std::vector<std::string>& mentions) const {
    try {
      const ModelFile file(name);
      FAIL() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const std::string& mention : mentions)
        EXPECT_NE(std::string(error.what()).find(mention), std::string::npos) << mention << " in " << error.what();
    }
  }
  // Of three parts, one of which is spoilt, whichever is named.
  void expect_refusal(size_t spoilt, const std::function<void(GgufWriter&)>& spoil, ErrorCode code,
                      const std::string& mention) const {
    std::vector<GgufWriter> parts = good_parts();
    spoil(parts[spoilt]);
    write(parts);
    const std::string name = std::filesystem::path(path(spoilt, 3)).filename();
    for (size_t named = 0; named < 3; ++named)
      if (named != spoilt) expect_refusal(path(named, 3), code, {mention, name});
  }

  TempFolder folder_;
  GgufWriter whole_ = testing::random_model({.weights = GgufWriter::kQ8_0});
};

std::string bytes_of(const ModelFile& file, const WeightInfo& weight) {
  std::string bytes(weight.bytes, '\0');
  file.read(weight, 0, weight.rows, bytes.data());
  return bytes;
}

TEST_F(SplitFile, AnyPartOpensTheWholeModel) {
  const std::string single = folder_.path("whole.gguf");
  whole_.write(single);
  const ModelFile expected(single);
  for (const std::vector<size_t>& tensors :
       {std::vector<size_t>{2, 8, whole_.tensors.size() - 10}, {0, whole_.tensors.size()}}) {
    const std::vector<GgufWriter> parts = parts_of(whole_, tensors);
    write(parts);
    for (size_t named = 0; named < parts.size(); ++named) {
      const ModelFile file(path(named, parts.size()));
      check_weights(file);
      EXPECT_EQ(file.path(), path(0, parts.size()));
      EXPECT_EQ(file.config().num_layers, 2);
      uint64_t bytes = 0;
      for (const GgufWriter& part : parts) bytes += part.bytes().size();
      EXPECT_EQ(file.file_bytes(), bytes);
      ASSERT_EQ(file.weights().size(), expected.weights().size());
      for (const WeightInfo& weight : expected.weights())
        EXPECT_EQ(bytes_of(file, file.weight(weight.name)), bytes_of(expected, weight)) << weight.name;
    }
  }
}

TEST_F(SplitFile, OneOfOnePartIsAFileLikeAnyOther) {
  for (const uint32_t count : {0u, 1u}) {
    GgufWriter gguf = whole_;
    gguf.add("split.count", count).add("split.no", 0u);
    gguf.write(folder_.path("any name"));
    EXPECT_EQ(ModelFile(folder_.path("any name")).weights().size(), whole_.tensors.size());
  }
}

TEST_F(SplitFile, PartsMayHaveAlignmentsOfTheirOwn) {
  std::vector<GgufWriter> parts = good_parts();
  parts[1].alignment = 256;
  parts[1].add("general.alignment", 256u);
  write(parts);
  const ModelFile file(path(0, 3));
  for (const GgufWriter::Tensor& tensor : whole_.tensors)
    EXPECT_EQ(bytes_of(file, file.weight(tensor.name)), tensor.data) << tensor.name;
}

TEST_F(SplitFile, APartThatIsMissingIsNamed) {
  write(good_parts());
  std::filesystem::remove(path(1, 3));
  for (const size_t named : {size_t{0}, size_t{2}})
    expect_refusal(path(named, 3), ErrorCode::io_error, {"part 2 of the 3", path(1, 3)});
}

TEST_F(SplitFile, APartUnderAnotherNameIsRefusedWithTheNameThatItNeeds) {
  write(good_parts());
  std::filesystem::rename(path(1, 3), folder_.path("second.gguf"));
  expect_refusal(folder_.path("second.gguf"), ErrorCode::invalid_file, {"second.gguf", "'-00002-of-00003.gguf'"});
  std::filesystem::rename(path(2, 3), path(1, 3));
  expect_refusal(path(1, 3), ErrorCode::invalid_file, {"-00002-of-00003.gguf", "'-00003-of-00003.gguf'"});
}

TEST_F(SplitFile, PartsThatDoNotBelongTogetherAreRefused) {
  const auto set = [](GgufWriter& g, const char* key, uint32_t number) {
    g.value(key) = {key, GgufWriter::kU32, encode(number)};
  };
  expect_refusal(
      1, [&](GgufWriter& g) { set(g, "split.no", 2); }, ErrorCode::invalid_file, "'split.no' is 2");
  expect_refusal(
      1, [&](GgufWriter& g) { set(g, "split.count", 4); }, ErrorCode::invalid_file, "'split.count' is 4");
  expect_refusal(
      1, [](GgufWriter& g) { g.remove("split.no"); }, ErrorCode::invalid_file, "'split.no' is missing");
  expect_refusal(
      1, [](GgufWriter& g) { g.remove("split.count"); }, ErrorCode::invalid_file, "'split.count' is missing");
  expect_refusal(
      1,
      [](GgufWriter& g) {
        g.value("split.no") = {"split.no", GgufWriter::kString, encode("1")};
      },
      ErrorCode::invalid_file, "'split.no' is string; expected an integer");
  expect_refusal(
      1, [&](GgufWriter& g) { set(g, "split.tensors.count", 5); }, ErrorCode::invalid_file,
      "'split.tensors.count' differs");
  expect_refusal(
      2, [](GgufWriter& g) { g.add("llama.block_count", 3u); }, ErrorCode::invalid_file, "'llama.block_count' differs");
  expect_refusal(
      2, [](GgufWriter& g) { g.add("llama.block_count", int64_t{2}); }, ErrorCode::invalid_file,
      "'llama.block_count' differs");
  expect_refusal(
      2, [](GgufWriter& g) { g.add("general.quantization_version", 2u); }, ErrorCode::invalid_file,
      "'general.quantization_version' is not in the first part");
}

TEST_F(SplitFile, ThePartThatIsNamedSaysWhichKeyItLacks) {
  for (const char* key : {"split.no", "split.count"}) {
    std::vector<GgufWriter> parts = good_parts();
    parts[0].remove(key);
    write(parts);
    expect_refusal(path(0, 3), ErrorCode::invalid_file,
                   {path(0, 3), std::string("'") + key + "' is missing; each part of a split model has it"});
  }
}

TEST_F(SplitFile, TensorsAreCountedAndNoneIsThereTwice) {
  std::vector<GgufWriter> parts = good_parts();
  parts[2].tensors.pop_back();
  write(parts);
  expect_refusal(path(0, 3), ErrorCode::invalid_file, {"'split.tensors.count' is 21", "20 tensors"});
  parts[2].add_tensor(parts[0].tensors[0]);
  write(parts);
  expect_refusal(path(0, 3), ErrorCode::invalid_file, {"'token_embd.weight' stands in two parts"});
}

TEST_F(SplitFile, NumbersOfPartsOutOfBoundsAreRefused) {
  const struct {
    uint32_t number, count;
    std::string mention;
  } cases[] = {{3, 3, "'split.no' is 3; allowed are 0 to 2"},
               {0xffffffff, 3, "'split.no' is 4294967295"},
               {0, 65535, "'split.count' is 65535; allowed are 0 to 1024"},
               {0, 0xffffffff, "'split.count' is 4294967295"}};
  for (const auto& [number, count, mention] : cases) {
    GgufWriter gguf = whole_;
    gguf.add("split.no", number).add("split.count", count);
    gguf.write(path(0, 3));
    expect_refusal(path(0, 3), ErrorCode::invalid_file, {mention});
  }
  GgufWriter gguf = whole_;
  gguf.add("split.no", 0u);
  gguf.add_raw("split.count", GgufWriter::kArray, encode_array(GgufWriter::kU32, 1, encode(3u)));
  gguf.write(path(0, 3));
  expect_refusal(path(0, 3), ErrorCode::invalid_file, {"'split.count' is an array of u32"});
  GgufWriter negative = whole_;
  negative.add("split.count", int64_t{-1});
  negative.write(path(0, 3));
  expect_refusal(path(0, 3), ErrorCode::invalid_file, {"'split.count' is -1"});
  GgufWriter most = whole_;
  most.add_raw("split.count", GgufWriter::kU64, encode(std::numeric_limits<uint64_t>::max()));
  most.write(path(0, 3));
  expect_refusal(path(0, 3), ErrorCode::invalid_file, {"'split.count' is 18446744073709551615"});
}

TEST_F(SplitFile, APartThatIsCutShortIsRefusedByItsName) {
  std::vector<GgufWriter> parts = good_parts();
  write(parts);
  const std::string bytes = parts[1].bytes();
  for (const size_t size : {size_t{0}, size_t{3}, size_t{40}, bytes.size() / 2, bytes.size() - 1}) {
    folder_.write("model-00002-of-00003.gguf", bytes.substr(0, size));
    for (const size_t named : {size_t{0}, size_t{1}})
      expect_refusal(path(named, 3), ErrorCode::invalid_file, {"model-00002-of-00003.gguf"});
  }
}

TEST_F(SplitFile, OnePartInMemoryIsNoModel) {
  const std::string bytes = good_parts()[0].bytes();
  try {
    open_model(open_memory("x-00001-of-00003.gguf", bytes));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    EXPECT_NE(std::string(error.what()).find("x-00002-of-00003.gguf"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
