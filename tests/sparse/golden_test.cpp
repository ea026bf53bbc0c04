// Every operator at every stage as text. WEFT_UPDATE_GOLDEN=1 writes what it is now.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sparse/operator.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/ready_programs.h"
#include "weft/error.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

struct GoldenCase {
  std::string name;
  std::string program;
  std::string schedule;
  std::map<std::string, int64_t> set = {};
};

std::vector<GoldenCase> cases() {
  std::vector<GoldenCase> all = {
      {"spmm_csr", kSpmmProgram, spmm_schedule(128, "", {}, 16), {{"feat", 128}}},
      {"spmm_tail", kSpmmProgram,
       "lower()\nko, ki = split(csrmm.k, 16)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n"
       "cache_write(ko, register)\nparallel(csrmm.i)\n"},
      {"spmm_bsr_ell", kSpmmProgram, "decompose_format(csrmm, A, bsr(2), ell(2))\n"},
      {"spmm_hyb", kSpmmProgram, spmm_schedule(64, "hyb(1, 2)", {}, 0), {{"feat", 64}}},
      {"sddmm", kSddmmProgram, sddmm_schedule(64, DType::fp32, {}, 16), {{"feat", 64}}},
      {"sddmm_fused", kSddmmProgram, "sparse_fuse(sddmm, I, J)\nlower()\nparallel(sddmm.i_j)\n"},
      {"spmm_prefetch",
       kSpmmProgram,
       "lower()\nku, ki = split(csrmm.k, 16)\nvectorize(ki)\nunroll(ku)\n"
       "annotate(csrmm.j, prefetch)\nparallel(csrmm.i)\n",
       {{"feat", 32}}},
      {"spmm_bound", kSpmmProgram,
       "lower()\nreorder(csrmm.k, csrmm.j)\nbind(csrmm.i, blockIdx.x)\nbind(csrmm.k, "
       "threadIdx.x)\ncache_write(csrmm.k, register)\n"},
  };
  for (const ReadyCase& c : ready_cases()) all.push_back({c.name, c.ready.text, c.ready.schedule, c.ready.set});
  return all;
}

// Code after what every module begins with.
std::string without_prelude(const std::string& code) { return code.substr(code.find("extern \"C\"")); }

TEST(Golden, EveryStageOfEveryOperatorIsAsKept) {
  const char* update = std::getenv("WEFT_UPDATE_GOLDEN");
  for (const GoldenCase& c : cases()) {
    const Operator op = compile(parse(c.program), c.schedule, Device::cpu(), {.set = c.set, .stop_after = "generate"});
    for (const char* stage : {"stage1", "stage2", "stage3", "code", "cuda"}) {
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

// Every print can be read again, and is printed the same.
TEST(Golden, EveryStageReadsBackAsItWasPrinted) {
  for (const GoldenCase& c : cases()) {
    const Operator op = compile(parse(c.program), c.schedule, Device::cpu(), {.set = c.set, .stop_after = "generate"});
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
