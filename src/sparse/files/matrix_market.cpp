#include "sparse/files/matrix_market.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/check.h"
#include "base/names.h"
#include "sparse/files/numbers.h"
#include "sparse/files/whole_file.h"

namespace weft::sparse {
namespace {

constexpr std::string_view kBanner = "%%MatrixMarket";

struct Head {
  std::string field, symmetry;
  bool mirrored() const { return symmetry != "general"; }
  double mirrored_sign() const { return symmetry == "skew-symmetric" ? -1 : 1; }
};

// "%%MatrixMarket matrix coordinate FIELD SYMMETRY", whose words are of any case.
Head read_head(TextReader& reader) {
  const std::string_view banner = reader.line();
  std::vector<std::string> words;
  for (const std::string_view word : words_of(banner)) {
    std::string& lower = words.emplace_back(word);
    if (words.size() > 1)
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  const auto fail = [&](const std::string& why) {
    reader.fail_at(1, fmt::format("{}; expected is '{} matrix coordinate FIELD SYMMETRY'", why, kBanner));
  };
  if (words.empty() || words[0] != kBanner)
    fail(fmt::format("the banner of a Matrix Market file is missing, the line is '{}'", shown(banner)));
  if (words.size() != 5) fail(fmt::format("the banner has {} words: '{}'", words.size(), shown(banner)));
  if (words[1] != "matrix") fail(fmt::format("the banner's object is '{}'", shown(words[1])));
  if (words[2] == "array") fail("the banner's format is 'array': dense arrays are not read");
  if (words[2] != "coordinate") fail(fmt::format("the banner's format is '{}'", shown(words[2])));
  Head head{.field = words[3], .symmetry = words[4]};
  const auto is_one_of = [](const std::string& word, std::initializer_list<const char*> known) {
    return std::find(known.begin(), known.end(), word) != known.end();
  };
  if (!is_one_of(head.field, {"real", "double", "integer", "pattern", "complex"}))
    reader.fail_at(
        1, fmt::format("field '{}' is not known; allowed are real, integer, pattern and complex", shown(head.field)));
  if (!is_one_of(head.symmetry, {"general", "symmetric", "skew-symmetric", "hermitian"}))
    reader.fail_at(1, fmt::format("symmetry '{}' is not known; allowed are general, symmetric, skew-symmetric and "
                                  "hermitian",
                                  shown(head.symmetry)));
  return head;
}

}  // namespace

MatrixData parse_matrix_market(TextReader& reader, bool with_values) {
  constexpr int64_t kMaxExtent = INT32_MAX;
  const Head head = read_head(reader);
  if (with_values && head.field == "complex")
    reader.refuse_at(
        1,
        "field 'complex': required: values of two numbers; supported: real, integer and pattern, or the places alone");
  reader.skip_comments('%');
  MatrixData data;
  data.coo.num_rows = reader.integer("the number of rows", 0, kMaxExtent);
  data.coo.num_cols = reader.integer("the number of columns", 0, kMaxExtent);
  if (head.mirrored() && data.coo.num_rows != data.coo.num_cols)
    reader.fail(fmt::format("a {} matrix is square, not {} x {}", head.symmetry, data.coo.num_rows, data.coo.num_cols));
  const int64_t count = reader.integer("the number of elements", 0, head.mirrored() ? kMaxExtent / 2 : kMaxExtent);
  const size_t num_numbers = head.field == "pattern" ? 0 : head.field == "complex" ? 2 : 1;
  const bool keeps_values = with_values && num_numbers == 1;
  const auto add = [&](int64_t row, int64_t col, double value) {
    data.coo.rows.push_back(static_cast<int32_t>(row));
    data.coo.cols.push_back(static_cast<int32_t>(col));
    reader.note_element(reader.line_number());
    if (keeps_values) data.values.push_back(value);
  };
  for (int64_t e = 0; e < count; ++e) {
    const int64_t row = reader.integer("a row", 1, data.coo.num_rows) - 1;
    const int64_t col = reader.integer("a column", 1, data.coo.num_cols) - 1;
    double value = 0;
    for (size_t n = 0; n < num_numbers; ++n)
      if (head.field == "integer")
        value = static_cast<double>(reader.integer("a value", -kMaxInteger, kMaxInteger));
      else if (const double number = reader.real("a value"); n == 0)
        value = number;
    if (keeps_values && row == col && head.mirrored_sign() < 0 && value != 0)
      reader.fail(
          fmt::format("element {}, {} of a skew-symmetric matrix is {}, and has to be 0", row + 1, col + 1, value));
    add(row, col, value);
    if (head.mirrored() && row != col) add(col, row, head.mirrored_sign() * value);
  }
  if (!reader.at_end())
    reader.fail(fmt::format("more follows than the {} that the sizes say", counted(count, "element")));
  return data;
}

void write_matrix(const std::string& path, const Coo& coo, const TensorView& values) {
  check(coo.rows.size() == coo.cols.size(), ErrorCode::invalid_argument, "coo: there are {} rows and {} columns",
        coo.rows.size(), coo.cols.size());
  check(values.size() == static_cast<int64_t>(coo.rows.size()), ErrorCode::invalid_shape,
        "values: there are {}; the list has {} elements", values.size(), coo.rows.size());
  for (size_t e = 0; e < coo.rows.size(); ++e)
    check(coo.rows[e] >= 0 && coo.rows[e] < coo.num_rows && coo.cols[e] >= 0 && coo.cols[e] < coo.num_cols,
          ErrorCode::invalid_argument, "coo: element {} is at row {}, column {}, outside of {} x {}", e, coo.rows[e],
          coo.cols[e], coo.num_rows, coo.num_cols);
  const NumbersOf numbers(values, "values");
  std::string text = fmt::format("{} matrix coordinate {} general\n{} {} {}\n", kBanner, numbers.field(), coo.num_rows,
                                 coo.num_cols, coo.rows.size());
  for (size_t e = 0; e < coo.rows.size(); ++e) {
    fmt::format_to(std::back_inserter(text), "{} {} ", int64_t{coo.rows[e]} + 1, int64_t{coo.cols[e]} + 1);
    numbers.append(static_cast<int64_t>(e), text);
  }
  write_whole(path, text);
}

void write_matrix(const std::string& path, const TensorView& matrix) {
  check(matrix.rank() == 1 || matrix.rank() == 2, ErrorCode::invalid_shape,
        "matrix: has {} dimensions; a Matrix Market array has one or two", matrix.rank());
  const NumbersOf numbers(matrix, "matrix");
  const int64_t rows = matrix.shape(0), cols = matrix.rank() == 2 ? matrix.shape(1) : 1;
  std::string text = fmt::format("{} matrix array {} general\n{} {}\n", kBanner, numbers.field(), rows, cols);
  for (int64_t col = 0; col < cols; ++col)
    for (int64_t row = 0; row < rows; ++row) numbers.append(row * cols + col, text);
  write_whole(path, text);
}

}  // namespace weft::sparse
