// Attention of the fused step in the host machine: heads, items, states and their merge, against fp64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "decode/fused/cuda/attention_tables.h"
#include "tests/decode/fused/attention_kernel.h"
#include "tests/decode/fused/attention_reference.h"
#include "tests/decode/fused/some_step.h"
#include "tests/simt/machine/machine.h"
#include "weft/error.h"

#define WEFT_DECLARE(symbol, ...) extern "C" void symbol(weft::decode::fused::AttentionKernelArgs args);
WEFT_ATTENTIONS(WEFT_DECLARE)

namespace weft::decode::fused {
namespace {

using testing::AttentionData;
using testing::AttentionShape;
using testing::Half;
using testing::Near;

using Kernel = void (*)(AttentionKernelArgs args);
Kernel kernel_of(const AttentionShape& shape) {
  static const std::map<std::string, Kernel> kernels = {
#define WEFT_KERNEL_OF(symbol, ...) {#symbol, &symbol},
      WEFT_ATTENTIONS(WEFT_KERNEL_OF)};
  return kernels.at(fmt::format("weft_attention_{}_{}", shape.type == Half::bf16 ? "bf16" : "fp16", shape.head_dim));
}
int chunk_of(const AttentionShape& shape) { return shape.head_dim > 128 || shape.head_dim < 64 ? 32 : 64; }

// Items of one KV head, of chunks that begin at multiples from the request's start, dealt to workers in any order.
AttentionItems items_of(const AttentionShape& shape, int workers) {
  AttentionItems items;
  const int chunk = chunk_of(shape), rows_of_item = kItemRows / shape.group();
  int first_row = 0;
  for (const auto& [rows, tokens] : shape.requests) {
    const int request = static_cast<int>(items.requests.size());
    items.requests.push_back({first_row, rows, tokens});
    for (int row = 0; row < rows; row += rows_of_item)
      for (int head = 0; head < shape.num_kv_heads; ++head)
        for (int begin = 0; begin < tokens; begin += chunk) {
          const int row_end = std::min(rows, row + rows_of_item), position = tokens - rows + row;
          if (begin > tokens - rows + row_end - 1) continue;
          if (shape.window > 0 && begin + chunk <= position - shape.window + 1) continue;
          items.items.push_back({.request = request,
                                 .row_begin = first_row + row,
                                 .row_end = first_row + row_end,
                                 .kv_head = head,
                                 .kv_begin = begin,
                                 .kv_end = std::min(tokens, begin + chunk)});
        }
    first_row += rows;
  }
  std::shuffle(items.items.begin(), items.items.end(), std::mt19937(7));
  for (AttentionItem& item : items.items) {
    item.first_state = items.num_states;
    items.num_states += (item.row_end - item.row_begin) * shape.group();
  }
  for (int w = 0; w <= workers; ++w)
    items.worker_indptr.push_back(static_cast<int32_t>(items.items.size()) * w / workers);
  return items;
}

TEST(AttentionTables, ListWhatARowSeesInTheOrderOfKeys) {
  const AttentionShape shape{
      .head_dim = 64, .num_qo_heads = 8, .num_kv_heads = 2, .requests = {{1, 3}, {2, 131}}, .window = 67};
  AttentionItems items;
  items.requests = {{0, 1, 3}, {1, 2, 131}};
  const auto add = [&](int request, int row_begin, int row_end, int head, int kv_begin, int kv_end) {
    items.items.push_back({request, row_begin, row_end, head, kv_begin, kv_end, items.num_states});
    items.num_states += (row_end - row_begin) * shape.group();
  };
  add(1, 1, 3, 0, 128, 131);
  add(1, 1, 3, 0, 0, 64);  // of which its second row sees nothing
  add(1, 1, 3, 1, 64, 128);
  add(0, 0, 1, 0, 0, 3);
  add(1, 1, 3, 0, 64, 128);
  items.worker_indptr = {0, 2, 5};
  const AttentionTables tables = attention_tables(items, testing::SomeStep(shape.requests).step,
                                                  {shape.num_kv_heads, shape.group(), shape.window});
  EXPECT_EQ(tables.worker_indptr, items.worker_indptr);
  EXPECT_EQ(tables.state_indptr, (std::vector<int32_t>{0, 1, 1, 4, 5, 7, 8}));
  EXPECT_EQ(tables.states, (std::vector<int32_t>{24, 8, 28, 0, 16, 32, 4, 20}));
  EXPECT_EQ(tables.pages.size(), 1u + 9u);
  const CardItem &last = tables.items[0], &first = tables.items[1], &short_one = tables.items[3];
  EXPECT_EQ(last.own_begin(), 129);
  EXPECT_EQ(last.copy_begin(), 128);
  EXPECT_EQ(last.copy_end(), 129);
  EXPECT_EQ(last.kv_end, 131);
  EXPECT_EQ(last.first_page, 1);
  EXPECT_EQ(first.copy_begin(), 63);
  EXPECT_EQ(item_copy_bytes(first, 64), 1u * 256u);
  EXPECT_EQ(short_one.own_begin(), 2);
  EXPECT_EQ(item_copy_bytes(short_one, 64), 2u * 256u);
}

// Neighbours of a worker that have the same rows and KV head have their queries once; keys and values of the step come
// behind the queries of whoever has their tokens, and go to the cache once.
TEST(AttentionTables, DealHeadsToRounds) {
  const testing::SomeStep step({{1, 3}, {2, 131}});
  AttentionItems items;
  items.requests = {{0, 1, 3}, {1, 2, 131}};
  const auto add = [&](int request, int row_begin, int row_end, int head, int kv_begin, int kv_end) {
    items.items.push_back({request, row_begin, row_end, head, kv_begin, kv_end, 0});
  };
  add(1, 1, 3, 0, 64, 128);
  add(1, 1, 3, 0, 128, 131);
  add(1, 2, 3, 1, 128, 131);  // whose first own token is a row's that it does not have
  add(0, 0, 1, 0, 0, 3);
  add(1, 1, 3, 0, 0, 64);
  items.worker_indptr = {0, 2, 2, 5};
  const auto begins = [](const AttentionTables& tables) {
    std::vector<std::pair<int, int>> all;
    for (const CardRound& round : tables.rounds) all.emplace_back(round.item, round.head);
    return all;
  };
  using Begins = std::vector<std::pair<int, int>>;
  const AttentionTables tables = attention_tables(items, step.step, {2, 4, 0});
  EXPECT_EQ(tables.round_indptr, (std::vector<int32_t>{0, 1, 1, 2}));
  EXPECT_EQ(begins(tables), (Begins{{0, 0}, {2, 12}, {5, 34}}));
  EXPECT_EQ(tables.items[0].first_query, 0);
  EXPECT_EQ(tables.items[1].first_query, 0);
  EXPECT_EQ(tables.items[1].first_own, 8);
  EXPECT_EQ(tables.items[2].first_own, 4);
  EXPECT_EQ(tables.items[3].first_query, 8);
  EXPECT_EQ(tables.items[4].first_query, 14);
  const auto expect_head = [&](size_t i, int row, int head, int page, int slot) {
    const CardHead& own = tables.heads[i];
    EXPECT_EQ(std::tuple(own.row, own.head, own.page, own.slot), std::tuple(row, head, page, slot)) << i;
  };
  const int page = tables.pages.back(), slot = 129 % tables.page_size;
  expect_head(0, 1, 0, -1, 0);
  expect_head(7, 2, 3, -1, 0);
  expect_head(8, 1, 8, page, slot);
  expect_head(9, 1, 10, page, slot);
  expect_head(11, 2, 10, page, slot + 1);
  expect_head(12, 2, 4, -1, 0);
  expect_head(16, 1, 9, -1, slot);
  expect_head(18, 2, 9, page, slot + 1);

  const AttentionTables few = attention_tables(items, step.step, {2, 4, 0, 16});
  EXPECT_EQ(few.round_indptr, (std::vector<int32_t>{0, 1, 1, 3}));
  EXPECT_EQ(begins(few), (Begins{{0, 0}, {2, 12}, {4, 26}, {5, 34}}));
  EXPECT_EQ(few.items[4].first_query, 0);
  EXPECT_THROW(attention_tables(items, step.step, {2, 4, 0, 8}), InternalError);
}

TEST(AttentionTables, TakeItemsThatAWarpCanRunAlone) {
  const testing::SomeStep step({{3, 9}});
  AttentionItems items;
  items.requests = {{0, 3, 9}};
  items.items = {{.row_end = 3, .kv_end = 9}};
  EXPECT_NO_THROW(attention_tables(items, step.step, {2, 4, 0}));
  EXPECT_THROW(attention_tables(items, step.step, {1, 6, 0}), InternalError);
}

// Those of a plan, as a step has them.
AttentionItems planned_items(const AttentionShape& shape, const Step& step, int workers) {
  Partition partition;
  partition.machine = {.workers = workers, .kv_chunk = chunk_of(shape)};
  partition.program.num_qo_heads = shape.num_qo_heads;
  partition.program.num_kv_heads = shape.num_kv_heads;
  partition.program.head_dim = shape.head_dim;
  return attention_items(partition, step, shape.window);
}

// A step in the machine's memory: pages anywhere in a pool, of which all that no row sees is NaN, and cells that hold
// an older phase.
class OnCard {
 public:
  explicit OnCard(const AttentionData& data, bool heads_first = false, bool is_planned = false)
      : data_(data), shape_(data.shape) {
    testing::SomeStep step(shape_.requests);
    const AttentionItems items = is_planned ? planned_items(shape_, step.step, kWorkers) : items_of(shape_, kWorkers);
    tables_ = attention_tables(items, step.step, {shape_.num_kv_heads, shape_.group(), shape_.window});
    place_pages();
    const int64_t dim = shape_.head_dim, slots = kPool * page_size_;
    for (ops::CardCache* side : {&args_.attend.k, &args_.attend.v}) {
      const std::span<uint16_t> pool =
          memory_.make<uint16_t>("pool", static_cast<size_t>(slots * shape_.num_kv_heads * dim));
      *side = {.data = pool.data(),
               .page_stride = page_size_ * shape_.num_kv_heads * dim,
               .slot_stride = heads_first ? dim : shape_.num_kv_heads * dim,
               .head_stride = heads_first ? page_size_ * dim : dim};
    }
    fill_cache();
    set_heads();
    set_rest();
  }

  void run(bool in_all_orders = false) {
    const simt::Launch launch{.ctas = kWorkers + 1 - absent,
                              .threads = 64,
                              .shared_bytes = static_cast<size_t>(args_.entry_bytes + args_.round_bytes + 16)};
    const auto call = [&] { kernel_of(shape_)(args_); };
    if (in_all_orders)
      simt::run_in_all_orders(memory_, launch, call);
    else
      simt::run(memory_, launch, call);
  }
  int absent = 0;  // CTAs, the last ones
  void share_states(int warps) { args_.shares = warps; }
  void limit(uint64_t ns) { args_.limit_ns = ns; }
  std::span<const unsigned> gave_up() const { return gave_up_; }

  // [rows, query heads, dim]
  std::vector<float> attended() const {
    std::vector<float> all;
    const int dim = shape_.head_dim;
    for (int row = 0; row < shape_.num_rows(); ++row)
      for (int column = 0; column < shape_.num_qo_heads * dim; ++column) {
        const uint64_t cell = args_.attended[(column / 16 * shape_.cell_rows + row) * 16 + column % 16];
        EXPECT_EQ(cell >> 32, kPhase + 2) << row << ", " << column;
        all.push_back(std::bit_cast<float>(static_cast<uint32_t>(cell)));
      }
    return all;
  }
  // Of the cache: a token's key or value, its first element.
  uint16_t* cached(bool is_key, size_t request, int token, int head) const {
    const ops::CardCache& side = is_key ? args_.attend.k : args_.attend.v;
    const int page = tables_.pages[static_cast<size_t>(first_page_[request] + token / page_size_)];
    return static_cast<uint16_t*>(side.data) + page * side.page_stride + token % page_size_ * side.slot_stride +
           head * side.head_stride;
  }
  std::vector<uint16_t> pool(bool is_key) const {
    const auto* data = static_cast<const uint16_t*>((is_key ? args_.attend.k : args_.attend.v).data);
    return {data, data + kPool * args_.attend.k.page_stride};
  }

  static constexpr int kWorkers = 3, kPool = 97;
  static constexpr uint32_t kPhase = 41;

 private:
  void place_pages() {
    page_size_ = tables_.page_size;
    std::vector<int32_t> anywhere(kPool);
    std::iota(anywhere.begin(), anywhere.end(), 0);
    std::shuffle(anywhere.begin(), anywhere.end(), std::mt19937(5));
    for (int32_t& page : tables_.pages) page = anywhere.at(static_cast<size_t>(page));
    for (CardHead& head : tables_.heads)
      if (head.page >= 0) head.page = anywhere.at(static_cast<size_t>(head.page));
    int first = 0;
    for (const auto& [rows, tokens] : shape_.requests) {
      first_page_.push_back(first);
      first += (tokens + page_size_ - 1) / page_size_;
    }
  }
  void fill_cache() {
    for (size_t r = 0; r < shape_.requests.size(); ++r) {
      const auto [rows, tokens] = shape_.requests[r];
      const int first_seen = shape_.window > 0 ? std::max(0, tokens - rows - shape_.window + 1) : 0;
      for (int token = first_seen; token < tokens - rows; ++token)
        for (int head = 0; head < shape_.num_kv_heads; ++head)
          for (const bool is_key : {true, false})
            std::copy_n((is_key ? data_.keys : data_.values)[r].begin() +
                            (token * shape_.num_kv_heads + head) * shape_.head_dim,
                        shape_.head_dim, cached(is_key, r, token, head));
    }
  }
  void set_heads() {
    args_.attend.heads = {.first_slot = memory_.make("first_slot", data_.first_slot).data(),
                          .panels = shape_.panels,
                          .bands = shape_.columns() / 16,
                          .rows = shape_.cell_rows,
                          .num_qo_heads = shape_.num_qo_heads,
                          .num_kv_heads = shape_.num_kv_heads,
                          .bias = shape_.bias ? memory_.make("bias", data_.bias).data() : nullptr,
                          .q_norm = shape_.q_norm ? memory_.make("q_norm", data_.q_norm).data() : nullptr,
                          .k_norm = shape_.k_norm ? memory_.make("k_norm", data_.k_norm).data() : nullptr,
                          .eps = data_.eps,
                          .cos = memory_.make("cos", data_.cos).data(),
                          .sin = memory_.make("sin", data_.sin).data(),
                          .pairs = shape_.pairs,
                          .halves = shape_.halves};
  }
  void set_rest() {
    args_.attend.pages = memory_.make("pages", tables_.pages).data();
    args_.attend.page_size = page_size_;
    args_.attend.scale = data_.scale;
    args_.attend.soft_cap = shape_.soft_cap;
    args_.attend.window = shape_.window;
    args_.merge = {.state_indptr = memory_.make("state_indptr", tables_.state_indptr).data(),
                   .states = memory_.make("states", tables_.states).data(),
                   .rows = shape_.cell_rows,
                   .num_qo_heads = shape_.num_qo_heads,
                   .num_kv_heads = shape_.num_kv_heads,
                   .head_dim = shape_.head_dim,
                   .scale = data_.scale,
                   .soft_cap = shape_.soft_cap};
    args_.items = memory_.make("items", tables_.items).data();
    args_.worker_indptr = memory_.make("worker_indptr", tables_.worker_indptr).data();
    args_.heads = memory_.make("heads", tables_.heads).data();
    args_.rounds = memory_.make("rounds", tables_.rounds).data();
    args_.round_indptr = memory_.make("round_indptr", tables_.round_indptr).data();
    args_.plain_sums = memory_.make("plain sums", data_.sums).data();
    args_.num_sums = static_cast<int>(data_.sums.size());
    args_.sums = older("sums", data_.sums.size(), kPhase);
    args_.states = older("states", static_cast<size_t>(tables_.num_states * (shape_.head_dim + 2)), kPhase + 1);
    args_.attended =
        older("attended", static_cast<size_t>(shape_.num_qo_heads * shape_.head_dim * shape_.cell_rows), kPhase + 2);
    args_.rows = shape_.num_rows();
    args_.workers = kWorkers;
    args_.entry_bytes = item_entry_bytes(chunk_of(shape_), shape_.head_dim);
    args_.round_bytes = AttentionForm{}.most_heads * entry_row_bytes(shape_.head_dim);
    args_.phase = kPhase;
    gave_up_ = memory_.make("gave_up", std::vector<unsigned>(kWorkers));
    args_.gave_up = gave_up_.data();
  }
  // Cells of some phases before, with numbers that would show.
  unsigned long long* older(const char* name, size_t cells, uint32_t phase) {
    std::vector<unsigned long long> values(cells);
    for (size_t i = 0; i < cells; ++i)
      values[i] = static_cast<uint64_t>(phase - 2 * (1 + i % 3)) << 32 | std::bit_cast<uint32_t>(1e30f);
    return memory_.make(name, values).data();
  }

  const AttentionData& data_;
  const AttentionShape shape_;
  simt::Memory memory_;
  AttentionTables tables_;
  int page_size_ = 0;
  std::vector<int> first_page_;
  AttentionKernelArgs args_;
  std::span<unsigned> gave_up_;
};

struct How {
  bool heads_first = false, in_all_orders = false, is_planned = false;
  int shares = 1;
};
void expect_attention(const AttentionShape& shape, const How& how = {}) {
  const AttentionData data(shape);
  OnCard card(data, how.heads_first, how.is_planned);
  card.share_states(how.shares);
  const std::vector<uint16_t> before[2] = {card.pool(false), card.pool(true)};
  card.run(how.in_all_orders);
  const std::vector<Near> expected = attended_by(data);
  const std::vector<float> attended = card.attended();
  ASSERT_EQ(attended.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(double{attended[i]}, expected[i].x, expected[i].error)
        << "row " << i / static_cast<size_t>(shape.num_qo_heads * shape.head_dim) << ", column "
        << i % static_cast<size_t>(shape.num_qo_heads * shape.head_dim);
  // The step's own keys and values lie in the cache, and it is as it was everywhere else.
  for (const bool is_key : {false, true}) {
    int row = 0;
    for (size_t r = 0; r < shape.requests.size(); ++r)
      for (int token = shape.requests[r].second - shape.requests[r].first; token < shape.requests[r].second;
           ++token, ++row)
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          const std::vector<Near> own =
              head_of(data, row, shape.num_qo_heads + (is_key ? 0 : shape.num_kv_heads) + head);
          uint16_t* const at = card.cached(is_key, r, token, head);
          for (size_t i = 0; i < own.size(); ++i) {
            const double x = testing::widened(shape.type, at[i]);
            const auto bound = [&](double by) {
              return testing::widened(shape.type, testing::narrowed(shape.type, own[i].x + by));
            };
            ASSERT_TRUE(x >= bound(-own[i].error) && x <= bound(own[i].error))
                << (is_key ? "key" : "value") << " of token " << token << ", element " << i << ": " << x << " for "
                << own[i].x;
            at[i] = 0xffff;
          }
        }
    EXPECT_EQ(card.pool(is_key), before[is_key ? 1 : 0]) << "written where no token of the step lies";
  }
}

struct Case {
  const char* name;
  AttentionShape shape;
};
class FusedAttentionOf : public ::testing::TestWithParam<Case> {};

TEST_P(FusedAttentionOf, IsThatOfTheReference) { expect_attention(GetParam().shape); }
TEST_P(FusedAttentionOf, IsThatOfTheReferenceWithItemsOfAPlan) {
  expect_attention(GetParam().shape, {.is_planned = true});
}

std::vector<Case> cases() {
  return {
      {"ownTokenAlone", {.head_dim = 64, .num_qo_heads = 1, .num_kv_heads = 1, .pairs = 32}},
      {"twoTokens", {.head_dim = 128, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 2}}, .pairs = 64}},
      {"wholeChunk", {.head_dim = 64, .num_qo_heads = 6, .num_kv_heads = 2, .requests = {{1, 64}}, .pairs = 32}},
      {"firstOfAChunk", {.head_dim = 64, .num_qo_heads = 6, .num_kv_heads = 2, .requests = {{1, 65}}, .pairs = 32}},
      {"hundreds",
       {.head_dim = 128, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 700}}, .pairs = 64, .most_pieces = 3}},
      {"group1", {.head_dim = 64, .num_qo_heads = 3, .num_kv_heads = 3, .requests = {{8, 100}}, .pairs = 32}},
      {"group3", {.head_dim = 64, .num_qo_heads = 9, .num_kv_heads = 3, .requests = {{6, 70}}, .pairs = 16}},
      {"group5", {.head_dim = 80, .num_qo_heads = 5, .num_kv_heads = 1, .requests = {{4, 130}}, .pairs = 40}},
      {"group7",
       {.head_dim = 128, .num_qo_heads = 14, .num_kv_heads = 2, .requests = {{3, 90}}, .pairs = 64, .bias = true}},
      {"group8", {.head_dim = 64, .num_qo_heads = 8, .num_kv_heads = 1, .requests = {{8, 75}}, .pairs = 32}},
      {"group16", {.head_dim = 64, .num_qo_heads = 16, .num_kv_heads = 1, .requests = {{2, 66}}, .pairs = 32}},
      {"neighbours",
       {.head_dim = 128, .num_qo_heads = 2, .num_kv_heads = 1, .requests = {{2, 20}}, .pairs = 64, .halves = false}},
      {"neighboursOfSome",
       {.head_dim = 80, .num_qo_heads = 2, .num_kv_heads = 1, .requests = {{2, 20}}, .pairs = 16, .halves = false}},
      {"halvesOfSome",
       {.head_dim = 96, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{2, 20}}, .pairs = 10, .panels = 2}},
      {"noRotation", {.head_dim = 96, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 97}}}},
      {"norms",
       {.head_dim = 128,
        .num_qo_heads = 4,
        .num_kv_heads = 1,
        .requests = {{2, 40}},
        .pairs = 64,
        .q_norm = true,
        .k_norm = true,
        .panels = 3}},
      {"normOfQueries",
       {.head_dim = 80, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 40}}, .pairs = 40, .q_norm = true}},
      {"normsAndBias",
       {.head_dim = 64,
        .num_qo_heads = 4,
        .num_kv_heads = 2,
        .requests = {{1, 9}, {2, 33}},
        .pairs = 32,
        .q_norm = true,
        .k_norm = true,
        .bias = true}},
      {"normOfHugeSums",
       {.head_dim = 64,
        .num_qo_heads = 4,
        .num_kv_heads = 1,
        .requests = {{2, 40}},
        .pairs = 32,
        .q_norm = true,
        .query_size = 1e25f}},
      {"large",
       {.head_dim = 256,
        .num_qo_heads = 4,
        .num_kv_heads = 1,
        .requests = {{3, 70}},
        .pairs = 128,
        .q_norm = true,
        .k_norm = true,
        .soft_cap = 20}},
      {"largeNeighbours",
       {.head_dim = 256,
        .num_qo_heads = 2,
        .num_kv_heads = 1,
        .requests = {{1, 33}},
        .pairs = 64,
        .halves = false,
        .bias = true}},
      {"small", {.head_dim = 32, .num_qo_heads = 4, .num_kv_heads = 2, .requests = {{3, 70}}, .pairs = 16}},
      {"smallest",
       {.head_dim = 16, .num_qo_heads = 6, .num_kv_heads = 2, .requests = {{3, 40}}, .pairs = 8, .q_norm = true}},
      {"window",
       {.head_dim = 64,
        .num_qo_heads = 4,
        .num_kv_heads = 1,
        .requests = {{1, 200}, {7, 150}},
        .pairs = 32,
        .window = 70,
        .cell_rows = 8}},
      {"windowOfOne",
       {.head_dim = 64, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{4, 130}}, .pairs = 32, .window = 1}},
      {"windowThatEndsInAChunk",
       {.head_dim = 64, .num_qo_heads = 2, .num_kv_heads = 1, .requests = {{8, 68}}, .pairs = 32, .window = 3}},
      {"softCap",
       {.head_dim = 64,
        .num_qo_heads = 4,
        .num_kv_heads = 2,
        .requests = {{2, 100}},
        .pairs = 32,
        .soft_cap = 3,
        .query_size = 4}},
      {"manyRequests",
       {.head_dim = 64,
        .num_qo_heads = 8,
        .num_kv_heads = 2,
        .requests = {{1, 1}, {2, 2}, {1, 64}, {1, 65}, {2, 129}, {1, 17}},
        .pairs = 32,
        .panels = 2}},
      {"fp16",
       {.head_dim = 128,
        .num_qo_heads = 4,
        .num_kv_heads = 1,
        .requests = {{2, 150}},
        .type = Half::fp16,
        .pairs = 64}},
  };
}
INSTANTIATE_TEST_SUITE_P(Shapes, FusedAttentionOf, ::testing::ValuesIn(cases()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(FusedAttention, IsTheSameInAllOrdersAndWithHeadsFirst) {
  expect_attention({.head_dim = 64, .num_qo_heads = 4, .num_kv_heads = 2, .requests = {{2, 70}, {1, 5}}, .pairs = 32},
                   {.heads_first = true, .in_all_orders = true});
}

TEST(FusedAttention, MergesInSharesOfSeveralWarps) {
  for (const int shares : {2, 3, 8})
    expect_attention(
        {.head_dim = 64, .num_qo_heads = 4, .num_kv_heads = 2, .requests = {{1, 900}, {1, 5}}, .pairs = 32},
        {.shares = shares});
}

// One key takes all where logits are this large: rows of states that are further apart than floats are.
TEST(FusedAttention, TakesEveryFiniteLogit) {
  for (const float size : {1e4f, 1e12f, 1e30f})
    expect_attention({.head_dim = 64,
                      .num_qo_heads = 4,
                      .num_kv_heads = 1,
                      .requests = {{2, 150}},
                      .pairs = 32,
                      .query_size = size});
}

// A row of which nothing else is known than its own keys and sums, alone in a step.
AttentionData alone(const AttentionData& of, const OnCard& ran, size_t request, int row, int row_of_step) {
  AttentionShape shape = of.shape;
  const auto [rows, tokens] = shape.requests[request];
  shape.requests = {{1, tokens - rows + row + 1}};
  shape.cell_rows = 1;
  AttentionData data(shape);
  data.first_slot = of.first_slot;
  data.sums.clear();
  for (int slot = 0; slot < of.first_slot.back(); ++slot)
    for (int i = 0; i < 16; ++i)
      data.sums.push_back(of.sums[static_cast<size_t>((slot * of.shape.cell_rows + row_of_step) * 16 + i)]);
  for (const auto& [from, to] : {std::pair(&of.cos, &data.cos), std::pair(&of.sin, &data.sin)})
    std::copy_n(from->begin() + row_of_step * shape.pairs, shape.pairs, to->begin());
  data.bias = of.bias, data.q_norm = of.q_norm, data.k_norm = of.k_norm;
  for (const bool is_key : {true, false}) {
    std::vector<uint16_t>& to = (is_key ? data.keys : data.values)[0];
    to.clear();
    for (int token = 0; token < tokens - rows + row; ++token)
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const uint16_t* const from = ran.cached(is_key, request, token, head);
        to.insert(to.end(), from, from + shape.head_dim);
      }
  }
  return data;
}

TEST(FusedAttention, GivesARowTheSameBitsAloneAndBesideOthers) {
  for (const int window : {0, 50}) {
    const AttentionData data({.head_dim = 64,
                              .num_qo_heads = 6,
                              .num_kv_heads = 2,
                              .requests = {{4, 131}, {1, 70}, {3, 66}},
                              .pairs = 32,
                              .k_norm = true,
                              .window = window});
    OnCard card(data);
    card.run();
    const std::vector<float> all = card.attended();
    int row_of_step = 0;
    for (size_t r = 0; r < data.shape.requests.size(); ++r)
      for (int row = 0; row < data.shape.requests[r].first; ++row, ++row_of_step) {
        const AttentionData one = alone(data, card, r, row, row_of_step);
        OnCard other(one);
        other.run();
        const std::vector<float> own = other.attended();
        EXPECT_TRUE(
            std::ranges::equal(own, std::span(all).subspan(static_cast<size_t>(row_of_step) * own.size(), own.size())))
            << "request " << r << ", row " << row << ", window " << window;
      }
  }
}

TEST(FusedAttention, GivesUpWhereSumsNeverCome) {
  const AttentionData data({.head_dim = 64, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 9}}, .pairs = 32});
  OnCard card(data);
  card.absent = 1;
  card.limit(500'000);
  card.run();
  for (const unsigned gave_up : card.gave_up()) EXPECT_EQ(gave_up, 1u);
}

// Values that are not finite reach the rows that see them; others of the same item keep every bit.
TEST(FusedAttention, KeepsWhatIsNotFiniteFromRowsThatDoNotSeeIt) {
  const AttentionShape shape{.head_dim = 64,
                             .num_qo_heads = 4,
                             .num_kv_heads = 1,
                             .requests = {{4, 60}},
                             .pairs = 32,
                             .window = 20,
                             .most_pieces = 1};
  AttentionData data(shape);
  OnCard card(data);
  card.run();
  const std::vector<float> good = card.attended();
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    AttentionData of = data;
    // The value of the last row, whose first column is that of the whole head; row 0 alone sees token 37.
    const int slot = of.first_slot[static_cast<size_t>((shape.num_qo_heads + 1) * shape.head_dim / 16)];
    of.sums[static_cast<size_t>((slot * shape.cell_rows + 3) * 16)] = static_cast<float>(value);
    of.values[0][37 * 64 + 5] = std::isnan(value) ? 0x7fc0 : 0x7f80;
    OnCard other(of);
    other.run();
    const std::vector<float> some = other.attended();
    for (int row = 0; row < 4; ++row)
      for (int head = 0; head < 4; ++head)
        for (int column = 0; column < 64; ++column) {
          const auto at = static_cast<size_t>((row * 4 + head) * 64 + column);
          if ((row == 3 && column == 0) || (row == 0 && column == 5))
            EXPECT_FALSE(std::isfinite(some[at])) << row << ", " << column;
          else
            EXPECT_EQ(some[at], good[at]) << row << ", " << head << ", " << column;
        }
  }
}

// NaN is a row's own matter: those of other requests keep every number.
TEST(FusedAttention, KeepsNaNInItsRequest) {
  const AttentionShape shape{
      .head_dim = 64, .num_qo_heads = 4, .num_kv_heads = 1, .requests = {{1, 70}, {1, 70}}, .pairs = 32};
  const AttentionData data(shape);
  OnCard card(data);
  card.run();
  const std::vector<float> good = card.attended();
  OnCard broken(data);
  for (int token = 0; token < 64; ++token)  // of the first item: all that it sees
    broken.cached(true, 0, token, 0)[3] = 0x7fc0;
  broken.run();
  const std::vector<float> bad = broken.attended();
  const size_t half = good.size() / 2;
  for (size_t i = 0; i < half; ++i) EXPECT_TRUE(std::isnan(bad[i])) << i;
  EXPECT_TRUE(std::equal(good.begin() + static_cast<std::ptrdiff_t>(half), good.end(),
                         bad.begin() + static_cast<std::ptrdiff_t>(half)));
}

}  // namespace
}  // namespace weft::decode::fused
