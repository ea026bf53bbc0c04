#include "decode/fused/walk_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/fp16.h"

namespace weft::decode::fused {

void widen_cached(DType dtype, const char* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::fp32) {
      std::memcpy(to + i, from + 4 * i, sizeof(float));
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = dtype == DType::fp16 ? static_cast<float>(from_fp16(bits))
                                 : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

void narrow_cached(DType dtype, const float* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::fp32) {
      std::memcpy(to + 4 * i, from + i, sizeof(float));
      continue;
    }
    uint16_t bits;
    if (dtype == DType::fp16) {
      bits = to_fp16(static_cast<double>(from[i]));
    } else {  // to nearest, ties to even
      const auto wide = std::bit_cast<uint32_t>(from[i]);
      bits = std::isnan(from[i]) ? uint16_t{0x7fc0} : static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
    std::memcpy(to + 2 * i, &bits, sizeof bits);
  }
}

const AttentionItems& WalkAttention::items() const {
  demand(memory_.phase(phase_).attends(), "a step of attention in another phase");
  return memory_.schedule.items_of(memory_.phase(phase_), memory_.program);
}

void WalkAttention::start(const WorkerStep& step) {
  demand(step.id >= 0 && step.id < static_cast<int>(items().items.size()), "an item that is not there");
  item_ = step.id;
  const AttentionItem& item = this->item();
  const int64_t dim = memory_.program.head_dim, group = memory_.group();
  query_.clear();
  state_.clear();
  for (int row = item.row_begin; row < item.row_end; ++row)
    for (int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
      const std::vector<float> query = rows_.head_of(Buffer::query, row, head);
      query_.insert(query_.end(), query.begin(), query.end());
      state_.insert(state_.end(), static_cast<size_t>(dim), 0.f);
      state_.insert(state_.end(), {-std::numeric_limits<float>::infinity(), 0.f});
    }
}

void WalkAttention::attend(const WorkerStep& step, const WalkRing& ring) {
  const Load& load = ring.at(step.id);
  demand(item_ >= 0 && step.count == item_ && load.item == item_ && load.phase == phase_, "keys of another item");
  demand(step.begin >= load.begin && step.begin <= step.end && step.end <= load.end,
         "keys that their load does not have");
  const DType dtype = memory_.input.caches[0].k.dtype();
  const int64_t dim = memory_.program.head_dim, bytes = dim * bits_of(dtype) / 8, tokens = load.end - load.begin;
  std::vector<float> key(static_cast<size_t>(dim)), value(static_cast<size_t>(dim));
  for (int64_t token = step.begin; token < step.end; ++token) {
    const int64_t at = (token - load.begin) * bytes;
    widen_cached(dtype, ring.data(load, at, bytes), dim, key.data());
    widen_cached(dtype, ring.data(load, tokens * bytes + at, bytes), dim, value.data());
    attend_token(static_cast<int>(token), key.data(), value.data());
  }
}

void WalkAttention::attend_own(const WorkerStep& step) {
  demand(item_ >= 0 && step.id == item_, "own keys of another item");
  // As whoever reads them later will find them: a row has the same bits then as in a step with those before it.
  const DType dtype = memory_.input.caches[0].k.dtype();
  const AttentionItem& item = this->item();
  const auto as_cached = [&](Buffer buffer, int row) {
    std::vector<float> values = rows_.head_of(buffer, row, item.kv_head);
    std::vector<char> narrow(values.size() * sizeof(float));
    narrow_cached(dtype, values.data(), static_cast<int64_t>(values.size()), narrow.data());
    widen_cached(dtype, narrow.data(), static_cast<int64_t>(values.size()), values.data());
    return values;
  };
  const StepRequest& request = items().requests[static_cast<size_t>(item.request)];
  demand(step.begin >= request.cached() && step.begin <= step.end && step.end <= request.kv_len,
         "own keys that the step does not have");
  for (int64_t token = step.begin; token < step.end; ++token) {
    const int row = request.first_row + static_cast<int>(token) - request.cached();
    attend_token(static_cast<int>(token), as_cached(Buffer::key, row).data(), as_cached(Buffer::value, row).data());
  }
}

// Token by token, so that a row's state does not depend on how its keys lie in entries.
void WalkAttention::attend_token(int token, const float* key, const float* value) {
  const AttentionItem& item = this->item();
  const Operation& operation = main_of(memory_.phase(phase_), memory_.program);
  const int64_t dim = memory_.program.head_dim, group = memory_.group();
  for (int row = item.row_begin; row < item.row_end; ++row) {
    const int position = memory_.input.step->positions[static_cast<size_t>(row)];
    if (token > position || (operation.window > 0 && token <= position - operation.window)) continue;
    for (int64_t i = 0; i < group; ++i) {
      const int64_t at = (row - item.row_begin) * group + i;
      float logit = operation.scale * dot(query_.data() + at * dim, key, dim);
      if (operation.soft_cap > 0.f) logit = operation.soft_cap * std::tanh(logit / operation.soft_cap);
      float* state = state_.data() + at * (dim + 2);
      const float largest = std::max(state[dim], logit);
      const float keep = std::exp(state[dim] - largest), weight = std::exp(logit - largest);
      for (int64_t d = 0; d < dim; ++d) state[d] = state[d] * keep + weight * value[d];
      state[dim] = largest;
      state[dim + 1] = state[dim + 1] * keep + weight;
    }
  }
}

void WalkAttention::write_states(const WorkerStep& step) {
  const int64_t floats = memory_.floats_of_cell(Shared::states);
  demand(step.buffer == Shared::states && step.begin >= 0 && step.begin <= step.end &&
             step.end <= memory_.num_cells(Shared::states) &&
             (step.end - step.begin) * floats <= static_cast<int64_t>(state_.size()),
         "states beyond their buffer");
  std::copy_n(state_.begin(), (step.end - step.begin) * floats, memory_.cell(Shared::states, step.begin));
  for (int64_t cell = step.begin; cell < step.end; ++cell) memory_.publish(Shared::states, cell, phase_);
}

void WalkAttention::append(const WorkerStep& step) const {
  demand(step.id >= 0 && step.id < static_cast<int>(items().items.size()), "an append of an item that is not there");
  const AttentionItem& item = items().items[static_cast<size_t>(step.id)];
  const StepRequest& request = items().requests[static_cast<size_t>(item.request)];
  demand(step.begin >= request.first_row && step.begin <= step.end && step.end <= request.first_row + request.num_rows,
         "an append of rows that the request does not have");
  const KvCache& cache = memory_.input.caches[static_cast<size_t>(memory_.phase(phase_).layer)];
  const PageTableView pages = memory_.input.step->pages.get();
  const int64_t dim = memory_.program.head_dim, element = bits_of(cache.k.dtype()) / 8;
  for (int64_t row = step.begin; row < step.end; ++row) {
    const int64_t token = request.cached() + row - request.first_row;
    const int64_t page = pages.kv_page_indices[static_cast<size_t>(
        pages.kv_page_indptr[static_cast<size_t>(item.request)] + token / pages.page_size)];
    for (const auto& [buffer, side] : {std::pair{Buffer::key, &cache.k}, std::pair{Buffer::value, &cache.v}}) {
      const std::vector<float> own = rows_.head_of(buffer, static_cast<int>(row), item.kv_head);
      const int64_t at =
          page * side->stride(0) + token % pages.page_size * side->stride(1) + item.kv_head * side->stride(2);
      narrow_cached(side->dtype(), own.data(), dim, static_cast<char*>(side->data()) + at * element);
    }
  }
}

}  // namespace weft::decode::fused
