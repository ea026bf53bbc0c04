#include "models/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they stand");

constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
constexpr uint64_t kFirstReadBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxEntries = 65536;  // metadata values, and tensors
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxRankInFile = 4;
constexpr uint64_t kMinAlignment = 8, kMaxAlignment = 65536, kDefaultAlignment = 32;
// The fewest bytes that an entry takes: key length, type, value; name length, rank, extent, type, offset.
constexpr uint64_t kLeastValueBytes = 8 + 4 + 1, kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kSwappedMagic = 0x47475546;

// Types of tensors by their number in the file. Those without a WeightType are known by name only.
struct FileType {
  uint32_t id;
  std::string_view own_name = {};
  std::optional<WeightType> type = {};

  constexpr FileType(uint32_t number, std::string_view text) : id(number), own_name(text) {}
  constexpr FileType(uint32_t number, WeightType known) : id(number), type(known) {}
  std::string_view name() const { return type ? to_string(*type) : own_name; }
};
constexpr FileType kFileTypes[] = {
    {0, WeightType::f32},
    {1, WeightType::f16},
    {2, WeightType::q4_0},
    {3, WeightType::q4_1},
    {6, WeightType::q5_0},
    {7, "Q5_1"},
    {8, WeightType::q8_0},
    {9, "Q8_1"},
    {10, "Q2_K"},
    {11, "Q3_K"},
    {12, WeightType::q4_k},
    {13, "Q5_K"},
    {14, WeightType::q6_k},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {30, WeightType::bf16},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
};

// Bytes of a scalar; 0 for strings, arrays and what is no type.
uint64_t bytes_of(uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

bool is_plain_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

class HeaderReader {
 public:
  explicit HeaderReader(const ByteSource& source) : source_(source) {}

  Gguf read() {
    Gguf gguf;
    read_start(gguf);
    place_ = {"metadata entry"};
    gguf.metadata.reserve(num_values_);
    for (uint64_t i = 0; i < num_values_; ++i) {
      place_ = {"metadata entry", i};
      gguf.metadata.push_back(read_value());
    }
    gguf.tensors.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      place_ = {"tensor", i};
      gguf.tensors.push_back(read_tensor());
    }
    gguf.header = std::move(header_);
    sort_metadata(gguf);
    check_alignment(gguf);
    place_tensors(gguf);
    return gguf;
  }

 private:
  // What is being read, for messages only.
  struct Place {
    std::string_view kind;
    uint64_t index = 0;
    GgufSpan name = {};
  };

  template <class... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(code, fmt::format("{}: {}", source_.name(), fmt::format(format, std::forward<Args>(args)...)));
  }
  template <class... Args>
  [[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) const {
    refuse(ErrorCode::invalid_file, format, std::forward<Args>(args)...);
  }
  // "tensor 3 'blk.0.attn_q.weight'"
  std::string here() const {
    if (place_.kind == "header") return "header";
    std::string result = fmt::format("{} {}", place_.kind, place_.index);
    if (place_.name.size > 0) result += fmt::format(" {}", quoted(text(place_.name)));
    return result;
  }
  std::string_view text(GgufSpan span) const { return {header_.get() + span.at, span.size}; }
  uint64_t left() const { return source_.size() - at_; }

  // Makes the next `bytes` bytes readable.
  void need(uint64_t bytes, std::string_view field) {
    if (bytes <= loaded_ - at_) return;
    if (bytes > left())
      invalid(
          "{}: {} needs {} bytes at byte {}, but the file ends at byte {}; it is damaged or incomplete, fetch it again",
          here(), field, bytes, at_, source_.size());
    if (bytes > kMaxHeaderBytes - std::min(at_, kMaxHeaderBytes))
      invalid("{}: {} needs {} bytes at byte {}; allowed are headers of up to {} bytes", here(), field, bytes, at_,
              kMaxHeaderBytes);
    const uint64_t grown = std::max({at_ + bytes, 2 * loaded_, kFirstReadBytes});
    const uint64_t target = std::min({grown, source_.size(), kMaxHeaderBytes});
    auto header = std::make_unique_for_overwrite<char[]>(target);
    if (loaded_ > 0) std::memcpy(header.get(), header_.get(), loaded_);
    source_.read(loaded_, header.get() + loaded_, target - loaded_);
    header_ = std::move(header);
    loaded_ = target;
  }

  template <class T>
  T number(std::string_view field) {
    need(sizeof(T), field);
    T value;
    std::memcpy(&value, header_.get() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  GgufSpan bytes(uint64_t size, std::string_view field) {
    need(size, field);
    const GgufSpan span{static_cast<uint32_t>(at_), static_cast<uint32_t>(size)};
    at_ += size;
    return span;
  }
  GgufSpan string(std::string_view field) { return bytes(number<uint64_t>(field), field); }

  // A key or a tensor's name.
  GgufSpan name(std::string_view field, uint64_t max_bytes) {
    const auto size = number<uint64_t>(field);
    if (size < 1 || size > max_bytes)
      invalid("{}: {} has {} bytes; allowed are 1 to {}", here(), field, size, max_bytes);
    const GgufSpan span = bytes(size, field);
    if (!is_plain_ascii(text(span)))
      invalid("{}: {} {} holds other than printable ASCII characters", here(), field, quoted(text(span)));
    return span;
  }

  void read_start(Gguf& gguf) {
    place_ = {"header"};
    const auto magic = number<uint32_t>("magic");
    if (magic != kMagic)
      invalid("header: magic is {:#010x}{}; a GGUF file starts with {:#010x} (\"GGUF\"): give a GGUF model", magic,
              magic == kSwappedMagic ? " (byte-swapped)" : "", kMagic);
    gguf.version = number<uint32_t>("version");
    if (gguf.version != 2 && gguf.version != 3)
      refuse(ErrorCode::unsupported,
             "header: version: required {}{}, supported 2 and 3 in little endian; convert the model again with a "
             "current converter",
             gguf.version, gguf.version >= (1u << 24) ? " (a big-endian file)" : "");
    num_tensors_ = number<uint64_t>("tensor count");
    num_values_ = number<uint64_t>("metadata count");
    const uint64_t max_tensors = std::min(kMaxEntries, left() / kLeastTensorBytes);
    if (num_tensors_ > max_tensors)
      invalid("header: tensor count is {}; the {} bytes left hold at most {}", num_tensors_, left(), max_tensors);
    const uint64_t max_values = std::min(kMaxEntries, left() / kLeastValueBytes);
    if (num_values_ > max_values)
      invalid("header: metadata count is {}; the {} bytes left hold at most {}", num_values_, left(), max_values);
  }

  GgufValue read_value() {
    GgufValue value;
    value.key = name("key", kMaxKeyBytes);
    place_.name = value.key;
    auto type = number<uint32_t>("type");
    value.is_array = type == static_cast<uint32_t>(GgufType::array);
    if (value.is_array) {
      type = number<uint32_t>("element type");
      if (type == static_cast<uint32_t>(GgufType::array))
        refuse(ErrorCode::unsupported, "{}: required arrays of arrays, supported arrays of numbers, bools and strings",
               here());
      value.count = number<uint64_t>("array length");
    }
    value.type = static_cast<GgufType>(type);
    if (value.type == GgufType::string) {
      value.data = value.is_array ? strings(value.count) : string("value");
      return value;
    }
    const uint64_t element_bytes = bytes_of(type);
    if (element_bytes == 0)
      invalid("{}: {} is {}; allowed are 0 to 12", here(), value.is_array ? "element type" : "type", type);
    if (value.count > left() / element_bytes)
      invalid("{}: array length is {} elements of {} bytes; the file has {} bytes left", here(), value.count,
              element_bytes, left());
    value.data = bytes(value.count * element_bytes, "value");
    if (value.type == GgufType::boolean)
      for (const char byte : text(value.data))
        if (byte != 0 && byte != 1)
          invalid("{}: value of a bool is {}; allowed are 0 and 1", here(), static_cast<unsigned char>(byte));
    return value;
  }

  GgufSpan strings(uint64_t count) {
    if (count > left() / sizeof(uint64_t))
      invalid("{}: array length is {} strings; the file has {} bytes left", here(), count, left());
    const uint64_t begin = at_;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t ready = loaded_ - at_;  // a vocabulary's strings mostly lie in memory by now
      uint64_t size = 0;
      if (ready >= sizeof size) {
        std::memcpy(&size, header_.get() + at_, sizeof size);
        if (size <= ready - sizeof size) {
          at_ += sizeof size + size;
          continue;
        }
      }
      string("array element");
    }
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(at_ - begin)};
  }

  // Leaves the offset as it stands in the file: relative to the data, whose start is not known yet.
  WeightInfo read_tensor() {
    WeightInfo tensor;
    const GgufSpan span = name("name", kMaxTensorNameBytes);
    place_.name = span;
    tensor.name = text(span);
    const auto rank = number<uint32_t>("rank");
    if (rank < 1 || rank > kMaxRankInFile) invalid("{}: rank is {}; allowed are 1 to {}", here(), rank, kMaxRankInFile);
    for (uint32_t axis = 0; axis < rank; ++axis) {
      const auto extent = number<uint64_t>("extent");
      if (extent < 1 || extent > static_cast<uint64_t>(INT64_MAX))
        invalid("{}: extent of axis {} is {}; allowed are 1 to {}", here(), axis, extent, INT64_MAX);
      if (axis == 0)
        tensor.cols = static_cast<int64_t>(extent);
      else if (__builtin_mul_overflow(tensor.rows, static_cast<int64_t>(extent), &tensor.rows))
        invalid("{}: extents multiply to more than {} elements", here(), INT64_MAX);
    }
    tensor.type = weight_type(number<uint32_t>("type"));
    const WeightBlock& block = weight_block(tensor.type);
    if (tensor.cols % block.inputs != 0)
      invalid("{}: extent of axis 0 is {}; {} needs a multiple of {}", here(), tensor.cols, to_string(tensor.type),
              block.inputs);
    uint64_t blocks = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.cols / block.inputs), static_cast<uint64_t>(tensor.rows),
                               &blocks) ||
        __builtin_mul_overflow(blocks, static_cast<uint64_t>(block.bytes), &tensor.bytes))
      invalid("{}: extents {} x {} take more bytes than a file can have", here(), tensor.rows, tensor.cols);
    tensor.offset = number<uint64_t>("offset");
    return tensor;
  }

  WeightType weight_type(uint32_t id) const {
    const auto* found = std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                                     [id](const FileType& known) { return known.id == id; });
    if (found != std::end(kFileTypes) && found->type) return *found->type;
    std::string supported;
    for (const FileType& known : kFileTypes)
      if (known.type) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", known.name());
    refuse(ErrorCode::unsupported, "{}: required type {}, supported {}; use a file quantised to one of these", here(),
           found != std::end(kFileTypes) ? std::string(found->name()) : fmt::format("number {}", id), supported);
  }

  void sort_metadata(Gguf& gguf) const {
    std::sort(gguf.metadata.begin(), gguf.metadata.end(),
              [&](const GgufValue& a, const GgufValue& b) { return gguf.text(a.key) < gguf.text(b.key); });
    for (size_t i = 1; i < gguf.metadata.size(); ++i)
      if (gguf.text(gguf.metadata[i - 1].key) == gguf.text(gguf.metadata[i].key))
        invalid("metadata: key {} stands there twice", quoted(gguf.text(gguf.metadata[i].key)));
  }

  void check_alignment(const Gguf& gguf) {
    const GgufValue* value = gguf.find("general.alignment");
    if (value == nullptr) return;
    if (value->type != GgufType::u32 || value->is_array)
      invalid("metadata 'general.alignment' has type {}; expected u32", to_string(value->type));
    uint32_t number = 0;
    std::memcpy(&number, gguf.text(value->data).data(), sizeof number);
    if (number < kMinAlignment || number > kMaxAlignment || !std::has_single_bit(number))
      invalid("metadata 'general.alignment' is {}; allowed are powers of two from {} to {}", number, kMinAlignment,
              kMaxAlignment);
    alignment_ = number;
  }

  // Turns offsets into places of the file, and checks that each tensor has bytes of its own.
  void place_tensors(Gguf& gguf) const {
    if (gguf.tensors.empty()) return;
    const uint64_t size = source_.size();
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (begin > size)
      invalid("tensor data start at byte {}, but the file ends at byte {}; it is incomplete, fetch it again", begin,
              size);
    for (WeightInfo& tensor : gguf.tensors) {
      if (tensor.offset % alignment_ != 0)
        invalid("tensor {}: offset {} is no multiple of the alignment {}", quoted(tensor.name), tensor.offset,
                alignment_);
      if (tensor.offset > size - begin || tensor.bytes > size - begin - tensor.offset)
        invalid(
            "tensor {}: offset {} and {} bytes reach beyond the {} bytes of tensor data; the file is damaged or "
            "incomplete, fetch it again",
            quoted(tensor.name), tensor.offset, tensor.bytes, size - begin);
      tensor.offset += begin;
    }
    std::vector<const WeightInfo*> order(gguf.tensors.size());
    std::transform(gguf.tensors.begin(), gguf.tensors.end(), order.begin(), [](const WeightInfo& t) { return &t; });
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1]->name == order[i]->name) invalid("tensor name {} stands there twice", quoted(order[i]->name));
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes)
        invalid("tensor {}: offset lies within the bytes of tensor {}", quoted(order[i]->name),
                quoted(order[i - 1]->name));
  }

  const ByteSource& source_;
  std::unique_ptr<char[]> header_;
  uint64_t at_ = 0, loaded_ = 0;
  uint64_t num_tensors_ = 0, num_values_ = 0, alignment_ = kDefaultAlignment;
  Place place_;
};

}  // namespace

std::string_view to_string(GgufType type) {
  switch (type) {
    case GgufType::u8: return "u8";
    case GgufType::i8: return "i8";
    case GgufType::u16: return "u16";
    case GgufType::i16: return "i16";
    case GgufType::u32: return "u32";
    case GgufType::i32: return "i32";
    case GgufType::f32: return "f32";
    case GgufType::boolean: return "bool";
    case GgufType::string: return "string";
    case GgufType::array: return "array";
    case GgufType::u64: return "u64";
    case GgufType::i64: return "i64";
    case GgufType::f64: return "f64";
  }
  return "unknown";
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = std::lower_bound(metadata.begin(), metadata.end(), key,
                                      [&](const GgufValue& value, std::string_view k) { return text(value.key) < k; });
  return found != metadata.end() && text(found->key) == key ? &*found : nullptr;
}

Gguf read_gguf(const ByteSource& source) { return HeaderReader(source).read(); }

std::string quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string result = "'";
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= 0x20 && c < 0x7f)
      result += c;
    else
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  result += text.size() > kMaxBytes ? "...'" : "'";
  return result;
}

}  // namespace weft
