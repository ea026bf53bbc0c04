#include "ops/gemm/row_maker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/cpu/futex.h"

namespace weft::gemm {
namespace {

constexpr int64_t kMadeRows = 8;  // made and prepared together: they stay in the first-level cache

// Where activations of a scheme go.
Rows rows_of(const PackedLinear::Impl& w, Scheme scheme, int64_t m, Scratch::Impl& scratch) {
  Rows rows{};
  rows.group = group_of(w, m);
  Scratch::Impl::Activations& activations = scratch.activations[static_cast<size_t>(scheme)];
  const int64_t padded = (m + rows.group - 1) / rows.group * rows.group;
  rows.row_bytes = activation_bytes(scheme, w.cols);
  rows.data = at_least<char>(activations.data, padded * rows.row_bytes);
  if (!is_floating(scheme)) {
    rows.blocks = w.cols / kBlock;
    rows.scales = at_least<float>(activations.scales, padded * (scheme == Scheme::quad8 ? rows.blocks : 1));
    rows.offsets = at_least<int>(activations.offsets, padded * rows.blocks);
    rows.real_sums = at_least<float>(activations.real_sums, padded * rows.blocks);
  }
  return rows;
}

}  // namespace

Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;
Scratch::Impl& Scratch::impl() { return held(impl_, "scratch", "Scratch()"); }

// Large tiles load less, but the last one may be empty for the most part.
int group_of(const PackedLinear::Impl& w, int64_t m) {
  const auto padded = [m](int64_t rows) { return (m + rows - 1) / rows * rows; };
  const auto [few, most] = w.tile_rows;
  return m > kFusedRows && padded(few) * 16 < padded(most) * 15 ? few : most;
}

Scheme scheme_of(const KernelTable& kernels, const Panels& weights, int64_t m) {
  const bool split = weights.scheme == Scheme::pair16 && m <= kernels.split_rows && weights.format != Format::q6_k;
  return split ? Scheme::split_int8 : weights.scheme;
}

RowMaker::RowMaker(const PackedLinear::Impl& w, const float* x, int64_t m, int64_t ldx, Scratch::Impl& scratch,
                   const WorkerTeam& team, const Fusion& fusion)
    : w_(w),
      x_(x),
      m_(m),
      ldx_(ldx),
      step_(std::min(kMadeRows, (m + team.num_workers() - 1) / team.num_workers())),
      fusion_(fusion) {
  for (const PackedSource& packed : w.sources) {
    const Scheme scheme = scheme_of(*w.kernels, packed.panels, m);
    const auto index = static_cast<size_t>(scheme);
    if (std::exchange(used_[index], true)) continue;
    prepared_[index] = rows_of(w, scheme, m, scratch);
  }
}

void RowMaker::make_all(WorkerTeam& team) {
  const int workers = team.num_workers();
  team.run([&](int worker) { make(m_ * worker / workers, m_ * (worker + 1) / workers); });
  next_ = made_ = m_;
}

bool RowMaker::make_together() {
  try {
    for (int64_t begin; (begin = next_.fetch_add(step_, std::memory_order_relaxed)) < m_;) {
      const int64_t end = std::min(m_, begin + step_);
      make(begin, end);
      made_.fetch_add(end - begin, std::memory_order_release);
    }
  } catch (...) {
    failed_.store(true, std::memory_order_relaxed);
    throw;
  }
  constexpr int kSpins = 4096;
  for (int spin = 0; made_.load(std::memory_order_acquire) < m_; ++spin) {
    if (failed_.load(std::memory_order_relaxed)) return false;
    spin < kSpins ? relax_cpu() : std::this_thread::yield();
  }
  return true;
}

void RowMaker::make(int64_t begin, int64_t end) const {
  for (int64_t first = begin; first < end; first += kMadeRows) {
    const int64_t last = std::min(end, first + kMadeRows);
    if (fusion_.prologue) fusion_.prologue(first, last);
    for (size_t scheme = 0; scheme < used_.size(); ++scheme)
      for (int64_t row = first; used_[scheme] && row < last; ++row)
        w_.kernels->prepare(static_cast<Scheme>(scheme), x_ + row * ldx_, w_.cols, prepared_[scheme], row);
  }
}

}  // namespace weft::gemm
