// Files of elements as text, by the end of their names: Matrix Market, .smtx, triples, FROSTT.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "sparse/files/element_lines.h"
#include "sparse/files/matrix_market.h"
#include "sparse/files/whole_file.h"

namespace weft::sparse {
namespace {

constexpr int64_t kMaxLength = INT32_MAX;

std::string_view unpacked(std::string_view name) {
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

// Libraries of others unpack.
std::string unpacked_text(const std::string& path) {
  check(!path.ends_with(".gz"), ErrorCode::unsupported,
        "'{}': required: an unpacked file; supported: gunzip it first, or unpack it in memory and parse the text",
        path);
  return read_whole(path);
}

// An indptr of another length than its line takes numbers of the columns, or gives them some: what is wrong then would
// be found in a later line. Lists may also be spread over lines, of as many numbers as there should be.
void check_indptr_line(TextReader& reader, int64_t num_rows, int64_t num_elements) {
  const int64_t found = reader.words_of_line();
  if (found > 0 && found != num_rows + 1 && reader.words_of_rest() != num_rows + 1 + num_elements)
    reader.fail(
        fmt::format("indptr has {}; {} are expected, one more than rows", counted(found, "number"), num_rows + 1));
}

Coo parse_smtx(TextReader& reader) {
  Coo coo;
  reader.skip_comments('%');
  coo.num_rows = reader.integer("the number of rows", 0, kMaxLength);
  coo.num_cols = reader.integer("the number of columns", 0, kMaxLength);
  const int64_t count = reader.integer("the number of elements", 0, kMaxLength);
  // Memory follows the file, not what it says: each element is one character at least.
  if (count > static_cast<int64_t>(reader.num_left()))
    reader.fail(fmt::format("the number of elements is {}, and {} follow", count,
                            counted(static_cast<int64_t>(reader.num_left()), "character")));
  check_indptr_line(reader, coo.num_rows, count);
  int64_t before = reader.integer("indptr[0]", 0, 0);
  for (int64_t row = 0; row < coo.num_rows; ++row) {
    const int64_t next = reader.integer("an element of indptr", before, count);
    coo.rows.insert(coo.rows.end(), static_cast<size_t>(next - before), static_cast<int32_t>(row));
    before = next;
  }
  if (before != count) reader.fail(fmt::format("indptr ends at {}; the number of elements is {}", before, count));
  for (int64_t e = 0; e < count; ++e) {
    coo.cols.push_back(static_cast<int32_t>(reader.integer("a column", 0, coo.num_cols - 1)));
    reader.note_element(reader.line_number());
  }
  if (!reader.at_end())
    reader.fail(fmt::format("more follows than the {} that the sizes say", counted(count, "element")));
  return coo;
}

Coo parse_triples(TextReader& reader) {
  reader.line();  // names of the columns
  std::set<std::pair<int32_t, int32_t>> places;
  int64_t largest = -1;
  while (!reader.at_end()) {
    reader.integer("a relation", 0, kMaxLength);
    const int64_t row = reader.integer("a row", 0, kMaxLength - 1), col = reader.integer("a column", 0, kMaxLength - 1);
    largest = std::max({largest, row, col});
    places.emplace(static_cast<int32_t>(row), static_cast<int32_t>(col));
  }
  Coo coo{.num_rows = largest + 1, .num_cols = largest + 1};
  for (const auto& [row, col] : places) {
    coo.rows.push_back(row);
    coo.cols.push_back(col);
  }
  return coo;
}

CooTensor parse_relations(TextReader& reader) {
  reader.line();  // names of the columns
  CooTensor tensor{.extents = {0, 0, 0}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  while (!reader.at_end()) {
    for (size_t d = 0; d < 3; ++d) {
      const int64_t x = reader.integer(d == 0 ? "a relation" : d == 1 ? "a row" : "a column", 0, kMaxLength - 1);
      tensor.coordinates[d].push_back(static_cast<int32_t>(x));
      tensor.extents[d] = std::max(tensor.extents[d], x + 1);
    }
    reader.note_element(reader.line_number());
  }
  // Rows and columns are of one kind.
  tensor.extents[1] = tensor.extents[2] = std::max(tensor.extents[1], tensor.extents[2]);
  return tensor;
}

std::string words_in(const std::vector<std::string_view>& line) {
  return counted(static_cast<int64_t>(line.size()), "word");
}

// As many coordinates a line as the first one has, and a value.
TensorData parse_frostt(TextReader& reader) {
  TensorData data;
  CooTensor& tensor = data.coo;
  for (; !reader.at_end();) {
    const int number = reader.line_number();
    const std::string_view line = reader.line();
    if (line[0] == '#') continue;
    const std::vector<std::string_view> words = words_of(line);
    const auto fail = [&](const std::string& message) { reader.fail_at(number, message); };
    if (tensor.extents.empty()) {
      if (words.size() < 2 || words.size() > 7)
        fail(fmt::format("{}; 1 to 6 coordinates and a value are expected", words_in(words)));
      tensor.extents.assign(words.size() - 1, 0);
      tensor.coordinates.resize(words.size() - 1);
    }
    if (words.size() != tensor.extents.size() + 1)
      fail(fmt::format("{}; {} and a value are expected", words_in(words),
                       counted(static_cast<int64_t>(tensor.extents.size()), "coordinate")));
    reader.note_element(number);
    for (size_t d = 0; d < tensor.extents.size(); ++d) {
      int64_t x = 0;
      if (!parse_whole(words[d], &x) || x < 1 || x > kMaxLength)
        fail(fmt::format("'{}' is no coordinate; 1 to {} are allowed", shown(words[d]), kMaxLength));
      tensor.coordinates[d].push_back(static_cast<int32_t>(x - 1));
      tensor.extents[d] = std::max(tensor.extents[d], x);
    }
    if (!parse_real(words.back(), &data.values.emplace_back()))
      fail(fmt::format("'{}' is no value", shown(words.back())));
  }
  if (tensor.extents.empty()) reader.fail("the file holds no element");
  return data;
}

MatrixData parse_elements(std::string_view name, std::string_view text, bool with_values,
                          std::vector<int>* lines = nullptr) {
  TextReader reader(name, text, lines);
  const std::string_view plain = unpacked(name);
  if (plain.ends_with(".mtx")) return parse_matrix_market(reader, with_values);
  if (plain.ends_with(".smtx")) return {.coo = parse_smtx(reader)};
  if (plain.ends_with(".csv")) return {.coo = parse_triples(reader)};
  check(plain.ends_with(".tns"), ErrorCode::invalid_file,
        "'{}': its name ends as no format that is read; those are .mtx, .smtx, .csv and .tns, each also .gz", name);
  TensorData data = parse_frostt(reader);
  check(data.coo.extents.size() == 2, ErrorCode::invalid_file,
        "'{}': the tensor has {}; the axis is one of a matrix, which has two", name,
        counted(static_cast<int64_t>(data.coo.extents.size()), "dimension"));
  return {.coo = {.num_rows = data.coo.extents[0],
                  .num_cols = data.coo.extents[1],
                  .rows = std::move(data.coo.coordinates[0]),
                  .cols = std::move(data.coo.coordinates[1])},
          .values = with_values ? std::move(data.values) : std::vector<double>{}};
}

}  // namespace

MatrixData parse_matrix(std::string_view name, std::string_view text) { return parse_elements(name, text, true); }
Coo parse_places(std::string_view name, std::string_view text) { return parse_elements(name, text, false).coo; }

bool is_tensor_file(std::string_view name) {
  return unpacked(name).ends_with(".tns") || unpacked(name).ends_with(".csv");
}

namespace {

TensorData parse_tensor_elements(std::string_view name, std::string_view text, std::vector<int>* lines = nullptr) {
  check(is_tensor_file(name), ErrorCode::invalid_file,
        "'{}': its name ends as no format of tensors; those are .tns and .csv, each also .gz", name);
  TextReader reader(name, text, lines);
  if (unpacked(name).ends_with(".csv")) return {.coo = parse_relations(reader)};
  return parse_frostt(reader);
}

}  // namespace

TensorData parse_tensor(std::string_view name, std::string_view text) { return parse_tensor_elements(name, text); }

std::vector<int> lines_of_matrix(std::string_view name, std::string_view text) {
  std::vector<int> lines;
  parse_elements(name, text, false, &lines);
  return lines;
}

std::vector<int> lines_of_tensor(std::string_view name, std::string_view text) {
  std::vector<int> lines;
  parse_tensor_elements(name, text, &lines);
  return lines;
}

MatrixData read_matrix(const std::string& path) { return parse_matrix(path, unpacked_text(path)); }
Coo read_places(const std::string& path) { return parse_places(path, unpacked_text(path)); }
TensorData read_tensor(const std::string& path) { return parse_tensor(path, unpacked_text(path)); }

}  // namespace weft::sparse
