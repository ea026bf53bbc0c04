// NumPy's files of one array: a magic, a version, the length of a header, the header as a Python dictionary, the data.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "sparse/files/text_reader.h"
#include "sparse/files/whole_file.h"
#include "weft/sparse_files.h"

namespace weft::sparse {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr const char* kSupported = "'<f2', '<f4', '<f8', '<i4', '<i8' and '<V2' (bf16), or with '>'";

struct NpyHeader {
  std::string type = {};
  bool is_fortran = false;
  std::vector<int64_t> shape = {};
};

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderReader {
 public:
  HeaderReader(std::string_view name, std::string_view text) : name_(name), text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(has_type, true)) {
        if (looks_like('[')) refuse("a structured type");
        header.type = quoted();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.is_fortran = accept_word("True");
        if (!header.is_fortran && !accept_word("False")) fail("fortran_order is neither True nor False");
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = shape();
      } else {
        fail(fmt::format("the key '{}' is not expected, or stands twice", shown(key)));
      }
      if (!accept(',') && !looks_like('}')) fail("',' or '}' is expected");
    }
    skip();
    if (at_ != text_.size()) fail("something follows the dictionary");
    if (!has_type || !has_order || !has_shape) fail("descr, fortran_order and shape are expected");
    return header;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    weft::fail(ErrorCode::unsupported, "'{}': required: {}; supported: {}", name_, what, kSupported);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    weft::fail(ErrorCode::invalid_file, "'{}': the header of the .npy file: {}, at character {}", name_, message, at_);
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool looks_like(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool accept(char c) {
    const bool found = looks_like(c);
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is expected", c));
  }
  bool accept_word(std::string_view word) {
    skip();
    const bool found = text_.substr(at_).starts_with(word);
    at_ += found ? word.size() : 0;
    return found;
  }
  std::string quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail("a quoted word is expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("a quote is not closed");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> extents;
    expect('(');
    while (!accept(')')) {
      skip();
      size_t end = at_;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      int64_t extent = 0;
      if (!parse_whole(text_.substr(at_, end - at_), &extent)) fail("an extent is expected");
      at_ = end;
      accept_word("L");  // as Python 2 wrote it
      extents.push_back(extent);
      if (!accept(',') && !looks_like(')')) fail("',' or ')' is expected");
    }
    if (extents.size() > static_cast<size_t>(kMaxRank))
      weft::fail(ErrorCode::unsupported, "'{}': required: {} dimensions; supported: up to {}", name_, extents.size(),
                 kMaxRank);
    return extents;
  }

  std::string_view name_, text_;
  size_t at_ = 0;
};

std::optional<DType> type_of_npy(std::string_view type) {
  if (type.size() != 3 || std::string_view("<>=|").find(type[0]) == std::string_view::npos) return std::nullopt;
  const std::string_view kind = type.substr(1);
  if (kind == "f2") return DType::fp16;
  if (kind == "f4") return DType::fp32;
  if (kind == "f8") return DType::fp64;
  if (kind == "i4") return DType::int32;
  if (kind == "i8") return DType::int64;
  if (kind == "V2") return DType::bf16;
  return std::nullopt;
}

const char* npy_type_of(DType dtype) {
  switch (dtype) {
    case DType::fp16: return "<f2";
    case DType::fp32: return "<f4";
    case DType::fp64: return "<f8";
    case DType::int32: return "<i4";
    case DType::int64: return "<i8";
    case DType::bf16: return "<V2";
    default: return nullptr;
  }
}

// Elements of an array in Fortran's order, whose first index runs fastest.
void copy_from_fortran(const char* from, const std::vector<int64_t>& shape, size_t width, std::byte* to) {
  int64_t count = 1;
  std::vector<int64_t> steps, index(shape.size(), 0);
  for (const int64_t extent : shape) {
    steps.push_back(count);
    count *= extent;
  }
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * width, from + static_cast<size_t>(at) * width, width);
    for (size_t d = shape.size(); d-- > 0;) {
      at += steps[d];
      if (++index[d] < shape[d]) break;
      at -= steps[d] * shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace

Array parse_npy(std::string_view name, std::string_view bytes) {
  const auto require = [&](bool holds, const std::string& why) {
    check(holds, ErrorCode::invalid_file, "'{}': {}", name, why);
  };
  require(bytes.starts_with(kMagic), "is no .npy file: it does not begin with \\x93NUMPY");
  require(bytes.size() >= 10, "the .npy file ends within its header");
  const int version = static_cast<unsigned char>(bytes[6]);
  check(version >= 1 && version <= 3, ErrorCode::unsupported, "'{}': required: version {} of .npy; supported: 1 to 3",
        name, version);
  const size_t num_length_bytes = version == 1 ? 2 : 4;
  require(bytes.size() >= 8 + num_length_bytes, "the .npy file ends within its header");
  size_t length = 0;
  for (size_t i = num_length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[8 + i]);
  bytes.remove_prefix(8 + num_length_bytes);
  require(length <= bytes.size(), "the .npy file ends within its header");
  HeaderReader reader(name, bytes.substr(0, length));
  const NpyHeader header = reader.read();
  bytes.remove_prefix(length);
  const std::optional<DType> dtype = type_of_npy(header.type);
  if (!dtype) reader.refuse(fmt::format("elements of type '{}'", shown(header.type)));
  // What it would take is compared before memory is.
  const size_t width = static_cast<size_t>(bits_of(*dtype)) / 8;
  auto num_bits = static_cast<int64_t>(bits_of(*dtype));  // as an Array counts
  bool fits = true;
  for (const int64_t extent : header.shape) fits &= !__builtin_mul_overflow(num_bits, extent, &num_bits);
  const size_t size = static_cast<size_t>(num_bits) / 8;
  require(fits && size == bytes.size(), fmt::format("{} bytes of data follow the header; its shape and type say {}",
                                                    bytes.size(), fits ? fmt::format("{}", size) : "far more"));
  Array array(*dtype, header.shape);
  std::byte* to = array.bytes().data();
  if (header.is_fortran)
    copy_from_fortran(bytes.data(), header.shape, width, to);
  else if (size > 0)
    std::memcpy(to, bytes.data(), size);
  if (header.type[0] == '>')
    for (size_t at = 0; at < size; at += width) std::reverse(to + at, to + at + width);
  return array;
}

Array read_npy(const std::string& path) { return parse_npy(path, read_whole(path)); }

void write_npy(const std::string& path, const TensorView& tensor) {
  const char* type = npy_type_of(tensor.dtype());
  check(type != nullptr, ErrorCode::invalid_dtype, "tensor: is of {}; allowed are fp16, bf16, fp32, fp64, int32, int64",
        to_string(tensor.dtype()));
  check(tensor.is_contiguous(), ErrorCode::invalid_stride, "tensor: is not contiguous");
  check(tensor.device().kind != DeviceKind::cuda, ErrorCode::invalid_device, "tensor: lies on {}; copy it to the host",
        to_string(tensor.device()));
  std::string shape;
  for (const int64_t extent : tensor.shape()) shape += fmt::format("{},", extent);
  if (tensor.rank() > 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  // Data begins at a multiple of 64 bytes.
  constexpr size_t kAlignment = 64, kBefore = 10;
  header += std::string(kAlignment - 1 - (kBefore + header.size()) % kAlignment, ' ') + "\n";
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;
  const size_t size = static_cast<size_t>(tensor.size()) * static_cast<size_t>(bits_of(tensor.dtype())) / 8;
  if (size > 0) text.append(static_cast<const char*>(tensor.data()), size);
  write_whole(path, text);
}

}  // namespace weft::sparse
