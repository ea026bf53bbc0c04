// Who multiplies what: panels dealt by bytes for a few rows (the weights' bytes are the cost), row blocks x panels for
// many. Workers that are done take from those that are not.
#include "ops/gemm/linear.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/gemm/row_maker.h"

namespace weft::gemm {
namespace {

constexpr int64_t kMadeTogether = 64;  // rows that are made in the job that multiplies them, up to here

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

// Panels, counted over all sources, or those of both sides of a gate, times rows.
struct Tile {
  int64_t panel_begin, panel_end, row_begin, row_end;
};

// y = x W^T for rows that are made on the way.
class Product {
 public:
  Product(const PackedLinear::Impl& w, RowMaker& rows, int64_t m, float* y, int64_t ldy, Scratch::Impl& scratch,
          WorkerTeam& team, const Fusion& fusion)
      : w_(w),
        rows_(rows),
        m_(m),
        y_(y),
        ldy_(ldy),
        gate_(fusion.gate_epilogue),
        panel_(w.kernels->panel),
        num_panels_(gate_ != nullptr ? w.sources[0].num_panels : w.num_panels),
        team_(team),
        workers_(team.num_workers()),
        queue_(scratch.queue),
        side_floats_(gate_ != nullptr ? m * panel_ : 0),
        worker_bytes_((w.kernels->scratch_bytes + 2 * side_floats_ * static_cast<int64_t>(sizeof(float)) + 63) / 64 *
                      64),
        memory_(at_least<char>(scratch.workers, worker_bytes_ * workers_)) {}

  void run_few_rows() {
    const auto border = [&](int worker) {
      return gate_ != nullptr ? num_panels_ * worker / workers_ : panel_border(w_, worker, workers_);
    };
    queue_.deal(workers_, border);
    team_.run([&](int worker) {
      fetch_first(w_, border(worker));
      if (!rows_.make_together()) return;
      for (WorkQueue::Run run; queue_.take(worker, run);) multiply(worker, {run.begin, run.end, 0, m_});
    });
  }

  void run_many_rows() {
    const int64_t blocks = (m_ + kRowBlock - 1) / kRowBlock, items = blocks * num_panels_;
    const int64_t group = group_of(w_, m_), groups = (m_ + group - 1) / group;
    const auto border = [&](int64_t block) { return std::min(m_, groups * block / blocks * group); };
    queue_.deal(workers_, [&](int worker) { return items * worker / workers_; });
    team_.run([&](int worker) {
      if (!rows_.make_together()) return;
      for (WorkQueue::Run run; queue_.take(worker, run);)
        while (run.begin < run.end) {
          const int64_t block = run.begin / num_panels_, begin = run.begin % num_panels_;
          const int64_t end = std::min(num_panels_, begin + run.end - run.begin);
          multiply(worker, {begin, end, border(block), border(block + 1)});
          run.begin += end - begin;
        }
    });
  }

 private:
  void multiply(int worker, const Tile& tile) const {
    if (gate_ != nullptr) {
      for (int64_t panel = tile.panel_begin; panel < tile.panel_end; ++panel) multiply_gated(worker, panel, tile);
      return;
    }
    int64_t first = 0;
    for (const PackedSource& source : w_.sources) {
      Tile own = tile;
      own.panel_begin = std::max<int64_t>(tile.panel_begin - first, 0);
      own.panel_end = std::min(tile.panel_end - first, source.num_panels);
      if (own.panel_begin < own.panel_end) multiply_source(worker, source.panels, own, y_ + source.first_row, ldy_);
      first += source.num_panels;
    }
  }

  // A panel of the gate and one of what it multiplies, through memory in the caches.
  void multiply_gated(int worker, int64_t panel, const Tile& tile) const {
    float* y = y_ + panel * panel_;
    for (int64_t row = tile.row_begin; row < tile.row_end; ++row)  // other weights have passed through the caches since
      for (int64_t i = 0; i < panel_; i += 16) __builtin_prefetch(y + row * ldy_ + i, 1);
    float* const sides = reinterpret_cast<float*>(memory_ + worker_bytes_ * worker + w_.kernels->scratch_bytes);
    for (size_t side = 0; side < 2; ++side) {
      Panels one = w_.sources[side].panels;
      one.data += panel * one.panel_bytes;
      one.rows -= panel * panel_;
      multiply_source(worker, one, {0, 1, tile.row_begin, tile.row_end},
                      sides + static_cast<int64_t>(side) * side_floats_, panel_);
    }
    float* rows = sides + tile.row_begin * panel_;
    gate_(rows, rows + side_floats_, (tile.row_end - tile.row_begin) * panel_, rows);
    const auto bytes = static_cast<size_t>(std::min(panel_, w_.rows / 2 - panel * panel_)) * sizeof(float);
    for (int64_t row = tile.row_begin; row < tile.row_end; ++row, rows += panel_)
      std::memcpy(y + row * ldy_, rows, bytes);
  }

  void multiply_source(int worker, Panels panels, const Tile& tile, float* to, int64_t ld) const {
    panels.scheme = scheme_of(*w_.kernels, panels, m_);
    w_.kernels->multiply({.w = panels,
                          .x = rows_.rows(panels.scheme),
                          .y = to,
                          .ldy = ld,
                          .panel_begin = tile.panel_begin,
                          .panel_end = tile.panel_end,
                          .row_begin = tile.row_begin,
                          .row_end = tile.row_end,
                          .scratch = memory_ + worker_bytes_ * worker});
  }

  const PackedLinear::Impl& w_;
  RowMaker& rows_;
  const int64_t m_;
  float* const y_;
  const int64_t ldy_;
  void (*const gate_)(const float* gate, const float* up, long long n, float* y);  // or null
  const int64_t panel_, num_panels_;
  WorkerTeam& team_;
  const int workers_;
  WorkQueue& queue_;
  const int64_t side_floats_, worker_bytes_;  // of each worker: of one side of a gate, of all its memory
  char* const memory_;
};

void check_shapes(const PackedLinear::Impl& w, int64_t m, int64_t ldx, int64_t ldy, bool gated) {
  check(!gated || (w.sources.size() == 2 && w.sources[0].panels.rows == w.sources[1].panels.rows),
        ErrorCode::invalid_shape, "linear: a gate with weights of {} sources; two of as many rows are needed",
        w.sources.size());
  const int64_t out_cols = gated ? w.rows / 2 : w.rows;
  check(m >= 0 && ldx >= w.cols && ldy >= out_cols, ErrorCode::invalid_shape,
        "linear: m = {}, ldx = {}, ldy = {} for weights {} x {}; ldx must be at least cols, ldy at least {}", m, ldx,
        ldy, w.rows, w.cols, out_cols);
}

}  // namespace

void linear(const PackedLinear& weights, const float* x, int64_t m, int64_t ldx, float* y, int64_t ldy,
            Scratch& scratch, WorkerTeam& team, const Fusion& fusion) {
  const PackedLinear::Impl& w = weights.impl();
  check_shapes(w, m, ldx, ldy, fusion.gate_epilogue != nullptr);
  if (m == 0) return;
  RowMaker rows(w, x, m, ldx, scratch.impl(), team, fusion);
  if (m > kMadeTogether) rows.make_all(team);
  Product product(w, rows, m, y, ldy, scratch.impl(), team, fusion);
  if (m <= kFusedRows)
    product.run_few_rows();
  else
    product.run_many_rows();
}

}  // namespace weft::gemm
