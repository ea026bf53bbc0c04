// `weft sparse` as a user calls it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/cli/program.h"

namespace weft::testing {
namespace {

const std::string kSpmmFile = WEFT_SPARSE_EXAMPLES "/spmm_hyb.txt";

std::string small_matrix() {
  return temporary_file("small.mtx",
                        "%%MatrixMarket matrix coordinate pattern symmetric\n% a comment\n5 5 4\n2 1\n3 2\n5 5\n4 1\n");
}

TEST(SparseProgram, RunsAndChecksAProgramOnAMatrixFromAFile) {
  const Result result = run_weft(
      {"sparse", kSpmmFile, "--run", "--matrix", "J=" + small_matrix(), "--set", "feat=32", "--check", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json last = result.last();
  EXPECT_EQ(last.at("event"), "done");
  EXPECT_LE(last.at("max_error").get<double>(), 1e-5);
  EXPECT_EQ(last.at("flops").get<double>(), 2. * 7 * 32);
  for (const char* key : {"compile_ms", "convert_ms", "run_ms", "bytes", "checksum"})
    EXPECT_TRUE(last.at(key).is_number()) << key;
}

// Every format that a program's axes say.
TEST(SparseProgram, FillsTheFormatOfAProgramFromAFile) {
  for (const auto& [name, axis] : {std::pair("spmm_ell", "J"),
                                   {"spmm_bsr", "JO"},
                                   {"spmm_dcsr", "J"},
                                   {"spmm_dbsr", "JO"},
                                   {"spmm_sr_bcrs", "J"}}) {
    std::vector<std::string> call = {"sparse",
                                     WEFT_SPARSE_EXAMPLES "/" + std::string(name) + ".txt",
                                     "--run",
                                     "--matrix",
                                     axis + ("=" + small_matrix()),
                                     "--set",
                                     "feat=8",
                                     "--set",
                                     "m=5",
                                     "--set",
                                     "n=5",
                                     "--check",
                                     "--json"};
    const Result result = run_weft(call);
    ASSERT_EQ(result.exit_code, 0) << name << result.err;
    EXPECT_LE(result.last().at("max_error").get<double>(), 1e-5) << name;
  }
}

TEST(SparseProgram, FixesRealParametersAndFillsFp16) {
  const std::string file = temporary_file(
      "scale.txt",
      "program scale(n, alpha: real):\n  I = dense_fixed(n)\n  X = buffer(I): fp16\n  Z = buffer(I): fp16\n"
      "  iterate a(I) \"S\" as (i):\n    Z[i] = alpha * sigmoid(X[i])\n");
  const Result result =
      run_weft({"sparse", file, "--set", "n=100", "--set", "alpha=-2.5e-1", "--run", "--check", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LE(result.last().at("max_error").get<double>(), 1e-3);
  EXPECT_LT(result.last().at("checksum").get<double>(), -5);
  expect_refusal(run_weft({"sparse", file, "--set", "n=100", "--set", "alpha=half", "--run"}), 2, "usage",
                 "--set alpha = 'half': no number");
}

// An error of the run, whose text says where; inside of the compiler, too.
TEST(SparseProgram, DividesByZeroInAnError) {
  const std::string file =
      temporary_file("div.txt",
                     "program div(n, q):\n  I = dense_fixed(n)\n  X = buffer(I): fp32\n  Y = buffer(I): fp32\n"
                     "  iterate a(I) \"S\" as (i) where i < 7:\n    Y[i] = X[i // q]\n");
  expect_refusal(run_weft({"sparse", file, "--set", "n=8", "--set", "q=0", "--run"}), 3, "invalid_argument",
                 "div: iteration 'a' divides by 0 at (i = 0): i // 0");
  const Result printed = run_weft({"sparse", file, "--set", "q=0", "--print", "stage2"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
}

// The same matrix packed by gzip.
TEST(SparseProgram, ReadsPackedFiles) {
  const std::string plain = small_matrix(), packed = plain + ".gz";
  ASSERT_EQ(std::system(("gzip -c '" + plain + "' > '" + packed + "'").c_str()), 0);
  const auto checksum = [](const std::string& file) {
    const Result result =
        run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + file, "--set", "feat=8", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.last().at("checksum").get<double>();
  };
  EXPECT_EQ(checksum(packed), checksum(plain));
  const std::string cut = temporary_file("cut.mtx.gz", "\x1f\x8b\x08");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + cut, "--set", "feat=8"}), 3, "invalid_file",
                 "cut.mtx.gz");
}

// A tensor in CSF, relations as a stack, a matrix with duplicates.
TEST(SparseProgram, ReadsTensorsAndSumsDuplicates) {
  const std::string tensor =
      temporary_file("facts.tns", "# relation, head, tail, value\n1 2 3 1.0\n3 1 1 0.5\n1 2 1 2\n2 4 3 1\n");
  Result result = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/mttkrp.txt", "--run", "--matrix", "L=" + tensor, "--set",
                            "rank=3", "--check", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LE(result.last().at("max_error").get<double>(), 1e-5);
  const std::string triples = temporary_file("edges.csv", "rel,src,dst\n0,1,2\n2,3,0\n2,1,2\n");
  for (const std::string& file : {tensor, triples}) {
    result = run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/rgms_hyb.txt", "--run", "--matrix", "J=" + file, "--set",
                       "feat_in=3", "--set", "feat_out=2", "--check", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_LE(result.last().at("max_error").get<double>(), 1e-5);
  }
  const std::string twice =
      temporary_file("sum.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 3\n1 1\n1 1\n2 1\n");
  result = run_weft(
      {"sparse", kSpmmFile, "--run", "--matrix", "J=" + twice, "--set", "feat=16", "--sum-duplicates", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.last().at("flops").get<double>(), 2. * 2 * 16);
  // A matrix as a tensor of two dimensions.
  const std::string pairs = temporary_file("matrix.tns", "1 2 1.0\n3 1 0.5\n1 4 2\n");
  result = run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + pairs, "--set", "feat=16", "--check", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.last().at("flops").get<double>(), 2. * 3 * 16);
  EXPECT_LE(result.last().at("max_error").get<double>(), 1e-5);
  expect_refusal(run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + tensor, "--set", "feat=16"}), 3,
                 "invalid_file", "the tensor has 3 dimensions; the axis is one of a matrix");
  const auto refused = [&](const std::string& axis, const std::string& text, const std::string& part) {
    expect_refusal(run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/mttkrp.txt", "--run", "--matrix",
                             axis + "=" + temporary_file("bad.tns", text), "--set", "rank=3"}),
                   3, "invalid_file", part);
  };
  refused("L", "1 2 x 1\n", "'x' is no coordinate");
  refused("L", "1 2 0 1\n", "'0' is no coordinate");
  refused("L", "1 2 3 1\n1 2 1\n", "3 words; 3 coordinates and a value are expected");
  refused("L", "5\n", "1 word; 1 to 6 coordinates");
  refused("L", "# nothing\n", "the file holds no element");
}

TEST(SparseProgram, ReadsPrunedWeights) {
  for (const char* head : {"2, 3, 3\n", "% comments\n% stand first\n2 3 3\n"}) {
    const std::string weights = temporary_file("weights.smtx", head + std::string("0 1 3\n2 0 1\n"));
    const Result result =
        run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + weights, "--set", "feat=16", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.last().at("flops").get<double>(), 2. * 3 * 16);
  }
}

TEST(SparseProgram, GivesTheSameChecksumInEveryFormat) {
  double checksum = 0;
  for (const char* schedule :
       {"lower()\n", "decompose_format(csrmm, A, bsr(2))\n", "decompose_format(csrmm, A, hyb(2, 1))\n"}) {
    const Result result = run_weft({"sparse", kSpmmFile, "--schedule", temporary_file("schedule.txt", schedule),
                                    "--run", "--matrix", "J=" + small_matrix(), "--set", "feat=8", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const double got = result.last().at("checksum");
    if (checksum == 0) checksum = got;
    EXPECT_NEAR(got, checksum, 1e-5) << schedule;
  }
}

TEST(SparseProgram, ShowsEachStageAndListsPasses) {
  const std::pair<const char*, const char*> stages[] = {{"stage1", "program spmm"},
                                                        {"stage2", "stage2 spmm"},
                                                        {"stage3", "stage3 spmm"},
                                                        {"code", "void weft_spmm_0("},
                                                        {"cuda", "__global__ void weft_spmm_0("}};
  for (const auto& [stage, text] : stages) {
    const Result result = run_weft({"sparse", kSpmmFile, "--print", stage});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(text), std::string::npos) << stage << "\n" << result.out;
  }
  EXPECT_NE(run_weft({"sparse", kSpmmFile}).out.find("lower iterations"), std::string::npos);
}

TEST(SparseProgram, DrawsTheMatrixInItsFormats) {
  const std::string path = temporary_file("picture.svg", "");
  ASSERT_EQ(run_weft({"sparse", kSpmmFile, "--matrix", "J=" + small_matrix(), "--svg", path}).exit_code, 0);
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str().rfind("<svg", 0), 0u);
  EXPECT_NE(text.str().find("hyb_0_1: "), std::string::npos);
  EXPECT_NE(text.str().find("block csrmm_hyb_0_0"), std::string::npos);
  const std::string triples = temporary_file("edges.csv", "rel,src,dst\n0,1,2\n2,3,0\n2,1,2\n");
  expect_refusal(run_weft({"sparse", WEFT_SPARSE_EXAMPLES "/rgms_hyb.txt", "--matrix", "J=" + triples, "--svg", path}),
                 4, "unsupported", "--svg: the structure of axis 'J': required: a matrix in CSR");
}

TEST(SparseProgram, SaysThatThereIsNoCard) {
  expect_refusal(run_weft({"sparse", kSpmmFile, "--device", "cuda:0"}, {.environment = {"WEFT_CUDA_LIBS=none"}}), 4,
                 "unsupported", "--device cpu");
}

TEST(SparseProgram, TunesReadyOperators) {
  const std::string examples = WEFT_SPARSE_EXAMPLES;
  const std::string triples = temporary_file("edges.csv", "rel,src,dst\n0,1,2\n2,3,0\n2,1,2\n");
  const auto tuned = [&](const std::string& file, const std::string& matrix, const std::string& feat,
                         const char* likely) {
    std::vector<std::string> arguments = {"sparse",   examples + "/" + file, "--tune", "--seconds", "0", "--json",
                                          "--matrix", "J=" + matrix};
    for (const std::string& name : feat == "rgms" ? std::vector<std::string>{"feat_in", "feat_out"} : std::vector{feat})
      arguments.insert(arguments.end(), {"--set", name + "=16"});
    const Result result = run_weft(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.last().at("likely_choice").get<std::string>().find(likely), 0u) << result.out;
    EXPECT_GT(result.last().at("run_ms").get<double>(), 0);
    EXPECT_GT(result.last().at("left").get<int>(), 0);
  };
  tuned("spmm_hyb.txt", small_matrix(), "feat", "csr prefetch ");
  tuned("sddmm.txt", small_matrix(), "feat", "csr prefetch ");
  tuned("rgms.txt", triples, "rgms", "tile 64 vectors 4 ");
}

TEST(SparseProgram, RefusesToTuneWhatItCannot) {
  const std::string examples = WEFT_SPARSE_EXAMPLES, matrix = "J=" + small_matrix();
  const auto tune = [&](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"sparse", examples + "/" + file, "--tune"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_weft(arguments);
  };
  expect_refusal(tune("mttkrp.txt", {"--matrix", matrix}), 4, "unsupported", "supported: SpMM, SDDMM and RGMS");
  expect_refusal(tune("sddmm.txt", {"--matrix", matrix}), 2, "usage", "--set feat=64");
  expect_refusal(tune("sddmm.txt", {"--set", "feat=16"}), 2, "usage", "--matrix J=FILE");
  expect_refusal(tune("sddmm.txt", {"--matrix", matrix, "--set", "feat=0"}), 3, "invalid_argument", "1 to 65536");
  expect_refusal(tune("rgms.txt", {"--matrix", matrix, "--set", "feat_in=16", "--set", "feat_out=16"}), 3,
                 "invalid_argument", "RGMS takes triples");
  expect_refusal(
      tune("rgms.txt", {"--matrix", "J=" + temporary_file("e.csv", "r,i,j\n0,0,0\n"), "--set", "feat_in=16"}), 2,
      "usage", "--set feat_out=64");
}

TEST(SparseProgram, RefusesWhatIsWrong) {
  expect_refusal(run_weft({"sparse", temporary_file("bad.txt", "program p(n):\n  I = dens_fixed(n)\n")}), 3,
                 "invalid_argument", "line 2, column 7: 'dens_fixed' declares nothing");
  expect_refusal(run_weft({"sparse", "/nowhere.txt"}), 3, "io_error", "/nowhere.txt");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--print", "stage9"}), 2, "usage", "stage9");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--set", "feat"}), 2, "usage", "NAME=VALUE is expected");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--set", "feat=-1"}), 3, "invalid_argument", "feat");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--set", "fat=1"}), 3, "invalid_argument",
                 "--set fat=1: the program has no parameter 'fat'; its parameters are m, n, nnz, feat; did you mean "
                 "'feat'?");
  const std::string scaled = temporary_file("scaled.txt",
                                            "program scaled(n, alpha: real):\n  N = dense_fixed(n)\n"
                                            "  X = buffer(N): fp32\n  iterate scale(N) \"S\" as (i):\n"
                                            "    X[i] = X[i] * alpha\n");
  expect_refusal(run_weft({"sparse", scaled, "--set", "beta=1"}), 3, "invalid_argument", "its parameters are n, alpha");
  for (const char* value : {"x", "inf"})
    expect_refusal(run_weft({"sparse", scaled, "--set", std::string("alpha=") + value}), 2, "usage",
                   "allowed are finite numbers");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--run"}), 2, "usage", "--matrix J=FILE is missing");
  const std::pair<const char*, const char*> matrices[] = {
      {"%%MatrixMarket matrix array real general\n2 2\n",
       "line 1: the banner's format is 'array': dense arrays are not"},
      {"%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n", "a row is expected"},
      {"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n3 1\n", "a row is 3; allowed are 1 to 2"},
      {"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1\n2 2\n",
       "more follows than the 1 element that the sizes say"},
      {"%%MatrixMarket matrix coordinate odd general\n2 2 1\n1 1\n", "field 'odd' is not known"}};
  for (const auto& [text, says] : matrices)
    expect_refusal(run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + temporary_file("bad.mtx", text)}), 3,
                   "invalid_file", says);
  expect_refusal(
      run_weft(
          {"sparse", kSpmmFile, "--run", "--matrix",
           "J=" + temporary_file("twice.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n1 1\n")}),
      3, "invalid_argument", "twice.mtx', line 4: element (1, 1) stands twice, first in line 3; --sum-duplicates");
  expect_refusal(run_weft({"sparse", kSpmmFile, "--run", "--matrix", "J=" + temporary_file("m.dat", "")}), 3,
                 "invalid_file", "its name ends as no format that is read");
}

}  // namespace
}  // namespace weft::testing
