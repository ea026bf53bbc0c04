#include "cli/sparse_input.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "cli/packed_file.h"

namespace weft::cli {
namespace {

constexpr int64_t kMaxExtent = INT32_MAX;

// Words and lines of a text, which count for messages.
class Reader {
 public:
  Reader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  bool at_end() {
    skip();
    return at_ == text_.size();
  }
  std::string_view line() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    ++line_;
    return found;
  }
  // Lines from here on that begin with that character.
  void skip_comments(char mark) {
    while (at_ < text_.size() && text_[at_] == mark) line();
  }
  // A whole number; `what` it is, for messages.
  int64_t integer(const char* what, int64_t least, int64_t most) {
    skip();
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(fmt::format("{} is expected", what));
    if (value < least || value > most) fail(fmt::format("{} is {}; allowed are {} to {}", what, value, least, most));
    at_ = static_cast<size_t>(stop - text_.data());
    return value;
  }
  void skip_word() {
    skip();
    if (at_ == text_.size()) fail("the file ends early");
    while (at_ < text_.size() && !is_space(text_[at_])) ++at_;
  }
  [[noreturn]] void fail(const std::string& message) const {
    weft::fail(ErrorCode::invalid_file, "'{}', line {}: {}", path_, line_, message);
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ','; }
  void skip() {
    for (; at_ < text_.size() && is_space(text_[at_]); ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }
  const std::string& path_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

sparse::Coo read_matrix_market(Reader& reader) {
  std::istringstream head{std::string(reader.line())};
  std::string banner, object, format, field, symmetry;
  head >> banner >> object >> format >> field >> symmetry;
  for (std::string* word : {&object, &format, &field, &symmetry})
    std::transform(word->begin(), word->end(), word->begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (banner != "%%MatrixMarket" || object != "matrix" || format != "coordinate")
    reader.fail("%%MatrixMarket matrix coordinate is expected; dense arrays are not read");
  const size_t words = field == "complex" ? 2 : field == "pattern" ? 0 : 1;
  if (field != "real" && field != "integer" && field != "pattern" && field != "complex")
    reader.fail(fmt::format("field '{}' is not known", field));
  const bool mirrored = symmetry == "symmetric" || symmetry == "skew-symmetric" || symmetry == "hermitian";
  if (!mirrored && symmetry != "general") reader.fail(fmt::format("symmetry '{}' is not known", symmetry));
  std::string_view sizes = reader.line();
  while (!sizes.empty() && sizes[0] == '%') sizes = reader.line();
  const std::string size_path = "sizes";
  Reader size_reader(size_path, sizes);
  sparse::Coo coo;
  coo.num_rows = size_reader.integer("the number of rows", 0, kMaxExtent);
  coo.num_cols = size_reader.integer("the number of columns", 0, kMaxExtent);
  const int64_t count = size_reader.integer("the number of elements", 0, kMaxExtent / 2);
  for (int64_t e = 0; e < count; ++e) {
    const auto row = static_cast<int32_t>(reader.integer("a row", 1, coo.num_rows) - 1);
    const auto col = static_cast<int32_t>(reader.integer("a column", 1, coo.num_cols) - 1);
    for (size_t w = 0; w < words; ++w) reader.skip_word();
    coo.rows.push_back(row);
    coo.cols.push_back(col);
    if (!mirrored || row == col) continue;
    coo.rows.push_back(col);
    coo.cols.push_back(row);
  }
  if (!reader.at_end()) reader.fail("more elements follow than the header says");
  return coo;
}

sparse::Coo read_smtx(Reader& reader) {
  sparse::Coo coo;
  reader.skip_comments('%');
  coo.num_rows = reader.integer("the number of rows", 0, kMaxExtent);
  coo.num_cols = reader.integer("the number of columns", 0, kMaxExtent);
  const int64_t count = reader.integer("the number of elements", 0, kMaxExtent);
  int64_t before = reader.integer("indptr[0]", 0, 0);
  for (int64_t row = 0; row < coo.num_rows; ++row) {
    const int64_t next = reader.integer("an element of indptr", before, count);
    coo.rows.insert(coo.rows.end(), static_cast<size_t>(next - before), static_cast<int32_t>(row));
    before = next;
  }
  if (before != count) reader.fail(fmt::format("indptr ends at {}; there are {} elements", before, count));
  for (int64_t e = 0; e < count; ++e)
    coo.cols.push_back(static_cast<int32_t>(reader.integer("a column", 0, coo.num_cols - 1)));
  return coo;
}

sparse::Coo read_triples(Reader& reader) {
  reader.line();  // names of the columns
  std::set<std::pair<int32_t, int32_t>> places;
  int64_t largest = -1;
  while (!reader.at_end()) {
    reader.integer("a relation", 0, kMaxExtent);
    const int64_t row = reader.integer("a row", 0, kMaxExtent - 1), col = reader.integer("a column", 0, kMaxExtent - 1);
    largest = std::max({largest, row, col});
    places.emplace(static_cast<int32_t>(row), static_cast<int32_t>(col));
  }
  sparse::Coo coo{.num_rows = largest + 1, .num_cols = largest + 1};
  for (const auto& [row, col] : places) {
    coo.rows.push_back(row);
    coo.cols.push_back(col);
  }
  return coo;
}

sparse::CooTensor read_relations(Reader& reader) {
  reader.line();  // names of the columns
  sparse::CooTensor tensor{.extents = {0, 0, 0}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  while (!reader.at_end())
    for (size_t d = 0; d < 3; ++d) {
      const int64_t x = reader.integer(d == 0 ? "a relation" : d == 1 ? "a row" : "a column", 0, kMaxExtent - 1);
      tensor.coordinates[d].push_back(static_cast<int32_t>(x));
      tensor.extents[d] = std::max(tensor.extents[d], x + 1);
    }
  // Rows and columns are of one kind.
  tensor.extents[1] = tensor.extents[2] = std::max(tensor.extents[1], tensor.extents[2]);
  return tensor;
}

// As many coordinates a line as the first one has, and a value.
sparse::CooTensor read_frostt(Reader& reader) {
  sparse::CooTensor tensor;
  while (!reader.at_end()) {
    const std::string_view line = reader.line();
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words{std::string(line)};
    std::vector<std::string> list;
    for (std::string word; words >> word;) list.push_back(word);
    if (tensor.extents.empty()) {
      if (list.size() < 2 || list.size() > 7)
        reader.fail(fmt::format("{} words; 1 to 6 coordinates and a value are expected", list.size()));
      tensor.extents.assign(list.size() - 1, 0);
      tensor.coordinates.resize(list.size() - 1);
    }
    if (list.size() != tensor.extents.size() + 1)
      reader.fail(fmt::format("{} words; {} coordinates and a value are expected", list.size(), tensor.extents.size()));
    for (size_t d = 0; d < tensor.extents.size(); ++d) {
      int64_t x = 0;
      const auto [stop, error] = std::from_chars(list[d].data(), list[d].data() + list[d].size(), x);
      if (error != std::errc() || *stop != '\0' || x < 1 || x > kMaxExtent)
        reader.fail(fmt::format("'{}' is no coordinate; 1 to {} are allowed", list[d], kMaxExtent));
      tensor.coordinates[d].push_back(static_cast<int32_t>(x - 1));
      tensor.extents[d] = std::max(tensor.extents[d], x);
    }
  }
  if (tensor.extents.empty()) reader.fail("the file holds no element");
  return tensor;
}

// The name without .gz.
std::string unpacked_name(const std::string& path) {
  return path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
}

}  // namespace

bool is_tensor(const std::string& path) {
  const std::string name = unpacked_name(path);
  return name.ends_with(".tns") || name.ends_with(".csv");
}

sparse::CooTensor read_tensor(const std::string& path) {
  const std::string text = read_packed_file(path);
  Reader reader(path, text);
  return unpacked_name(path).ends_with(".csv") ? read_relations(reader) : read_frostt(reader);
}

sparse::Coo read_matrix(const std::string& path) {
  const std::string text = read_packed_file(path);
  Reader reader(path, text);
  const std::string plain = unpacked_name(path);
  if (plain.ends_with(".mtx")) return read_matrix_market(reader);
  if (plain.ends_with(".smtx")) return read_smtx(reader);
  if (plain.ends_with(".csv")) return read_triples(reader);
  if (plain.ends_with(".tns")) {
    const sparse::CooTensor tensor = read_frostt(reader);
    check(tensor.extents.size() == 2, ErrorCode::invalid_file,
          "'{}': the tensor has {} dimensions; the axis is one of a matrix, which has two", path,
          tensor.extents.size());
    return {.num_rows = tensor.extents[0],
            .num_cols = tensor.extents[1],
            .rows = tensor.coordinates[0],
            .cols = tensor.coordinates[1]};
  }
  fail(ErrorCode::invalid_file,
       "'{}': its name ends as no format that is read; those are .mtx, .smtx, .csv and .tns, each also .gz", path);
}

}  // namespace weft::cli
