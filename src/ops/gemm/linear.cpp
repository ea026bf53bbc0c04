// Who multiplies what: panels dealt by bytes for a few rows (the weights' bytes are the cost), row blocks x panels for
// many. Both are fixed by the shapes and the number of workers alone.
#include "ops/gemm/linear.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ops/gemm/packed.h"

namespace weft::gemm {

struct Scratch::Impl {
  // Activations of one scheme.
  struct Activations {
    Workspace data, scales, sums, real_sums;
  };
  std::array<Activations, kNumSchemes> activations;
  Workspace workers;
};

namespace {

constexpr int64_t kSerialPrepare = 16384;  // elements that one thread prepares faster than several would start

template <class T>
T* at_least(Workspace& workspace, int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  if (workspace.bytes() < bytes) {
    workspace = Workspace();
    workspace = Workspace(Device::cpu(), bytes);
  }
  return static_cast<T*>(workspace.data());
}

Rows prepare_rows(const KernelTable& kernels, Scheme scheme, const float* x, int64_t m, int64_t ldx, int64_t cols,
                  Scratch::Impl& scratch, WorkerTeam& team) {
  Rows rows{};
  if (scheme == Scheme::fp32) {
    rows.data = reinterpret_cast<char*>(const_cast<float*>(x));
    rows.row_bytes = ldx * 4;
    return rows;
  }
  Scratch::Impl::Activations& activations = scratch.activations[static_cast<size_t>(scheme)];
  const int64_t padded = (m + kernels.tile_rows - 1) / kernels.tile_rows * kernels.tile_rows;
  rows.row_bytes = activation_bytes(scheme, cols);
  rows.data = at_least<char>(activations.data, padded * rows.row_bytes);
  if (scheme != Scheme::bf16_dot) {
    rows.blocks = cols / kBlock;
    rows.scales = at_least<float>(activations.scales, padded * (scheme == Scheme::quad8 ? rows.blocks : 1));
    rows.sums = at_least<int>(activations.sums, padded * rows.blocks);
    rows.real_sums = at_least<float>(activations.real_sums, padded * rows.blocks);
  }
  if (m * cols <= kSerialPrepare) {
    for (int64_t row = 0; row < m; ++row) kernels.prepare(scheme, x + row * ldx, cols, rows, row);
    return rows;
  }
  const int workers = team.num_workers();
  team.run([&](int worker) {
    for (int64_t row = m * worker / workers; row < m * (worker + 1) / workers; ++row)
      kernels.prepare(scheme, x + row * ldx, cols, rows, row);
  });
  return rows;
}

// The panels, counted over all parts, where worker `worker` begins: cut by bytes.
int64_t panel_border(const PackedLinear::Impl& w, int worker, int workers) {
  int64_t total = 0;
  for (const PackedPart& part : w.parts) total += part.num_panels * part.panels.panel_bytes;
  int64_t wanted = total / workers * worker + total % workers * worker / workers, first = 0;
  for (const PackedPart& part : w.parts) {
    const int64_t panels = wanted / part.panels.panel_bytes;
    if (panels < part.num_panels) return first + panels;
    wanted -= part.num_panels * part.panels.panel_bytes;
    first += part.num_panels;
  }
  return w.num_panels;
}

}  // namespace

Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

void linear(const PackedLinear& weights, const float* x, int64_t m, int64_t ldx, float* y, int64_t ldy,
            Scratch& scratch, WorkerTeam& team) {
  const PackedLinear::Impl& w = weights.impl();
  check(m >= 0 && ldx >= w.cols && ldy >= w.rows, ErrorCode::invalid_shape,
        "linear: m = {}, ldx = {}, ldy = {} for weights {} x {}; ldx must be at least cols, ldy at least rows", m, ldx,
        ldy, w.rows, w.cols);
  if (m == 0) return;
  const KernelTable& kernels = *w.kernels;
  Rows prepared[kNumSchemes];
  bool is_prepared[kNumSchemes] = {};
  for (const PackedPart& part : w.parts) {
    const auto scheme = static_cast<size_t>(part.panels.scheme);
    if (is_prepared[scheme]) continue;
    prepared[scheme] = prepare_rows(kernels, part.panels.scheme, x, m, ldx, w.cols, scratch.impl(), team);
    is_prepared[scheme] = true;
  }
  const int workers = team.num_workers();
  const int64_t scratch_bytes = (kernels.scratch_bytes + 63) / 64 * 64;
  char* worker_scratch = at_least<char>(scratch.impl().workers, scratch_bytes * workers);

  // Panels [begin, end), counted over all parts, times rows [row_begin, row_end).
  const auto multiply = [&](int worker, int64_t begin, int64_t end, int64_t row_begin, int64_t row_end) {
    int64_t first = 0;
    for (const PackedPart& part : w.parts) {
      const int64_t part_begin = std::max<int64_t>(begin - first, 0), part_end = std::min(end - first, part.num_panels);
      if (part_begin < part_end)
        kernels.multiply({.w = part.panels,
                          .x = prepared[static_cast<size_t>(part.panels.scheme)],
                          .y = y + part.first_row,
                          .ldy = ldy,
                          .panel_begin = part_begin,
                          .panel_end = part_end,
                          .row_begin = row_begin,
                          .row_end = row_end,
                          .scratch = worker_scratch + scratch_bytes * worker});
      first += part.num_panels;
    }
  };
  if (m <= kFusedRows) {
    team.run([&](int worker) {
      multiply(worker, panel_border(w, worker, workers), panel_border(w, worker + 1, workers), 0, m);
    });
    return;
  }
  const int64_t row_blocks = (m + kRowBlock - 1) / kRowBlock, items = row_blocks * w.num_panels;
  const int64_t tiles = (m + kernels.tile_rows - 1) / kernels.tile_rows;
  const auto row_border = [&](int64_t block) { return std::min(m, tiles * block / row_blocks * kernels.tile_rows); };
  team.run([&](int worker) {
    int64_t item = items * worker / workers;
    const int64_t end = items * (worker + 1) / workers;
    while (item < end) {
      const int64_t block = item / w.num_panels, begin = item % w.num_panels;
      const int64_t stop = std::min(w.num_panels, begin + end - item);
      multiply(worker, begin, stop, row_border(block), row_border(block + 1));
      item += stop - begin;
    }
  });
}

}  // namespace weft::gemm
