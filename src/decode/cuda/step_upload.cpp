#include "decode/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

namespace weft::decode {

void find_places(const Step& step, ops::CachePlace* places) {
  const PageTableView pages = step.pages.get();
  for (size_t r = 0; r + 1 < step.qo_indptr.size(); ++r) {
    const int64_t begin = pages.kv_page_indptr[r], end = pages.kv_page_indptr[r + 1];
    const int64_t tokens = (end - begin - 1) * pages.page_size + pages.kv_last_page_len[r];
    const int64_t first = step.qo_indptr[r], last = step.qo_indptr[r + 1];
    for (int64_t row = first; row < last; ++row) {
      const int64_t token = tokens - (last - row);
      places[row] = {pages.kv_page_indices[static_cast<size_t>(begin + token / pages.page_size)],
                     static_cast<int>(token % pages.page_size)};
    }
  }
}

void StepUpload::make_room(int64_t rows) {
  if (rows <= rows_) return;
  const auto aligned = [](int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); };
  places_ = aligned(rows * static_cast<int64_t>(sizeof(int)));
  angles_ = places_ + aligned(rows * static_cast<int64_t>(sizeof(ops::CachePlace)));
  table_ = aligned(rows * most_pairs_ * static_cast<int64_t>(sizeof(float)));
  const size_t bytes = angles_ + 2 * kinds_ * table_;
  rows_ = 0;
  on_host_ = Workspace();
  on_card_ = Workspace();
  on_host_ = Workspace(Device::cuda_host(card_.index()), bytes);
  on_card_ = Workspace(Device::cuda(card_.index()), bytes);
  rows_ = rows;
}

void StepUpload::write(const Step& step, const StepAttention& attention, cuda::api::Stream stream) {
  make_room(step.rows());
  auto* host = static_cast<char*>(on_host_.data());
  std::ranges::copy(step.tokens, reinterpret_cast<int32_t*>(host));
  find_places(step, reinterpret_cast<ops::CachePlace*>(host + places_));
  for (size_t kind = 0; kind < kinds_; ++kind) {
    const ops::RopeTable& rope = attention.rope(kind);
    std::ranges::copy(rope.cos, reinterpret_cast<float*>(host + angles_ + 2 * kind * table_));
    std::ranges::copy(rope.sin, reinterpret_cast<float*>(host + angles_ + (2 * kind + 1) * table_));
  }
  cuda::copy_to_card(card_, on_card_.data(), host, on_host_.bytes(), stream);
}

}  // namespace weft::decode
