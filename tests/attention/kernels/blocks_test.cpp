// The block-sparse form against the fp64 reference: lists a KV head, positions in any order, bits a block; and what its
// constructors make against the paged form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "attention/cpu/leaf.h"
#include "attention/plan/planner.h"
#include "device/cpu/cpuid.h"
#include "problem.h"
#include "weft/block_sparse.h"

namespace weft {
namespace {

using testing::Target;

using testing::put;

struct Setting {
  DType dtype = DType::bf16;
  Layout layout = Layout::nhd;
  int group = 2, kv_heads = 2, head_dim = 64;
  Mask mask = Mask::none;
  int window = -2;
  Variant variant = {};
};

// Tensors over a pool, and what runs and the reference make of them.
class Pool {
 public:
  Pool(const Setting& setting, int64_t rows, int num_pages, int page_size, unsigned seed)
      : setting_(setting), random_(seed), num_pages_(num_pages), page_size_(page_size) {
    const int64_t heads = setting.group * setting.kv_heads, dim = setting.head_dim;
    const std::vector<int64_t> pool = setting.layout == Layout::nhd
                                          ? std::vector<int64_t>{num_pages, page_size, setting.kv_heads, dim}
                                          : std::vector<int64_t>{num_pages, setting.kv_heads, page_size, dim};
    q_ = make({rows, heads, dim}, q_bytes_, setting.dtype);
    cache_ = KvCache(make(pool, k_bytes_, setting.dtype), make(pool, v_bytes_, setting.dtype));
    o_ = make({rows, heads, dim}, o_bytes_, DType::fp32);
    lse_ = make({rows, heads}, lse_bytes_, DType::fp32);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < q_.size(); ++i) put(q_.data(), setting.dtype, i, normal(random_));
    slopes_.assign(static_cast<size_t>(heads), 0.125f);
  }

  void fill(int page, int slots) {
    std::normal_distribution<double> normal;
    const bool nhd = setting_.layout == Layout::nhd;
    for (const TensorView& side : {cache_.k, cache_.v})
      for (int slot = 0; slot < slots; ++slot)
        for (int head = 0; head < setting_.kv_heads; ++head)
          for (int d = 0; d < setting_.head_dim; ++d)
            put(side.data(), setting_.dtype,
                page * side.stride(0) + slot * side.stride(nhd ? 1 : 2) + head * side.stride(nhd ? 2 : 1) + d,
                normal(random_));
  }

  AttentionSpec spec(KvForm form) const {
    return {.q_dtype = setting_.dtype,
            .kv_dtype = setting_.dtype,
            .o_dtype = DType::fp32,
            .head_dim_qk = setting_.head_dim,
            .head_dim_vo = setting_.head_dim,
            .kv_form = form,
            .layout = setting_.layout,
            .mask = setting_.mask,
            .sliding_window = setting_.window > -2,
            .variant = setting_.variant};
  }
  PlanInput input(std::span<const int32_t> qo_indptr, int workers, PlanMode mode = PlanMode::balanced) const {
    PlanInput in{.num_qo_heads = setting_.group * setting_.kv_heads,
                 .num_kv_heads = setting_.kv_heads,
                 .qo_indptr = qo_indptr,
                 .num_workers = workers,
                 .mode = mode,
                 .fixed_split_size = mode == PlanMode::fixed_split ? 64 : 0};
    if (setting_.window > -2) in.scalars = {{"window_left", static_cast<double>(setting_.window)}};
    return in;
  }
  AttentionTensors tensors() {
    AttentionTensors t{.q = q_, .kv = cache_, .o = o_};
    if (setting_.variant.use_softmax) t.lse = lse_;
    if (setting_.variant == variants::alibi())
      t.tensors = {{"slopes", TensorView(slopes_.data(), DType::fp32, {static_cast<int64_t>(slopes_.size())})}};
    return t;
  }

  std::vector<float> run(KvForm form, const PlanInput& in, const Target& target) {
    const AttentionKernel kernel = build_on(target, spec(form));
    const Plan plan = kernel.plan(in);
    verify(plan);
    for (std::vector<char>* out : {&o_bytes_, &lse_bytes_}) std::fill(out->begin(), out->end(), '\xff');
    run_on(target, kernel, plan, tensors());
    return {o_.as<float>(), o_.as<float>() + o_.size()};
  }
  MeasuredReference reference(KvForm form, const PlanInput& in) {
    return testing::measured_reference(spec(form), in, tensors());
  }

  // The first thing that is wrong of what ran last.
  std::string compare(const MeasuredReference& reference, int64_t kv_len, const Target& target) {
    const AttentionSpec s = spec(KvForm::block_sparse);
    const ErrorBound error_bound(s, testing::rounding(s, target.compute_types(s).back(), target));
    for (size_t i = 0; i < reference.o.size(); ++i) {
      const double o = o_.as<float>()[i];
      if (!(std::abs(o - reference.o[i]) <= error_bound(kv_len, reference, i)))
        return "o[" + std::to_string(i) + "] = " + std::to_string(o) + ", reference " + std::to_string(reference.o[i]);
    }
    for (size_t i = 0; i < reference.lse.size(); ++i) {
      const double lse = lse_.as<float>()[i], expected = reference.lse[i];
      if (!(lse == expected || std::abs(lse - expected) <= error_bound.of_lse(reference, i)))
        return "lse[" + std::to_string(i) + "] = " + std::to_string(lse) + ", reference " + std::to_string(expected);
    }
    return "";
  }

  std::mt19937& random() { return random_; }
  int num_pages() const { return num_pages_; }
  int page_size() const { return page_size_; }

 private:
  static TensorView make(const std::vector<int64_t>& shape, std::vector<char>& bytes, DType dtype) {
    int64_t size = bits_of(dtype) / 8;
    for (const int64_t extent : shape) size *= extent;
    bytes.assign(static_cast<size_t>(std::max<int64_t>(size, 64)), '\xff');
    return {bytes.data(), dtype, shape};
  }

  Setting setting_;
  std::mt19937 random_;
  int num_pages_, page_size_;
  std::vector<char> q_bytes_, k_bytes_, v_bytes_, o_bytes_, lse_bytes_;
  std::vector<float> slopes_;
  TensorView q_, o_, lse_;
  KvCache cache_;
};

enum class Positions { none, blocks, keys };

// Random lists; pages that no list names, and slots behind a list's end, stay NaN.
BlockLists random_lists(Pool& pool, std::span<const int32_t> qo_indptr, int block_rows, int lists_a_row, bool bits,
                        Positions positions) {
  std::mt19937& random = pool.random();
  BlockLists lists;
  lists.block_rows = block_rows;
  lists.block_cols = pool.page_size();
  lists.num_blocks = pool.num_pages();
  int row_blocks = 0;
  for (size_t r = 0; r + 1 < qo_indptr.size(); ++r)
    row_blocks += (qo_indptr[r + 1] - qo_indptr[r] + block_rows - 1) / block_rows;
  std::vector<int> filled(static_cast<size_t>(pool.num_pages()), 0);
  const size_t bytes = (static_cast<size_t>(block_rows) * static_cast<size_t>(lists.block_cols) + 7) / 8;
  for (int list = 0; list < row_blocks * lists_a_row; ++list) {
    const int n = static_cast<int>(random() % 12);
    for (int i = 0; i < n; ++i) {
      const auto page = static_cast<int32_t>(random() % static_cast<unsigned>(pool.num_pages() - 3));
      lists.block_indices.push_back(page);
      filled[static_cast<size_t>(page)] = 1;
      for (int k = 0; k < (positions == Positions::none     ? 0
                           : positions == Positions::blocks ? 1
                                                            : lists.block_cols);
           ++k)
        lists.kv_positions.push_back(static_cast<int32_t>(random() % 200));
      if (bits) {
        const bool whole = random() % 2 == 0;
        lists.bits_index.push_back(whole ? -1 : static_cast<int32_t>(lists.bits.size() / bytes));
        for (size_t b = 0; b < bytes && !whole; ++b) lists.bits.push_back(static_cast<uint8_t>(random()));
      }
    }
    lists.block_indptr.push_back(static_cast<int32_t>(lists.block_indices.size()));
    lists.last_block_len.push_back(
        n == 0 ? 0 : 1 + static_cast<int32_t>(random() % static_cast<unsigned>(lists.block_cols)));
  }
  if (positions != Positions::none)
    for (int row = 0; row < qo_indptr.back(); ++row) lists.q_positions.push_back(static_cast<int32_t>(random() % 220));
  for (size_t page = 0; page < filled.size(); ++page)
    if (filled[page] != 0) pool.fill(static_cast<int>(page), lists.block_cols);
  return lists;
}

TEST(AttentionBlocks, RandomListsAgreeWithTheReference) {
  unsigned seed = 0;
  const std::vector<int32_t> qo_indptr{0, 1, 4, 4, 45, 46};
  for (const Setting& setting :
       {Setting{},
        Setting{.dtype = DType::fp32, .layout = Layout::hnd, .group = 3, .kv_heads = 3, .mask = Mask::causal},
        Setting{.group = 4, .mask = Mask::causal, .window = 30}, Setting{.group = 1, .variant = variants::alibi()},
        Setting{.kv_heads = 4, .mask = Mask::causal, .variant = variants::sigmoid()}})
    for (const Positions positions : {Positions::none, Positions::blocks, Positions::keys})
      for (const bool bits : {false, true}) {
        ++seed;
        const int block_rows = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 1 : 5, page_size = seed % 2 == 0 ? 16 : 3;
        Pool pool(setting, qo_indptr.back(), 40, page_size, seed);
        const BlockLists lists =
            random_lists(pool, qo_indptr, block_rows, seed % 4 < 2 ? setting.kv_heads : 1, bits, positions);
        const BlockSparse blocks = lists.view();
        PlanInput in = pool.input(qo_indptr, 1);
        in.blocks = &blocks;
        const MeasuredReference reference = pool.reference(KvForm::block_sparse, in);
        for (const PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split, PlanMode::paper})
          for (const Target* target : testing::targets_of_case(seed)) {
            PlanInput planned = pool.input(qo_indptr, 1 + static_cast<int>(seed % 6), mode);
            planned.blocks = &blocks;
            pool.run(KvForm::block_sparse, planned, *target);
            ASSERT_EQ(pool.compare(reference, 250, *target), "")
                << "seed " << seed << " positions " << static_cast<int>(positions) << " bits " << bits << " "
                << to_string(mode) << " " << target->name();
          }
      }
}

// Requests of a paged cache.
struct Table {
  std::vector<int32_t> qo_indptr{0}, indptr{0}, ids, last;
  PageTableView view(const Pool& pool) const { return {pool.page_size(), pool.num_pages(), indptr, ids, last}; }
  void add(Pool& pool, int qo_len, int kv_len) {
    const int pages = (kv_len + pool.page_size() - 1) / pool.page_size();
    for (int i = 0; i < pages; ++i) {
      ids.push_back(static_cast<int32_t>((ids.size() * 7 + 3) % static_cast<size_t>(pool.num_pages())));
      pool.fill(ids.back(), i + 1 < pages ? pool.page_size() : kv_len - i * pool.page_size());
    }
    qo_indptr.push_back(qo_indptr.back() + qo_len);
    indptr.push_back(static_cast<int32_t>(ids.size()));
    last.push_back(kv_len == 0 ? 0 : (kv_len - 1) % pool.page_size() + 1);
  }
};

TEST(AttentionBlocks, EveryPageOfATableGivesTheBitsOfThePagedForm) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    Pool pool({.group = 4, .mask = mask}, 32, 199, 16, 5);
    Table table;
    for (const auto& [qo, kv] : {std::pair{1, 300}, {30, 200}, {0, 17}, {1, 0}}) table.add(pool, qo, kv);
    const BlockLists lists = blocks_from_page_table(table.view(pool), table.qo_indptr);
    const BlockSparse blocks = lists.view();
    PlanInput paged = pool.input(table.qo_indptr, 3, PlanMode::fixed_split), sparse = paged;
    paged.pages = table.view(pool);
    sparse.blocks = &blocks;
    const std::vector<float> a = pool.run(KvForm::paged, paged, *testing::targets().back()),
                             b = pool.run(KvForm::block_sparse, sparse, *testing::targets().back());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
}

// Quest: pages chosen for each KV head keep their positions; the same choice as an importance mask where heads agree.
TEST(AttentionBlocks, SelectedPagesKeepTheirPositions) {
  const int heads = 2, budget = 4;
  Pool pool({.kv_heads = heads, .mask = Mask::causal, .window = 150, .variant = variants::alibi()}, 3, 199, 16, 6);
  Table table;
  table.add(pool, 1, 300);
  table.add(pool, 2, 200);
  // [request][head][budget] places among 19 and 13 pages.
  const std::vector<int32_t> selected{0, 5, 10, 18, 2, 18, -1, -1, 1, 4, 11, 12, 0, 1, 2, 12};
  const BlockLists lists = select_pages(table.view(pool), table.qo_indptr, heads, selected, budget);
  const BlockSparse blocks = lists.view();
  PlanInput in = pool.input(table.qo_indptr, 3);
  in.blocks = &blocks;
  const MeasuredReference expected = pool.reference(KvForm::block_sparse, in);
  pool.run(KvForm::block_sparse, in, *testing::targets().back());
  EXPECT_EQ(pool.compare(expected, 300, *testing::targets().back()), "");

  // Against the paged form: hiding what was not chosen by a custom mask gives head 0 the same output.
  std::vector<uint8_t> mask;
  std::vector<int64_t> mask_indptr{0};
  for (int r = 0; r < 2; ++r) {
    const int kv_len = r == 0 ? 300 : 200;
    for (int i = 0; i < table.qo_indptr[r + 1] - table.qo_indptr[r]; ++i)
      for (int t = 0; t < kv_len; ++t) {
        const auto begin = selected.begin() + r * heads * budget;
        const int pos = kv_len - (table.qo_indptr[r + 1] - table.qo_indptr[r]) + i;
        mask.push_back(std::find(begin, begin + budget, t / 16) != begin + budget && t <= pos);
      }
    mask_indptr.push_back(static_cast<int64_t>(mask.size()));
  }
  AttentionSpec spec = pool.spec(KvForm::paged);
  spec.mask = Mask::custom;
  PlanInput paged = pool.input(table.qo_indptr, 1);
  paged.pages = table.view(pool);
  paged.mask_indptr = mask_indptr;
  AttentionTensors tensors = pool.tensors();
  tensors.tensors.push_back({"mask", TensorView(mask.data(), DType::uint8, {static_cast<int64_t>(mask.size())})});
  const ReferenceResult masked = attention_reference(spec, paged, tensors);
  for (size_t row = 0; row < 3; ++row)
    for (size_t i = 0; i < 2 * 64; ++i)  // the two query heads of KV head 0
      EXPECT_NEAR(expected.o[row * 4 * 64 + i], masked.o[row * 4 * 64 + i], 1e-12);
}

TEST(AttentionBlocks, ImportantBlocksAreAllThatIsAttended) {
  Pool pool({.mask = Mask::causal}, 20, 199, 16, 7);
  Table table;
  table.add(pool, 20, 100);  // 7 pages, row blocks of 8: 3
  const std::vector<uint8_t> mask{1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1};
  const BlockLists lists = blocks_from_importance(table.view(pool), table.qo_indptr, 8, mask);
  EXPECT_EQ(lists.block_indices.size(), 7u);
  const BlockSparse blocks = lists.view();
  PlanInput in = pool.input(table.qo_indptr, 2);
  in.blocks = &blocks;
  const MeasuredReference expected = pool.reference(KvForm::block_sparse, in);
  for (const char* check : {"0", "1"}) {  // 1: the class of each tile is compared with its rows' intervals
    ASSERT_EQ(setenv("WEFT_CHECK", check, 1), 0);
    pool.run(KvForm::block_sparse, in, *testing::targets().back());
    EXPECT_EQ(pool.compare(expected, 100, *testing::targets().back()), "") << check;
  }
  unsetenv("WEFT_CHECK");
}

// Each token of a tree attends what it would attend at the end of its own branch.
TEST(AttentionBlocks, ATreeGivesEachTokenItsOwnBranch) {
  for (const int context : {0, 5, 16, 90}) {
    Pool pool({.dtype = DType::fp32, .variant = variants::alibi()}, 12, 199, 16, 8);
    // Two trees: of seven tokens, and a chain of five.
    const std::vector<int32_t> parent{-1, 0, 0, 1, 1, 2, -1, -1, 0, 1, 2, 3};
    Table table;
    table.add(pool, 7, context + 7);
    table.add(pool, 5, context + 5);
    const BlockLists lists = blocks_from_tree(table.view(pool), table.qo_indptr, parent);
    const BlockSparse blocks = lists.view();
    PlanInput in = pool.input(table.qo_indptr, 3);
    in.blocks = &blocks;
    pool.run(KvForm::block_sparse, in, *testing::targets().back());
    const MeasuredReference expected = pool.reference(KvForm::block_sparse, in);
    EXPECT_EQ(pool.compare(expected, context + 7, *testing::targets().back()), "") << context;

    // Token by token: its branch as blocks of one key in a pool of single slots.
    for (int row = 0; row < 12; ++row) {
      const int r = row < 7 ? 0 : 1, first = table.qo_indptr[r];
      std::vector<int> branch;
      for (int token = row - first; token >= 0; token = parent[static_cast<size_t>(first + token)])
        branch.insert(branch.begin(), context + token);
      std::vector<int> keys(static_cast<size_t>(context));
      std::iota(keys.begin(), keys.end(), 0);
      keys.insert(keys.end(), branch.begin(), branch.end());
      BlockLists one;
      one.block_rows = 1;
      one.block_cols = 1;
      one.num_blocks = int64_t{199} * 16;
      for (const int key : keys)
        one.block_indices.push_back(table.ids[static_cast<size_t>(table.indptr[r] + key / 16)] * 16 + key % 16);
      one.block_indptr.push_back(static_cast<int32_t>(one.block_indices.size()));
      const BlockSparse alone = one.view();
      const std::vector<int32_t> qo_indptr{0, 1};
      PlanInput single = pool.input(qo_indptr, 1);
      single.blocks = &alone;
      AttentionTensors tensors = pool.tensors();
      tensors.q = tensors.q.slice(0, row, row + 1);
      tensors.kv = {TensorView(tensors.kv.k.data(), DType::fp32, {199 * 16, 1, 2, 64}),
                    TensorView(tensors.kv.v.data(), DType::fp32, {199 * 16, 1, 2, 64})};
      const ReferenceResult branched = attention_reference(pool.spec(KvForm::block_sparse), single, tensors);
      for (size_t i = 0; i < branched.o.size(); ++i)
        ASSERT_NEAR(branched.o[i], expected.o[static_cast<size_t>(row) * branched.o.size() + i], 1e-12) << row;
    }
  }
}

TEST(AttentionBlocks, RefuseACustomMask) {
  const AttentionSpec spec{.kv_form = KvForm::block_sparse, .mask = Mask::custom};
  EXPECT_THROW((void)build(spec, Device::cpu()), Error);
}

}  // namespace
}  // namespace weft
