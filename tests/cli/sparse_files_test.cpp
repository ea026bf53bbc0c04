// `weft sparse --run` with files: values in, results out, examples by their first lines, and what is said of mistakes.
#include "weft/sparse_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include "tests/cli/program.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = WEFT_SOURCE_DIR;
const std::string kSpmm = WEFT_SPARSE_EXAMPLES "/spmm_hyb.txt", kSddmm = WEFT_SPARSE_EXAMPLES "/sddmm.txt";

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

std::vector<float> floats(const sparse::Array& array) {
  const auto* begin = reinterpret_cast<const float*>(array.bytes().data());
  return {begin, begin + array.view().size()};
}

std::string array_file(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  sparse::Array array(DType::fp32, std::move(shape));
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(array.bytes().data()));
  const std::string path = temporary_file(name, "");
  sparse::write_npy(path, array);
  return path;
}

// 2 x 3, its second row first.
std::string matrix(const std::string& name = "values.mtx") {
  return temporary_file(name, "%%MatrixMarket matrix coordinate real general\n2 3 3\n2 1 5\n1 3 2\n1 1 -1\n");
}

std::string out_file(const std::string& name) {
  const std::string path = temporary_file(name, "");
  fs::remove(path);
  return path;
}

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(SparseExamples, RunByTheirFirstLines) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "examples/sparse")) {
    std::ifstream file(entry.path());
    std::string line;
    std::getline(file, line);
    std::vector<std::string> call = words(line);
    const std::string name = "examples/sparse/" + entry.path().filename().string();
    ASSERT_GE(call.size(), 5u) << name;
    EXPECT_EQ((std::vector<std::string>(call.begin(), call.begin() + 4)),
              (std::vector<std::string>{"#", "weft", "sparse", name}));
    call.erase(call.begin(), call.begin() + 2);
    call.emplace_back("--json");
    const Result result = run_weft(call, {.folder = kRoot.string()});
    ASSERT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    EXPECT_LE(result.last().at("max_error").get<double>(), 1e-5) << line;
    EXPECT_NE(result.last().at("checksum"), 0) << line;  // null: of an empty row's largest, which is -inf
    ++count;
  }
  EXPECT_EQ(count, 16);
}

// The command that docs/sparse.md begins with; docs_test holds the program beside it.
TEST(SparseExamples, RunByTheFirstCommandOfTheDocument) {
  const std::string document = content_of(kRoot / "docs/sparse.md"), begin = "```sh\n";
  const size_t at = document.find(begin) + begin.size();
  std::vector<std::string> call = words(document.substr(at, document.find("```", at) - at));
  ASSERT_GE(call.size(), 3u);
  ASSERT_EQ(call[0], "weft");
  call.erase(call.begin());
  const fs::path folder = temporary_file("top", "");
  fs::remove(folder);
  fs::create_directory(folder);
  fs::create_directory_symlink(kRoot / "examples", folder / "examples");
  const Result result = run_weft(call, {.folder = folder.string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const sparse::MatrixData graph = sparse::read_matrix((kRoot / "examples/data/graph.mtx").string());
  const std::vector<float> b = floats(sparse::read_npy((kRoot / "examples/data/b.npy").string()));
  std::vector<double> want(static_cast<size_t>(graph.coo.num_rows) * 4, 0);
  for (size_t e = 0; e < graph.values.size(); ++e)
    for (size_t k = 0; k < 4; ++k)
      want[static_cast<size_t>(graph.coo.rows[e]) * 4 + k] +=
          graph.values[e] * b[static_cast<size_t>(graph.coo.cols[e]) * 4 + k];
  const std::vector<float> got = floats(sparse::read_npy((folder / "c.npy").string()));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  fs::remove_all(folder);
}

TEST(SparseFiles, BringTheValuesOfAMatrix) {
  const std::string b = array_file("b.npy", {3, 2}, {1, 2, 3, 4, 5, 6}), c = out_file("c.npy");
  for (const char* name : {"spmm_hyb", "spmm_ell", "spmm_dcsr", "spmm_own_format"}) {
    const Result result = run_weft({"sparse", std::string(WEFT_SPARSE_EXAMPLES) + "/" + name + ".txt", "--run",
                                    "--matrix", "J=" + matrix(), "--input", "B=" + b, "--out", "C=" + c, "--json"});
    ASSERT_EQ(result.exit_code, 0) << name << result.err;
    const sparse::Array got = sparse::read_npy(c);
    EXPECT_EQ(got.shape(), (std::vector<int64_t>{2, 2})) << name;
    EXPECT_EQ(floats(got), (std::vector<float>{9, 10, 5, 10})) << name;
    EXPECT_EQ(result.last().at("inputs").at("A"), matrix());
    EXPECT_EQ(result.last().at("inputs").at("B"), b);
    EXPECT_TRUE(result.last().at("filled").empty());
    EXPECT_EQ(result.last().at("outputs").at("C"), c);
    fs::remove(c);
  }
  // Blocks, by the axis of block columns.
  const Result result = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/spmm_bsr.txt", "--run", "--matrix", "JO=" + matrix(),
                                  "--set", "m=2", "--input", "B=" + b, "--out", c});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(floats(sparse::read_npy(c)), (std::vector<float>{9, 10, 5, 10}));
  EXPECT_NE(result.out.find("A read from " + matrix()), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("C written to " + c), std::string::npos) << result.out;
}

// A file that brings none, or is not asked for them, leaves the values to --input or to random numbers.
TEST(SparseFiles, BringNoValuesWhereThereAreNone) {
  const std::string pattern =
      temporary_file("pattern.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 3 3\n2 1\n1 3\n1 1\n");
  const std::string complex = temporary_file(
      "complex.mtx", "%%MatrixMarket matrix coordinate complex general\n2 3 3\n2 1 1 1\n1 3 1 1\n1 1 1 1\n");
  const std::vector<std::string> call = {"sparse", kSpmm, "--run", "--set", "feat=16", "--json"};
  double checksum = 0;
  for (const auto& [file, more] : {std::pair(pattern, ""), {matrix(), "--pattern"}, {complex, "--pattern"}}) {
    std::vector<std::string> all = call;
    all.insert(all.end(), {"--matrix", "J=" + file});
    if (*more != '\0') all.emplace_back(more);
    const Result result = run_weft(all);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.last().at("filled"), (std::vector<std::string>{"A", "B"}));
    if (checksum == 0) checksum = result.last().at("checksum");
    EXPECT_EQ(result.last().at("checksum"), checksum);
  }
  expect_refusal(run_weft({"sparse", kSpmm, "--run", "--set", "feat=16", "--matrix", "J=" + complex}), 4, "unsupported",
                 "field 'complex'");
  // In the structure's order, not the file's.
  const std::string a = array_file("a.npy", {3}, {-1, 2, 5}), b = array_file("b.npy", {3, 1}, {1, 3, 5}),
                    c = out_file("c.npy");
  const Result result =
      run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/spmm_ell.txt", "--schedule", temporary_file("none.txt", "lower()\n"),
                "--run", "--matrix", "J=" + pattern, "--input", "B=" + b, "--set", "width=2", "--input",
                "A=" + array_file("ell.npy", {2, 2}, {-1, 2, 5, 0}), "--out", c});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(floats(sparse::read_npy(c)), (std::vector<float>{9, 5}));
}

TEST(SparseFiles, SumValuesThatStandTwice) {
  const std::string twice =
      temporary_file("twice.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 2\n2 2 1\n1 1 3\n");
  const std::string c = out_file("c.mtx"), b = array_file("b.npy", {2, 1}, {1, 1});
  const Result result = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/spmm_dcsr.txt", "--run", "--matrix", "J=" + twice,
                                  "--sum-duplicates", "--input", "B=" + b, "--out", c});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(content_of(c), "%%MatrixMarket matrix array real general\n2 1\n5\n1\n");
}

// By the option that adds them up, and by the line, as each file counts; whatever the program makes of it.
TEST(SparseFiles, NameTheLineOfAnElementThatStandsTwice) {
  const std::string real = "%%MatrixMarket matrix coordinate real ", examples = WEFT_SPARSE_EXAMPLES;
  const std::tuple<const char*, std::string, const char*> matrices[] = {
      {"a.mtx", real + "general\n% twice\n3 3 4\n3 3 1\n\n1 2 1\n3 3 2\n1 2 2\n",
       "line 7: element (3, 3) stands twice, first in line 4"},
      {"b.mtx", real + "symmetric\n3 3 3\n2 1 1\n3 3 1\n1 2 1\n",
       "line 5: element (1, 2) stands twice, first in line 3"},
      {"c.smtx", "2 3 3\n0 2 3\n1 1 0\n", "line 3: element (0, 1) stands twice; --sum-duplicates"},
      {"d.tns", "# two dimensions\n1 2 5\n2 1 5\n1 2 5\n", "line 4: element (1, 2) stands twice, first in line 2"}};
  for (const auto& [name, text, says] : matrices)
    for (const char* program : {"spmm_hyb", "spmm_ell", "spmm_dcsr", "spmm_sr_bcrs"}) {
      std::vector<std::string> call = {"sparse",   examples + "/" + program + ".txt", "--run",
                                       "--matrix", "J=" + temporary_file(name, text), "--set",
                                       "feat=16"};
      expect_refusal(run_weft(call), 3, "invalid_argument", says);
      call.emplace_back("--sum-duplicates");
      if (std::string(program) == "spmm_hyb") {
        EXPECT_EQ(run_weft(call).exit_code, 0) << name;
      }
    }
  const std::string facts = temporary_file("facts.tns", "1 2 3 1\n1 2 1 4\n1 2 3 2\n"), y = out_file("y.npy");
  const std::vector<std::string> call = {
      "sparse", examples + "/mttkrp.txt", "--run", "--matrix", "L=" + facts, "--set", "rank=1", "--check", "--json"};
  expect_refusal(run_weft(call), 3, "invalid_argument",
                 "'" + facts + "', line 3: element (1, 2, 3) stands twice, first in line 1; --sum-duplicates");
  std::vector<std::string> summed = call;
  summed.emplace_back("--sum-duplicates");
  const Result result = run_weft(summed);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LE(result.last().at("max_error").get<double>(), 1e-6);
  const std::string edges = temporary_file("edges.csv", "r,i,j\n0,1,2\n1,1,2\n0,1,2\n");
  for (const char* option : {"--run", "--tune"})
    expect_refusal(run_weft({"sparse", examples + "/rgms.txt", option, "--matrix", "J=" + edges, "--set", "feat_in=4",
                             "--set", "feat_out=4"}),
                   3, "invalid_argument",
                   "'" + edges + "', line 4: element (0, 1, 2) stands twice, first in line 2; --sum-duplicates");
  expect_refusal(run_weft({"sparse", kSpmm, "--tune", "--matrix", "J=" + temporary_file("d.tns", "1 1 1\n1 1 1\n"),
                           "--set", "feat=16"}),
                 3, "invalid_argument", "line 2: element (1, 1) stands twice, first in line 1");
}

// A checksum says no sign of what is no number, and how much of it there is.
TEST(SparseFiles, SayHowManyResultsAreNoNumbers) {
  const std::string b = array_file("nan.npy", {3, 2}, {1, NAN, -INFINITY, 4, 5, 6});
  const std::vector<std::string> call = {"sparse",  kSpmm,   "--run", "--matrix", "J=" + matrix("all.mtx"),
                                         "--input", "B=" + b};
  const Result text = run_weft(call);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("checksum nan (4 values: 2 nan, 0 infinite)"), std::string::npos) << text.out;
  std::vector<std::string> with_json = call;
  with_json.emplace_back("--json");
  const nlohmann::json last = run_weft(with_json).last();
  EXPECT_TRUE(last.at("checksum").is_null());
  EXPECT_EQ(last.at("nan_values"), 2);
  EXPECT_EQ(last.at("infinite_values"), 0);
}

// An option that something is missing for, or that does nothing beside another one, is wrong usage.
TEST(SparseFiles, AreRefusedWithOptionsThatDoNothing) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--seed", "1"}, "--seed is for --run"},
      {{"--seconds", "1"}, "--seconds is for --tune"},
      {{"--pattern"}, "--pattern is for --matrix"},
      {{"--sum-duplicates"}, "--sum-duplicates is for --matrix and --structure"},
      {{"--tune", "--run"}, "--tune"},
      {{"--tune", "--svg", "a.svg"}, "--tune"},
      {{"--tune", "--print", "code"}, "--tune"}};
  for (const auto& [more, says] : cases) {
    std::vector<std::string> call = {"sparse", kSpmm};
    call.insert(call.end(), more.begin(), more.end());
    expect_refusal(run_weft(call), 2, "usage", says);
  }
}

// Results on the matrix' own axes stand at its rows and columns.
TEST(SparseFiles, WriteResultsOnTheAxesOfAMatrix) {
  const std::string o = out_file("o.mtx"), x = array_file("x.npy", {2, 16}, std::vector<float>(32, 0.25f)),
                    y = array_file("y.npy", {3, 16}, std::vector<float>(48, 1));
  const Result result = run_weft({"sparse", kSddmm, "--run", "--matrix", "J=" + matrix(), "--input", "X=" + x,
                                  "--input", "Y=" + y, "--out", "O=" + o});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(content_of(o), "%%MatrixMarket matrix coordinate real general\n2 3 3\n1 1 -4\n1 3 8\n2 1 20\n");
  // Padding of ELL is not written.
  const std::string scaled = temporary_file("scale.txt",
                                            "program scale(m, n, width):\n  I = dense_fixed(m)\n"
                                            "  J = sparse_fixed(I, n, width, indices=j_indices)\n"
                                            "  A = buffer(I, J): fp32\n"
                                            "  iterate twice(I, J) \"SS\" as (i, j):\n"
                                            "    A[i, j] = A[i, j] * 2.0\n");
  const Result twice = run_weft({"sparse", scaled, "--run", "--matrix", "J=" + matrix(), "--out", o});
  ASSERT_EQ(twice.exit_code, 0) << twice.err;
  EXPECT_EQ(content_of(o), "%%MatrixMarket matrix coordinate real general\n2 3 3\n1 1 -2\n1 3 4\n2 1 10\n");
  expect_refusal(run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/batched_spmm.txt", "--run", "--matrix", "J=" + matrix(),
                           "--set", "heads=2", "--set", "feat=2", "--out", o}),
                 4, "unsupported", "the rows and columns of a buffer on (H, I, K)");
}

// What a program leaves out is 0 in a file.
TEST(SparseFiles, HoldNothingOfARandomBegin) {
  const std::string some = temporary_file("some.txt",
                                          "program some(n):\n  N = dense_fixed(n)\n  Y = buffer(N): fp32\n"
                                          "  iterate some(N) \"S\" as (i) where i < 2:\n    Y[i] = 1.5\n");
  const std::string y = out_file("y.npy");
  ASSERT_EQ(run_weft({"sparse", some, "--run", "--set", "n=4", "--out", y}).exit_code, 0);
  EXPECT_EQ(floats(sparse::read_npy(y)), (std::vector<float>{1.5, 1.5, 0, 0}));
}

TEST(SparseFiles, AreWrittenWholeOrNotAtAll) {
  // The run fails: what was there stays, and nothing else comes.
  const std::string fails = temporary_file("fails.txt",
                                           "program fails(n):\n  N = dense_fixed(n)\n"
                                           "  T = buffer(N): int32\n  Y = buffer(N): fp32\n"
                                           "  iterate put(N) \"R\" as (i):\n    Y[T[i] - 1] = Y[T[i] - 1] + 1.0\n");
  const fs::path folder = temporary_file("folder", "");
  fs::remove(folder);
  fs::create_directory(folder);
  std::ofstream(folder / "y.npy") << "before";
  expect_refusal(run_weft({"sparse", fails, "--run", "--set", "n=4", "--out", (folder / "y.npy").string()}), 3,
                 "invalid_argument", "iteration 'put' writes 'Y' at (below 0)");
  EXPECT_EQ(content_of(folder / "y.npy"), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  // A folder stands in the place.
  fs::create_directory(folder / "c.npy");
  expect_refusal(run_weft({"sparse", kSpmm, "--run", "--matrix", "J=" + matrix(), "--set", "feat=16", "--out",
                           (folder / "c.npy").string()}),
                 3, "io_error", "cannot be written");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  fs::remove_all(folder);
}

TEST(SparseFiles, AreRefusedNamingTheOption) {
  const std::string b = array_file("b.npy", {3, 16}, std::vector<float>(48, 1)), m = matrix();
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> call = {"sparse", kSpmm, "--run"};
    call.insert(call.end(), more.begin(), more.end());
    return run_weft(call);
  };
  const std::vector<std::string> with = {"--matrix", "J=" + m, "--set", "feat=16"};
  const auto refuses = [&](std::vector<std::string> more, int exit_code, const std::string& code,
                           const std::string& says) {
    more.insert(more.begin(), with.begin(), with.end());
    expect_refusal(run(more), exit_code, code, says);
  };
  // What is missing is wrong usage; the axes that take a file are named.
  expect_refusal(
      run({"--set", "feat=16"}), 2, "usage",
      "--matrix J=FILE is missing: its matrix is decomposed, and the formats are made of it; files are taken by "
      "'J' (I, J)");
  expect_refusal(run_weft({"sparse", kSddmm, "--run"}), 2, "usage",
                 "--matrix J=FILE is missing; files are taken by 'J' (I, J)");
  expect_refusal(run({"--matrix", "J=" + m}), 2, "usage",
                 "--set feat=N is missing: no --matrix and no --input tells it");
  expect_refusal(run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/mttkrp.txt", "--run"}), 2, "usage",
                 "files are taken by 'L' (O, I, J, L)");
  // What is wrong is bad input.
  expect_refusal(run({"--matrix", "Q=" + m}), 3, "invalid_argument",
                 "the program has no axis 'Q'; its axes are I, J, J_, K, and files are taken by J");
  expect_refusal(run({"--matrix", "I=" + m}), 3, "invalid_argument", "axis 'I' stores every coordinate");
  expect_refusal(run({"--matrix", "J=" + m, "--set", "m=7", "--set", "feat=16"}), 3, "invalid_shape",
                 "--matrix J=" + m + ": the length of axis 'I' is 2; the program has 7 there");
  refuses({"--input", "D=" + b}, 3, "invalid_argument",
          "the program has no buffer 'D' to give; its buffers are A, B, C");
  refuses({"--input", "B=" + m}, 3, "invalid_argument", "files of buffers end with .npy");
  refuses({"--input", "B=/nowhere.npy"}, 3, "io_error", "/nowhere.npy");
  const fs::path folder = out_file("folder.npy");
  fs::create_directory(folder);
  refuses({"--input", "B=" + folder.string()}, 3, "io_error", "'" + folder.string() + "': is a folder");
  fs::remove(folder);
  for (const char* option : {"--svg", "--schedule"}) refuses({option, ""}, 3, "invalid_argument", option);
  refuses({"--input", "B=" + temporary_file("bad.npy", "x")}, 3, "invalid_file", "is no .npy file");
  refuses({"--input", "B=" + array_file("wide.npy", {4, 16}, std::vector<float>(64, 1))}, 3, "invalid_shape",
          "wide.npy: extent 0 is 4; the program has");
  refuses({"--input", "B"}, 2, "usage", "--input B: NAME=VALUE is expected");
  refuses({"--input", "B=" + b, "--input", "B=" + b}, 2, "usage", "'B' is given twice");
  refuses({"--out", "A=a.npy"}, 3, "invalid_argument", "the program writes no buffer 'A'; it writes C");
  refuses({"--out", "c.txt"}, 3, "invalid_argument", "--out C=c.txt: files of results end with .npy or .mtx");
  refuses({"--out", "/nowhere/c.npy"}, 3, "io_error", "--out C=/nowhere/c.npy: there is no folder '/nowhere'");
  refuses({"--out", "c.npy", "--out", "C=d.npy"}, 2, "usage", "two files are given for 'C'");
  expect_refusal(
      run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/ragged_softmax.txt", "--run", "--matrix", "J=" + m, "--out", "y.npy"}),
      2, "usage", "the program writes Y, Largest, Sum; name one of them, --out Sum=y.npy");
  for (const char* option : {"--out", "--input"})
    expect_refusal(run_weft({"sparse", kSpmm, option, "C=c.npy"}), 2, "usage", std::string(option) + " is for --run");
  expect_refusal(run_weft({"sparse", kSpmm, "--check"}), 2, "usage", "--check is for --run");
  // A matrix of two possible owners.
  const std::string both = temporary_file("both.txt",
                                          "program both(m, n, nnz):\n  I = dense_fixed(m)\n"
                                          "  J = sparse_variable(I, n, nnz, indptr=p, indices=x)\n"
                                          "  A = buffer(I, J): fp32\n  B = buffer(I, J): fp32\n"
                                          "  C = buffer(I, J): fp32\n  iterate add(I, J) \"SS\" as (i, j):\n"
                                          "    C[i, j] = A[i, j] + B[i, j]\n");
  expect_refusal(run_weft({"sparse", both, "--run", "--matrix", "J=" + m}), 2, "usage",
                 "its values could be those of A, B; give all but one of them");
  const std::string half = array_file("half.npy", {3}, {0.5, 0.5, 0.5}), c = out_file("c.npy");
  const Result result = run_weft({"sparse", both, "--run", "--matrix", "J=" + m, "--input", "B=" + half, "--out", c});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(floats(sparse::read_npy(c)), (std::vector<float>{-0.5, 2.5, 5.5}));
}

// ---------------------------------------------------------------- structures without values

template <class Index>
std::string index_file(const std::string& name, std::vector<int64_t> shape, const std::vector<Index>& numbers) {
  sparse::Array array(sizeof(Index) == 8 ? DType::int64 : DType::int32, std::move(shape));
  std::copy(numbers.begin(), numbers.end(), reinterpret_cast<Index*>(array.bytes().data()));
  const std::string path = temporary_file(name, "");
  sparse::write_npy(path, array);
  return path;
}

// No tensor of this program lies on J.
std::string degrees() {
  return temporary_file("degrees.txt",
                        "program degrees(m, n, nnz):\n  I = dense_fixed(m)\n"
                        "  J = sparse_variable(I, n, nnz, indptr=p, indices=x)\n"
                        "  N = dense_fixed(n)\n  W = buffer(N): fp32\n  Y = buffer(I): fp32\n"
                        "  iterate degrees(I, J) \"SR\" as (i, j):\n    init:\n      Y[i] = 0.0\n"
                        "    Y[i] = Y[i] + W[j]\n");
}

// Rows of groups of two columns: 2 x 1 axes of their own arrays.
std::string groups() {
  return temporary_file("groups.txt",
                        "program in_groups(m, most, groups, n, width):\n  I = dense_fixed(m)\n"
                        "  G = dense_variable(I, most, groups, indptr=p)\n"
                        "  J = sparse_fixed(G, n, width, indices=x)\n  N = dense_fixed(n)\n"
                        "  A = buffer(I, G, J): fp32\n  B = buffer(N): fp32\n  Y = buffer(I): fp32\n"
                        "  iterate spmv(I, G, J) \"SRR\" as (i, g, j):\n    init:\n      Y[i] = 0.0\n"
                        "    Y[i] = Y[i] + A[i, g, j] * B[j]\n");
}

TEST(SparseStructures, AreReadOfListsAndOfArrays) {
  const std::string w = array_file("w.npy", {3}, {1, 10, 100}), y = out_file("y.npy");
  const std::string smtx = temporary_file("places.smtx", "2, 3, 3\n0 2 3\n0 2 0\n");
  const std::string indptr = index_file<int32_t>("indptr.npy", {3}, {0, 2, 3});
  const std::string indices = index_file<int64_t>("indices.npy", {3}, {0, 2, 0});
  for (const std::string& files : {matrix(), smtx, indptr + "," + indices}) {
    const Result result = run_weft({"sparse", degrees(), "--run", "--structure", "J=" + files, "--input", "W=" + w,
                                    "--out", "Y=" + y, "--check", "--json"});
    ASSERT_EQ(result.exit_code, 0) << files << result.err;
    EXPECT_EQ(floats(sparse::read_npy(y)), (std::vector<float>{101, 1})) << files;
    EXPECT_EQ(result.last().at("filled"), nlohmann::json::array()) << files;
  }
  // What --matrix would bring the values of: the places alone.
  const std::string b = array_file("b.npy", {3, 2}, {1, 2, 3, 4, 5, 6});
  const Result spmm =
      run_weft({"sparse", kSpmm, "--run", "--structure", "J=" + matrix(), "--input", "B=" + b, "--json"});
  ASSERT_EQ(spmm.exit_code, 0) << spmm.err;
  EXPECT_EQ(spmm.last().at("filled"), nlohmann::json::array({"A"}));
}

// Each axis of a chain that no list fills, by its own arrays.
TEST(SparseStructures, OfChainsAreReadAxisByAxis) {
  const std::string indptr = index_file<int32_t>("indptr.npy", {4}, {0, 2, 2, 3});
  const std::string b = array_file("b.npy", {5}, {1, 2, 3, 4, 5}), y = out_file("y.npy");
  const std::string a = array_file("a.npy", {6}, {1, 1, 10, 10, 1, 0});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{6}, {3, 2}}) {
    const std::string indices = index_file<int32_t>("indices.npy", shape, {0, 1, 2, 4, 3, 5});
    const Result result =
        run_weft({"sparse", groups(), "--run", "--structure", "J=" + indices, "--structure", "G=" + indptr, "--input",
                  "B=" + b, "--input", "A=" + a, "--out", "Y=" + y, "--check", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(floats(sparse::read_npy(y)), (std::vector<float>{83, 0, 4})) << shape.size();
  }
}

// Rows of neighbours, and lengths of sequences, as other libraries keep them.
TEST(SparseStructures, TellWhatTheirArraysDo) {
  const std::string b = array_file("b.npy", {3, 2}, {1, 2, 3, 4, 5, 6}), c = out_file("c.npy");
  const std::string ones = array_file("ones.npy", {4}, {1, 1, 1, 1});
  const std::string nearest = index_file<int64_t>("nearest.npy", {2, 2}, {0, 2, 1, 3});
  const Result ell = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/spmm_ell.txt", "--run", "--structure", "J=" + nearest,
                               "--input", "B=" + b, "--input", "A=" + ones, "--out", "C=" + c, "--check"});
  ASSERT_EQ(ell.exit_code, 0) << ell.err;
  EXPECT_EQ(floats(sparse::read_npy(c)), (std::vector<float>{6, 8, 3, 4}));
  const std::string indptr = index_file<int32_t>("indptr.npy", {4}, {0, 2, 2, 3});
  const std::string x = array_file("x.npy", {3}, {7, 7, 1}), y = out_file("y.npy");
  const Result ragged = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/ragged_softmax.txt", "--run", "--structure",
                                  "J=" + indptr, "--input", "X=" + x, "--out", "Y=" + y, "--check"});
  ASSERT_EQ(ragged.exit_code, 0) << ragged.err;
  EXPECT_EQ(floats(sparse::read_npy(y)), (std::vector<float>{0.5, 0.5, 1}));
}

TEST(SparseStructures, AreRefusedNamingTheOption) {
  const std::string indptr = index_file<int32_t>("indptr.npy", {3}, {0, 2, 3});
  const std::string indices = index_file<int32_t>("indices.npy", {3}, {0, 2, 0});
  const std::string both = indptr + "," + indices, fp32 = array_file("fp32.npy", {3}, {0, 2, 3});
  const auto refuses = [&](const std::string& program, const std::vector<std::string>& structures, int exit_code,
                           const std::string& code, const std::string& says,
                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> call = {"sparse", program, "--run"};
    for (const std::string& structure : structures) call.insert(call.end(), {"--structure", structure});
    call.insert(call.end(), more.begin(), more.end());
    expect_refusal(run_weft(call), exit_code, code, says);
  };
  // What is missing is wrong usage.
  refuses(degrees(), {"J=" + both}, 2, "usage", "--set n=N is missing: no array tells the length of axis 'J', n");
  refuses(groups(), {"J=" + indices}, 2, "usage", "--structure G=INDPTR.npy is missing: with --structure J=" + indices);
  refuses(degrees(), {"J=" + both}, 2, "usage", "both give the structure of axis 'J'", {"--matrix", "J=" + matrix()});
  expect_refusal(run_weft({"sparse", degrees(), "--structure", "J=" + both}), 2, "usage", "--structure is for --run");
  // What is wrong is bad input.
  refuses(degrees(), {"Q=" + both}, 3, "invalid_argument",
          "the program has no axis 'Q'; arrays are taken as J=INDPTR.npy,INDICES.npy");
  refuses(degrees(), {"I=" + indptr}, 3, "invalid_argument", "axis 'I' stores every coordinate; arrays are taken as");
  refuses(degrees(), {"J=" + indptr}, 3, "invalid_argument",
          "gives 1 file; the arrays of axis 'J' are --structure J=INDPTR.npy,INDICES.npy");
  refuses(degrees(), {"J=" + indptr + "," + fp32}, 3, "invalid_dtype",
          "'" + fp32 + "' is of fp32; arrays of structures are of int32 or int64");
  refuses(degrees(), {"J=" + indptr + ",/nowhere.npy"}, 3, "io_error", "/nowhere.npy");
  refuses(degrees(), {"J=" + indptr + "," + index_file<int32_t>("square.npy", {1, 3}, {0, 2, 0})}, 3, "invalid_shape",
          "has 2 dimensions; one is expected");
  const std::vector<std::string> n = {"--set", "n=3"};
  refuses(degrees(), {"J=" + indices + "," + indices}, 3, "invalid_indptr", "axis 1 'J': indptr", n);
  refuses(degrees(), {"J=" + both}, 3, "invalid_argument",
          "--structure J=" + both + ": structure: axis 1 'J': indices[1], of row 0, is 2; allowed are 0 to 1",
          {"--set", "n=2"});
  refuses(degrees(), {"J=" + both}, 3, "invalid_indptr", "indptr has 3 elements; 5 rows need 6",
          {"--set", "n=3", "--set", "m=5"});
  refuses(WEFT_SPARSE_EXAMPLES "/spmm_ell.txt", {"J=" + index_file<int32_t>("wide.npy", {1, 3}, {0, 1, 2})}, 3,
          "invalid_shape", "the indices have 3 places a row; axis 'J' has width = 2",
          {"--set", "n=3", "--set", "width=2"});
}

TEST(SparseFiles, AreNamedWithTheLineOfAMistake) {
  const std::string program = temporary_file("bad.txt", "program p(n):\n  I = dens_fixed(n)\n");
  expect_refusal(run_weft({"sparse", program}), 3, "invalid_argument",
                 "'" + program + "', line 2, column 7: 'dens_fixed'");
  for (const char* text : {"lower()\nsplit(csrmm.k, 16\n", "lower()\nsplit(csrmm.q, 16)\n"}) {
    const std::string schedule = temporary_file("schedule.txt", text);
    expect_refusal(run_weft({"sparse", kSpmm, "--schedule", schedule}), 3, "invalid_argument",
                   "'" + schedule + "', line 2, column ");
  }
  const std::string never = temporary_file("never.txt",
                                           "program p(n):\n  N = dense_fixed(n)\n  Y = buffer(N): fp32\n"
                                           "  iterate it(N) \"S\" as (i):\n    Y[i + n] = 1.0\n");
  expect_refusal(run_weft({"sparse", never}), 3, "invalid_argument",
                 "'" + never + "', line 4, column 11: iteration 'it'");
  const std::string banner =
      temporary_file("banner.mtx", "%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n");
  expect_refusal(run_weft({"sparse", kSpmm, "--run", "--matrix", "J=" + banner, "--set", "feat=16"}), 3, "invalid_file",
                 "'" + banner + "', line 1: the banner of a Matrix Market file is missing");
}

TEST(SparseFiles, OfTooManyNumbersAreNamed) {
  const std::string wide =
      temporary_file("wide.mtx", "%%MatrixMarket matrix coordinate pattern general\n1000000 1000000 1\n1 1\n");
  expect_refusal(run_weft({"sparse", kSddmm, "--run", "--matrix", "J=" + wide, "--set", "feat=2147483647"}), 3,
                 "invalid_shape", "buffer 'X': it has more values than");
}

// Sanitizers take more address space than any limit.
#if !defined(WEFT_UNDER_SANITIZER)
TEST(SparseFiles, ThatDoNotFitIntoMemoryAreNamed) {
  const auto run = [](const std::string& name, const std::string& sizes, const char* feat) {
    const std::string file =
        temporary_file(name, "%%MatrixMarket matrix coordinate pattern general\n" + sizes + "\n1 1\n");
    return run_weft({"sparse", kSddmm, "--run", "--matrix", "J=" + file, "--set", std::string("feat=") + feat},
                    {.address_space_gib = 6});
  };
  expect_refusal(run("long.mtx", "1000000 1000000 1", "100000"), 4, "out_of_memory",
                 "the tensors of the run do not fit into memory");
  // Rows and relations that are there in name alone take memory, too.
  expect_refusal(run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/rgms_hyb.txt", "--run", "--matrix",
                           "J=" + temporary_file("far.csv", "r,i,j\n2147483646,0,0\n"), "--set", "feat_in=16", "--set",
                           "feat_out=16"},
                          {.address_space_gib = 6}),
                 4, "out_of_memory", "fit into memory");
  const Result result = run("tall.mtx", "2147483647 1 1", "16");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("fit into memory"), std::string::npos) << result.err;
}
#endif

}  // namespace
}  // namespace weft::testing
