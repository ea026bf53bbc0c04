// The rows of benches on a card, on one that does nothing: which there are, and in what units.
#include <algorithm>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tests/device/cuda/fake_card.h"
#include "tests/support/random_model.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

class Rows : public BenchReport {
 public:
  void add(const BenchRow& row) override { rows_.push_back(row); }
  void note(const std::string& line) override { notes_.push_back(line); }
  void progress(const std::string&) override {}
  // "metric unit" of each row whose case holds this; what is not above 0, or has a ceiling that is not, is said.
  std::vector<std::string> of(const std::string& part) const {
    std::vector<std::string> all;
    for (const BenchRow& row : rows_)
      if (row.name.find(part) != row.name.npos)
        all.push_back(row.metric + " " + row.unit + (row.value > 0 && row.ceiling >= 0 ? "" : ": not above 0"));
    return all;
  }
  size_t count() const { return rows_.size(); }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::vector<BenchRow> rows_;
  std::vector<std::string> notes_;
};

class CardRows : public testing::FakeCard {
 protected:
  CardRows() {
    have_memory_without_bytes();
    options_.quick = true;
    options_.device = Device::cuda(0);
  }
  BenchOptions options_;
  Rows rows_;
};

using List = std::vector<std::string>;

TEST_F(CardRows, OfPlansSayWhatHostAndCardTake) {
  measure_plan(options_, rows_);
  EXPECT_EQ(rows_.of("256 decode requests, kv 1024, page 16, 2 workers"),
            (List{"host: plan and upload us", "host: plan, by the paper's Algorithm 1 us", "host: upload us",
                  "host: eager run, by an empty launch us", "host: upload and replay, by an empty launch us",
                  "card: even plan, by an empty node us", "host: even plan enqueued us"}));
  EXPECT_EQ(rows_.count(), 7u);
}

TEST_F(CardRows, OfSparseOperatorsStandBesideTheirGathers) {
  measure_sparse(options_, rows_);
  for (const char* row : {"spmm power law 2k nnz 8k F32", "sddmm power law 2k nnz 8k F128"})
    EXPECT_EQ(rows_.of(row), (List{"rate GFLOP/s", "bandwidth of the floor GB/s"})) << row;
  for (const char* row : {"rgcn few edges F32 fp32", "rgcn few edges F32 bf16", "convolution 500 voxels F16 fp32",
                          "convolution 500 voxels F16 bf16"})
    EXPECT_EQ(rows_.of(row),
              (List{"rate GFLOP/s", "bandwidth of gathered rows GB/s", "time us", "memory beside tensors MB"}))
        << row;
  EXPECT_EQ(rows_.count(), 8u + 24 + 4 * 4) << "of graphs, of blocks, and of relations";
}

TEST_F(CardRows, OfKernelsSayWhereTheyComeFrom) {
  measure_jit(options_, rows_);
  const std::string larger = rows_.of(", warpgroup_tiles: cold, next").empty() ? ", all_tiles" : ", warpgroup_tiles";
  for (const std::string& way :
       {std::string("small_tiles: cold, first of the process"), std::string("small_tiles: cold, next"),
        std::string("small_tiles: from disk"), larger + ": cold, next", larger + ": from disk"})
    EXPECT_EQ(rows_.of(way), List{"time ms"}) << way;
  EXPECT_EQ(rows_.of("from memory, by spec"), List{"time ms"});
  for (const char* program : {"sddmm F128", "spmm F128, rows in pieces", "spmm F64, hyb(1, 5)", "rgms F64, tensor"})
    EXPECT_EQ(rows_.of(program), List(2, "time ms")) << program;
}

TEST_F(CardRows, OfVariantsAndPagesStandBesideWhatTheyDifferFrom) {
  for (const char* only : {"batch4 n4096 own functor", "page1 bf16 batch4 n4096"}) {
    options_.only = only;
    measure_attention(options_, rows_);
  }
  EXPECT_EQ(rows_.of("own functor"), (List{"rate TFLOP/s", "rate over plain causal x"}));
  EXPECT_EQ(rows_.of("page1 bf16 batch4"),
            (List{"rate TFLOP/s", "rate over contiguous x", "time over loader = cp_async x"}));
  EXPECT_EQ(rows_.of("contiguous bf16 batch4 n4096"), List{"rate TFLOP/s"});
}

TEST_F(CardRows, OfMixedLengthsStandBesideConstantOnes) {
  options_.only = "page16 bf16 batch16 zipf mean1024";
  measure_attention(options_, rows_);
  EXPECT_EQ(rows_.of("decode"), (List{"bandwidth GB/s", "time over constant lengths' x"}));
  EXPECT_EQ(rows_.of("prefill"),
            (List{"rate TFLOP/s", "time a token over constant lengths' x", "rate over constant lengths' x"}));
}

TEST_F(CardRows, OfOtherPlansStandBesideThePlanOfTheSameWork) {
  for (const char* only : {"zipf mean2048 fixed_split", "batch16 prefix1024 kv128"}) {
    options_.only = only;
    measure_attention(options_, rows_);
  }
  EXPECT_EQ(rows_.of("fixed_split"), (List{"bandwidth GB/s", "time over balanced's x"}));
  EXPECT_EQ(rows_.of("prefix"), (List{"bandwidth GB/s", "time us", "time over the plain plan's x"}));
}

TEST_F(CardRows, OfAblationsStandWhereTheyAreAskedFor) {
  options_.only = "ablation";
  measure_sparse(options_, rows_);
  const List times(2, "time us");
  EXPECT_EQ(rows_.of("F32: csr, "), times);
  EXPECT_EQ(rows_.of("F128: hyb("), List(5, "time us"));
  EXPECT_EQ(rows_.of("50 % F512: "), times);
  for (const char* row : {"a relation at a time", "tiles of rows, FMA", "tiles of rows, tensor cores"})
    EXPECT_EQ(rows_.of(row), (List{"time us", "memory beside tensors MB"})) << row;
  EXPECT_EQ(rows_.count(), 2u * 7 + 3 * 2 + 3 * 2);
}

// Of other widths than 32 and 128 rows stand where they are asked for, too.
TEST_F(CardRows, OfSparseOperatorsHaveTheWidthThatIsAskedFor) {
  options_.only = "F256";
  measure_sparse(options_, rows_);
  EXPECT_EQ(rows_.of("spmm "), (List{"rate GFLOP/s", "bandwidth of the floor GB/s"}));
  EXPECT_EQ(rows_.count(), 4u);
}

TEST_F(CardRows, OfQuestStandBesidePlainDecode) {
  options_.only = "quest 32q/8kv hd128 page16 bf16 64 pages kv4096";
  measure_attention(options_, rows_);
  EXPECT_EQ(rows_.of("quest"), (List{"time us", "time over plain decode of as many pages x", "choice GB/s"}));
}

TEST_F(CardRows, OfMixedBatchesStandBesideTwoLaunches) {
  options_.only = "mixed";
  measure_attention(options_, rows_);
  EXPECT_EQ(rows_.of("prefill 4096, 128 decodes"),
            (List{"time us", "time of the prefill alone us", "time of the decodes alone us",
                  "time over two launches in a row x"}));
  EXPECT_EQ(rows_.count(), 4u);
}

TEST_F(CardRows, OfAModelStandBesideItsNodesAndBytes) {
  const testing::TempFolder folder;
  options_.model = folder.path("model.gguf");
  testing::random_model({.weights = testing::GgufWriter::kQ4_1,
                         .hidden_size = 64,
                         .intermediate_size = 96,
                         .num_qo_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 16})
      .write(options_.model);
  measure_model(options_, rows_);
  EXPECT_EQ(rows_.of("decode batch1 ctx1024"),
            (List{"speed tok/s", "step us", "step by bound x", "host: plan us", "host: upload us",
                  "host: graph launch us", "host: wait us", "graph, one after another us"}));
  EXPECT_EQ(rows_.of("decode batch8 ctx1024"), (List{"step us", "without keys and values, by one row's x"}));
}

TEST_F(CardRows, OfADeepLinearNetworkStandBesideReads) {
  measure_decode_studies(options_, rows_);
  for (const char* form :
       {"x 1, apart", "x 4, fused, counter", "x 32, fused + overlap, counter", "edges, 36 then 96 KB"})
    EXPECT_EQ(rows_.of(form), (List{"bandwidth GB/s", "time ms"})) << form;
  EXPECT_EQ(rows_.count(), size_t{2 * (3 * 4 + 3 + 6 + 2 + 4)});
  Rows of_integers;
  options_.weights = "q4_g128";
  measure_decode_studies(options_, of_integers);
  EXPECT_EQ(of_integers.of("deep linear q4_g128 2048 x 32, fused + overlap, tagged edges, 4 rows"),
            (List{"bandwidth GB/s", "time ms"}));
  EXPECT_EQ(of_integers.count(), size_t{2 * 5});
  options_.weights = "f16";
  EXPECT_THROW(measure_decode_studies(options_, of_integers), Error);
  options_.weights = "bf16";
  options_.device = Device::cpu();
  EXPECT_THROW(measure_decode_studies(options_, rows_), Error);
}

// A card whose launches do nothing takes as long for them as for reads: what is beyond these may be anything. Its one
// multiprocessor owns all columns of the residual, which leave no room beside eight rows of a feed-forward's input:
// that stack is measured apart alone.
TEST_F(CardRows, OfOtherStudiesHaveTheirForms) {
  driver().free_bytes = size_t{4} << 30;  // for both forms of a stack
  for (const char* study : {"depth-size", "edges", "attention-stack", "glu-stack"}) {
    Rows of_study;
    options_.study = study;
    measure_decode_studies(options_, of_study);
    EXPECT_EQ(of_study.count(), 2u * 3) << study;
    if (std::string(study) == "depth-size") {
      EXPECT_EQ(of_study.of("ring bf16 2048 x 32, 32 entries of 2 KB"), (List{"bandwidth GB/s", "time ms"}));
    } else if (std::string(study) != "edges") {
      EXPECT_GE(of_study.of(", apart").size(), 2u) << study;
      for (const char* form : {", fused", ", fused + overlap"})
        EXPECT_FALSE(of_study.of(form).empty()) << study << form;
    }
  }
  options_.study = "stacks";
  try {
    measure_decode_studies(options_, rows_);
    ADD_FAILURE() << "a study that is none was measured";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "invalid_argument: study = 'stacks'; allowed are deep-linear, attention-stack, glu-stack, depth-size, "
                 "edges");
  }
}

// The few multiprocessors of this card own so many columns each that the kernel of 8 rows does not fit.
TEST_F(CardRows, OfStepsEndWithTheRowsThatAFormHas) {
  driver().free_bytes = size_t{4} << 30;
  const testing::TempFolder folder;
  options_.model = folder.path("model.gguf");
  options_.step = "both";
  options_.quick = false;
  testing::random_model({.weights = testing::GgufWriter::kQ4_1,
                         .num_layers = 1,
                         .hidden_size = 2560,
                         .intermediate_size = 96,
                         .num_qo_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 16,
                         .context_length = 1100})
      .write(options_.model);
  measure_model(options_, rows_);
  for (const char* form : {", layered", ", fused"}) {
    const List of_one{"speed tok/s", "speed, ids alone tok/s"};
    EXPECT_EQ(rows_.of(std::string("decode batch1 ctx1024") + form), of_one) << form;
    EXPECT_EQ(rows_.of(std::string("decode batch4 ctx1024") + form).size(), 2u) << form;
  }
  EXPECT_EQ(rows_.of("decode batch8 ctx1024, layered").size(), 2u);
  EXPECT_EQ(rows_.of("decode batch8").size(), 2u);
  EXPECT_EQ(rows_.notes().back(),
            "random llama, fused: no steps of 8 rows and more; steps of up to 4 rows fused, others layered");
}

TEST_F(CardRows, OfStepsHaveBothForms) {
  const testing::TempFolder folder;
  options_.model = folder.path("model.gguf");
  options_.step = "both";
  testing::random_model({.weights = testing::GgufWriter::kQ4_1,
                         .hidden_size = 64,
                         .intermediate_size = 96,
                         .num_qo_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 16})
      .write(options_.model);
  measure_model(options_, rows_);
  for (const char* form : {", layered", ", fused"}) {
    EXPECT_EQ(rows_.of(std::string("decode batch1 ctx128") + form), (List{"speed tok/s", "speed, ids alone tok/s"}));
    EXPECT_EQ(rows_.of(std::string("decode batch2 ctx128") + form).front(), "step us");
  }
  EXPECT_EQ(rows_.count(), 8u);
}

}  // namespace
}  // namespace weft::bench
