#include "models/split_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft {
namespace {

constexpr std::string_view kNumber = "split.no", kCount = "split.count", kTensors = "split.tensors.count";
constexpr int64_t kMaxParts = 1024;  // each takes a file descriptor
constexpr size_t kMaxTensors = 65536;

// Parts behind each other. No read crosses from one into the next: a tensor lies in one.
class JoinedSource : public ByteSource {
 public:
  explicit JoinedSource(std::vector<std::unique_ptr<ByteSource>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      begins_.push_back(size_);
      check(!__builtin_add_overflow(size_, part->size(), &size_), ErrorCode::invalid_file,
            "{}: the parts have more bytes than a number can say", part->name());
    }
  }
  const std::string& name() const override { return parts_.front()->name(); }
  uint64_t size() const override { return size_; }
  uint64_t begin(size_t part) const { return begins_[part]; }
  void read(uint64_t offset, void* to, uint64_t bytes) const override {
    const auto part =
        static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
    parts_[part]->read(offset - begins_[part], to, bytes);
  }

 private:
  std::vector<std::unique_ptr<ByteSource>> parts_;
  std::vector<uint64_t> begins_;
  uint64_t size_ = 0;
};

// An integer of a header; none where the key is not there.
std::optional<int64_t> number_of(const ByteSource& source, const Gguf& gguf, std::string_view key) {
  const GgufValue* value = gguf.find(key);
  if (value == nullptr) return std::nullopt;
  const char* data = gguf.text(value->data).data();
  const auto load = [&]<class T>(T number) {
    std::memcpy(&number, data, sizeof number);
    return static_cast<int64_t>(number);
  };
  if (!value->is_array) switch (value->type) {
      case GgufType::u8: return load(uint8_t{});
      case GgufType::i8: return load(int8_t{});
      case GgufType::u16: return load(uint16_t{});
      case GgufType::i16: return load(int16_t{});
      case GgufType::u32: return load(uint32_t{});
      case GgufType::i32: return load(int32_t{});
      case GgufType::i64: return load(int64_t{});
      case GgufType::u64: {
        uint64_t number = 0;
        std::memcpy(&number, data, sizeof number);
        check(std::in_range<int64_t>(number), ErrorCode::invalid_file,
              "{}: metadata {} is {}; allowed are integers up to {}", source.name(), quoted(key), number,
              std::numeric_limits<int64_t>::max());
        return static_cast<int64_t>(number);
      }
      default: break;
    }
  fail(ErrorCode::invalid_file, "{}: metadata {} is {}{}; expected an integer", source.name(), quoted(key),
       value->is_array ? "an array of " : "", to_string(value->type));
}

int64_t required_number(const ByteSource& source, const Gguf& gguf, std::string_view key) {
  const std::optional<int64_t> number = number_of(source, gguf, key);
  check(number.has_value(), ErrorCode::invalid_file,
        "{}: metadata {} is missing; each part of a split model has it: split the model again", source.name(),
        quoted(key));
  return *number;
}

std::string suffix_of(int64_t number, int64_t count) {
  return fmt::format("-{:05d}-of-{:05d}.gguf", number + 1, count);
}

struct Part {
  std::unique_ptr<ByteSource> source;
  Gguf gguf;
};

// Opens the part, and checks that it is this one of so many.
Part open_part(const std::string& name, int64_t number, int64_t count, const OpenSource& open) {
  Part part;
  try {
    part.source = open(name);
  } catch (const Error& error) {
    const std::string_view message = error.what();  // its code, and then what stands here
    fail(error.code(), "part {} of the {} of a split model, all of which are needed: {}", number + 1, count,
         message.substr(to_string(error.code()).size() + 2));
  }
  part.gguf = read_gguf(*part.source);
  const int64_t own_number = required_number(*part.source, part.gguf, kNumber);
  const int64_t own_count = required_number(*part.source, part.gguf, kCount);
  check(own_number == number && own_count == count, ErrorCode::invalid_file,
        "{}: metadata '{}' is {} and '{}' is {}; its name and the other parts say {} and {}", name, kNumber, own_number,
        kCount, own_count, number, count);
  return part;
}

// Metadata are the first part's. What a later one says too must be the same, and it may add nothing.
void check_metadata(const Part& first, const Part& part) {
  for (const GgufValue& value : part.gguf.metadata) {
    const std::string_view key = part.gguf.text(value.key);
    if (key == kNumber || key == "general.alignment") continue;
    const GgufValue* same = first.gguf.find(key);
    check(same != nullptr, ErrorCode::invalid_file,
          "{}: metadata {} is not in the first part, {}; metadata belong there", part.source->name(), quoted(key),
          first.source->name());
    check(same->type == value.type && same->is_array == value.is_array &&
              first.gguf.text(same->data) == part.gguf.text(value.data),
          ErrorCode::invalid_file,
          "{}: metadata {} differs from that of the first part, {}; these are parts of two models", part.source->name(),
          quoted(key), first.source->name());
  }
}

// The tensors of all parts go to the first, with offsets that count from its start.
GgufFile join(std::vector<Part> parts) {
  const int64_t tensors = required_number(*parts[0].source, parts[0].gguf, kTensors);
  std::vector<std::unique_ptr<ByteSource>> sources;
  size_t total = 0;
  for (Part& part : parts) {
    check_metadata(parts[0], part);
    total += part.gguf.tensors.size();
  }
  check(total <= kMaxTensors, ErrorCode::invalid_file, "{}: the {} parts have {} tensors; allowed are {}",
        parts[0].source->name(), parts.size(), total, kMaxTensors);
  check(tensors == static_cast<int64_t>(total), ErrorCode::invalid_file,
        "{}: metadata '{}' is {}, but the {} parts have {} tensors", parts[0].source->name(), kTensors, tensors,
        parts.size(), total);
  for (Part& part : parts) sources.push_back(std::move(part.source));
  auto joined = std::make_unique<JoinedSource>(std::move(sources));
  GgufFile file{.source = nullptr, .gguf = std::move(parts[0].gguf)};
  file.gguf.tensors.reserve(total);
  for (size_t i = 1; i < parts.size(); ++i)
    for (WeightInfo& tensor : parts[i].gguf.tensors) {
      tensor.offset += joined->begin(i);
      file.gguf.tensors.push_back(std::move(tensor));
    }
  std::vector<std::string_view> names;
  for (const WeightInfo& tensor : file.gguf.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check(twice == names.end(), ErrorCode::invalid_file, "{}: tensor {} stands in two parts", joined->name(),
        quoted(twice == names.end() ? "" : *twice));
  file.source = std::move(joined);
  return file;
}

}  // namespace

GgufFile read_parts(const std::string& name, const OpenSource& open) {
  Part named{.source = open(name), .gguf = {}};
  named.gguf = read_gguf(*named.source);
  const bool is_part = named.gguf.find(kNumber) != nullptr || named.gguf.find(kTensors) != nullptr;
  const int64_t count = is_part ? required_number(*named.source, named.gguf, kCount)
                                : number_of(*named.source, named.gguf, kCount).value_or(0);
  check(0 <= count && count <= kMaxParts, ErrorCode::invalid_file, "{}: metadata '{}' is {}; allowed are 0 to {}", name,
        kCount, count, kMaxParts);
  if (count <= 1) return {std::move(named.source), std::move(named.gguf)};
  const int64_t number = required_number(*named.source, named.gguf, kNumber);
  check(0 <= number && number < count, ErrorCode::invalid_file,
        "{}: metadata '{}' is {}; allowed are 0 to {}, one below '{}'", name, kNumber, number, count - 1, kCount);
  const std::string suffix = suffix_of(number, count);
  check(name.ends_with(suffix), ErrorCode::invalid_file,
        "{}: holds part {} of the {} of a split model, so its name must end in '{}': the others are found by theirs. "
        "Name all parts as they were",
        name, number + 1, count, suffix);
  const std::string stem = name.substr(0, name.size() - suffix.size());
  std::vector<Part> parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(i == number ? std::move(named) : open_part(stem + suffix_of(i, count), i, count, open));
  return join(std::move(parts));
}

}  // namespace weft
