// One broken field a file: each is refused with the right code and a message that names the field.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
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

// Plain data, so that the table costs the compiler nothing: no captures, no strings.
struct HostileFile {
  const char* name;
  void (*spoil)(GgufWriter& g);
  ErrorCode code;
  const char* mentions[3];
};
void PrintTo(const HostileFile& file, std::ostream* out) { *out << file.name; }

GgufWriter good_model(const char* architecture = "llama") {
  return testing::random_model({.architecture = architecture,
                                .num_layers = 1,
                                .hidden_size = 32,
                                .intermediate_size = 32,
                                .num_qo_heads = 4,
                                .num_kv_heads = 2,
                                .head_dim = 8});
}

// Put another value in place of the one of that key.
void set_raw(GgufWriter& g, const char* key, uint32_t type, const std::string& data) {
  g.value(key) = {key, type, data};
}
void set(GgufWriter& g, const char* key, uint32_t number) { set_raw(g, key, GgufWriter::kU32, encode(number)); }
void set_real(GgufWriter& g, const char* key, float number) { set_raw(g, key, GgufWriter::kFloat, encode(number)); }
void add_array(GgufWriter& g, const char* key, uint32_t type, uint64_t count, std::string_view elements) {
  g.add_raw(key, GgufWriter::kArray, encode_array(type, count, elements));
}
void add_rope_divisors(GgufWriter& g, std::vector<float> divisors) {
  std::string data;
  for (const float divisor : divisors) data += encode(divisor);
  g.add_tensor({.name = "rope_freqs.weight", .extents = {divisors.size()}, .data = data});
}
GgufWriter& add_yarn(GgufWriter& g, float factor) {
  return g.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", factor);
}
void make_gemma3(GgufWriter& g) { g = good_model("gemma3"); }
void add_zeros(GgufWriter& g, const char* name) {
  g.add_tensor({.name = name, .extents = {32}, .data = std::string(128, '\0')});
}

constexpr uint64_t kHuge = uint64_t{1} << 62;
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr const char *kNorm = "blk.0.attn_norm.weight", *kQuery = "blk.0.attn_q.weight";

constexpr HostileFile kFiles[] = {
    // header
    {"magic_of_another_format", [](GgufWriter& g) { g.magic = 0x67676d6c; }, kInvalid, {"magic", "GGUF"}},
    {"magic_swapped", [](GgufWriter& g) { g.magic = 0x47475546; }, kInvalid, {"magic", "byte-swapped"}},
    {"version_0", [](GgufWriter& g) { g.version = 0; }, kUnsupported, {"version", "required 0", "2 and 3"}},
    {"version_1", [](GgufWriter& g) { g.version = 1; }, kUnsupported, {"version", "required 1"}},
    {"version_4", [](GgufWriter& g) { g.version = 4; }, kUnsupported, {"version", "required 4"}},
    {"big_endian", [](GgufWriter& g) { g.version = 0x03000000; }, kUnsupported, {"version", "big-endian"}},
    {"tensor_count_huge", [](GgufWriter& g) { g.num_tensors = kMost; }, kInvalid, {"tensor count"}},
    {"tensor_count_beyond_file", [](GgufWriter& g) { g.num_tensors = 50000; }, kInvalid, {"tensor count", "50000"}},
    {"tensor_count_one_too_many",
     [](GgufWriter& g) { g.num_tensors = g.tensors.size() + 1; },
     kInvalid,
     {"tensor 12", "name"}},
    {"tensor_count_one_too_few",
     [](GgufWriter& g) {
       g.remove("output.weight");
       g.num_tensors = g.tensors.size() - 1;
     },
     kInvalid,
     {"output_norm.weight"}},
    {"metadata_count_huge", [](GgufWriter& g) { g.num_values = kHuge; }, kInvalid, {"metadata count"}},
    {"metadata_count_beyond_file",
     [](GgufWriter& g) { g.num_values = 50000; },
     kInvalid,
     {"metadata count", "50000"}},
    {"metadata_count_one_too_many",
     [](GgufWriter& g) { g.num_values = g.values.size() + 1; },
     kInvalid,
     {"tensor 0", "name"}},
    {"metadata_count_0", [](GgufWriter& g) { g.num_values = 0; }, kInvalid, {"tensor 0"}},
    // keys
    {"key_empty", [](GgufWriter& g) { g.add("", 1u); }, kInvalid, {"key", "0 bytes"}},
    {"key_of_65536_bytes", [](GgufWriter& g) { g.add(std::string(65536, 'k'), 1u); }, kInvalid, {"key", "65536"}},
    {"key_with_a_control_character", [](GgufWriter& g) { g.add("a\033[31mb", 1u); }, kInvalid, {"key", "\\x1b"}},
    {"key_not_ascii", [](GgufWriter& g) { g.add("caf\u00e9", 1u); }, kInvalid, {"key", "\\xc3"}},
    {"key_twice", [](GgufWriter& g) { g.add("llama.block_count", 1u); }, kInvalid, {"llama.block_count", "twice"}},
    {"value_shifted_by_4_bytes",
     [](GgufWriter& g) { g.values[0].data = g.values[0].data.substr(4); },
     kInvalid,
     {"metadata entry"}},
    // values
    {"value_type_13",
     [](GgufWriter& g) { set_raw(g, "general.name", 13, "xxxxxxxx"); },
     kInvalid,
     {"general.name", "type is 13"}},
    {"value_type_huge",
     [](GgufWriter& g) { set_raw(g, "general.name", 0xffffffff, "xxxx"); },
     kInvalid,
     {"general.name", "4294967295"}},
    {"string_length_huge",
     [](GgufWriter& g) { set_raw(g, "general.name", GgufWriter::kString, encode(kMost)); },
     kInvalid,
     {"general.name", "file ends"}},
    {"string_length_beyond_file",
     [](GgufWriter& g) { set_raw(g, "general.name", GgufWriter::kString, encode(uint64_t{1} << 40)); },
     kInvalid,
     {"general.name"}},
    {"bool_of_2",
     [](GgufWriter& g) { g.add_raw("a.flag", GgufWriter::kBool, "\2"); },
     kInvalid,
     {"a.flag", "bool is 2"}},
    {"bool_of_7_in_an_array",
     [](GgufWriter& g) { add_array(g, "a.flags", GgufWriter::kBool, 3, std::string("\0\1\7", 3)); },
     kInvalid,
     {"a.flags", "bool is 7"}},
    {"array_of_arrays",
     [](GgufWriter& g) { add_array(g, "a.nest", GgufWriter::kArray, 1, encode_array(GgufWriter::kU8, 0, "")); },
     kUnsupported,
     {"a.nest", "arrays of arrays"}},
    {"array_of_type_99",
     [](GgufWriter& g) { add_array(g, "a.list", 99, 1, "x"); },
     kInvalid,
     {"a.list", "element type is 99"}},
    {"array_length_huge",
     [](GgufWriter& g) { add_array(g, "a.list", GgufWriter::kU32, kMost, ""); },
     kInvalid,
     {"a.list", "array length"}},
    {"array_length_overflows",
     [](GgufWriter& g) { add_array(g, "a.list", GgufWriter::kU64, kHuge, ""); },
     kInvalid,
     {"a.list", "array length"}},
    {"array_of_strings_huge",
     [](GgufWriter& g) { add_array(g, "a.list", GgufWriter::kString, kHuge, ""); },
     kInvalid,
     {"a.list", "array length"}},
    {"array_element_length_huge",
     [](GgufWriter& g) { add_array(g, "a.list", GgufWriter::kString, 1, encode(kMost)); },
     kInvalid,
     {"a.list", "array element"}},
    // alignment
    {"alignment_0", [](GgufWriter& g) { g.add("general.alignment", 0u); }, kInvalid, {"general.alignment", "is 0"}},
    {"alignment_48", [](GgufWriter& g) { g.add("general.alignment", 48u); }, kInvalid, {"general.alignment", "is 48"}},
    {"alignment_huge",
     [](GgufWriter& g) { g.add("general.alignment", uint32_t{1} << 31); },
     kInvalid,
     {"general.alignment", "2147483648"}},
    {"alignment_of_another_type",
     [](GgufWriter& g) { g.add("general.alignment", "32"); },
     kInvalid,
     {"general.alignment", "string"}},
    {"alignment_an_array",
     [](GgufWriter& g) { g.add("general.alignment", std::vector<int32_t>{32}); },
     kInvalid,
     {"general.alignment"}},
    // tensors
    {"tensor_name_empty", [](GgufWriter& g) { g.tensor(kNorm).name = ""; }, kInvalid, {"tensor 1", "name", "0 bytes"}},
    {"tensor_name_of_65_bytes",
     [](GgufWriter& g) { g.tensor(kNorm).name = std::string(65, 'n'); },
     kInvalid,
     {"tensor 1", "65"}},
    {"tensor_name_with_a_newline", [](GgufWriter& g) { g.tensor(kNorm).name = "a\nb"; }, kInvalid, {"name", "\\x0a"}},
    {"tensor_name_twice", [](GgufWriter& g) { g.tensor(kNorm).name = kQuery; }, kInvalid, {kQuery, "twice"}},
    {"rank_0", [](GgufWriter& g) { g.tensor(kNorm).rank = 0; }, kInvalid, {kNorm, "rank is 0"}},
    {"rank_5",
     [](GgufWriter& g) {
       g.tensor(kNorm).extents = {2, 2, 2, 2, 2};
     },
     kInvalid,
     {kNorm, "rank is 5"}},
    {"rank_huge", [](GgufWriter& g) { g.tensor(kNorm).rank = 0xffffffff; }, kInvalid, {kNorm, "rank is 4294967295"}},
    {"extent_0", [](GgufWriter& g) { g.tensor(kNorm).extents = {0}; }, kInvalid, {kNorm, "extent of axis 0 is 0"}},
    {"extent_negative",
     [](GgufWriter& g) { g.tensor(kQuery).extents[1] = kMost; },
     kInvalid,
     {kQuery, "extent of axis 1"}},
    {"extents_overflow_elements",
     [](GgufWriter& g) {
       g.tensor(kQuery).extents = {32, kHuge, kHuge};
     },
     kInvalid,
     {kQuery, "extents"}},
    {"extents_overflow_bytes",
     [](GgufWriter& g) {
       g.tensor(kQuery).extents = {kHuge, 2};
     },
     kInvalid,
     {kQuery, "extents"}},
    {"tensor_larger_than_file",
     [](GgufWriter& g) {
       g.tensor(kQuery).extents = {32, uint64_t{1} << 40};
     },
     kInvalid,
     {kQuery, "beyond"}},
    {"tensor_type_f16",
     [](GgufWriter& g) { g.tensor(kQuery).type = GgufWriter::kQ2_K; },
     kUnsupported,
     {kQuery, "required type Q2_K", "F32, F16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K, BF16"}},
    {"super_blocks_wider_than_a_row",
     [](GgufWriter& g) { g.tensor(kQuery).type = GgufWriter::kQ4_K; },
     kInvalid,
     {kQuery, "axis 0 is 32", "Q4_K needs a multiple of 256"}},
    {"super_blocks_of_a_row_and_a_half",
     [](GgufWriter& g) {
       g.tensor(kQuery).type = GgufWriter::kQ6_K;
       g.tensor(kQuery).extents[0] = 384;
     },
     kInvalid,
     {kQuery, "axis 0 is 384", "Q6_K needs a multiple of 256"}},
    {"super_blocks_beyond_the_file",
     [](GgufWriter& g) {
       g.tensor(kQuery).type = GgufWriter::kQ6_K;
       g.tensor(kQuery).extents = {256, 1u << 20};
     },
     kInvalid,
     {kQuery, "220200960 bytes", "reach beyond"}},
    {"five_bits_of_odd_width",
     [](GgufWriter& g) {
       g.tensor(kQuery).type = GgufWriter::kQ5_0;
       g.tensor(kQuery).extents[0] = 48;
     },
     kInvalid,
     {kQuery, "axis 0 is 48", "Q5_0 needs a multiple of 32"}},
    {"tensor_type_unknown", [](GgufWriter& g) { g.tensor(kQuery).type = 4000; }, kUnsupported, {kQuery, "number 4000"}},
    {"block_type_of_odd_width",
     [](GgufWriter& g) {
       auto& t = g.tensor(kNorm);
       t.type = GgufWriter::kQ8_0;
       t.extents = {31};
     },
     kInvalid,
     {kNorm, "multiple of 32"}},
    {"offset_unaligned",
     [](GgufWriter& g) { g.tensor(kQuery).offset = 33; },
     kInvalid,
     {kQuery, "offset 33", "alignment 32"}},
    {"offset_beyond_file",
     [](GgufWriter& g) { g.tensor(kQuery).offset = uint64_t{1} << 40; },
     kInvalid,
     {kQuery, "offset", "beyond"}},
    {"offset_overflows",
     [](GgufWriter& g) { g.tensor(kQuery).offset = kMost - 31; },
     kInvalid,
     {kQuery, "offset", "beyond"}},
    {"tensors_overlap",
     [](GgufWriter& g) { g.tensor(kQuery).offset = 0; },
     kInvalid,
     {kQuery, "offset", "within the bytes"}},
    {"tensors_overlap_by_2_bytes",
     [](GgufWriter& g) {
       g = {};
       g.add_tensor({.name = "first", .extents = {32}, .type = GgufWriter::kQ8_0, .data = std::string(34, '\1')});
       g.add_tensor({.name = "second", .extents = {8}, .data = std::string(32, '\1'), .offset = 32});
     },
     kInvalid,
     {"second", "within the bytes", "first"}},
    // config
    {"no_architecture",
     [](GgufWriter& g) { g.remove("general.architecture"); },
     kInvalid,
     {"general.architecture", "missing"}},
    {"architecture_a_number",
     [](GgufWriter& g) { set(g, "general.architecture", 3); },
     kInvalid,
     {"general.architecture", "u32", "string"}},
    {"architecture_unknown",
     [](GgufWriter& g) {
       set_raw(g, "general.architecture", GgufWriter::kString, encode(std::string_view("mamba\n")));
     },
     kUnsupported,
     {"general.architecture", "mamba\\x0a", "llama, qwen2, qwen3"}},
    {"no_block_count",
     [](GgufWriter& g) { g.remove("llama.block_count"); },
     kInvalid,
     {"llama.block_count", "missing"}},
    {"block_count_0", [](GgufWriter& g) { set(g, "llama.block_count", 0); }, kInvalid, {"llama.block_count", "is 0"}},
    {"block_count_huge",
     [](GgufWriter& g) { set(g, "llama.block_count", 0xffffffff); },
     kInvalid,
     {"llama.block_count", "4294967295", "1024"}},
    {"block_count_one_too_many",
     [](GgufWriter& g) { set(g, "llama.block_count", 2); },
     kInvalid,
     {"blk.1.attn_norm.weight", "missing"}},
    {"block_count_above_int64",
     [](GgufWriter& g) { set_raw(g, "llama.block_count", GgufWriter::kU64, encode(kMost)); },
     kInvalid,
     {"llama.block_count", "18446744073709551615"}},
    {"block_count_a_float",
     [](GgufWriter& g) { set_real(g, "llama.block_count", 1.f); },
     kInvalid,
     {"llama.block_count", "f32", "integer"}},
    {"embedding_length_0",
     [](GgufWriter& g) { set(g, "llama.embedding_length", 0); },
     kInvalid,
     {"llama.embedding_length"}},
    {"embedding_length_at_odds",
     [](GgufWriter& g) { set(g, "llama.embedding_length", 64); },
     kInvalid,
     {"token_embd.weight", "32", "64"}},
    {"feed_forward_length_at_odds",
     [](GgufWriter& g) { set(g, "llama.feed_forward_length", 64); },
     kInvalid,
     {"blk.0.ffn_gate.weight"}},
    {"feed_forward_length_huge",
     [](GgufWriter& g) { set(g, "llama.feed_forward_length", 1u << 30); },
     kInvalid,
     {"llama.feed_forward_length"}},
    {"context_length_0", [](GgufWriter& g) { set(g, "llama.context_length", 0); }, kInvalid, {"llama.context_length"}},
    {"head_count_0",
     [](GgufWriter& g) { set(g, "llama.attention.head_count", 0); },
     kInvalid,
     {"llama.attention.head_count", "is 0"}},
    {"head_count_at_odds",
     [](GgufWriter& g) { set(g, "llama.attention.head_count", 8); },
     kInvalid,
     {"blk.0.attn_q.weight"}},
    {"head_count_kv_0",
     [](GgufWriter& g) { set(g, "llama.attention.head_count_kv", 0); },
     kInvalid,
     {"head_count_kv", "is 0"}},
    {"head_count_kv_divides_not",
     [](GgufWriter& g) { set(g, "llama.attention.head_count_kv", 3); },
     kInvalid,
     {"head_count_kv", "is 3", "divide"}},
    {"head_dim_of_12",
     [](GgufWriter& g) { set(g, "llama.attention.key_length", 12); },
     kUnsupported,
     {"head dimension", "required 12", "8 to 576"}},
    {"head_dim_of_584",
     [](GgufWriter& g) { set(g, "llama.attention.key_length", 584); },
     kUnsupported,
     {"head dimension", "required 584"}},
    {"head_dim_of_values_differs",
     [](GgufWriter& g) { g.add("llama.attention.value_length", 16u); },
     kUnsupported,
     {"value_length", "required 16"}},
    {"heads_do_not_divide_hidden",
     [](GgufWriter& g) {
       g.remove("llama.attention.key_length");
       set(g, "llama.attention.head_count", 6);
     },
     kInvalid,
     {"embedding_length", "32", "6 heads"}},
    {"norm_epsilon_missing",
     [](GgufWriter& g) { g.remove("llama.attention.layer_norm_rms_epsilon"); },
     kInvalid,
     {"layer_norm_rms_epsilon"}},
    {"norm_epsilon_nan",
     [](GgufWriter& g) { set_real(g, "llama.attention.layer_norm_rms_epsilon", std::nanf("")); },
     kInvalid,
     {"layer_norm_rms_epsilon", "nan"}},
    {"norm_epsilon_negative",
     [](GgufWriter& g) { set_real(g, "llama.attention.layer_norm_rms_epsilon", -1e-5f); },
     kInvalid,
     {"layer_norm_rms_epsilon"}},
    {"rope_base_0",
     [](GgufWriter& g) { set_real(g, "llama.rope.freq_base", 0.f); },
     kInvalid,
     {"rope.freq_base", "is 0"}},
    {"rope_base_infinite",
     [](GgufWriter& g) { set_real(g, "llama.rope.freq_base", std::numeric_limits<float>::infinity()); },
     kInvalid,
     {"rope.freq_base", "inf"}},
    {"rope_dimension_odd",
     [](GgufWriter& g) { set(g, "llama.rope.dimension_count", 7); },
     kInvalid,
     {"rope.dimension_count", "is 7", "even"}},
    {"rope_dimension_above_head",
     [](GgufWriter& g) { set(g, "llama.rope.dimension_count", 10); },
     kInvalid,
     {"rope.dimension_count", "is 10"}},
    {"rope_scaling_longrope",
     [](GgufWriter& g) { g.add("llama.rope.scaling.type", "longrope"); },
     kUnsupported,
     {"rope.scaling.type", "longrope"}},
    {"yarn_without_factor",
     [](GgufWriter& g) { g.add("llama.rope.scaling.type", "yarn"); },
     kInvalid,
     {"rope.scaling.factor", "missing"}},
    {"yarn_factor_below_1", [](GgufWriter& g) { add_yarn(g, 0.5f); }, kInvalid, {"rope.scaling.factor", "is 0.5"}},
    {"yarn_factor_nan", [](GgufWriter& g) { add_yarn(g, std::nanf("")); }, kInvalid, {"rope.scaling.factor", "nan"}},
    {"yarn_original_context_0",
     [](GgufWriter& g) { add_yarn(g, 4.f).add("llama.rope.scaling.original_context_length", 0u); },
     kInvalid,
     {"original_context_length", "is 0"}},
    {"yarn_bounds_of_the_ramp_swapped",
     [](GgufWriter& g) { add_yarn(g, 4.f).add("llama.rope.scaling.yarn_beta_slow", 40.f); },
     kInvalid,
     {"beta_fast 32", "beta_slow 40"}},
    {"yarn_in_part",
     [](GgufWriter& g) { add_yarn(g, 4.f).add("llama.rope.scaling.yarn_ext_factor", 0.5f); },
     kUnsupported,
     {"yarn_ext_factor", "required 0.5"}},
    {"rope_scaling_without_factor",
     [](GgufWriter& g) { g.add("llama.rope.scaling.type", "linear"); },
     kInvalid,
     {"rope.scaling.factor", "missing"}},
    {"rope_scaling_factor_0",
     [](GgufWriter& g) { g.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 0.f); },
     kInvalid,
     {"rope.scaling.factor"}},
    {"rope_factors_nan",
     [](GgufWriter& g) {
       add_rope_divisors(g, {1, 1, 1, std::nanf("")});
     },
     kInvalid,
     {"rope_freqs.weight", "element 3 is nan"}},
    {"rope_factors_0",
     [](GgufWriter& g) {
       add_rope_divisors(g, {1, 0, 1, 1});
     },
     kInvalid,
     {"rope_freqs.weight", "element 1 is 0"}},
    {"rope_factors_negative",
     [](GgufWriter& g) {
       add_rope_divisors(g, {-2, 1, 1, 1});
     },
     kInvalid,
     {"rope_freqs.weight", "element 0 is -2"}},
    {"rope_factors_infinite",
     [](GgufWriter& g) {
       add_rope_divisors(g, {1, 1, std::numeric_limits<float>::infinity(), 1});
     },
     kInvalid,
     {"rope_freqs.weight", "element 2 is inf"}},
    {"rope_factors_in_a_model_without_them_by_layer",
     [](GgufWriter& g) {
       g.add_tensor({.name = "blk.0.rope_freqs.weight", .extents = {4}, .data = std::string(16, '\1')});
     },
     kUnsupported,
     {"blk.0.rope_freqs.weight"}},
    {"heads_that_differ_by_layer",
     [](GgufWriter& g) {
       set(g, "llama.block_count", 2);
       set_raw(g, "llama.attention.head_count", GgufWriter::kArray,
               encode_array(GgufWriter::kU32, 2, encode(4u) + encode(2u)));
     },
     kUnsupported,
     {"head_count", "required 2 in layer 1 and 4 in layer 0"}},
    {"heads_of_more_layers",
     [](GgufWriter& g) {
       set_raw(g, "llama.attention.head_count_kv", GgufWriter::kArray,
               encode_array(GgufWriter::kU32, 2, encode(2u) + encode(2u)));
     },
     kInvalid,
     {"head_count_kv", "2 numbers for the 1 layers"}},
    {"heads_of_no_layer",
     [](GgufWriter& g) {
       set_raw(g, "llama.attention.head_count", GgufWriter::kArray, encode_array(GgufWriter::kU32, 0, ""));
     },
     kInvalid,
     {"head_count", "0 numbers"}},
    {"heads_0_in_a_layer",
     [](GgufWriter& g) {
       set_raw(g, "llama.attention.head_count", GgufWriter::kArray, encode_array(GgufWriter::kU32, 1, encode(0u)));
     },
     kInvalid,
     {"head_count", "is 0 in layer 0"}},
    {"feed_forward_lengths_that_are_floats",
     [](GgufWriter& g) {
       set_raw(g, "llama.feed_forward_length", GgufWriter::kArray, encode_array(GgufWriter::kFloat, 1, encode(32.f)));
     },
     kInvalid,
     {"feed_forward_length", "an array of f32"}},
    {"attention_both_ways",
     [](GgufWriter& g) { g.add("llama.attention.causal", false); },
     kUnsupported,
     {"llama.attention.causal", "required false"}},
    {"attention_causal_not_a_bool",
     [](GgufWriter& g) { g.add("llama.attention.causal", 1u); },
     kInvalid,
     {"llama.attention.causal", "a bool"}},
    {"an_adapter",
     [](GgufWriter& g) { g.add("general.type", "adapter"); },
     kUnsupported,
     {"general.type", "'adapter'"}},
    {"a_projector_of_images",
     [](GgufWriter& g) {
       set_raw(g, "general.architecture", GgufWriter::kString, encode(std::string_view("clip")));
       g.add("general.type", "mmproj");
     },
     kUnsupported,
     {"general.type", "'mmproj'"}},
    {"an_importance_matrix",
     [](GgufWriter& g) {
       g.remove("general.architecture");
       g.add("general.type", "imatrix");
     },
     kUnsupported,
     {"general.type", "'imatrix'"}},
    {"a_type_that_is_no_text",
     [](GgufWriter& g) { g.add("general.type", 1u); },
     kInvalid,
     {"general.type", "a string"}},
    {"output_bias_too_short",
     [](GgufWriter& g) {
       g.add_tensor({.name = "blk.0.attn_output.bias", .extents = {16}, .data = std::string(64, '\0')});
     },
     kInvalid,
     {"blk.0.attn_output.bias", "16"}},
    {"rope_factors_too_many",
     [](GgufWriter& g) { add_rope_divisors(g, std::vector<float>(8)); },
     kInvalid,
     {"rope_freqs.weight", "[1, 8]", "[1, 4]"}},
    {"experts",
     [](GgufWriter& g) { g.add("llama.expert_count", 8u); },
     kUnsupported,
     {"llama.expert_count", "required 8"}},
    {"sliding_window",
     [](GgufWriter& g) { g.add("llama.attention.sliding_window", 128u); },
     kUnsupported,
     {"sliding_window", "required 128"}},
    {"gemma_sliding_window_not_a_number",
     [](GgufWriter& g) {
       make_gemma3(g);
       set_raw(g, "gemma3.attention.sliding_window", GgufWriter::kString, encode(std::string_view("x")));
     },
     kInvalid,
     {"sliding_window", "string"}},
    {"gemma_sliding_window_huge",
     [](GgufWriter& g) {
       make_gemma3(g);
       set(g, "gemma3.attention.sliding_window", 0xffffffff);
     },
     kInvalid,
     {"sliding_window", "is 4294967295"}},
    {"gemma_sliding_pattern_0",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.add("gemma3.attention.sliding_window_pattern", 0u);
     },
     kInvalid,
     {"sliding_window_pattern", "is 0"}},
    {"gemma_sliding_rope_base_nan",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.add("gemma3.rope.freq_base_swa", std::nanf(""));
     },
     kInvalid,
     {"freq_base_swa", "nan"}},
    {"gemma_soft_cap_negative",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.add("gemma3.final_logit_softcapping", -30.f);
     },
     kInvalid,
     {"final_logit_softcapping", "-30"}},
    {"gemma_query_scale_0",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.add("gemma3.attention.scale", 0.f);
     },
     kInvalid,
     {"attention.scale", "is 0"}},
    {"gemma_without_post_norm",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.remove("blk.0.post_ffw_norm.weight");
     },
     kInvalid,
     {"blk.0.post_ffw_norm.weight", "missing"}},
    {"gemma_without_norm_of_k",
     [](GgufWriter& g) {
       make_gemma3(g);
       g.remove("blk.0.attn_k_norm.weight");
     },
     kInvalid,
     {"blk.0.attn_k_norm.weight", "missing"}},
    {"qwen2_without_bias_of_v",
     [](GgufWriter& g) {
       g = good_model("qwen2");
       g.remove("blk.0.attn_v.bias");
     },
     kInvalid,
     {"blk.0.attn_v.bias", "missing"}},
    {"qwen2_without_biases",
     [](GgufWriter& g) {
       g = good_model("qwen2");
       for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"}) g.remove(name);
     },
     kInvalid,
     {"blk.0.attn_q.bias", "missing"}},
    {"qwen3_without_norms_of_q_and_k",
     [](GgufWriter& g) {
       g = good_model("qwen3");
       for (const char* name : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"}) g.remove(name);
     },
     kInvalid,
     {"blk.0.attn_q_norm.weight", "missing"}},
    {"qwen3_norm_as_wide_as_all_heads",
     [](GgufWriter& g) {
       g = good_model("qwen3");
       g.remove("blk.0.attn_q_norm.weight");
       add_zeros(g, "blk.0.attn_q_norm.weight");
     },
     kInvalid,
     {"blk.0.attn_q_norm.weight", "1 rows of 32", "1 rows of 8"}},
    {"llama_with_a_post_norm",
     [](GgufWriter& g) { add_zeros(g, "blk.0.post_ffw_norm.weight"); },
     kUnsupported,
     {"blk.0.post_ffw_norm.weight"}},
    {"tokens_fewer_than_rows",
     [](GgufWriter& g) {
       set_raw(g, "tokenizer.ggml.tokens", GgufWriter::kArray,
               encode_array(GgufWriter::kString, 1, encode(std::string_view("a"))));
     },
     kInvalid,
     {"tokenizer.ggml.tokens", "1 tokens", "288 rows"}},
    {"tokens_not_strings",
     [](GgufWriter& g) { set_raw(g, "tokenizer.ggml.tokens", GgufWriter::kU32, encode(288u)); },
     kInvalid,
     {"tokenizer.ggml.tokens", "array"}},
    // weights
    {"no_embedding", [](GgufWriter& g) { g.remove("token_embd.weight"); }, kInvalid, {"token_embd.weight", "missing"}},
    {"no_output_norm",
     [](GgufWriter& g) { g.remove("output_norm.weight"); },
     kInvalid,
     {"output_norm.weight", "missing"}},
    {"no_ffn_down",
     [](GgufWriter& g) { g.remove("blk.0.ffn_down.weight"); },
     kInvalid,
     {"blk.0.ffn_down.weight", "missing"}},
    {"rows_of_q_at_odds", [](GgufWriter& g) { g.tensor(kQuery).extents[1] = 31; }, kInvalid, {kQuery, "31 rows"}},
    {"cols_of_q_at_odds", [](GgufWriter& g) { g.tensor(kQuery).extents[0] = 16; }, kInvalid, {kQuery, "of 16"}},
    {"norm_in_16_bits",
     [](GgufWriter& g) { g.tensor(kNorm).type = GgufWriter::kBF16; },
     kUnsupported,
     {kNorm, "BF16", "F32"}},
    {"bias_for_q_only",
     [](GgufWriter& g) { add_zeros(g, "blk.0.attn_q.bias"); },
     kInvalid,
     {"blk.0.attn_k.bias", "missing"}},
    {"tensor_that_nobody_reads",
     [](GgufWriter& g) { add_zeros(g, "blk.0.ffn_gate_exps.weight"); },
     kUnsupported,
     {"blk.0.ffn_gate_exps.weight"}},
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
    for (const char* part : GetParam().mentions) {
      const bool named = part == nullptr || message.find(part) != std::string::npos;
      EXPECT_TRUE(named) << "'" << part << "' is not in: " << message;
    }
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

}  // namespace
}  // namespace weft
