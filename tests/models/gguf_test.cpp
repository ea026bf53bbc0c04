#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "models/byte_source.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::encode;
using testing::encode_array;
using testing::GgufWriter;
using testing::TempFolder;

// The code and message of what `call` throws.
template <class Call>
std::pair<ErrorCode, std::string> error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::invalid_argument, ""};
}

TEST(Gguf, values_of_every_type_are_read_back) {
  GgufWriter gguf;
  gguf.add_raw("u8", GgufWriter::kU8, "\xff").add_raw("i8", GgufWriter::kI8, "\xff");
  gguf.add_raw("u16", GgufWriter::kU16, "\xfe\xff").add_raw("i16", GgufWriter::kI16, "\xfe\xff");
  gguf.add("u32", 0xfffffffdu).add_raw("i32", GgufWriter::kI32, encode(0xfffffffdu));
  gguf.add_raw("u64", GgufWriter::kU64, encode(uint64_t{1} << 40)).add("i64", int64_t{-5});
  gguf.add("f32", 0.5f).add_raw("f64", GgufWriter::kDouble, encode(uint64_t{0x3ff8000000000000}));
  gguf.add("yes", true).add("no", false).add("text", "h\u00e9llo\n").add("empty", "");
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  EXPECT_EQ(file.get_int("u8"), 255);
  EXPECT_EQ(file.get_int("i8"), -1);
  EXPECT_EQ(file.get_int("u16"), 65534);
  EXPECT_EQ(file.get_int("i16"), -2);
  EXPECT_EQ(file.get_int("u32"), 0xfffffffd);
  EXPECT_EQ(file.get_int("i32"), -3);
  EXPECT_EQ(file.get_int("u64"), int64_t{1} << 40);
  EXPECT_EQ(file.get_int("i64"), -5);
  EXPECT_EQ(file.get_float("f32"), 0.5);
  EXPECT_EQ(file.get_float("f64"), 1.5);
  EXPECT_TRUE(file.get_bool("yes"));
  EXPECT_FALSE(file.get_bool("no"));
  EXPECT_EQ(file.get_string("text"), "h\u00e9llo\n");
  EXPECT_EQ(file.get_string("empty"), "");
  EXPECT_TRUE(file.has("u8"));
  EXPECT_FALSE(file.has("u"));
  EXPECT_EQ(file.path(), "memory");
  EXPECT_EQ(file.file_bytes(), bytes.size());
}

TEST(Gguf, arrays_are_read_back) {
  GgufWriter gguf;
  gguf.add("texts", std::vector<std::string>{"a", "", "ccc", std::string("\0x", 2)});
  gguf.add("floats", std::vector<float>{1.f, -2.5f}).add("ints", std::vector<int32_t>{-1, 2, 3});
  gguf.add_raw("bytes", GgufWriter::kArray, encode_array(GgufWriter::kU8, 3, "\x01\x80\xff"));
  gguf.add_raw("doubles", GgufWriter::kArray,
               encode_array(GgufWriter::kDouble, 1, encode(uint64_t{0x3ff8000000000000})));
  gguf.add("none", std::vector<std::string>{});
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  EXPECT_EQ(file.get_strings("texts"), (std::vector<std::string>{"a", "", "ccc", std::string("\0x", 2)}));
  EXPECT_EQ(file.get_floats("floats"), (std::vector<float>{1.f, -2.5f}));
  EXPECT_EQ(file.get_floats("doubles"), std::vector<float>{1.5f});
  EXPECT_EQ(file.get_ints("ints"), (std::vector<int32_t>{-1, 2, 3}));
  EXPECT_EQ(file.get_ints("bytes"), (std::vector<int32_t>{1, 128, 255}));
  EXPECT_TRUE(file.get_strings("none").empty());
  EXPECT_EQ(file.count("texts"), 4u);
  EXPECT_EQ(file.count("none"), 0u);
}

TEST(Gguf, asking_for_another_type_or_a_missing_key_names_it) {
  GgufWriter gguf;
  gguf.add("number", 3u).add("text", "x").add("list", std::vector<int32_t>{1});
  gguf.add_raw("wide", GgufWriter::kArray, encode_array(GgufWriter::kU32, 1, encode(0x80000000u)));
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  const auto expect = [](const std::pair<ErrorCode, std::string>& error, const std::string& part) {
    EXPECT_EQ(error.first, ErrorCode::invalid_file);
    EXPECT_NE(error.second.find(part), std::string::npos) << error.second;
  };
  expect(error_of([&] { file.get_string("number"); }), "'number' is u32; expected a string");
  expect(error_of([&] { file.get_bool("number"); }), "'number' is u32; expected a bool");
  expect(error_of([&] { file.get_float("number"); }), "'number' is u32; expected f32 or f64");
  expect(error_of([&] { file.get_int("text"); }), "'text' is string; expected an integer");
  expect(error_of([&] { file.get_int("list"); }), "'list' is an array of i32; expected an integer");
  expect(error_of([&] { file.get_ints("number"); }), "'number' is u32; expected an array of integers");
  expect(error_of([&] { file.get_floats("list"); }), "'list' is an array of i32; expected an array of f32");
  expect(error_of([&] { file.get_strings("list"); }), "'list' is an array of i32; expected an array of strings");
  expect(error_of([&] { file.get_ints("wide"); }), "'wide': element 0 does not fit");
  expect(error_of([&] { file.count("text"); }), "'text' is string; expected an array");
  expect(error_of([&] { file.get_int("absent"); }), "'absent' is missing");
  expect(error_of([&] { file.weight("absent"); }), "'absent' is missing");
}

TEST(Gguf, version_2_and_other_alignments_are_read) {
  GgufWriter gguf;
  gguf.version = 2;
  gguf.alignment = 4096;
  gguf.add("general.alignment", 4096u);
  gguf.add_tensor({.name = "a", .extents = {2, 3}, .data = std::string(24, '\1')});
  gguf.add_tensor({.name = "b", .extents = {2, 3, 4, 5}, .data = std::string(480, '\2')});
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  ASSERT_EQ(file.weights().size(), 2u);
  const WeightInfo& b = file.weight("b");
  EXPECT_EQ(b.cols, 2);
  EXPECT_EQ(b.rows, 60);
  EXPECT_EQ(b.offset % 4096, 0u);
  std::string data(16, '\0');
  file.read(b, 58, 60, data.data());
  EXPECT_EQ(data, std::string(16, '\2'));
}

TEST(Gguf, rows_of_every_weight_type_are_read_as_they_are) {
  const struct {
    uint32_t type;
    WeightType expected;
    uint64_t row_bytes;
  } cases[] = {{GgufWriter::kF32, WeightType::f32, 1024},  {GgufWriter::kF16, WeightType::f16, 512},
               {GgufWriter::kBF16, WeightType::bf16, 512}, {GgufWriter::kQ8_0, WeightType::q8_0, 272},
               {GgufWriter::kQ5_0, WeightType::q5_0, 176}, {GgufWriter::kQ4_0, WeightType::q4_0, 144},
               {GgufWriter::kQ4_1, WeightType::q4_1, 160}, {GgufWriter::kQ4_K, WeightType::q4_k, 144},
               {GgufWriter::kQ6_K, WeightType::q6_k, 210}};
  TempFolder folder;
  for (const auto& c : cases) {
    std::string data(3 * c.row_bytes, '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
    GgufWriter gguf;
    gguf.add_tensor({.name = "before", .extents = {1}, .data = "xxxx"});
    gguf.add_tensor({.name = "weight", .extents = {256, 3}, .type = c.type, .data = data});
    gguf.write(folder.path("model.gguf"));
    const ModelFile file(folder.path("model.gguf"));
    const WeightInfo& weight = file.weight("weight");
    EXPECT_EQ(weight.type, c.expected);
    EXPECT_EQ(weight.bytes, 3 * c.row_bytes);
    std::string rows(2 * c.row_bytes, '\0');
    file.read(weight, 1, 3, rows.data());
    EXPECT_EQ(rows, data.substr(c.row_bytes)) << to_string(c.expected);
    file.read(weight, 3, 3, nullptr);
  }
}

TEST(Gguf, reading_rows_outside_a_weight_is_refused) {
  const std::string bytes = testing::random_model({}).bytes(),
                    other_bytes = testing::random_model({.num_layers = 1}).bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  const ModelFile other = open_model(open_memory("other", other_bytes));
  const WeightInfo& weight = file.weight("output_norm.weight");
  char to[4096];
  EXPECT_EQ(error_of([&] { file.read(weight, 0, 2, to); }).first, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { file.read(weight, -1, 1, to); }).first, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { file.read(weight, 1, 0, to); }).first, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { other.read(weight, 0, 1, to); }).first, ErrorCode::invalid_argument);
}

TEST(Gguf, weights_keep_the_order_of_the_file_and_are_found_by_name) {
  const GgufWriter gguf = testing::random_model({.weights = GgufWriter::kQ4_0});
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  ASSERT_EQ(file.weights().size(), gguf.tensors.size());
  for (size_t i = 0; i < gguf.tensors.size(); ++i) {
    EXPECT_EQ(file.weights()[i].name, gguf.tensors[i].name);
    EXPECT_EQ(file.find_weight(gguf.tensors[i].name), &file.weights()[i]);
  }
  EXPECT_EQ(file.find_weight("token_embd"), nullptr);
}

TEST(Gguf, a_header_longer_than_the_first_read_is_read_in_full) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200000; ++i) texts.push_back("token " + std::to_string(i));
  GgufWriter gguf;
  gguf.add("texts", texts).add("zz.after", 7u);
  gguf.add_tensor({.name = "a", .extents = {2}, .data = std::string(8, '\1')});
  TempFolder folder;
  gguf.write(folder.path("model.gguf"));
  const ModelFile file(folder.path("model.gguf"));
  EXPECT_EQ(file.get_strings("texts"), texts);
  EXPECT_EQ(file.get_int("zz.after"), 7);
}

TEST(Gguf, a_file_without_a_model_opens_but_has_no_config) {
  GgufWriter gguf;
  gguf.add("general.architecture", "gpt2").add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens").size(), 1u);
  EXPECT_EQ(error_of([&] { file.config(); }).first, ErrorCode::unsupported);
  EXPECT_EQ(error_of([&] { file.config(); }).first, ErrorCode::unsupported) << "the second time too";
}

TEST(Gguf, paths_that_are_no_readable_file_are_io_errors) {
  TempFolder folder;
  const std::string missing = folder.path("absent.gguf");
  auto error = error_of([&] { ModelFile file(missing); });
  EXPECT_EQ(error.first, ErrorCode::io_error);
  EXPECT_NE(error.second.find(missing + ": cannot open the model file: No such file"), std::string::npos)
      << error.second;

  error = error_of([&] { ModelFile file(folder.path(".")); });
  EXPECT_EQ(error.first, ErrorCode::io_error);
  EXPECT_NE(error.second.find("is a directory"), std::string::npos) << error.second;

  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  error = error_of([&] { ModelFile file(folder.path("pipe")); });
  EXPECT_EQ(error.first, ErrorCode::io_error);
  EXPECT_NE(error.second.find("no regular file"), std::string::npos) << error.second;

  ASSERT_EQ(::symlink("loop", folder.path("loop").c_str()), 0);
  EXPECT_EQ(error_of([&] { ModelFile file(folder.path("loop")); }).first, ErrorCode::io_error);
  EXPECT_EQ(error_of([&] { ModelFile file(""); }).first, ErrorCode::io_error);
  EXPECT_EQ(error_of([&] { ModelFile file(missing + std::string("\0x", 2)); }).first, ErrorCode::io_error);
  EXPECT_EQ(error_of([&] { ModelFile file(missing + "/below"); }).first, ErrorCode::io_error);
}

// Root reads every file: the child becomes nobody first.
TEST(Gguf, a_file_without_read_permission_is_an_io_error) {
  TempFolder folder;
  const std::string path = folder.write("secret.gguf", "GGUF");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_EXIT(
      {
        if (::geteuid() == 0 && ::setuid(65534) != 0) std::_Exit(3);
        try {
          ModelFile file(path);
        } catch (const Error& error) {
          std::_Exit(error.code() == ErrorCode::io_error ? 0 : 1);
        }
        std::_Exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Gguf, short_files_are_refused_as_incomplete) {
  TempFolder folder;
  for (const std::string bytes : {"", "G", "GGUF", "GGUF\3"}) {
    const auto error = error_of([&] { ModelFile file(folder.write("short.gguf", bytes)); });
    EXPECT_EQ(error.first, ErrorCode::invalid_file);
    EXPECT_NE(error.second.find(bytes.size() < 4 ? "magic" : "version"), std::string::npos) << error.second;
  }
}

TEST(Gguf, a_file_that_shrinks_or_changes_while_open_is_an_error_and_no_signal) {
  TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model({}).write(path);
  const ModelFile file(path);
  const WeightInfo& weight = file.weight("output.weight");
  std::vector<char> data(weight.bytes);
  file.read(weight, 0, weight.rows, data.data());
  std::filesystem::resize_file(path, weight.offset + weight.bytes / 2);
  auto error = error_of([&] { file.read(weight, 0, weight.rows, data.data()); });
  EXPECT_EQ(error.first, ErrorCode::invalid_file);
  EXPECT_NE(error.second.find("changed while it was open"), std::string::npos) << error.second;
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(error_of([&] { file.read(weight, 0, 1, data.data()); }).first, ErrorCode::invalid_file);

  testing::random_model({}).write(path);
  const ModelFile again(path);
  std::filesystem::resize_file(path, again.file_bytes() + 1);
  EXPECT_EQ(error_of([&] { again.read(again.weight("output.weight"), 0, 1, data.data()); }).first,
            ErrorCode::invalid_file);
}

TEST(Gguf, a_file_replaced_while_open_is_read_on_as_it_was) {
  TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model({.seed = 1}).write(path);
  const ModelFile file(path);
  testing::random_model({.seed = 2}).write(folder.path("other.gguf"));
  std::filesystem::rename(folder.path("other.gguf"), path);
  const WeightInfo& weight = file.weight("output_norm.weight");
  std::string data(weight.bytes, '\0');
  file.read(weight, 0, 1, data.data());
  EXPECT_EQ(data, testing::random_model({.seed = 1}).tensor("output_norm.weight").data);
}

TEST(Precision, names_go_both_ways) {
  for (const Precision precision : {Precision::exact, Precision::standard, Precision::fast})
    EXPECT_EQ(precision_from_string(to_string(precision)), precision);
  EXPECT_EQ(to_string(Precision::standard), "default");
  const auto error = error_of([] { precision_from_string("standard"); });
  EXPECT_EQ(error.first, ErrorCode::invalid_argument);
  EXPECT_NE(error.second.find("exact, default and fast"), std::string::npos);
}

}  // namespace
}  // namespace weft
