// Attention by a producer in the host machine, against the fp64 reference: both loaders, every form, mask and variant
// that the family computes, and kernels that are broken in one place.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "attention/kernel.h"
#include "host_families.h"
#include "tests/simt/machine/machine.h"

namespace weft {
namespace {

using testing::Case;
using testing::case_of;
using testing::host_machine;
using testing::Problem;

std::string wrong_by_producer(Problem& problem, const AttentionSpec& spec, const PlanInput& input,
                              attention::TileKind kind = attention::TileKind::packed) {
  return testing::wrong_by(attention::cuda::producer_family(), problem, spec, input, kind);
}
// Where boxes are named nothing else is compiled.
std::string wrong_by_producer(const Case& c, int workers = 2, std::optional<Loader> loader = Loader::tma) {
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.loader = loader;
  return wrong_by_producer(problem, spec, problem.input(workers));
}
// Two tiles of 128 rows, three of 128 keys, and a request of one row.
Case producer_case(int dim_qk = 32, int dim_vo = 32) {
  Case c = case_of(DType::bf16, dim_qk, dim_vo);
  c.lengths = {{26, 300}, {1, 70}};
  return c;
}

// Boxes of pages, of contiguous rows and of heads that follow each other.
TEST(HostMachineProducer, TakesEveryFormAndMask) {
  Case c = producer_case();
  for (const int page_size : {128, 8}) {
    c.page_size = page_size;
    EXPECT_EQ(wrong_by_producer(c), "") << "pages of " << page_size;
  }
  c.page_size = 64;
  c.window = 30;
  EXPECT_EQ(wrong_by_producer(c), "") << "a window over pages of 64 tokens";
  c.page_size = 1;
  c.window = 400;
  c.lengths[0].second = 700;  // more tiles than rows of them are known of at a time
  EXPECT_EQ(wrong_by_producer(c, 2, {}), "") << "a window over pages of one token";
  c = producer_case(128, 128);
  c.form = KvForm::ragged;
  EXPECT_EQ(wrong_by_producer(c), "") << "ragged";
  c = producer_case(256, 256);
  c.form = KvForm::padded;
  c.layout = Layout::hnd;
  c.kv_heads = 2;
  c.strided = true;
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::tma;
  EXPECT_EQ(wrong_by_producer(problem, spec, problem.input(2), attention::TileKind::streamed), "") << "padded";
  c = producer_case();
  c.mask = Mask::custom_packed;
  c.o_dtype = DType::fp32;
  EXPECT_EQ(wrong_by_producer(c), "") << "bits of a mask";
  c = producer_case();
  c.mask = Mask::none;
  c.sinks = 4;
  EXPECT_EQ(wrong_by_producer(c), "") << "sinks";
}

// Without a named loader they come row by row, in contiguous forms as in pages: one kernel for both of these.
TEST(HostMachineProducer, TakesRowsOfContiguousForms) {
  Case c = producer_case();
  c.form = KvForm::ragged;
  c.lengths = {{26, 450}, {1, 70}, {1, 0}};
  EXPECT_EQ(wrong_by_producer(c, 3, {}), "") << "ragged";
  c.form = KvForm::padded;
  c.layout = Layout::hnd;
  c.strided = true;
  EXPECT_EQ(wrong_by_producer(c, 3, {}), "") << "padded";
}

// Items of one unit on several workers: their states are partial, and the last one merges them. Items of few rows, of
// no keys and of none go by the same kernel.
TEST(HostMachineProducer, WritesStatesThatAreMerged) {
  Case c = producer_case();
  c.lengths = {{26, 700}, {2, 500}, {1, 0}, {3, 3}};
  for (const int workers : {1, 7}) EXPECT_EQ(wrong_by_producer(c, workers), "") << workers << " workers";
}

TEST(HostMachineProducer, TakesFunctors) {
  Case c = producer_case();
  c.variant = variants::logits_soft_cap();
  c.scalars = {{"cap", 5.}};
  EXPECT_EQ(wrong_by_producer(c), "") << "soft cap";
  c = producer_case();
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong_by_producer(c), "") << "no softmax";
}

// It reaches the rows that see it, the last two of 26 queries, and no bit of the others.
TEST(HostMachineProducer, KeepsAValueThatIsNoNumberToTheRowsThatSeeIt) {
  for (const int page_size : {16, 1}) {
    Case c = producer_case();
    c.lengths = {{26, 135}};
    c.page_size = page_size;
    Problem problem(c);
    const AttentionKernel kernel = build_on(host_machine(), problem.spec());
    const Plan plan = kernel.plan(problem.input(2));
    run_on(host_machine(), kernel, plan, problem.tensors());
    const std::string clean = problem.outputs();
    problem.put_value(0, 133, std::numeric_limits<double>::infinity());
    run_on(host_machine(), kernel, plan, problem.tensors());
    const std::string spoilt = problem.outputs();
    const TensorView o = problem.tensors().o;
    for (int64_t i = 0; i < o.size(); ++i) {
      const bool sees = i / (5 * 32) >= 24 && i % 32 == 0;
      if (sees)
        ASSERT_TRUE(std::isinf(testing::get(o.data(), DType::bf16, i))) << i;
      else
        ASSERT_EQ(clean.substr(static_cast<size_t>(2 * i), 2), spoilt.substr(static_cast<size_t>(2 * i), 2)) << i;
    }
  }
}

// What no map describes is refused where boxes are named, and else comes in another way.
TEST(HostMachineProducer, RefusesBoxesThatNoMapDescribes) {
  Case c = producer_case();
  c.page_size = 4;
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::tma;
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(problem.input(2));
  try {
    run_on(host_machine(), kernel, plan, problem.tensors());
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string what = error.what();
    for (const char* said : {"loader = tma", "k: required pages", "8 tokens", "they have 4 tokens", "cp_async"})
      EXPECT_NE(what.find(said), std::string::npos) << what;
  }
  spec.head_dim_vo = 24;
  EXPECT_THROW(build_on(host_machine(), spec), Error);
}

struct BrokenKernel {
  const char* name;
  simt::Breakage what;  // in attention/cuda/kernels
  const char* says;     // of the fault; empty: the output is wrong
};
const BrokenKernel kBrokenKernels[] = {
    {"QueriesToldInFlight", {"producer/load.h", "ptx::cp_async_wait<0>();\n    tell();", "tell();"}, "flight"},
    {"ValuesNotLookedAt", {"producer/load.h", "return job.walk.end - at < Shape::kKeys ||", "return false &&"}, ""},
    {"ValuesLookedAtWithoutAFence", {"producer/load.h", "ptx::fence_async_shared();", ""}, "no fence_async_shared()"},
    {"BoxesOfTheFirstPage", {"producer/loaders.h", "place(begin_ + row(i),", "place(begin_,"}, ""},
    {"QueriesNeverLeft", {"producer/multiply.h", "queries(job).leave();", ""}, "no thread can go on"},
    {"ScoresReadBeforeTheirWait", {"producer/multiply.h", "ptx::wgmma_wait<1>(scores());", ""}, "wait"},
    {"ValuesReleasedBeforeTheWait",
     {"producer/multiply.h", "ptx::wgmma_wait<0>(outputs(), probabilities_);\n      values().release();",
      "values().release();\n      ptx::wgmma_wait<0>(outputs(), probabilities_);"},
     "a product read it"},
    {"JobsLeftByOneWarpgroup", {"producer.h", "s.of_jobs.init(1, S::kThreads)", "s.of_jobs.init(1, 128)"}, "mbarrier"},
    {"JobsOverwritten", {"producer/load.h", "jobs_.wait_for_room();\n    found_", "found_"}, "barrier"},
    {"OutputsThatDoNotShrink", {"producer/multiply.h", "if (shrinks_)", "if (false)"}, ""},
    {"TilesThatBeginWithinAPage",
     {"producer/load.h", "item.kv_begin / kProducerGranule * kProducerGranule", "item.kv_begin"},
     ""},
    {"RegistersBeyondThoseGivenUp", {"producer/shape.h", "kGroups == 2 ? 72", "kGroups == 2 ? 80"}, "registers"},
    {"NextJobLookedAt", {"producer/load.h", "look(s.jobs[slot]", "look(s.jobs[slot ^ 1]"}, "no barrier"},
    {"ScoresAsProbabilities", {"producer/multiply.h", "exponentiate(rows);\n      tile", "tile"}, ""},
    {"KeysOfTheStepBefore",
     {"producer/multiply.h", "make_logits(rows, rows.tile(step)", "make_logits(rows, rows.tile(step - 1)"},
     ""},
    {"QueriesOfAnotherGroup",
     {"producer/multiply.h", "queries(job).stage(), group())", "queries(job).stage(), 0)"},
     "a product read it"},
};
class BrokenProducers : public ::testing::TestWithParam<const BrokenKernel*> {};

TEST_P(BrokenProducers, AreFound) {
  const BrokenKernel& broken = *GetParam();
  Case c = producer_case();
  c.window = 200;
  c.query_scale = 8;
  c.variant = {.name = broken.name, .text = std::string("struct ") + broken.name + " {};\n"};  // kernels are remembered
  Problem problem(c);
  problem.reference();
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::tma;
  simt::break_kernels({"attention/cuda/kernels/" + broken.what.file, broken.what.from, broken.what.to});
  std::string found;
  try {
    const AttentionKernel kernel = build_on(host_machine(), spec);
    const Plan plan = kernel.plan(problem.input(1));
    problem.poison_outputs();
    run_on(host_machine(), kernel, plan, problem.tensors());
    if (problem.compare(DType::bf16).empty()) found = "nothing is wrong";
  } catch (const simt::Fault& fault) {
    found = fault.what();
  }
  simt::break_kernels({});
  EXPECT_NE(found.find(broken.says), std::string::npos) << found;
  EXPECT_EQ(found.empty(), *broken.says == '\0') << found;
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenProducers, ::testing::Range(std::begin(kBrokenKernels), std::end(kBrokenKernels)),
                         [](const auto& broken) { return std::string(broken.param->name); });

}  // namespace
}  // namespace weft
