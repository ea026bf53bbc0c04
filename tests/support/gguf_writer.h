// Writes GGUF files, good ones and, on purpose, broken ones.
//
//   GgufWriter gguf;
//   gguf.add("general.architecture", "llama").add("llama.block_count", 2u);
//   gguf.add_tensor({.name = "token_embd.weight", .extents = {32, 8}, .type = GgufWriter::kF32, .data = bytes});
//   gguf.write(path);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_folder.h"

namespace weft::testing {

class GgufWriter {
 public:
  // Numbers as they stand in files.
  enum TensorType : uint32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ5_0 = 6,
    kQ8_0 = 8,
    kQ2_K = 10,
    kQ4_K = 12,
    kQ6_K = 14,
    kBF16 = 30
  };
  enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kFloat, kBool, kString, kArray, kU64, kI64, kDouble };

  struct Value {
    std::string key;
    uint32_t type = kU32;
    std::string data;  // as it stands in the file
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> extents;  // innermost first
    uint32_t type = kF32;
    std::string data;
    std::optional<uint64_t> offset = {};  // default: after the tensor before, aligned
    std::optional<uint32_t> rank = {};    // default: extents.size()
  };

  GgufWriter& add(std::string key, std::string_view text);
  GgufWriter& add(std::string key, const char* text) { return add(std::move(key), std::string_view(text)); }
  GgufWriter& add(std::string key, uint32_t number);
  GgufWriter& add(std::string key, int64_t number);
  GgufWriter& add(std::string key, float number);
  GgufWriter& add(std::string key, bool flag);
  GgufWriter& add(std::string key, const std::vector<std::string>& texts);
  GgufWriter& add(std::string key, const std::vector<float>& numbers);
  GgufWriter& add(std::string key, const std::vector<int32_t>& numbers);
  GgufWriter& add_raw(std::string key, uint32_t type, std::string data);
  GgufWriter& add_tensor(Tensor tensor);
  void remove(std::string_view key);  // the value, or the tensor, of that name
  Value& value(std::string_view key);
  Tensor& tensor(std::string_view name);

  std::string bytes() const;
  void write(const std::string& path) const;

  uint32_t magic = 0x46554747, version = 3;
  uint64_t alignment = 32;                          // add("general.alignment", ...) says it in the file
  std::optional<uint64_t> num_tensors, num_values;  // default: as many as there are
  std::vector<Value> values;
  std::vector<Tensor> tensors;
};

// Numbers, strings (with their length) and arrays as they stand in files.
std::string encode(uint32_t number);
std::string encode(uint64_t number);
std::string encode(float number);
std::string encode(std::string_view text);
std::string encode_array(uint32_t element_type, uint64_t count, std::string_view elements);

}  // namespace weft::testing
