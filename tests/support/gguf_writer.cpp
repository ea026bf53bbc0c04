#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace weft::testing {
namespace {

template <class T>
std::string raw(T value) {
  std::string result(sizeof value, '\0');
  std::memcpy(result.data(), &value, sizeof value);
  return result;
}

uint64_t align(uint64_t size, uint64_t alignment) { return (size + alignment - 1) / alignment * alignment; }

}  // namespace

std::string encode(uint32_t number) { return raw(number); }
std::string encode(uint64_t number) { return raw(number); }
std::string encode(float number) { return raw(number); }
std::string encode(std::string_view text) { return raw(uint64_t{text.size()}) + std::string(text); }
std::string encode_array(uint32_t element_type, uint64_t count, std::string_view elements) {
  return raw(element_type) + raw(count) + std::string(elements);
}

GgufWriter& GgufWriter::add_raw(std::string key, uint32_t type, std::string data) {
  values.push_back({std::move(key), type, std::move(data)});
  return *this;
}
GgufWriter& GgufWriter::add(std::string key, std::string_view text) {
  return add_raw(std::move(key), kString, encode(text));
}
GgufWriter& GgufWriter::add(std::string key, uint32_t number) { return add_raw(std::move(key), kU32, raw(number)); }
GgufWriter& GgufWriter::add(std::string key, int64_t number) { return add_raw(std::move(key), kI64, raw(number)); }
GgufWriter& GgufWriter::add(std::string key, float number) { return add_raw(std::move(key), kFloat, raw(number)); }
GgufWriter& GgufWriter::add(std::string key, bool flag) {
  return add_raw(std::move(key), kBool, std::string(1, flag ? '\1' : '\0'));
}
GgufWriter& GgufWriter::add(std::string key, const std::vector<std::string>& texts) {
  std::string elements;
  for (const std::string& text : texts) elements += encode(text);
  return add_raw(std::move(key), kArray, encode_array(kString, texts.size(), elements));
}
GgufWriter& GgufWriter::add(std::string key, const std::vector<float>& numbers) {
  std::string elements;
  for (const float number : numbers) elements += raw(number);
  return add_raw(std::move(key), kArray, encode_array(kFloat, numbers.size(), elements));
}
GgufWriter& GgufWriter::add(std::string key, const std::vector<int32_t>& numbers) {
  std::string elements;
  for (const int32_t number : numbers) elements += raw(number);
  return add_raw(std::move(key), kArray, encode_array(kI32, numbers.size(), elements));
}
GgufWriter& GgufWriter::add_tensor(Tensor added) {
  tensors.push_back(std::move(added));
  return *this;
}

void GgufWriter::remove(std::string_view name) {
  const size_t removed = std::erase_if(values, [&](const Value& v) { return v.key == name; }) +
                         std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  if (removed != 1) throw std::logic_error("GgufWriter: nothing is called " + std::string(name));
}
GgufWriter::Value& GgufWriter::value(std::string_view key) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.key == key; });
  if (found == values.end()) throw std::logic_error("GgufWriter: no value " + std::string(key));
  return *found;
}
GgufWriter::Tensor& GgufWriter::tensor(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  if (found == tensors.end()) throw std::logic_error("GgufWriter: no tensor " + std::string(name));
  return *found;
}

std::string GgufWriter::bytes() const {
  std::string out =
      raw(magic) + raw(version) + raw(num_tensors.value_or(tensors.size())) + raw(num_values.value_or(values.size()));
  for (const Value& v : values) out += encode(v.key) + raw(v.type) + v.data;
  uint64_t next = 0;
  for (const Tensor& t : tensors) {
    out += encode(t.name) + raw(t.rank.value_or(static_cast<uint32_t>(t.extents.size())));
    for (const uint64_t extent : t.extents) out += raw(extent);
    out += raw(t.type) + raw(t.offset.value_or(next));
    next = align(next + t.data.size(), alignment);
  }
  for (const Tensor& t : tensors) {
    out.resize(align(out.size(), alignment));
    out += t.data;
  }
  return out;
}

void GgufWriter::write(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  const std::string all = bytes();
  out.write(all.data(), static_cast<std::streamsize>(all.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace weft::testing
