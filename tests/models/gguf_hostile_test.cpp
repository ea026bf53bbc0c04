// One broken field a file: each is refused with the right code and a message that names the field.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
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

constexpr auto kInvalid = ErrorCode::invalid_file;
constexpr auto kUnsupported = ErrorCode::unsupported;

struct HostileFile {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  ErrorCode code;
  std::vector<std::string> mentions;
};
void PrintTo(const HostileFile& file, std::ostream* out) { *out << file.name; }

GgufWriter good_model() {
  return testing::random_model({.num_layers = 1,
                                .hidden_size = 32,
                                .intermediate_size = 32,
                                .num_qo_heads = 4,
                                .num_kv_heads = 2,
                                .head_dim = 8});
}

std::function<void(GgufWriter&)> set(std::string key, uint32_t number) {
  return [=](GgufWriter& gguf) { gguf.value(key) = {key, GgufWriter::kU32, encode(number)}; };
}
std::function<void(GgufWriter&)> set_real(std::string key, float number) {
  return [=](GgufWriter& gguf) { gguf.value(key) = {key, GgufWriter::kFloat, encode(number)}; };
}
std::function<void(GgufWriter&)> set_raw(std::string key, uint32_t type, std::string data) {
  return [=](GgufWriter& gguf) { gguf.value(key) = {key, type, data}; };
}
std::function<void(GgufWriter&)> add(std::string key, uint32_t number) {
  return [=](GgufWriter& gguf) { gguf.add(key, number); };
}
std::function<void(GgufWriter&)> add_raw(std::string key, uint32_t type, std::string data) {
  return [=](GgufWriter& gguf) { gguf.add_raw(key, type, data); };
}
std::function<void(GgufWriter&)> without(std::string name) {
  return [=](GgufWriter& gguf) { gguf.remove(name); };
}
std::function<void(GgufWriter&)> spoil_tensor(std::string name, std::function<void(GgufWriter::Tensor&)> spoil) {
  return [=](GgufWriter& gguf) { spoil(gguf.tensor(name)); };
}

constexpr uint64_t kHuge = uint64_t{1} << 62;
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
const std::string kNorm = "blk.0.attn_norm.weight", kQuery = "blk.0.attn_q.weight";

const std::vector<HostileFile> kFiles = {
    // header
    {"magic_of_another_format", [](GgufWriter& g) { g.magic = 0x67676d6c; }, kInvalid, {"magic", "GGUF"}},
    {"magic_swapped", [](GgufWriter& g) { g.magic = 0x47475546; }, kInvalid, {"magic", "byte-swapped"}},
    {"version_0", [](GgufWriter& g) { g.version = 0; }, kUnsupported, {"version", "required 0", "2 and 3"}},
    {"version_1", [](GgufWriter& g) { g.version = 1; }, kUnsupported, {"version", "required 1"}},
    {"version_4", [](GgufWriter& g) { g.version = 4; }, kUnsupported, {"version", "required 4"}},
    {"big_endian", [](GgufWriter& g) { g.version = 0x03000000; }, kUnsupported, {"version", "big-endian"}},
    {"tensor_count_huge", [](GgufWriter& g) { g.num_tensors = kMost; }, kInvalid, {"tensor count"}},
    {"tensor_count_beyond_file", [](GgufWriter& g) { g.num_tensors = 50000; }, kInvalid, {"tensor count", "50000"}},
    {"tensor_count_one_too_many", [](GgufWriter& g) { g.num_tensors = g.tensors.size() + 1; }, kInvalid, {"tensor 12", "name"}},
    {"tensor_count_one_too_few", [](GgufWriter& g) { g.remove("output.weight"); g.num_tensors = g.tensors.size() - 1; }, kInvalid, {"output_norm.weight"}},
    {"metadata_count_huge", [](GgufWriter& g) { g.num_values = kHuge; }, kInvalid, {"metadata count"}},
    {"metadata_count_one_too_many", [](GgufWriter& g) { g.num_values = g.values.size() + 1; }, kInvalid, {}},
    {"metadata_count_0", [](GgufWriter& g) { g.num_values = 0; }, kInvalid, {"tensor 0"}},
    // keys
    {"key_empty", add("", 1), kInvalid, {"key", "0 bytes"}},
    {"key_of_65536_bytes", add(std::string(65536, 'k'), 1), kInvalid, {"key", "65536"}},
    {"key_with_a_control_character", add("a\033[31mb", 1), kInvalid, {"key", "\\x1b"}},
    {"key_not_ascii", add("caf\u00e9", 1), kInvalid, {"key", "\\xc3"}},
    {"key_twice", add("llama.block_count", 1), kInvalid, {"llama.block_count", "twice"}},
    {"key_length_huge", [](GgufWriter& g) { g.values[0].data = g.values[0].data.substr(4); }, kInvalid, {"metadata entry"}},
    // values
    {"value_type_13", set_raw("general.name", 13, "xxxxxxxx"), kInvalid, {"general.name", "type is 13"}},
    {"value_type_huge", set_raw("general.name", 0xffffffff, "xxxx"), kInvalid, {"general.name", "4294967295"}},
    {"string_length_huge", set_raw("general.name", GgufWriter::kString, encode(kMost)), kInvalid, {"general.name", "file ends"}},
    {"string_length_beyond_file", set_raw("general.name", GgufWriter::kString, encode(uint64_t{1} << 40)), kInvalid, {"general.name"}},
    {"bool_of_2", add_raw("a.flag", GgufWriter::kBool, "\2"), kInvalid, {"a.flag", "bool is 2"}},
    {"bool_of_7_in_an_array", add_raw("a.flags", GgufWriter::kArray, encode_array(GgufWriter::kBool, 3, std::string("\0\1\7", 3))), kInvalid, {"a.flags", "bool is 7"}},
    {"array_of_arrays", add_raw("a.nest", GgufWriter::kArray, encode_array(GgufWriter::kArray, 1, encode_array(GgufWriter::kU8, 0, ""))), kUnsupported, {"a.nest", "arrays of arrays"}},
    {"array_of_type_99", add_raw("a.list", GgufWriter::kArray, encode_array(99, 1, "x")), kInvalid, {"a.list", "element type is 99"}},
    {"array_length_huge", add_raw("a.list", GgufWriter::kArray, encode_array(GgufWriter::kU32, kMost, "")), kInvalid, {"a.list", "array length"}},
    {"array_length_overflows", add_raw("a.list", GgufWriter::kArray, encode_array(GgufWriter::kU64, kHuge, "")), kInvalid, {"a.list", "array length"}},
    {"array_of_strings_huge", add_raw("a.list", GgufWriter::kArray, encode_array(GgufWriter::kString, kHuge, "")), kInvalid, {"a.list", "array length"}},
    {"array_element_length_huge", add_raw("a.list", GgufWriter::kArray, encode_array(GgufWriter::kString, 1, encode(kMost))), kInvalid, {"a.list", "array element"}},
    // alignment
    {"alignment_0", add("general.alignment", 0), kInvalid, {"general.alignment", "is 0"}},
    {"alignment_48", add("general.alignment", 48), kInvalid, {"general.alignment", "is 48"}},
    {"alignment_huge", add("general.alignment", 1u << 31), kInvalid, {"general.alignment", "2147483648"}},
    {"alignment_of_another_type", [](GgufWriter& g) { g.add("general.alignment", "32"); }, kInvalid, {"general.alignment", "string"}},
    {"alignment_an_array", [](GgufWriter& g) { g.add("general.alignment", std::vector<int32_t>{32}); }, kInvalid, {"general.alignment"}},
    // tensors
    {"tensor_name_empty", spoil_tensor(kNorm, [](auto& t) { t.name = ""; }), kInvalid, {"tensor 1", "name", "0 bytes"}},
    {"tensor_name_of_65_bytes", spoil_tensor(kNorm, [](auto& t) { t.name = std::string(65, 'n'); }), kInvalid, {"tensor 1", "65"}},
    {"tensor_name_with_a_newline", spoil_tensor(kNorm, [](auto& t) { t.name = "a\nb"; }), kInvalid, {"name", "\\x0a"}},
    {"tensor_name_twice", spoil_tensor(kNorm, [](auto& t) { t.name = kQuery; }), kInvalid, {kQuery, "twice"}},
    {"rank_0", spoil_tensor(kNorm, [](auto& t) { t.rank = 0; }), kInvalid, {kNorm, "rank is 0"}},
    {"rank_5", spoil_tensor(kNorm, [](auto& t) { t.extents = {2, 2, 2, 2, 2}; }), kInvalid, {kNorm, "rank is 5"}},
    {"rank_huge", spoil_tensor(kNorm, [](auto& t) { t.rank = 0xffffffff; }), kInvalid, {kNorm, "rank is 4294967295"}},
    {"extent_0", spoil_tensor(kNorm, [](auto& t) { t.extents = {0}; }), kInvalid, {kNorm, "extent of axis 0 is 0"}},
    {"extent_negative", spoil_tensor(kQuery, [](auto& t) { t.extents[1] = kMost; }), kInvalid, {kQuery, "extent of axis 1"}},
    {"extents_overflow_elements", spoil_tensor(kQuery, [](auto& t) { t.extents = {32, kHuge, kHuge}; }), kInvalid, {kQuery, "extents"}},
    {"extents_overflow_bytes", spoil_tensor(kQuery, [](auto& t) { t.extents = {kHuge, 2}; }), kInvalid, {kQuery, "extents"}},
    {"tensor_larger_than_file", spoil_tensor(kQuery, [](auto& t) { t.extents = {32, uint64_t{1} << 40}; }), kInvalid, {kQuery, "beyond"}},
    {"tensor_type_f16", spoil_tensor(kQuery, [](auto& t) { t.type = GgufWriter::kF16; }), kUnsupported, {kQuery, "required type F16", "F32, Q4_0, Q4_1, Q8_0, BF16"}},
    {"tensor_type_q4_k", spoil_tensor(kQuery, [](auto& t) { t.type = GgufWriter::kQ4_K; }), kUnsupported, {kQuery, "Q4_K"}},
    {"tensor_type_unknown", spoil_tensor(kQuery, [](auto& t) { t.type = 4000; }), kUnsupported, {kQuery, "number 4000"}},
    {"block_type_of_odd_width", spoil_tensor("blk.0.attn_norm.weight", [](auto& t) { t.type = GgufWriter::kQ8_0; t.extents = {31}; }), kInvalid, {kNorm, "multiple of 32"}},
    {"offset_unaligned", spoil_tensor(kQuery, [](auto& t) { t.offset = 33; }), kInvalid, {kQuery, "offset 33", "alignment 32"}},
    {"offset_beyond_file", spoil_tensor(kQuery, [](auto& t) { t.offset = uint64_t{1} << 40; }), kInvalid, {kQuery, "offset", "beyond"}},
    {"offset_overflows", spoil_tensor(kQuery, [](auto& t) { t.offset = kMost - 31; }), kInvalid, {kQuery, "offset", "beyond"}},
    {"tensors_overlap", spoil_tensor(kQuery, [](auto& t) { t.offset = 0; }), kInvalid, {kQuery, "offset", "within the bytes"}},
    // config
    {"no_architecture", without("general.architecture"), kInvalid, {"general.architecture", "missing"}},
    {"architecture_a_number", set("general.architecture", 3), kInvalid, {"general.architecture", "u32", "string"}},
    {"architecture_unknown", set_raw("general.architecture", GgufWriter::kString, encode(std::string_view("mamba\n"))), kUnsupported, {"general.architecture", "mamba\\x0a", "llama, qwen2, qwen3"}},
    {"no_block_count", without("llama.block_count"), kInvalid, {"llama.block_count", "missing"}},
    {"block_count_0", set("llama.block_count", 0), kInvalid, {"llama.block_count", "is 0"}},
    {"block_count_huge", set("llama.block_count", 0xffffffff), kInvalid, {"llama.block_count", "4294967295", "1024"}},
    {"block_count_one_too_many", set("llama.block_count", 2), kInvalid, {"blk.1.attn_norm.weight", "missing"}},
    {"block_count_above_int64", set_raw("llama.block_count", GgufWriter::kU64, encode(kMost)), kInvalid, {"llama.block_count", "18446744073709551615"}},
    {"block_count_a_float", set_real("llama.block_count", 1.f), kInvalid, {"llama.block_count", "f32", "integer"}},
    {"embedding_length_0", set("llama.embedding_length", 0), kInvalid, {"llama.embedding_length"}},
    {"embedding_length_at_odds", set("llama.embedding_length", 64), kInvalid, {"token_embd.weight", "32", "64"}},
    {"feed_forward_length_at_odds", set("llama.feed_forward_length", 64), kInvalid, {"blk.0.ffn_gate.weight"}},
    {"feed_forward_length_huge", set("llama.feed_forward_length", 1u << 30), kInvalid, {"llama.feed_forward_length"}},
    {"context_length_0", set("llama.context_length", 0), kInvalid, {"llama.context_length"}},
    {"head_count_0", set("llama.attention.head_count", 0), kInvalid, {"llama.attention.head_count", "is 0"}},
    {"head_count_at_odds", set("llama.attention.head_count", 8), kInvalid, {"blk.0.attn_q.weight"}},
    {"head_count_kv_0", set("llama.attention.head_count_kv", 0), kInvalid, {"head_count_kv", "is 0"}},
    {"head_count_kv_divides_not", set("llama.attention.head_count_kv", 3), kInvalid, {"head_count_kv", "is 3", "divide"}},
    {"head_count_kv_an_array", [](GgufWriter& g) { g.remove("llama.attention.head_count_kv"); g.add("llama.attention.head_count_kv", std::vector<int32_t>{2}); }, kInvalid, {"head_count_kv", "array of i32"}},
    {"head_dim_of_12", set("llama.attention.key_length", 12), kUnsupported, {"head dimension", "required 12", "8 to 576"}},
    {"head_dim_of_584", set("llama.attention.key_length", 584), kUnsupported, {"head dimension", "required 584"}},
    {"head_dim_of_values_differs", add("llama.attention.value_length", 16), kUnsupported, {"value_length", "required 16"}},
    {"heads_do_not_divide_hidden", [](GgufWriter& g) { g.remove("llama.attention.key_length"); set("llama.attention.head_count", 6)(g); }, kInvalid, {"embedding_length", "32", "6 heads"}},
    {"norm_epsilon_missing", without("llama.attention.layer_norm_rms_epsilon"), kInvalid, {"layer_norm_rms_epsilon"}},
    {"norm_epsilon_nan", set_real("llama.attention.layer_norm_rms_epsilon", std::nanf("")), kInvalid, {"layer_norm_rms_epsilon", "nan"}},
    {"norm_epsilon_negative", set_real("llama.attention.layer_norm_rms_epsilon", -1e-5f), kInvalid, {"layer_norm_rms_epsilon"}},
    {"rope_base_0", set_real("llama.rope.freq_base", 0.f), kInvalid, {"rope.freq_base", "is 0"}},
    {"rope_base_infinite", set_real("llama.rope.freq_base", std::numeric_limits<float>::infinity()), kInvalid, {"rope.freq_base", "inf"}},
    {"rope_dimension_odd", set("llama.rope.dimension_count", 7), kInvalid, {"rope.dimension_count", "is 7", "even"}},
    {"rope_dimension_above_head", set("llama.rope.dimension_count", 10), kInvalid, {"rope.dimension_count", "is 10"}},
    {"rope_scaling_yarn", [](GgufWriter& g) { g.add("llama.rope.scaling.type", "yarn"); }, kUnsupported, {"rope.scaling.type", "yarn"}},
    {"rope_scaling_without_factor", [](GgufWriter& g) { g.add("llama.rope.scaling.type", "linear"); }, kInvalid, {"rope.scaling.factor", "missing"}},
    {"rope_scaling_factor_0", [](GgufWriter& g) { g.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 0.f); }, kInvalid, {"rope.scaling.factor"}},
    {"rope_factors_of_no_known_scaling", [](GgufWriter& g) { g.add_tensor({.name = "rope_freqs.weight", .extents = {4}, .data = encode(1.f) + encode(3.f) + encode(5.f) + encode(8.f)}); }, kUnsupported, {"rope_freqs.weight"}},
    {"rope_factors_nan", [](GgufWriter& g) { g.add_tensor({.name = "rope_freqs.weight", .extents = {4}, .data = encode(1.f) + encode(1.f) + encode(1.f) + encode(std::nanf(""))}); }, kUnsupported, {"rope_freqs.weight"}},
    {"rope_factors_too_many", [](GgufWriter& g) { g.add_tensor({.name = "rope_freqs.weight", .extents = {8}, .data = std::string(32, '\0')}); }, kInvalid, {"rope_freqs.weight", "[1, 8]", "[1, 4]"}},
    {"experts", add("llama.expert_count", 8), kUnsupported, {"llama.expert_count", "required 8"}},
    {"sliding_window", add("llama.attention.sliding_window", 128), kUnsupported, {"sliding_window", "required 128"}},
    {"tokens_fewer_than_rows", set_raw("tokenizer.ggml.tokens", GgufWriter::kArray, encode_array(GgufWriter::kString, 1, encode(std::string_view("a")))), kInvalid, {"tokenizer.ggml.tokens", "1 tokens", "288 rows"}},
    {"tokens_not_strings", set_raw("tokenizer.ggml.tokens", GgufWriter::kU32, encode(288u)), kInvalid, {"tokenizer.ggml.tokens", "array"}},
    // weights
    {"no_embedding", without("token_embd.weight"), kInvalid, {"token_embd.weight", "missing"}},
    {"no_output_norm", without("output_norm.weight"), kInvalid, {"output_norm.weight", "missing"}},
    {"no_ffn_down", without("blk.0.ffn_down.weight"), kInvalid, {"blk.0.ffn_down.weight", "missing"}},
    {"rows_of_q_at_odds", spoil_tensor(kQuery, [](auto& t) { t.extents[1] = 31; }), kInvalid, {kQuery, "31 rows"}},
    {"cols_of_q_at_odds", spoil_tensor(kQuery, [](auto& t) { t.extents[0] = 16; }), kInvalid, {kQuery, "of 16"}},
    {"norm_in_16_bits", spoil_tensor(kNorm, [](auto& t) { t.type = GgufWriter::kBF16; }), kUnsupported, {kNorm, "BF16", "F32"}},
    {"bias_for_q_only", [](GgufWriter& g) { g.add_tensor({.name = "blk.0.attn_q.bias", .extents = {32}, .data = std::string(128, '\0')}); }, kInvalid, {"blk.0.attn_k.bias", "missing"}},
    {"tensor_that_nobody_reads", [](GgufWriter& g) { g.add_tensor({.name = "blk.0.ffn_gate_exps.weight", .extents = {32}, .data = std::string(128, '\0')}); }, kUnsupported, {"blk.0.ffn_gate_exps.weight"}},
};

class HostileGguf : public ::testing::TestWithParam<HostileFile> {};

TEST_P(HostileGguf, is_refused_and_the_field_is_named) {
  GgufWriter gguf = good_model();
  GetParam().spoil(gguf);
  const std::string bytes = gguf.bytes();
  try {
    const ModelFile file = open_model(open_memory("bad.gguf", bytes));
    check_weights(file);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), GetParam().code) << message;
    EXPECT_NE(message.find("bad.gguf"), std::string::npos) << message;
    for (const std::string& part : GetParam().mentions) EXPECT_NE(message.find(part), std::string::npos) << message;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, HostileGguf, ::testing::ValuesIn(kFiles),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(HostileGgufFiles, the_unspoilt_model_is_accepted) {
  const std::string bytes = good_model().bytes();
  const ModelFile file = open_model(open_memory("good.gguf", bytes));
  EXPECT_NO_THROW(check_weights(file));
}

// Every length short of the whole file is an error, whatever stands at the cut.
TEST(HostileGgufFiles, truncation_at_every_byte_is_refused) {
  GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("a.texts", std::vector<std::string>{"x", "", "yz"});
  gguf.add("a.number", 1.5f).add("a.flag", true).add("a.list", std::vector<int32_t>{1, 2, 3});
  gguf.add_tensor({.name = "a", .extents = {4, 2}, .data = std::string(32, '\1')});
  gguf.add_tensor({.name = "b", .extents = {32}, .type = GgufWriter::kQ8_0, .data = std::string(34, '\2')});
  const std::string bytes = gguf.bytes();
  ASSERT_NO_THROW(open_model(open_memory("whole", bytes)));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    try {
      open_model(open_memory("part", part));
      FAIL() << "accepted " << size << " of " << bytes.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file) << error.what();
    }
  }
}

// Any byte of the header may have any value: the file is accepted or refused, nothing else.
TEST(HostileGgufFiles, any_changed_byte_is_accepted_or_refused_with_an_error) {
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
        const ModelFile file = open_model(open_memory("changed", changed));
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

}  // namespace
}  // namespace weft
