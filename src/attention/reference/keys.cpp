#include "attention/reference/keys.h"

#include <algorithm>

#include "weft/block_sparse.h"

namespace weft::reference {
namespace {

void add_pages(const PageTableView& pages, size_t entry, std::vector<Token>& tokens) {
  for (int page = pages.kv_page_indptr[entry]; page < pages.kv_page_indptr[entry + 1]; ++page) {
    const bool last = page + 1 == pages.kv_page_indptr[entry + 1];
    for (int slot = 0; slot < (last ? pages.kv_last_page_len[entry] : pages.page_size); ++slot)
      tokens.push_back({pages.kv_page_indices[static_cast<size_t>(page)], slot, static_cast<int>(tokens.size())});
  }
}

// The tokens of each request, in the order of their positions.
std::vector<std::vector<Token>> tokens_of(const AttentionSpec& spec, const PlanInput& in,
                                          std::span<const int32_t> qo_indptr) {
  const size_t batch = qo_indptr.size() - 1;
  std::vector<std::vector<Token>> tokens(batch);
  if (spec.kv_form != KvForm::paged && spec.kv_form != KvForm::latent) {
    const bool ragged = spec.kv_form == KvForm::ragged;
    for (size_t r = 0; r < batch; ++r)
      for (int t = 0; t < (ragged ? in.kv_indptr[r + 1] - in.kv_indptr[r] : in.kv_len[r]); ++t)
        tokens[r].push_back({static_cast<int64_t>(r), ragged ? in.kv_indptr[r] + t : t, t});
    return tokens;
  }
  if (in.levels.empty())
    for (size_t r = 0; r < batch; ++r) add_pages(in.pages, r, tokens[r]);
  for (const Level& level : in.levels) {
    int row = 0;
    for (size_t place = 0; place < batch; ++place) {
      const size_t r = in.request_order.empty() ? place : static_cast<size_t>(in.request_order[place]);
      const int qo_len = qo_indptr[r + 1] - qo_indptr[r];
      for (size_t entry = 0; qo_len > 0 && entry + 1 < level.qo_indptr.size(); ++entry)
        if (level.qo_indptr[entry] <= row && row < level.qo_indptr[entry + 1]) add_pages(level.pages, entry, tokens[r]);
      row += qo_len;
    }
  }
  return tokens;
}

// The tokens of one list of blocks.
std::vector<Token> tokens_of_list(const BlockSparse& b, size_t list) {
  std::vector<Token> tokens;
  const auto begin = static_cast<size_t>(b.block_indptr[list]), end = static_cast<size_t>(b.block_indptr[list + 1]);
  const auto cols = static_cast<size_t>(b.block_cols);
  for (size_t block = begin; block < end; ++block) {
    const bool partly = block + 1 == end && !b.last_block_len.empty();
    for (size_t slot = 0; slot < (partly ? static_cast<size_t>(b.last_block_len[list]) : cols); ++slot) {
      int position = static_cast<int>(tokens.size());
      if (b.kv_positions.size() == b.block_indices.size() * cols)
        position = b.kv_positions[block * cols + slot];
      else if (!b.kv_positions.empty())
        position = b.kv_positions[block] + static_cast<int>(slot);
      tokens.push_back({b.block_indices[block], static_cast<int64_t>(slot), position});
    }
  }
  return tokens;
}

std::vector<Keys> keys_of_blocks(const PlanInput& in) {
  const BlockSparse& b = *in.blocks;
  int row_blocks = 0;
  for (size_t r = 0; r + 1 < in.qo_indptr.size(); ++r)
    row_blocks += (in.qo_indptr[r + 1] - in.qo_indptr[r] + b.block_rows - 1) / b.block_rows;
  const bool per_head = static_cast<int>(b.block_indptr.size()) - 1 != row_blocks;
  std::vector<Keys> all;
  int row_block = 0;
  for (size_t r = 0; r + 1 < in.qo_indptr.size(); ++r) {
    const int qo_len = in.qo_indptr[r + 1] - in.qo_indptr[r];
    const size_t first = all.size();
    int kv_len = 0;
    for (int i = 0; i < qo_len; i += b.block_rows, ++row_block)
      for (int head = 0; head < (per_head ? in.num_kv_heads : 1); ++head) {
        const auto list = static_cast<size_t>(head * row_blocks + row_block);
        Keys keys{.request = static_cast<int>(r),
                  .row_begin = in.qo_indptr[r] + i,
                  .row_end = in.qo_indptr[r] + std::min(i + b.block_rows, qo_len),
                  .first_idx = i,
                  .kv_head_begin = head,
                  .kv_head_end = per_head ? head + 1 : in.num_kv_heads,
                  .qo_len = qo_len};
        keys.tokens = tokens_of_list(b, list);
        for (const Token& token : keys.tokens) kv_len = std::max(kv_len, token.position + 1);
        if (!b.bits_index.empty())
          keys.sees = [&b, begin = b.block_indptr[list]](int row, int kv_idx) {
            const int pattern = b.bits_index[static_cast<size_t>(begin + kv_idx / b.block_cols)];
            const int bytes = (b.block_rows * b.block_cols + 7) / 8;
            const int bit = row * b.block_cols + kv_idx % b.block_cols;
            return pattern < 0 || (b.bits[static_cast<size_t>(pattern * bytes + bit / 8)] >> bit % 8 & 1) != 0;
          };
        all.push_back(std::move(keys));
      }
    for (size_t k = first; k < all.size(); ++k) {
      all[k].kv_len = kv_len;
      for (int64_t row = all[k].row_begin; row < all[k].row_end; ++row)
        all[k].q_pos.push_back(b.q_positions.empty() ? kv_len - qo_len + static_cast<int>(row - in.qo_indptr[r])
                                                     : b.q_positions[static_cast<size_t>(row)]);
    }
  }
  return all;
}

}  // namespace

std::vector<Keys> keys(const AttentionSpec& spec, const PlanInput& in) {
  if (spec.kv_form == KvForm::block_sparse) return keys_of_blocks(in);
  const std::span<const int32_t> qo_indptr = in.qo_indptr.empty() ? in.levels.back().qo_indptr : in.qo_indptr;
  std::vector<std::vector<Token>> tokens = tokens_of(spec, in, qo_indptr);
  std::vector<Keys> all;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const int qo_len = qo_indptr[r + 1] - qo_indptr[r], kv_len = static_cast<int>(tokens[r].size());
    Keys keys{.request = static_cast<int>(r),
              .row_begin = qo_indptr[r],
              .row_end = qo_indptr[r + 1],
              .kv_head_end = in.num_kv_heads,
              .qo_len = qo_len,
              .kv_len = kv_len,
              .tokens = std::move(tokens[r])};
    for (int i = 0; i < qo_len; ++i) keys.q_pos.push_back(kv_len - qo_len + i);
    all.push_back(std::move(keys));
  }
  return all;
}

}  // namespace weft::reference
