#include "ops/cuda/draw.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "device/cuda/clamped.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/draw.h"

namespace weft::ops {
namespace {

constexpr int64_t kLeastColumns = 1024;  // of a CTA

}  // namespace

const int* CardDraws::run(const CardLogits& logits, std::span<const int64_t> rows, std::span<const TokenDraw> how,
                          Stream stream, int* to) {
  ensure(rows.empty() || rows.size() == how.size(), "{} rows of logits for {} draws", rows.size(), how.size());
  if (how.empty()) return nullptr;
  rows_.clear();
  changes_.clear();
  masks_.clear();
  std::vector<size_t> mask_begins;
  for (size_t i = 0; i < how.size(); ++i) {
    const std::vector<tile::LogitChange> changes = changes_of(how[i]);
    rows_.push_back({.row = rows.empty() ? static_cast<int64_t>(i) : rows[i],
                     .bits = tile::random_bits(how[i].random.seed, how[i].random.position),
                     .rule = rule_of(how[i].params),
                     .penalties = penalties_of(how[i]),
                     .first_change = static_cast<int>(changes_.size()),
                     .num_changes = static_cast<int>(changes.size()),
                     .mask = nullptr});
    changes_.insert(changes_.end(), changes.begin(), changes.end());
    mask_begins.push_back(masks_.size());
    masks_.insert(masks_.end(), how[i].mask.begin(), how[i].mask.end());
  }
  const size_t row_bytes = rows_.size() * sizeof(DrawRow), change_bytes = changes_.size() * sizeof(tile::LogitChange),
               mask_bytes = masks_.size() * sizeof(uint32_t), id_bytes = rows_.size() * sizeof(int);
  const size_t bytes = row_bytes + change_bytes + mask_bytes + id_bytes;
  if (memory_.bytes() < bytes) {
    memory_ = {};
    memory_ = Workspace(device_, bytes + bytes / 2);  // lists of what was said grow from step to step
  }
  auto* const on_card = static_cast<char*>(memory_.data());
  const auto* const masks = reinterpret_cast<const unsigned*>(on_card + row_bytes + change_bytes);
  for (size_t i = 0; i < rows_.size(); ++i)
    if (!how[i].mask.empty()) rows_[i].mask = masks + mask_begins[i];
  const cuda::Runtime& on = cuda::runtime();
  const auto piece = [](const void* data, size_t size) { return Bytes{data, static_cast<int64_t>(size)}; };
  const Bytes pieces[] = {piece(rows_.data(), row_bytes), piece(changes_.data(), change_bytes),
                          piece(masks_.data(), mask_bytes)};
  on.write(device_, on_card, pieces, stream);

  const KernelText text = draw_kernel();
  const cuda::LoadedKernel& kernel = on.load(device_, text);
  cuda::Grid grid = text.grid(1);
  grid.cluster = ctas_of_cluster(kernel, grid, device_, static_cast<int64_t>(how.size()),
                                 std::min<int64_t>(kMostDrawCtas, logits.vocab / kLeastColumns));
  grid.ctas = static_cast<int>(how.size()) * grid.cluster;
  grid.programmatic_launch = true;
  int* const ids = to != nullptr ? to : reinterpret_cast<int*>(on_card + row_bytes + change_bytes + mask_bytes);
  on.launch(kernel, grid,
            DrawArgs{.logits = logits.data,
                     .stride = logits.stride,
                     .rows = reinterpret_cast<const DrawRow*>(on_card),
                     .changes = reinterpret_cast<const tile::LogitChange*>(on_card + row_bytes),
                     .ids = ids,
                     .flag = to != nullptr ? on.clamped_flag(device_) : nullptr,
                     .flag_bit = cuda::kNothingToDraw,
                     .columns = static_cast<int>(logits.vocab)},
            stream);
  return ids;
}

void draw_from_probabilities(const ProbabilityDraws& draws, Stream stream) {
  const Device device = draws.probs.device();
  const int64_t count = draws.ids.shape(0), vocab = draws.probs.shape(1);
  const cuda::Runtime& on = cuda::runtime();
  const KernelText text = draw_probabilities_kernel();
  const cuda::LoadedKernel& kernel = on.load(device, text);
  cuda::Grid grid = text.grid(1);
  grid.cluster = ctas_of_cluster(kernel, grid, device, count, std::min<int64_t>(kMostDrawCtas, vocab / kLeastColumns));
  grid.ctas = static_cast<int>(count) * grid.cluster;
  grid.programmatic_launch = true;
  const auto ints = [](const TensorView& array) { return array ? array.as<const int>() : nullptr; };
  const auto floats = [](const TensorView& array) { return array ? array.as<const float>() : nullptr; };
  on.launch(kernel, grid,
            ProbabilityDrawArgs{.probs = draws.probs.as<const float>(),
                                .stride = draws.probs.stride(0),
                                .num_rows = draws.probs.shape(0),
                                .top_k = ints(draws.top_k),
                                .top_p = floats(draws.top_p),
                                .min_p = floats(draws.min_p),
                                .rows = ints(draws.rows),
                                .bits = draws.bits.as<const unsigned long long>(),
                                .ids = draws.ids.as<int>(),
                                .columns = static_cast<int>(vocab),
                                .joint = draws.filter_order == FilterOrder::joint},
            stream);
}

}  // namespace weft::ops
