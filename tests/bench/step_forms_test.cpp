// Rows of both forms of a model's steps where it has one of them alone.
#include "bench/cuda/step_forms.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/random_model.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

class FormRows : public BenchReport {
 public:
  void add(const BenchRow& row) override { rows.insert(row.name + ": " + row.metric); }
  void note(const std::string& line) override { notes.push_back(line); }
  void progress(const std::string&) override {}
  std::set<std::string> rows;
  std::vector<std::string> notes;
};

TEST(StepForms, MeasureWhatAModelHasAndSayWhyNotTheRest) {
  const testing::TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model({.num_layers = 1, .hidden_size = 32, .intermediate_size = 32}).write(path);
  const ModelFile file(path);
  const auto rows_of = [&](ErrorCode code, FormRows& report) {
    measure_step_forms("small",
                       {.make =
                            [&](StepForm form) {
                              if (form == StepForm::fused) throw Error(code, "no such kernel");
                              return ForwardPass(file, {.max_tokens = 512, .max_sequences = 4, .step = form});
                            },
                        .read_rate = [](size_t) { return 1e9; },
                        .quick = true},
                       report);
  };
  for (const ErrorCode code : {ErrorCode::unsupported, ErrorCode::out_of_memory}) {
    FormRows report;
    rows_of(code, report);
    EXPECT_EQ(report.rows, (std::set<std::string>{
                               "small decode batch1 ctx128, layered: speed",
                               "small decode batch1 ctx128, layered: speed, ids alone",
                               "small decode batch2 ctx128, layered: step",
                               "small decode batch2 ctx128, layered: without keys and values, by one row's",
                           }));
    ASSERT_EQ(report.notes.size(), 2u);
    EXPECT_EQ(report.notes[0].find("small: one form after the other: layered: the fused step: required device cpu"), 0u)
        << report.notes[0];
    EXPECT_EQ(report.notes[1], "small: no fused steps: " + std::string(to_string(code)) + ": no such kernel");
  }
  FormRows report;
  EXPECT_THROW(rows_of(ErrorCode::device_failed, report), Error);
}

}  // namespace
}  // namespace weft::bench
