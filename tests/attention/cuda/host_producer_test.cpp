// Attention by a producer in the host machine, against the fp64 reference: both loaders, every form, mask and variant
// that the family computes, and kernels that are broken in one place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attention/cuda/traits.h"
#include "attention/kernel.h"
#include "few_bits.h"
#include "host_families.h"
#include "weft/block_sparse.h"

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
// Two tiles of 128 rows, three of 128 keys, all but one of whose second the first row sees, and a request of one row.
Case producer_case(int dim_qk = 32, int dim_vo = 32) {
  Case c = case_of(DType::bf16, dim_qk, dim_vo);
  c.lengths = {{26, 280}, {1, 70}};
  return c;
}

// Boxes of pages, of contiguous rows and of heads that follow each other.
TEST(HostMachineProducer, TakesEveryFormAndMask) {
  Case c = producer_case();
  for (const int page_size : {128, 8}) {
    c.page_size = page_size;
    EXPECT_EQ(wrong_by_producer(c), "") << "pages of " << page_size;
  }
  c.lengths[0].first = c.lengths[1].first = 128;  // of a head: a tile's rows, and no more
  c.group = 1;
  EXPECT_EQ(wrong_by_producer(c, 1), "") << "whole tiles of rows";
  c = producer_case();
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

// Splits of units: their states are partial, and the last one merges them. Items of few rows, of no keys and of none go
// by the same kernel.
TEST(HostMachineProducer, WritesStatesThatAreMerged) {
  Case c = producer_case();
  c.lengths = {{26, 700}, {2, 500}, {1, 0}, {3, 3}};
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::tma;
  EXPECT_EQ(wrong_by_producer(problem, spec, problem.input(1)), "");
  testing::expect_outputs_anywhere(problem, spec, problem.input(1));
  for (const int split : {64, 320}) {  // half a tile, and two and a half
    const PlanInput input = problem.input(7, PlanMode::fixed_split, split);
    EXPECT_GT(build_on(host_machine(), spec).plan(input).num_partials(), 0);
    EXPECT_EQ(wrong_by_producer(problem, spec, input), "") << "splits of " << split;
  }
}

// Fixed splits of its units, which have more rows than a warpgroup's tile of so many dims.
TEST(HostMachineProducer, LeavesFixedSplitsOfItsUnitsToWarpgroups) {
  const Case c = case_of(DType::bf16, 144, 144);
  Problem problem(c);
  const PlanInput input = problem.input(2, PlanMode::fixed_split, 64);
  EXPECT_EQ(wrong_by_producer(problem, problem.spec(), input, attention::TileKind::streamed), "");
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

// Hooks of queries, keys and outputs, with tables and sums of vectors; the state of a request of theirs.
struct Turned {
  std::vector<float> table = std::vector<float>(1024 * 32);
  Turned() {
    for (size_t i = 0; i < table.size(); ++i) table[i] = std::sin(static_cast<float>(i));
  }
  // `key`: what else keys are turned by, a member of Row.
  Case in(Case c, const char* key = "idx") const {
    c.variant = {.name = "Turned",
                 .text = R"(struct Turned {
  real scale = 0;
  void init(P p, Request r) { scale = real(r.batch + 1); }
  real query_transform(P p, Vec x, int i, Row r) {
    return x[i] * real(0.5) + weft::pair(x, i) * p.table(r.pos + 3, i) + real(r.head) * real(0.1);
  }
  real key_transform(P p, Vec x, int i, Row r) {
    return x[i] * weft::rsqrt(weft::dot(x, x) + real(1)) * scale + p.table(r.pos, i) + weft::sum(x) * real(0.01) +
           real(r.KEY % 5) * real(0.2);
  }
  real output_transform(P p, Vec x, int i, Row r) {
    return x[i] * scale + weft::pair(x, i) * weft::sigmoid(r.lse) + real(r.idx) * real(0.1);
  }
  real lse_transform(P p, Row r) { return r.lse + scale; }
};
)",
                 .tensors = {{"table", DType::fp32, 2}}};
    c.variant.text.replace(c.variant.text.find("KEY"), 3, key);
    c.tensors = {{"table", TensorView(table.data(), DType::fp32, {1024, 32})}};
    return c;
  }
};

TEST(HostMachineProducer, TakesHooksOfQueriesKeysAndOutputs) {
  const Turned turned;
  Case c = turned.in(producer_case());
  c.lengths = {{26, 200}, {3, 3}, {1, 0}};  // 130 rows and two tiles of keys, which are cut, and few of each
  c.tensors[0].value = c.tensors[0].value.slice(0, 0, 203);  // what hooks ask for of tokens that are there
  EXPECT_EQ(wrong_by_producer(c, 3, {}), "");
}

// A request of one list of blocks, which are the pages of a case: in any order, with their positions, or as they follow
// each other.
struct Listed {
  explicit Listed(const Case& c, int workers = 2, bool in_order = false)
      : problem(c), spec(problem.spec()), input(problem.input(workers)) {
    const auto [rows, len] = c.lengths[0];
    const int num = input.pages.num_pages > 0 ? (len + c.page_size - 1) / c.page_size : 0;
    std::vector<int32_t> order(static_cast<size_t>(num));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(7);
    if (!in_order) std::shuffle(order.begin(), order.end() - 1, random);  // the last one may have fewer tokens
    for (const int32_t page : order) {
      positions.push_back(page * c.page_size);
      ids.push_back(input.pages.kv_page_indices[static_cast<size_t>(page)]);
    }
    indptr = {0, num};
    last = {len - (num - 1) * c.page_size};
    blocks = {.block_rows = rows, .block_cols = c.page_size, .num_blocks = input.pages.num_pages};
    blocks.block_indptr = indptr;
    blocks.block_indices = ids;
    blocks.last_block_len = last;
    if (!in_order) blocks.kv_positions = positions;
    input.pages = {};
    input.blocks = &blocks;
    spec.kv_form = KvForm::block_sparse;
  }
  Listed(const Listed&) = delete;
  // In order: bits of the last two blocks hide what a causal mask hides.
  void hide_by_bits() {
    const int rows = blocks.block_rows, columns = blocks.block_cols, of_row = (columns + 7) / 8;
    const int num = static_cast<int>(ids.size()), len = (num - 1) * columns + last[0];
    bits_index.assign(ids.size(), -1);
    bits.assign(static_cast<size_t>(2 * rows * of_row), 0);
    for (int b = 0; b < 2; ++b) {
      bits_index[ids.size() - 2 + static_cast<size_t>(b)] = b;
      for (int row = 0; row < rows; ++row)
        for (int slot = 0; slot < columns; ++slot)
          if ((num - 2 + b) * columns + slot <= len - rows + row)
            bits[static_cast<size_t>((b * rows + row) * of_row + slot / 8)] |= static_cast<uint8_t>(1 << slot % 8);
    }
    blocks.bits_index = bits_index;
    blocks.bits = bits;
    spec.mask = Mask::none;
  }
  std::string wrong() { return wrong_by_producer(problem, spec, input); }

  Problem problem;
  AttentionSpec spec;
  PlanInput input;

 private:
  std::vector<int32_t> indptr, ids, last, positions, bits_index;
  std::vector<uint8_t> bits;
  BlockSparse blocks;
};
Case listed_case(int page_size = 16) {
  Case c = producer_case();
  c.lengths = {{26, 690}};  // six tiles of keys
  c.page_size = page_size;
  return c;
}

TEST(HostMachineProducer, TakesHooksOfListsOfBlocks) {
  const Turned turned;
  Case c = turned.in(listed_case(), "pos");  // keys' places in a list are not those in a page table
  c.lengths = {{26, 200}};
  EXPECT_EQ(Listed(c).wrong(), "");
}

TEST(HostMachineProducer, TakesListsOfBlocks) {
  Case c = listed_case();
  EXPECT_EQ(Listed(c).wrong(), "") << "causal";
  c.window = 100;
  EXPECT_EQ(Listed(c, 5).wrong(), "") << "a window";
  c = listed_case(24);        // blocks that lie in two tiles
  c.lengths[0].second = 768;  // a tile that bits alone hide some of
  Listed with_bits(c, 2, true);
  with_bits.hide_by_bits();
  EXPECT_EQ(with_bits.wrong(), "") << "bits";
  c = listed_case(128);
  Listed in_boxes(c);
  in_boxes.spec.loader = Loader::tma;
  EXPECT_EQ(in_boxes.wrong(), "") << "boxes";
  in_boxes.input.mode = PlanMode::fixed_split;
  in_boxes.input.fixed_split_size = 320;
  EXPECT_EQ(in_boxes.wrong(), "") << "boxes, cut and merged";
}

// Keys and values of 8 bits, with scales of every kind, in panels of 128, 64 and 32 bytes.
TEST(HostMachineProducer, TakesKeysAndValuesOf8Bits) {
  const auto of_bits = [](DType type, KvScales scales, int dim) {
    Case c = producer_case(dim, dim);
    c.kv_dtype = type;
    c.kv_scales = scales;
    return c;
  };
  Case c = of_bits(DType::fp8_e4m3, KvScales::head, 128);
  c.kv_heads = 2;
  EXPECT_EQ(wrong_by_producer(c, 3, {}), "") << "scales of heads";
  c = of_bits(DType::int8, KvScales::token, 64);
  c.lengths[0].second = 800;  // scales of more tiles than there is room for
  EXPECT_EQ(wrong_by_producer(c, 3, {}), "") << "scales of tokens";
  c = of_bits(DType::fp8_e5m2, KvScales::token_group, 32);
  c.kv_scale_group = 3;
  c.page_size = 15;
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong_by_producer(c, 2, {}), "") << "scales of groups of tokens, no softmax";
}

class ProducersSpecialNumbers : public testing::SpecialNumbers {};
TEST_F(ProducersSpecialNumbers, ReachTheRowsThatSeeThem) {
  make(DType::fp8_e4m3, KvScales::token, 40, DType::bf16, true);
  expect_as_in_reference(67, [](Problem& p) { p.put_value(0, 67, 0x7f, 100); });
  expect_as_in_reference(67, [](Problem& p) { p.put_key(0, 67, 0xff, 3); });
  for (const double scale : {std::nan(""), -std::numeric_limits<double>::infinity()})
    expect_as_in_reference(67, [&](Problem& p) {
      p.put_value_scale(0, 67, scale);
      p.put_value(0, 67, 0, 5);
    });
}

// Why others stay mma's.
TEST(HostMachineProducer, SaysWhatItDoesNotConvert) {
  const auto why = [](AttentionSpec spec) {
    return attention::cuda::producer_family().ability(spec, attention::cuda::find_architecture("sm_90a")).why_not;
  };
  AttentionSpec spec{.q_dtype = DType::bf16, .kv_dtype = DType::int4, .o_dtype = DType::bf16};
  spec.head_dim_qk = spec.head_dim_vo = 128;
  spec.kv_scales = KvScales::head;
  EXPECT_EQ(why(spec), "KV is int4, and loaders make 16 bits of 8");
  spec.kv_dtype = DType::int8;
  EXPECT_EQ(why(spec), "");
  spec.loader = Loader::tma;
  EXPECT_EQ(why(spec), "KV is int8, and boxes bring what is multiplied as it lies");
  spec.loader = {};
  spec.q_dtype = DType::fp16;
  EXPECT_EQ(why(spec), "KV is int8, which becomes bf16, and queries are fp16");
  spec.q_dtype = DType::bf16;
  spec.head_dim_qk = 96;
  EXPECT_EQ(why(spec), "KV is int8, and head dims are not 32, 64 or 128");
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The last two of 26 queries see it, and another the last 15.
TEST(HostMachineProducer, KeepsAValueThatIsNoNumberToTheRowsThatSeeIt) {
  for (const int page_size : {16, 1}) {
    Case c = producer_case();
    c.lengths = {{26, 135}};
    c.page_size = page_size;
    Problem problem(c);
    testing::expect_to_reach_who_sees_it(problem, problem.spec(), problem.input(2), 133, kInfinity);
    // In the tile that is multiplied last, of which is told when the next rows' keys are fetched.
    c.lengths = {{26, 135}, {26, 135}};
    Problem last(c);
    testing::expect_to_reach_who_sees_it(last, last.spec(), last.input(1), 120, kInfinity);
  }
  Listed listed(listed_case());
  testing::expect_to_reach_who_sees_it(listed.problem, listed.spec, listed.input, 688, kInfinity);
}
// Before a hook makes of it what is written.
TEST(HostMachineProducer, AddsAValueThatIsNoNumberToWhatAHookOfOutputsIsGiven) {
  Case c = producer_case();
  c.lengths = {{26, 135}};
  c.variant = variants::attention_sink();
  const std::string own = "0 : x[i]";
  c.variant.text.replace(c.variant.text.find(own), own.size(), "0 : -x[i]");  // of what is added twice: no number
  const std::vector<float> sinks{0.5f, -1, 2, 0, 1};
  c.tensors = {{"sinks", TensorView(sinks.data(), DType::fp32, {5})}};
  EXPECT_EQ(wrong_by_producer(c, 1), "");
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::tma;
  testing::expect_to_reach_who_sees_it(problem, spec, problem.input(1), 133, kInfinity, -kInfinity);
  problem.put_value(0, 133, 0);
  const PlanInput cut = problem.input(1, PlanMode::fixed_split, 64);  // by way of partials
  testing::expect_to_reach_who_sees_it(problem, spec, cut, 133, kInfinity, -kInfinity);
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
  // Of other specs it says which loader there is.
  for (const auto& [dim, loader] : {std::pair{24, Loader::cp_async}, {512, Loader::elements}}) {
    spec.head_dim_qk = spec.head_dim_vo = dim;
    const auto find_type = [&](Loader named) {
      spec.loader = named;
      attention::cuda::compute_type(spec, attention::cuda::find_architecture("sm_90a"));
    };
    EXPECT_NO_THROW(find_type(loader)) << dim;
    try {
      find_type(Loader::tma);
      ADD_FAILURE() << dim << " dims were taken";
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).ends_with("choose " + std::string(to_string(loader)))) << error.what();
    }
  }
}

enum class Brings { boxes, rows, boxes_of_lists, rows_of_8_bits, rows_for_hooks };
struct BrokenKernel {
  const char* name;
  simt::Breakage what;  // in attention/cuda/kernels
  const char* says;     // of the fault; empty: the output is wrong
  Brings brings = Brings::boxes;
};
const BrokenKernel kBrokenKernels[] = {
    {"QueriesToldInFlight", {"producer/load.h", "ptx::cp_async_wait<0>();\n    tell();", "tell();"}, "flight"},
    {"ValuesNotLookedAt", {"producer/load.h", "looks = !rows.is_seen_by_all(tile)", "looks = false"}, ""},
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
    {"RegistersBeyondThoseGivenUp", {"shared.h", "ProducerRegisters{72,", "ProducerRegisters{80,"}, "registers"},
    {"NextJobLookedAt",
     {"producer/load.h", "look(rows, s.jobs[slot]", "look(Rows<Shape>(call_, p_, s.jobs[slot ^ 1]), s.jobs[slot ^ 1]"},
     "no barrier"},
    {"ScoresAsProbabilities", {"producer/multiply.h", "exponentiate(rows, rows.tile(step));\n      tile", "tile"}, ""},
    {"KeysOfTheStepBefore",
     {"producer/multiply.h", "make_logits<true>(rows, rows.tile(step)", "make_logits<true>(rows, rows.tile(step - 1)"},
     ""},
    {"QueriesOfAnotherGroup",
     {"producer/multiply.h", "queries(job).stage(), group())", "queries(job).stage(), 0)"},
     ""},
    {"PositionsOfThreeTiles",
     {"producer/shape.h", "listed[step % kTilesOfLogits]", "listed[step % 3]"},
     "no barrier",
     Brings::boxes_of_lists},
    {"HiddenKeysOfASeenTile",
     {"producer/loaders.h", "visible.is_seen_by_all(found.pos, found.pos + 1)", "n > 0"},
     "",
     Brings::boxes_of_lists},
    {"FlagsReadBeforeABarrier",
     {"producer/load.h", "if constexpr (S::kBlockSparse && !Shape::kGathers) sync();", ""},
     "no barrier",
     Brings::boxes_of_lists},
    {"RowsMultipliedWithoutAFence",
     {"producer/multiply.h", "if constexpr (kAsCopied) ptx::fence_async_shared();", ""},
     "no fence_async_shared()",
     Brings::rows},
    {"KeysChangedBeforeTheyAreThere",
     {"producer/load.h", "const Rows<Shape> rows(call_, p_, job);\n        sync();",
      "const Rows<Shape> rows(call_, p_, job);"},
     "no barrier",
     Brings::rows_for_hooks},
    {"RowsWrittenBeforeTheyAreRead",
     {"producer/loaders.h", "ptx::warp_sync();  // rows were read", ""},
     "no barrier",
     Brings::rows_of_8_bits},
    {"ScalesOfThreeTiles",
     {"producer/shape.h", "scales)[step % kTilesOfLogits]", "scales)[step % 3]"},
     "no barrier",
     Brings::rows_of_8_bits},
};
class BrokenProducers : public ::testing::TestWithParam<const BrokenKernel*> {};

TEST_P(BrokenProducers, AreFound) {
  const BrokenKernel& broken = *GetParam();
  const bool lists = broken.brings == Brings::boxes_of_lists;
  const Turned turned;
  Case c = lists ? listed_case() : producer_case();
  if (broken.brings == Brings::boxes || broken.brings == Brings::rows) c.window = 200;
  if (broken.brings == Brings::rows_of_8_bits) {
    c.kv_dtype = DType::int8;
    c.kv_scales = KvScales::token;
    c.lengths[0].second = 800;
  }
  c.query_scale = 8;
  c.variant.text = " {};\n";
  if (broken.brings == Brings::rows_for_hooks) {
    c = turned.in(c);
    c.variant.text.erase(0, c.variant.text.find('{'));
    c.lengths = {{26, 200}};
  }
  c.variant.name = broken.name;  // kernels are remembered
  c.variant.text.insert(0, std::string("struct ") + broken.name);
  Problem of_pages(c);
  std::optional<Listed> listed;
  if (lists) listed.emplace(c, 1);
  Problem& problem = lists ? listed->problem : of_pages;
  AttentionSpec spec = lists ? listed->spec : problem.spec();
  if (lists || broken.brings == Brings::boxes) spec.loader = Loader::tma;
  testing::expect_to_be_found(problem, broken.what, broken.says, [&] {
    const AttentionKernel kernel = build_on(host_machine(), spec);
    run_on(host_machine(), kernel, kernel.plan(lists ? listed->input : problem.input(1)), problem.tensors());
  });
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenProducers, ::testing::Range(std::begin(kBrokenKernels), std::end(kBrokenKernels)),
                         [](const auto& broken) { return std::string(broken.param->name); });

}  // namespace
}  // namespace weft
