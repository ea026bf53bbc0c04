// Every operator at every stage as text. WEFT_UPDATE_GOLDEN=1 writes what it is now.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sparse/operator.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/ready_programs.h"
#include "weft/error.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

// Up to the code's text.
Operator compiled_text(const ReadyCase& c) {
  return compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"});
}

// The other named formats: what SpMM is decomposed to, and programs that are written on their axes; SDDMM in blocks.
std::vector<ReadyCase> format_cases() {
  std::vector<ReadyCase> cases;
  for (const auto& [name, format] : {std::pair("csc", "csc()"),
                                     {"coo", "coo()"},
                                     {"dcsr", "dcsr()"},
                                     {"dbsr", "dbsr(2)"},
                                     {"dia", "dia()"},
                                     {"ell", "ell(3), csr()"},
                                     {"sr_bcrs", "sr_bcrs(4, 2)"}})
    cases.push_back({std::string("decompose_") + name,
                     {kSpmmProgram, std::string("decompose_format(csrmm, A, ") + format + ")\n", {}}});
  for (const auto& [name, format] : {std::pair("sddmm", "bsr(2), csr()"),
                                     {"sddmm_coo", "coo()"},
                                     {"sddmm_sr_bcrs", "sr_bcrs(4, 2)"},
                                     {"sddmm_hyb", "hyb(1, 1)"}})
    cases.push_back({std::string("decompose_") + name,
                     {kSddmmProgram, std::string("decompose_format(sddmm, A, ") + format + ")\n", {}}});
  for (const char* name : {"spmm_ell", "spmm_coo", "spmm_dcsr", "spmm_dia", "mttkrp", "ragged_softmax", "rgms_hyb"}) {
    std::ostringstream text;
    text << std::ifstream(std::string(WEFT_SPARSE_EXAMPLES) + "/" + name + ".txt").rdbuf();
    ReadyCase c{std::string("example_") + name, {text.str(), "", {}}};
    c.ready.schedule = to_text(parse_program(text.str()).schedule);
    cases.push_back(std::move(c));
  }
  return cases;
}

// Code after what every module begins with.
std::string without_prelude(const std::string& code) { return code.substr(code.find("\nextern \"C\"") + 1); }

void expect_as_kept(const std::vector<ReadyCase>& cases, const std::vector<const char*>& stages) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  for (const ReadyCase& c : cases) {
    const Operator op = compiled_text(c);
    for (const char* stage : stages) {
      std::string text;
      try {
        text = op.text(stage);
      } catch (const Error& error) {
        text = std::string("refused: ") + error.what() + "\n";
      }
      if (text.find("extern \"C\"") != text.npos) text = without_prelude(text);
      const std::string path = std::string(WEFT_GOLDEN) + "/" + c.name + "." + stage + ".txt";
      if (update != nullptr) {
        std::ofstream(path, std::ios::binary) << text;
        continue;
      }
      std::ifstream file(path, std::ios::binary);
      std::ostringstream kept;
      kept << file.rdbuf();
      EXPECT_EQ(text, kept.str()) << path << "\nWEFT_UPDATE_GOLDEN=1 writes what it is now";
    }
  }
}

TEST(Golden, EveryStageOfEveryOperatorIsAsKept) {
  expect_as_kept(all_cases(), {"stage1", "stage2", "stage3", "code", "cuda"});
}

TEST(Golden, EveryStageOfEveryFormatIsAsKept) { expect_as_kept(format_cases(), {"stage1", "stage2", "stage3"}); }

// What every CUDA text begins with; tests/simt runs the others behind it.
TEST(Golden, ThePreludeOfCudaIsAsKept) {
  const std::string text = compiled_text(all_cases()[0]).text("cuda");
  const std::string path = std::string(WEFT_GOLDEN) + "/prelude.cuda.txt";
  const std::string prelude = text.substr(0, text.find("extern \"C\""));
  if (std::getenv("WEFT_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << prelude;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream kept;
  kept << file.rdbuf();
  EXPECT_EQ(prelude, kept.str());
}

// Every print can be read again, and is printed the same.
TEST(Golden, EveryStageReadsBackAsItWasPrinted) {
  std::vector<ReadyCase> cases = all_cases();
  for (ReadyCase& c : format_cases()) cases.push_back(std::move(c));
  for (const ReadyCase& c : cases) {
    const Operator op = compiled_text(c);
    const Compilation& made = op.impl().made;
    const Stage1 stage1 = parse_program(to_text(made.stage1)).stage1;
    EXPECT_EQ(stage1, made.stage1) << c.name;
    const Stage2 stage2 = parse_stage2(to_text(made.compute2));
    EXPECT_EQ(to_text(stage2), to_text(made.compute2));
    EXPECT_EQ(stage2.body, made.compute2.body) << c.name;
    const loop::Function stage3 = loop::parse_function(to_text(made.compute3));
    EXPECT_EQ(stage3, made.compute3.function) << c.name;
  }
}

}  // namespace
}  // namespace weft::sparse::test
