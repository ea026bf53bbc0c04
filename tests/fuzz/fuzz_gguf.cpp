// A model file of any bytes, or one of two parts with a mark between them: it is refused with weft::Error, or
// everything in it can be read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/byte_source.h"
#include "models/gguf_reader.h"
#include "models/layers.h"
#include "weft/model.h"

namespace {

// Errors are what the fuzzer expects; anything else ends it.
template <class Call>
void allow_error(const Call& call) {
  try {
    call();
  } catch (const weft::Error&) {
  }
}

// By the getter of the value's own type. It may refuse: bools in an array are no integers.
void read_value(const weft::ModelFile& file, const std::string& key, const weft::GgufValue& value) {
  using weft::GgufType;
  if (value.is_array) file.count(key);
  allow_error([&] {
    switch (value.type) {
      case GgufType::string:
        value.is_array ? static_cast<void>(file.get_strings(key)) : static_cast<void>(file.get_string(key));
        break;
      case GgufType::f32:
      case GgufType::f64:
        value.is_array ? static_cast<void>(file.get_floats(key)) : static_cast<void>(file.get_float(key));
        break;
      default: value.is_array ? static_cast<void>(file.get_ints(key)) : static_cast<void>(file.get_int(key));
    }
  });
}

void read_all(const weft::ModelFile& file, const weft::Gguf& header) {
  for (const weft::GgufValue& value : header.metadata) read_value(file, std::string(header.text(value.key)), value);
  for (const weft::WeightInfo& weight : file.weights()) {
    std::vector<char> row(weight.bytes / static_cast<uint64_t>(weight.rows));
    file.read(weight, 0, 1, row.data());
    file.read(weight, weight.rows - 1, weight.rows, row.data());
  }
  allow_error([&] { weft::check_weights(file); });
}

}  // namespace

// What stands between the parts of a split model.
constexpr std::string_view kNextPart = "|next part|";

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t mark = bytes.find(kNextPart);
  const std::string_view first = bytes.substr(0, mark);
  const std::string_view second = mark == std::string_view::npos ? first : bytes.substr(mark + kNextPart.size());
  const std::string name = "fuzz-00001-of-00002.gguf";
  allow_error([&] {
    const weft::ModelFile file = weft::open_model(
        name, [&](const std::string& wanted) { return weft::open_memory(wanted, wanted == name ? first : second); });
    read_all(file, weft::read_gguf(*weft::open_memory(name, first)));
  });
  return 0;
}
