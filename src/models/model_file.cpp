#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/byte_source.h"
#include "models/config.h"
#include "models/gguf_reader.h"
#include "models/split_file.h"
#include "weft/model.h"

namespace weft {
namespace {

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::u16:
    case GgufType::i16:
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::u64:
    case GgufType::i64: return true;
    default: return false;
  }
}
bool is_real(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

template <class T>
T load(const char* from, uint64_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof value, sizeof value);
  return value;
}

// Element `index` of integers of `type`; false when it does not fit.
bool load_integer(GgufType type, const char* from, uint64_t index, int64_t& value) {
  switch (type) {
    case GgufType::u8: value = load<uint8_t>(from, index); return true;
    case GgufType::i8: value = load<int8_t>(from, index); return true;
    case GgufType::u16: value = load<uint16_t>(from, index); return true;
    case GgufType::i16: value = load<int16_t>(from, index); return true;
    case GgufType::u32: value = load<uint32_t>(from, index); return true;
    case GgufType::i32: value = load<int32_t>(from, index); return true;
    case GgufType::i64: value = load<int64_t>(from, index); return true;
    case GgufType::u64: {
      const auto wide = load<uint64_t>(from, index);
      value = static_cast<int64_t>(wide);
      return wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    default: return false;
  }
}

double load_real(GgufType type, const char* from, uint64_t index) {
  return type == GgufType::f32 ? static_cast<double>(load<float>(from, index)) : load<double>(from, index);
}

}  // namespace

struct ModelFile::Impl {
  std::unique_ptr<ByteSource> source;
  Gguf gguf;
  std::vector<uint32_t> by_name;  // indices of gguf.tensors, sorted by name
  std::mutex config_mutex;        // guards the first computation of config
  std::optional<ModelConfig> config;

  explicit Impl(GgufFile file) : source(std::move(file.source)), gguf(std::move(file.gguf)) {
    by_name.resize(gguf.tensors.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    std::sort(by_name.begin(), by_name.end(),
              [&](uint32_t a, uint32_t b) { return gguf.tensors[a].name < gguf.tensors[b].name; });
  }

  const GgufValue& value(std::string_view key) const {
    const GgufValue* found = gguf.find(key);
    check(found != nullptr, ErrorCode::invalid_file, "{}: metadata {} is missing; the file is no complete model",
          source->name(), quoted(key));
    return *found;
  }
  [[noreturn]] void refuse_type(std::string_view key, const GgufValue& found, std::string_view expected) const {
    fail(ErrorCode::invalid_file, "{}: metadata {} is {}{}; expected {}", source->name(), quoted(key),
         found.is_array ? "an array of " : "", to_string(found.type), expected);
  }
  const GgufValue& integers(std::string_view key, bool is_array) const {
    const GgufValue& found = value(key);
    if (found.is_array != is_array || !is_integer(found.type))
      refuse_type(key, found, is_array ? "an array of integers" : "an integer");
    return found;
  }
  const GgufValue& reals(std::string_view key, bool is_array) const {
    const GgufValue& found = value(key);
    if (found.is_array != is_array || !is_real(found.type))
      refuse_type(key, found, is_array ? "an array of f32 or f64" : "f32 or f64");
    return found;
  }
};

ModelFile::ModelFile(const std::string& path) : ModelFile(std::make_unique<Impl>(read_parts(path, open_file))) {}
ModelFile::ModelFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelFile::~ModelFile() = default;
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;

ModelFile open_model(std::unique_ptr<ByteSource> source) {
  const std::string name = source->name();
  return open_model(name, [&](const std::string& wanted) {
    check(wanted == name, ErrorCode::io_error, "{}: is not at hand: one source was given", wanted);
    return std::move(source);
  });
}

ModelFile open_model(const std::string& name, const OpenSource& open) {
  return ModelFile(std::make_unique<ModelFile::Impl>(read_parts(name, open)));
}

ModelFile::Impl& ModelFile::impl() const { return held(impl_, "model file", "ModelFile(path)"); }

const std::string& ModelFile::path() const { return impl().source->name(); }
uint64_t ModelFile::file_bytes() const { return impl().source->size(); }

const ModelConfig& ModelFile::config() const {
  Impl& own = impl();
  const std::lock_guard lock(own.config_mutex);
  if (!own.config) own.config = read_config(*this);
  return *own.config;
}

std::span<const WeightInfo> ModelFile::weights() const { return impl().gguf.tensors; }

const WeightInfo* ModelFile::find_weight(std::string_view name) const {
  const auto& tensors = impl().gguf.tensors;
  const auto found = std::lower_bound(impl().by_name.begin(), impl().by_name.end(), name,
                                      [&](uint32_t index, std::string_view n) { return tensors[index].name < n; });
  return found != impl().by_name.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

const WeightInfo& ModelFile::weight(std::string_view name) const {
  const WeightInfo* found = find_weight(name);
  check(found != nullptr, ErrorCode::invalid_file, "{}: tensor {} is missing; the file is no complete model", path(),
        quoted(name));
  return *found;
}

void ModelFile::read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, void* to) const {
  const WeightInfo* own = find_weight(weight.name);
  check(own != nullptr && own->offset == weight.offset && own->bytes == weight.bytes && own->rows == weight.rows,
        ErrorCode::invalid_argument, "weight {}: belongs to another file than {}", quoted(weight.name), path());
  check(0 <= row_begin && row_begin <= row_end && row_end <= own->rows, ErrorCode::invalid_argument,
        "rows [{}, {}) of weight {}; allowed are 0 to {}", row_begin, row_end, quoted(weight.name), own->rows);
  const uint64_t row_bytes = own->bytes / static_cast<uint64_t>(own->rows);
  impl().source->read(own->offset + static_cast<uint64_t>(row_begin) * row_bytes, to,
                      static_cast<uint64_t>(row_end - row_begin) * row_bytes);
}

bool ModelFile::has(std::string_view key) const { return impl().gguf.find(key) != nullptr; }

int64_t ModelFile::get_int(std::string_view key) const {
  const GgufValue& found = impl().integers(key, false);
  int64_t value = 0;
  const bool fits = load_integer(found.type, impl().gguf.text(found.data).data(), 0, value);
  check(fits, ErrorCode::invalid_file, "{}: metadata {} is {}; allowed are integers up to {}", path(), quoted(key),
        static_cast<uint64_t>(value), std::numeric_limits<int64_t>::max());
  return value;
}

double ModelFile::get_float(std::string_view key) const {
  const GgufValue& found = impl().reals(key, false);
  return load_real(found.type, impl().gguf.text(found.data).data(), 0);
}

bool ModelFile::get_bool(std::string_view key) const {
  const GgufValue& found = impl().value(key);
  if (found.is_array || found.type != GgufType::boolean) impl().refuse_type(key, found, "a bool");
  return impl().gguf.text(found.data)[0] != 0;
}

std::string ModelFile::get_string(std::string_view key) const {
  const GgufValue& found = impl().value(key);
  if (found.is_array || found.type != GgufType::string) impl().refuse_type(key, found, "a string");
  return std::string(impl().gguf.text(found.data));
}

std::vector<std::string> ModelFile::get_strings(std::string_view key) const {
  const GgufValue& found = impl().value(key);
  if (!found.is_array || found.type != GgufType::string) impl().refuse_type(key, found, "an array of strings");
  std::vector<std::string> result;
  result.reserve(found.count);
  const char* at = impl().gguf.text(found.data).data();
  for (uint64_t i = 0; i < found.count; ++i) {
    const auto size = load<uint64_t>(at, 0);
    at += sizeof size;
    result.emplace_back(at, size);
    at += size;
  }
  return result;
}

std::vector<float> ModelFile::get_floats(std::string_view key) const {
  const GgufValue& found = impl().reals(key, true);
  const char* from = impl().gguf.text(found.data).data();
  std::vector<float> result(found.count);
  for (uint64_t i = 0; i < found.count; ++i) result[i] = static_cast<float>(load_real(found.type, from, i));
  return result;
}

std::vector<int32_t> ModelFile::get_ints(std::string_view key) const {
  const GgufValue& found = impl().integers(key, true);
  const char* from = impl().gguf.text(found.data).data();
  std::vector<int32_t> result(found.count);
  for (uint64_t i = 0; i < found.count; ++i) {
    int64_t value = 0;
    const bool fits = load_integer(found.type, from, i, value) && std::in_range<int32_t>(value);
    check(fits, ErrorCode::invalid_file, "{}: metadata {}: element {} does not fit into 32 bits", path(), quoted(key),
          i);
    result[i] = static_cast<int32_t>(value);
  }
  return result;
}

bool ModelFile::is_array(std::string_view key) const { return impl().value(key).is_array; }

size_t ModelFile::count(std::string_view key) const {
  const GgufValue& found = impl().value(key);
  if (!found.is_array) impl().refuse_type(key, found, "an array");
  return static_cast<size_t>(found.count);
}

}  // namespace weft
