// Files of matrices, tensors and arrays: what they hold is read, what they lack is named.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tests/sparse/refusals.h"
#include "tests/support/temp_folder.h"
#include "weft/sparse_files.h"

namespace weft::sparse::test {
namespace {

using Places = std::vector<int32_t>;
using Numbers = std::vector<double>;

class Folder : public testing::TempFolder {
 public:
  size_t num_files() const {
    const std::filesystem::directory_iterator begin(path()), end;
    return static_cast<size_t>(std::distance(begin, end));
  }
};

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string banner(const std::string& field, const std::string& symmetry) {
  return "%%MatrixMarket matrix coordinate " + field + " " + symmetry + "\n";
}

TEST(MatrixMarket, HoldsElementsInTheOrderOfTheFile) {
  const MatrixData data =
      parse_matrix("m.mtx", banner("real", "general") +
                                "% a comment\n\n \r\n%\n3 4 5\n3 1 0.5\n1 4 -2e-3\n\n2 2 +7\n1 1 inf\r\n3 4 1e-400\n");
  EXPECT_EQ(data.coo.num_rows, 3);
  EXPECT_EQ(data.coo.num_cols, 4);
  EXPECT_EQ(data.coo.rows, (Places{2, 0, 1, 0, 2}));
  EXPECT_EQ(data.coo.cols, (Places{0, 3, 1, 0, 3}));
  EXPECT_EQ(data.values, (Numbers{0.5, -2e-3, 7, std::numeric_limits<double>::infinity(), 0}));
  EXPECT_EQ(parse_matrix("m.mtx.gz", "%%MatrixMarket MATRIX Coordinate Integer GENERAL\n2 2 1\n2 1 -3\n").values,
            (Numbers{-3}));
  const MatrixData places = parse_matrix("m.mtx", banner("pattern", "general") + "2 2 1\n2 1\n");
  EXPECT_EQ(places.coo.rows, (Places{1}));
  EXPECT_TRUE(places.values.empty());
}

TEST(MatrixMarket, GivesTheOtherHalfOfAMatrixThatIsMirrored) {
  const auto of = [](const std::string& symmetry, const std::string& elements) {
    return parse_matrix("m.mtx", banner("real", symmetry) + "3 3 2\n" + elements);
  };
  for (const char* symmetry : {"symmetric", "hermitian"}) {
    const MatrixData data = of(symmetry, "2 2 4\n3 1 5\n");
    EXPECT_EQ(data.coo.rows, (Places{1, 2, 0}));
    EXPECT_EQ(data.coo.cols, (Places{1, 0, 2}));
    EXPECT_EQ(data.values, (Numbers{4, 5, 5}));
  }
  EXPECT_EQ(of("skew-symmetric", "2 1 4\n3 1 5\n").values, (Numbers{4, -4, 5, -5}));
}

TEST(MatrixMarket, OfComplexNumbersHasPlacesAlone) {
  const std::string text = banner("complex", "hermitian") + "2 2 2\n1 1 1 0\n2 1 0.5 -1\n";
  expect_contains(refusal([&] { parse_matrix("m.mtx", text); }), "'m.mtx', line 1: field 'complex': required",
                  "complex");
  const Coo coo = parse_places("m.mtx", text);
  EXPECT_EQ(coo.rows, (Places{0, 1, 0}));
  EXPECT_EQ(coo.cols, (Places{0, 0, 1}));
}

TEST(MatrixMarket, NamesWhatIsWrongAndItsLine) {
  const std::string real = banner("real", "general");
  const std::pair<std::string, const char*> cases[] = {
      {"", "'m.mtx', line 1: the banner of a Matrix Market file is missing, the line is ''"},
      {"3 3 1\n1 1 1\n",
       "line 1: the banner of a Matrix Market file is missing, the line is '3 3 1'; expected is "
       "'%%MatrixMarket matrix coordinate FIELD SYMMETRY'"},
      {"%MatrixMarket matrix coordinate real general\n", "the banner of a Matrix Market file is missing"},
      {"%%MatrixMarket matrix coordinate real\n", "line 1: the banner has 4 words"},
      {"%%MatrixMarket tensor coordinate real general\n", "line 1: the banner's object is 'tensor'"},
      {"%%MatrixMarket matrix array real general\n2 2\n", "line 1: the banner's format is 'array': dense arrays"},
      {"%%MatrixMarket matrix coordinates real general\n", "line 1: the banner's format is 'coordinates'"},
      {banner("odd", "general"), "line 1: field 'odd' is not known; allowed are real, integer, pattern and complex"},
      {banner("real", "odd"), "line 1: symmetry 'odd' is not known"},
      {std::string("\x93\0PNG\n", 6), "the line is '\\x93\\x00PNG'"},
      {real + "2 2\n", "line 3: the number of elements is expected; the file ends early"},
      {real + "% one\n2 -2 1\n1 1 1\n", "line 3: the number of columns is -2; allowed are 0 to 2147483647"},
      {banner("real", "symmetric") + "2 2 1073741824\n",
       "line 2: the number of elements is 1073741824; allowed are 0 to 1073741823"},
      {banner("real", "symmetric") + "2 3 1\n1 1 1\n", "line 2: a symmetric matrix is square, not 2 x 3"},
      {real + "2 2 2\n1 1 1\n3 1 1\n", "line 4: a row is 3; allowed are 1 to 2"},
      {real + "2 2 1\n1 1.5 1\n", "line 3: a column is expected, not '1.5'"},
      {real + "2 2 1\n1 1 1.0D0\n", "line 3: a value is expected, not '1.0D0'"},
      {real + "2 2 1\n1 1\n", "line 4: a value is expected; the file ends early"},
      {banner("integer", "general") + "2 2 1\n1 1 9007199254740993\n", "line 3: a value is 9007199254740993; allowed"},
      {banner("integer", "general") + "2 2 1\n1 1 1.5\n", "line 3: a value is expected, not '1.5'"},
      {real + "2 2 1\n1 1 1\n2 2 2\n", "line 4: more follows than the 1 element that the sizes say"},
      {banner("real", "skew-symmetric") + "2 2 1\n2 2 1\n", "line 3: element 2, 2 of a skew-symmetric matrix is 1"}};
  for (const auto& [text, says] : cases) expect_contains(refusal([&] { parse_matrix("m.mtx", text); }), says, text);
}

TEST(TextFiles, AreReadByTheEndOfTheirNames) {
  const MatrixData weights = parse_matrix("w.smtx", "2, 4, 3\n0 1 3\n2 0 1\n");
  EXPECT_EQ(weights.coo.rows, (Places{0, 1, 1}));
  EXPECT_EQ(weights.coo.cols, (Places{2, 0, 1}));
  EXPECT_TRUE(weights.values.empty());
  EXPECT_EQ(parse_matrix("w.smtx", "2, 4, 3\n0 1\n3\n2 0\n1\n").coo.cols, weights.coo.cols);
  const MatrixData pairs = parse_matrix("m.tns", "# comment\n1 2 0.5\n\n3 1 -1\n");
  EXPECT_EQ(pairs.coo.num_rows, 3);
  EXPECT_EQ(pairs.coo.rows, (Places{0, 2}));
  EXPECT_EQ(pairs.values, (Numbers{0.5, -1}));
  const TensorData tensor = parse_tensor("t.tns", "1 2 3 4.5\n2 1 1 nan\n");
  EXPECT_EQ(tensor.coo.extents, (std::vector<int64_t>{2, 2, 3}));
  EXPECT_EQ(tensor.coo.coordinates[2], (Places{2, 0}));
  EXPECT_EQ(tensor.values[0], 4.5);
  EXPECT_TRUE(std::isnan(tensor.values[1]));
  const TensorData edges = parse_tensor("e.csv", "relation,row,column\n2,0,3\n0,1,1\n");
  EXPECT_EQ(edges.coo.extents, (std::vector<int64_t>{3, 4, 4}));
  EXPECT_TRUE(edges.values.empty());
  EXPECT_EQ(parse_places("e.csv", "relation,row,column\n2,0,3\n0,0,3\n").rows, (Places{0}));
  for (const char* name : {"a.tns", "a.csv", "a.tns.gz"}) EXPECT_TRUE(is_tensor_file(name)) << name;
  for (const char* name : {"a.mtx", "a.gz", "tns"}) EXPECT_FALSE(is_tensor_file(name)) << name;
}

TEST(TextFiles, NameWhatIsWrongAndItsLine) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"w.smtx", "2, 4, 3\n0 1 2\n2 0 1\n", "'w.smtx', line 2: indptr ends at 2; the number of elements is 3"},
      {"w.smtx", "2, 4, 3\n0 1\n2 0 1\n", "'w.smtx', line 2: indptr has 2 numbers; 3 are expected, one more than rows"},
      {"w.smtx", "2, 4, 3\n\n0\n0 1 3\n2 0 1\n", "line 3: indptr has 1 number; 3 are expected"},
      {"w.smtx", "2, 4, 3\n0 1 3 3\n2 0 1\n", "line 2: indptr has 4 numbers; 3 are expected"},
      {"w.smtx", "2, 4, 3\n0 1 3\n2 0\n", "line 4: a column is expected; the file ends early"},
      {"w.smtx", "2, 4, 3\n0 2 1\n", "line 2: an element of indptr is 1; allowed are 2 to 3"},
      {"w.smtx", "2, 4, 2147483647\n0 1 1\n", "the number of elements is 2147483647, and 7 characters follow"},
      {"w.smtx", "1 1 1\n0 1\n0 0\n", "line 3: more follows"},
      {"e.csv", "relation,row,column\n1,x,2\n", "line 2: a row is expected, not 'x'"},
      {"t.tns", "1 2 x\n", "line 1: 'x' is no value"},
      {"t.tns", "1 2 3\n\n1 0 3\n", "line 3: '0' is no coordinate"},
      {"t.tns", "1 2 3 4\n", "the tensor has 3 dimensions; the axis is one of a matrix"},
      {"m.dat", "", "its name ends as no format that is read"}};
  for (const auto& [name, text, says] : cases)
    expect_contains(refusal([&, n = name, t = text] { parse_matrix(n, t); }), says, text);
  expect_contains(refusal([] { parse_tensor("m.mtx", ""); }), "its name ends as no format of tensors", "mtx");
}

TEST(TextFiles, AreReadFromDisk) {
  const Folder folder;
  std::ofstream(folder.path("m.mtx")) << banner("real", "general") << "2 2 1\n2 1 3\n";
  EXPECT_EQ(read_matrix(folder.path("m.mtx")).values, (Numbers{3}));
  EXPECT_EQ(read_places(folder.path("m.mtx")).rows, (Places{1}));
  expect_contains(refusal([&] { read_matrix(folder.path("n.mtx")); }), "io_error: '" + folder.path("n.mtx") + "'",
                  "none");
  expect_contains(refusal([&] { read_matrix(folder.path("")); }), "io_error", "folder");
  expect_contains(refusal([&] { read_matrix("m.mtx.gz"); }), "gunzip it first", "packed");
}

// As numpy.save writes it.
std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string header = dictionary + "\n";
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(version), '\0', static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
  if (version > 1) text += std::string(2, '\0');
  return text + header + data;
}

template <class T>
std::string bytes_of(std::vector<T> values, bool reversed = false) {
  std::string text;
  for (const T value : values) {
    std::string one(sizeof(T), '\0');
    std::memcpy(one.data(), &value, sizeof(T));
    text += reversed ? std::string(one.rbegin(), one.rend()) : one;
  }
  return text;
}

template <class T>
std::vector<T> elements(const Array& array) {
  std::vector<T> values(array.bytes().size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.bytes().data(), array.bytes().size());
  return values;
}

TEST(Npy, HoldsArraysOfEitherOrder) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Array c =
      parse_npy("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes_of<float>(values)));
  EXPECT_EQ(c.dtype(), DType::fp32);
  EXPECT_EQ(c.shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(elements<float>(c), values);
  const Array fortran = parse_npy(
      "a.npy", npy("{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}", bytes_of<float>({1, 4, 2, 5, 3, 6}), 2));
  EXPECT_EQ(elements<float>(fortran), values);
  const Array cube = parse_npy("a.npy", npy("{'descr': '>i8', 'fortran_order': True, 'shape': (2, 1, 2), }",
                                            bytes_of<int64_t>({1, 3, 2, -4}, true)));
  EXPECT_EQ(elements<int64_t>(cube), (std::vector<int64_t>{1, 2, 3, -4}));
  EXPECT_TRUE(
      parse_npy("a.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", bytes_of<double>({7}), 3))
          .shape()
          .empty());
  EXPECT_EQ(parse_npy("a.npy", npy("{'descr': '<i4', 'fortran_order': True, 'shape': (0L, 4L), }", "")).view().size(),
            0);
}

TEST(Npy, NamesWhatIsWrong) {
  const auto header = [](const std::string& type, const std::string& shape) {
    return "{'descr': " + type + ", 'fortran_order': False, 'shape': " + shape + ", }";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "'a.npy': is no .npy file"},
      {"PK\x03\x04", "is no .npy file"},
      {"\x93NUMPY\x01", "ends within its header"},
      {npy("", "").substr(0, 9), "ends within its header"},
      {npy(header("'<f4'", "(1,)"), "").substr(0, 20), "ends within its header"},
      {npy(header("'<f4'", "(1,)"), "", 4), "required: version 4 of .npy; supported: 1 to 3"},
      {npy(header("'<f4'", "(2,)"), "1234"), "4 bytes of data follow the header; its shape and type say 8"},
      {npy(header("'<f4'", "(1,)"), "12345"), "5 bytes of data follow the header; its shape and type say 4"},
      {npy(header("'<f8'", "(9223372036854775807, 4)"), ""), "its shape and type say far more"},
      {npy(header("'<f4'", "(1152921504606846976, 0)"), ""), "its shape and type say far more"},
      {npy(header("'<c8'", "(1,)"), "12345678"), "required: elements of type '<c8'; supported: '<f2', '<f4'"},
      {npy(header("'|b1'", "(1,)"), "1"), "required: elements of type '|b1'"},
      {npy(header("'|O'", "(1,)"), "1"), "required: elements of type '|O'"},
      {npy(header("[('a', '<f4')]", "(1,)"), "1234"), "required: a structured type"},
      {npy(header("'<f4'", "(1, 1, 1, 1, 1, 1, 1)"), "1234"), "required: 7 dimensions; supported: up to 6"},
      {npy(header("'<f4'", "(-1,)"), ""), "an extent is expected"},
      {npy(header("'<f4'", "1"), ""), "'(' is expected"},
      {npy("{'descr': '<f4', 'shape': (1,)}", "1234"), "descr, fortran_order and shape are expected"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", ""), "the key 'descr' is not expected, or stands twice"},
      {npy("{'descr': '<f4', 'fortran_order': None}", ""), "fortran_order is neither True nor False"},
      {npy("{'descr': '<f4", ""), "a quote is not closed"},
      {npy(header("'<f4'", "(1,)") + " x", "1234"), "something follows the dictionary"}};
  for (const auto& [text, says] : cases) expect_contains(refusal([&] { parse_npy("a.npy", text); }), says, text);
}

TEST(Npy, IsReadBackAsItWasWritten) {
  const Folder folder;
  const std::string path = folder.path("a.npy");
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32, DType::fp64, DType::int32, DType::int64})
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {3}, {2, 5}, {1, 2, 3, 1, 2, 2}}) {
      Array array(dtype, shape);
      for (size_t i = 0; i < array.bytes().size(); ++i) array.bytes()[i] = static_cast<std::byte>(i * 7 + 1);
      write_npy(path, array);
      const Array again = read_npy(path);
      EXPECT_EQ(again.dtype(), dtype);
      EXPECT_EQ(again.shape(), shape);
      EXPECT_EQ(elements<char>(again), elements<char>(array));
      EXPECT_EQ((content_of(path).size() - array.bytes().size()) % 64, 0u);
    }
  expect_contains(refusal([&] { write_npy(path, Array(DType::int8, {1})); }), "tensor: is of int8", "int8");
  const Array square(DType::fp32, {2, 2});
  expect_contains(refusal([&] { write_npy(path, square.view().permute({1, 0})); }), "not contiguous", "strides");
}

TEST(WholeFiles, AreThereOrAreNot) {
  const Folder folder;
  const std::string path = folder.path("a.npy");
  write_npy(path, Array(DType::fp32, {3}));
  const std::string before = content_of(path);
  // A folder stands where the file should go: nothing is left of it.
  std::filesystem::create_directory(folder.path("b.npy"));
  expect_contains(refusal([&] { write_npy(folder.path("b.npy"), Array(DType::fp32, {3})); }),
                  "io_error: '" + folder.path("b.npy") + "': cannot be written", "folder");
  expect_contains(refusal([&] { write_npy(folder.path("none/c.npy"), Array(DType::fp32, {3})); }), "cannot be written",
                  "no folder");
  EXPECT_EQ(folder.num_files(), 2u);
  EXPECT_EQ(content_of(path), before);
  write_npy(path, Array(DType::fp64, {300}));
  EXPECT_EQ(read_npy(path).shape(), (std::vector<int64_t>{300}));
  EXPECT_EQ(folder.num_files(), 2u);
}

TEST(MatrixMarket, IsReadBackAsItWasWritten) {
  const Folder folder;
  const std::string path = folder.path("m.mtx");
  const Coo coo{.num_rows = 3, .num_cols = 4, .rows = {2, 0}, .cols = {1, 3}};
  Numbers values = {0.1, -1e300};
  write_matrix(path, coo, {values.data(), DType::fp64, {2}});
  const MatrixData again = read_matrix(path);
  EXPECT_EQ(again.coo.rows, coo.rows);
  EXPECT_EQ(again.coo.cols, coo.cols);
  EXPECT_EQ(again.coo.num_cols, 4);
  EXPECT_EQ(again.values, values);
  std::vector<float> singles = {0.1f, 3};
  write_matrix(path, coo, {singles.data(), DType::fp32, {2}});
  EXPECT_EQ(content_of(path), "%%MatrixMarket matrix coordinate real general\n3 4 2\n3 2 0.1\n1 4 3\n");
  std::vector<int64_t> wholes = {-7, int64_t{1} << 60};
  write_matrix(path, coo, {wholes.data(), DType::int64, {2}});
  EXPECT_EQ(content_of(path),
            "%%MatrixMarket matrix coordinate integer general\n3 4 2\n3 2 -7\n1 4 1152921504606846976\n");
  std::vector<float> dense = {1, 2, 3, 4, 5, 6};
  write_matrix(path, {dense.data(), DType::fp32, {2, 3}});
  EXPECT_EQ(content_of(path), "%%MatrixMarket matrix array real general\n2 3\n1\n4\n2\n5\n3\n6\n");
  expect_contains(refusal([&] {
                    write_matrix(path, coo, {dense.data(), DType::fp32, {6}});
                  }),
                  "values: there are 6; the list has 2 elements", "count");
  expect_contains(refusal([&] {
                    write_matrix(path, {dense.data(), DType::fp32, {1, 2, 3}});
                  }),
                  "has 3 dimensions", "rank");
}

TEST(Arrays, AreConvertedWhereTheTypeHoldsThem) {
  Array doubles(DType::fp64, {3});
  const Numbers given = {1.00390625, -0.1, 3e38};
  std::memcpy(doubles.bytes().data(), given.data(), 24);
  EXPECT_EQ(elements<float>(converted(doubles, DType::fp32)), (std::vector<float>{1.00390625f, -0.1f, 3e38f}));
  // 1.00390625 is a tie, which goes to the even one.
  EXPECT_EQ(elements<uint16_t>(converted(doubles, DType::bf16))[0], 0x3f80);
  EXPECT_EQ(converted(converted(doubles, DType::bf16), DType::fp32).shape(), (std::vector<int64_t>{3}));
  expect_contains(refusal([&] { converted(doubles, DType::int32); }), "array: is of fp64; int32 is expected", "real");
  Array wide(DType::int64, {2});
  const std::vector<int64_t> wholes = {-5, int64_t{1} << 31};
  std::memcpy(wide.bytes().data(), wholes.data(), 16);
  EXPECT_EQ(elements<double>(converted(wide, DType::fp64)), (Numbers{-5, 2147483648.}));
  expect_contains(refusal([&] { converted(wide, DType::int32); }), "element 1 is 2147483648, which does not fit int32",
                  "wide");
  expect_contains(refusal([&] { Array(DType::fp32, {-1}); }), "an extent of -1", "extent");
  expect_contains(refusal([&] { Array(DType::fp32, {int64_t{1} << 40, int64_t{1} << 40}); }), "too large", "size");
}

TEST(Arrays, HoldValuesAtPositions) {
  const Numbers values = {5, 6, 7};
  const std::vector<int64_t> order = {2, -1, 0};
  EXPECT_EQ(elements<float>(values_at(values, order)), (std::vector<float>{7, 0, 5}));
  EXPECT_EQ(elements<int32_t>(values_at(values, order, DType::int32)), (std::vector<int32_t>{7, 0, 5}));
  expect_contains(refusal([&] { values_at(Numbers{0.5}, std::vector<int64_t>{0}, DType::int64); }),
                  "values[0] is 0.5, no integer that fits int64", "half");
  expect_contains(refusal([&] { values_at(values, std::vector<int64_t>{3}); }), "order[0] is 3; there are 3 values",
                  "order");
}

}  // namespace
}  // namespace weft::sparse::test
