// Who multiplies what: panels dealt by bytes for a few rows (the weights' bytes are the cost), row blocks x panels for
// many. Workers that are done take from those that are not.
#include "ops/gemm/linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/cpu/futex.h"
#include "ops/gemm/packed.h"
#include "ops/gemm/work_queue.h"

namespace weft::gemm {

struct Scratch::Impl {
  // Activations of one scheme.
  struct Activations {
    Workspace data, scales, offsets, real_sums;
  };
  std::array<Activations, kNumSchemes> activations;
  Workspace workers;
  WorkQueue queue;
};

namespace {

constexpr int64_t kMadeTogether = 64;  // rows that are made in the job that multiplies them, up to here
constexpr int64_t kMadeRows = 8;       // of x, made and prepared together: they stay in the first-level cache

template <class T>
T* at_least(Workspace& workspace, int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  if (workspace.bytes() < bytes) {
    workspace = Workspace();
    workspace = Workspace(Device::cpu(), bytes);
  }
  return static_cast<T*>(workspace.data());
}

// Rows of a group of activations, and of the tiles they are multiplied in: large tiles load less, but the last one may
// be empty for the most part.
int group_of(const PackedLinear::Impl& w, int64_t m) {
  const auto padded = [m](int64_t rows) { return (m + rows - 1) / rows * rows; };
  const auto [few, most] = w.tile_rows;
  return m > kFusedRows && padded(few) * 16 < padded(most) * 15 ? few : most;
}

// How m rows are multiplied by weights.
Scheme scheme_of(const KernelTable& kernels, const Panels& weights, int64_t m) {
  const bool split = weights.scheme == Scheme::pair16 && m <= kernels.split_rows && weights.format != Format::q6_k;
  return split ? Scheme::split_int8 : weights.scheme;
}

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

using Prepared = std::array<Rows, kNumSchemes>;

// Makes rows and writes them in every scheme that the sources multiply.
class RowMaker {
 public:
  RowMaker(const PackedLinear::Impl& w, const float* x, int64_t m, int64_t ldx, Scratch::Impl& scratch,
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
  const Rows& rows(Scheme scheme) const { return prepared_[static_cast<size_t>(scheme)]; }

  // Many rows: each by the worker that is likely to read it next.
  void make_all(WorkerTeam& team) {
    const int workers = team.num_workers();
    team.run([&](int worker) { make(m_ * worker / workers, m_ * (worker + 1) / workers); });
    next_ = made_ = m_;
  }
  // Within a job, by each of its workers: rows go to whoever comes first, so that nobody waits for a worker that has
  // not begun. Returns when all are made: true. False where another worker has failed, with whose error the run ends:
  // the rows may still be written then.
  bool make_together() {
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

 private:
  void make(int64_t begin, int64_t end) const {
    for (int64_t first = begin; first < end; first += kMadeRows) {
      const int64_t last = std::min(end, first + kMadeRows);
      if (fusion_.prologue) fusion_.prologue(first, last);
      for (size_t scheme = 0; scheme < used_.size(); ++scheme)
        for (int64_t row = first; used_[scheme] && row < last; ++row)
          w_.kernels->prepare(static_cast<Scheme>(scheme), x_ + row * ldx_, w_.cols, prepared_[scheme], row);
    }
  }

  const PackedLinear::Impl& w_;
  const float* x_;
  const int64_t m_, ldx_, step_;
  const Fusion& fusion_;
  Prepared prepared_{};
  std::array<bool, kNumSchemes> used_{};
  std::atomic<int64_t> next_{0}, made_{0};
  std::atomic<bool> failed_{false};
};

// The panels, counted over all sources, where worker `worker` begins: cut by bytes.
int64_t panel_border(const PackedLinear::Impl& w, int worker, int workers) {
  int64_t total = 0;
  for (const PackedSource& packed : w.sources) total += packed.num_panels * packed.panels.panel_bytes;
  int64_t wanted = total / workers * worker + total % workers * worker / workers, first = 0;
  for (const PackedSource& packed : w.sources) {
    const int64_t panels = wanted / packed.panels.panel_bytes;
    if (panels < packed.num_panels) return first + panels;
    wanted -= packed.num_panels * packed.panels.panel_bytes;
    first += packed.num_panels;
  }
  return w.num_panels;
}

// The beginning of panel `panel`, counted over all sources: kernels fetch what lies so far ahead of it.
inline void fetch_first(const PackedLinear::Impl& w, int64_t panel) {
  constexpr int64_t kBytes = 6144;
  for (const PackedSource& packed : w.sources) {
    if (panel < packed.num_panels) {
      const char* data = packed.panels.data + panel * packed.panels.panel_bytes;
      for (int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(data + line, 0, 2);
      return;
    }
    panel -= packed.num_panels;
  }
}

}  // namespace

Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;
Scratch::Impl& Scratch::impl() { return held(impl_, "scratch", "Scratch()"); }

void linear(const PackedLinear& weights, const float* x, int64_t m, int64_t ldx, float* y, int64_t ldy,
            Scratch& scratch, WorkerTeam& team, const Fusion& fusion) {
  const PackedLinear::Impl& w = weights.impl();
  const bool gated = fusion.gate_epilogue != nullptr;
  check(!gated || (w.sources.size() == 2 && w.sources[0].panels.rows == w.sources[1].panels.rows),
        ErrorCode::invalid_shape, "linear: a gate with weights of {} sources; two of as many rows are needed",
        w.sources.size());
  const int64_t out_cols = gated ? w.rows / 2 : w.rows;
  check(m >= 0 && ldx >= w.cols && ldy >= out_cols, ErrorCode::invalid_shape,
        "linear: m = {}, ldx = {}, ldy = {} for weights {} x {}; ldx must be at least cols, ldy at least {}", m, ldx,
        ldy, w.rows, w.cols, out_cols);
  if (m == 0) return;
  const KernelTable& kernels = *w.kernels;
  RowMaker maker(w, x, m, ldx, scratch.impl(), team, fusion);
  const int workers = team.num_workers();
  const int64_t panel = kernels.panel, gate_bytes = gated ? m * panel * static_cast<int64_t>(sizeof(float)) : 0;
  const int64_t scratch_bytes = (kernels.scratch_bytes + 2 * gate_bytes + 63) / 64 * 64;
  char* worker_scratch = at_least<char>(scratch.impl().workers, scratch_bytes * workers);

  const auto multiply_source = [&](int worker, const PackedSource& packed, int64_t begin, int64_t end,
                                   int64_t row_begin, int64_t row_end, float* to, int64_t ld) {
    Panels panels = packed.panels;
    panels.scheme = scheme_of(kernels, panels, m);
    kernels.multiply({.w = panels,
                      .x = maker.rows(panels.scheme),
                      .y = to,
                      .ldy = ld,
                      .panel_begin = begin,
                      .panel_end = end,
                      .row_begin = row_begin,
                      .row_end = row_end,
                      .scratch = worker_scratch + scratch_bytes * worker});
  };
  // Panels [begin, end), counted over all sources, times rows [row_begin, row_end).
  const auto multiply = [&](int worker, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end) {
    int64_t first = 0;
    for (const PackedSource& packed : w.sources) {
      const int64_t packed_begin = std::max<int64_t>(begin - first, 0),
                    packed_end = std::min(end - first, packed.num_panels);
      if (packed_begin < packed_end)
        multiply_source(worker, packed, packed_begin, packed_end, row_begin, row_end, y + packed.first_row, ldy);
      first += packed.num_panels;
    }
  };
  // Panels [begin, end) of the gate and of what it multiplies: one at a time through memory in the caches.
  const auto multiply_gated = [&](int worker, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end) {
    auto* sides = reinterpret_cast<float*>(worker_scratch + scratch_bytes * worker + kernels.scratch_bytes);
    for (int64_t p = begin; p < end; ++p) {
      float* side = sides;
      for (int64_t row = row_begin; row < row_end; ++row)  // other weights have passed through the caches since
        for (int64_t i = 0; i < panel; i += 16) __builtin_prefetch(y + row * ldy + p * panel + i, 1);
      for (const PackedSource& packed : w.sources) {
        Panels one = packed.panels;
        one.data += p * one.panel_bytes;
        one.rows -= p * panel;
        multiply_source(worker, {.panels = one}, 0, 1, row_begin, row_end, side, panel);
        side += m * panel;
      }
      float* rows = sides + row_begin * panel;
      fusion.gate_epilogue(rows, rows + m * panel, (row_end - row_begin) * panel, rows);
      const auto bytes = static_cast<size_t>(std::min(panel, out_cols - p * panel)) * sizeof(float);
      for (int64_t row = row_begin; row < row_end; ++row, rows += panel)
        std::memcpy(y + row * ldy + p * panel, rows, bytes);
    }
  };
  const int64_t num_panels = gated ? w.sources[0].num_panels : w.num_panels;
  const auto border = [&](int worker) {
    return gated ? num_panels * worker / workers : panel_border(w, worker, workers);
  };
  const auto multiply_panels = [&](int worker, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end) {
    if (gated)
      multiply_gated(worker, begin, end, row_begin, row_end);
    else
      multiply(worker, begin, end, row_begin, row_end);
  };
  if (m > kMadeTogether) maker.make_all(team);
  WorkQueue& queue = scratch.impl().queue;
  if (m <= kFusedRows) {
    queue.deal(workers, border);
    team.run([&](int worker) {
      fetch_first(w, border(worker));
      if (!maker.make_together()) return;
      for (WorkQueue::Run run; queue.take(worker, run);) multiply_panels(worker, run.begin, run.end, 0, m);
    });
    return;
  }
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, items = row_blocks * num_panels;
  const int64_t group = group_of(w, m), groups = (m + group - 1) / group;
  const auto row_border = [&](int64_t block) { return std::min(m, groups * block / row_blocks * group); };
  queue.deal(workers, [&](int worker) { return items * worker / workers; });
  team.run([&](int worker) {
    if (!maker.make_together()) return;
    for (WorkQueue::Run run; queue.take(worker, run);)
      while (run.begin < run.end) {
        const int64_t block = run.begin / num_panels, begin = run.begin % num_panels;
        const int64_t stop = std::min(num_panels, begin + run.end - run.begin);
        multiply_panels(worker, begin, stop, row_border(block), row_border(block + 1));
        run.begin += stop - begin;
      }
  });
}

}  // namespace weft::gemm
