// Block-sparse input -> entries: a list of blocks for each row block, of all KV heads or of one.
#include <algorithm>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {
namespace {

int64_t num_row_blocks(const Problem& p) {
  int64_t n = 0;
  for (int r = 0; r < p.num_requests; ++r) n += ceil_div(p.qo_len(r), p.blocks->block_rows);
  return n;
}

void check_positions(const char* name, std::span<const int32_t> positions, int64_t least) {
  for (size_t i = 0; i < positions.size(); ++i)
    check(positions[i] >= least && positions[i] < kMaxKvLen, ErrorCode::invalid_argument,
          "blocks.{}[{}] = {}; allowed are {} to {}", name, i, positions[i], least, kMaxKvLen - 1);
}

// One behind the last position of a list.
int end_of_list(const BlockSparse& b, int64_t first, int64_t last_block, int len, int last_len) {
  if (len == 0) return 0;
  if (b.kv_positions.empty()) return len;
  const bool by_block = b.kv_positions.size() == b.block_indices.size();
  const int64_t cols = by_block ? 1 : b.block_cols;
  int32_t end = 0;
  for (int64_t block = first; block <= last_block; ++block) {
    const int32_t keys = block == last_block ? last_len : b.block_cols;
    if (by_block) {
      end = std::max(end, b.kv_positions[static_cast<size_t>(block)] + keys);
      continue;
    }
    const auto begin = b.kv_positions.begin() + block * cols;
    end = std::max(end, *std::max_element(begin, begin + keys) + 1);
  }
  return end;
}

}  // namespace

void check_blocks(Problem& p, PlanBuilder& builder) {
  const BlockSparse& b = *p.blocks;
  check(b.block_rows >= 1 && b.block_cols >= 1, ErrorCode::invalid_argument,
        "blocks.block_rows = {}, block_cols = {}; both are at least 1", b.block_rows, b.block_cols);
  check(b.num_blocks >= 0 && b.num_blocks <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "blocks.num_blocks = {}; allowed are 0 to {}", b.num_blocks, std::numeric_limits<int32_t>::max());
  const int64_t row_blocks = num_row_blocks(p), lists = static_cast<int64_t>(b.block_indptr.size()) - 1;
  check(lists == row_blocks || lists == row_blocks * p.num_kv_heads, ErrorCode::invalid_indptr,
        "blocks.block_indptr: has {} entries; {} row blocks of {} query tokens need {}, or {} with lists for each KV "
        "head",
        b.block_indptr.size(), row_blocks, b.block_rows, row_blocks + 1, row_blocks * p.num_kv_heads + 1);
  check(b.last_block_len.empty() || static_cast<int64_t>(b.last_block_len.size()) == lists, ErrorCode::invalid_argument,
        "blocks.last_block_len: has {} entries for {} lists; give one each, or none where every block is full",
        b.last_block_len.size(), lists);
  check(b.block_indptr[0] == 0 && std::is_sorted(b.block_indptr.begin(), b.block_indptr.end()) &&
            static_cast<size_t>(b.block_indptr.back()) == b.block_indices.size(),
        ErrorCode::invalid_indptr,
        "blocks.block_indptr: starts at 0, never decreases, and ends at the {} entries of block_indices",
        b.block_indices.size());
  for (size_t i = 0; i < b.block_indices.size(); ++i)
    check(b.block_indices[i] >= 0 && b.block_indices[i] < b.num_blocks, ErrorCode::invalid_page,
          "blocks.block_indices[{}] = {}; allowed are 0 to {}, the pool has {} blocks", i, b.block_indices[i],
          b.num_blocks - 1, b.num_blocks);
  const size_t listed = b.block_indices.size(), keys = listed * static_cast<size_t>(b.block_cols);
  check(b.kv_positions.empty() || b.kv_positions.size() == listed || b.kv_positions.size() == keys,
        ErrorCode::invalid_argument,
        "blocks.kv_positions: has {} entries; allowed are {} (one a listed block), {} (one a key), or none",
        b.kv_positions.size(), listed, keys);
  check_positions("kv_positions", b.kv_positions, 0);
  check(b.q_positions.empty() || static_cast<int64_t>(b.q_positions.size()) == p.num_rows, ErrorCode::invalid_argument,
        "blocks.q_positions: has {} entries for {} query tokens", b.q_positions.size(), p.num_rows);
  check_positions("q_positions", b.q_positions, -kMaxKvLen);
  check(b.bits_index.empty() || b.bits_index.size() == listed, ErrorCode::invalid_argument,
        "blocks.bits_index: has {} entries for {} listed blocks", b.bits_index.size(), listed);
  const int64_t patterns = static_cast<int64_t>(b.bits.size()) / attention::bytes_of_bits(b.block_rows, b.block_cols);
  for (size_t i = 0; i < b.bits_index.size(); ++i)
    check(b.bits_index[i] >= -1 && b.bits_index[i] < patterns, ErrorCode::invalid_argument,
          "blocks.bits_index[{}] = {}; allowed are -1 and the {} patterns in bits", i, b.bits_index[i], patterns);
  p.plain = false;
  p.page_size = b.block_cols;
  p.num_pool_pages = b.num_blocks;
  p.num_page_ids = static_cast<int64_t>(listed);
  p.levels[0].pages.kv_page_indices = b.block_indices;
  builder.entry_len.resize(static_cast<size_t>(lists));
  for (int64_t list = 0; list < lists; ++list) {
    const auto i = static_cast<size_t>(list);
    const int64_t n = b.block_indptr[i + 1] - b.block_indptr[i];
    const int last = !b.last_block_len.empty() ? b.last_block_len[i] : n == 0 ? 0 : b.block_cols;
    check(n == 0 ? last == 0 : last >= 1 && last <= b.block_cols, ErrorCode::invalid_page,
          "blocks.last_block_len[{}] = {}; allowed are 1 to {}, 0 for a list without blocks", i, last, b.block_cols);
    const int64_t len = n == 0 ? 0 : (n - 1) * b.block_cols + last;
    check(len <= kMaxKvLen, ErrorCode::invalid_argument, "blocks: list {} has {} keys; at most {} are allowed", list,
          len, kMaxKvLen);
    builder.entry_len[i] = static_cast<int>(len);
  }
}

void lay_blocks(const Problem& p, PlanBuilder& builder) {
  const BlockSparse& b = *p.blocks;
  const int64_t row_blocks = num_row_blocks(p);
  const bool per_head = static_cast<int64_t>(b.block_indptr.size()) - 1 != row_blocks;
  const int lists_a_row = per_head ? p.num_kv_heads : 1;
  builder.kv_len.assign(static_cast<size_t>(p.num_requests), 0);
  builder.entries.clear();
  int64_t row_block = 0;
  for (int r = 0; r < p.num_requests; ++r)
    for (int row = p.qo_indptr[r]; row < p.qo_indptr[r + 1]; row += b.block_rows, ++row_block) {
      const int end = std::min(row + b.block_rows, p.qo_indptr[r + 1]);
      for (int h = 0; h < lists_a_row; ++h) {
        const auto list = static_cast<size_t>(h * row_blocks + row_block);
        const int len = builder.entry_len[list];
        const int64_t first = b.block_indptr[list], last = b.block_indptr[list + 1] - int64_t{1};
        const int last_len = len == 0 ? 0 : (len - 1) % b.block_cols + 1;
        builder.kv_len[r] = std::max(builder.kv_len[r], end_of_list(b, first, last, len, last_len));
        builder.entries.push_back({.level = 0,
                                   .row_begin = row,
                                   .row_end = end,
                                   .place_begin = r,
                                   .place_end = r + 1,
                                   .head_begin = per_head ? h : 0,
                                   .head_end = per_head ? h + 1 : p.num_kv_heads,
                                   .first_pos = 0,
                                   .len = len,
                                   .first = first});
      }
    }
}

}  // namespace weft::planner
