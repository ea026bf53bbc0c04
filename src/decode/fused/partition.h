// Who streams which weights, and where sums go: a pure function of the program, of its weights' types and of a machine.
//
//   const Partition partition = make_partition(program, form_of(program, sources), {.workers = 132});
//   fmt::print("{}", to_string(partition));
//
// Every matrix is one line of tiles (tiles.h), cut evenly among all workers. A band that is cut leaves a partial sum
// from each worker that has some of its tiles. Sums lie in numbered slots, 16 columns of every row of the step each:
// slots are numbered along the line, so a band's slots follow each other, and whoever reads a band adds them in that
// order. The last product is cut between bands alone: its slots are the logits.
//
//   line of tiles   | band 0          | band 1          | band 2          |
//   workers         |---- 0 ----|----- 1 -----|----- 2 ------|--- 3 ------|
//   slots             0           1     2       3     4        5   6
//
// What a product multiplies lies in a worker's own memory, for kMostRows rows, or for as many of 4, 2 and 1 as the
// head's columns fit in. A matrix of more columns than x_bytes holds has panels (tiles.h); workers are dealt to panels
// in order, and share each evenly. Slots are numbered along the line all the same, so a band has slots in each panel:
// readers add those of panel 0, then of panel 1, and so on. The number of panels follows from model and machine alone,
// so a row has the same bits whatever stands beside it.
//
// Sums become what the next product multiplies by reductions: columns have owners, in cells of 16.
//
// Parameters are read once, by one worker; what they multiply is read by all. Layers that are alike share what is here.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/fused/item_rows.h"
#include "decode/fused/phases.h"
#include "decode/fused/tiles.h"

namespace weft::decode::fused {

inline constexpr int kMostRows = 8;                 // of a step
inline constexpr int64_t kAlignment = 16;           // of every copy into a ring, in bytes
inline constexpr int kMostSharedBytes = 227 << 10;  // of a CTA on sm_90

// A card's kernels are for steps of up to 1, 2, 4 and 8 rows.
constexpr int kernel_rows(int64_t rows) { return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(rows))); }

// Of cells, rows or columns.
struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  friend bool operator==(const Range&, const Range&) = default;
};

// How workers hand on what others read.
enum class EdgeForm : uint8_t {
  counter,  // all arrive at a counter behind each phase, and who reads waits for all
  tagged,   // a cell says which phase wrote it, and who reads waits for the cells that it reads (tile/cuda/edge.h)
};
std::string_view to_string(EdgeForm form);

// What a kernel runs on.
struct Machine {
  int workers = 1;                 // CTAs, or threads
  int64_t tile_cols = 64;          // of a tile of weights, at most, but for types of larger blocks
  int64_t ring_bytes = 192 << 10;  // of each worker: what it has loaded ahead
  int64_t entry_bytes = 32 << 10;  // of the ring, at most: what is loaded, waited for and released as one
  // Entries of phases that have a size of their own.
  std::vector<std::pair<WeightRole, int64_t>> entry_bytes_of = {};
  // For the columns of a product's input in bf16: a matrix of more has panels. Of kMostRows rows, or of fewer where the
  // head, which has one panel, has more columns.
  int64_t x_bytes = 128 << 10;
  int max_entries = 16;  // of the ring that are in use at once: it has so many barriers
  // Tokens of an item of attention: the same for a row whatever stands beside it. Their keys and values are an entry.
  int kv_chunk = 64;
  EdgeForm edge = EdgeForm::counter;

  int64_t entry_bytes_for(WeightRole role) const;
};

struct MatrixPartition {
  WeightRole role = WeightRole::head;
  int layer = -1;  // within the period; -1: behind the layers
  TiledMatrix tiles = {};
  int64_t entry_bytes = 0;
  std::vector<int64_t> borders = {};      // [workers + 1]: worker w has tiles [borders[w], borders[w + 1])
  std::vector<int32_t> first_slot = {};   // [strips + 1], so of panel p and band b: [p * bands + b]
  std::vector<int32_t> worker_slot = {};  // [workers]: of the worker's first tile

  int num_slots() const { return first_slot.back(); }
  Range tiles_of(int worker) const {
    return {borders[static_cast<size_t>(worker)], borders[static_cast<size_t>(worker) + 1]};
  }
  int64_t entry_tiles() const { return entry_bytes / tiles.parts[0].tile_bytes; }
  int most_pieces() const;  // sums of a band within a panel
  // In the order in which a band's pieces are added.
  template <class Visit>
  void each_slot(int64_t band, const Visit& visit) const {
    for (int64_t strip = band; strip < tiles.num_strips(); strip += tiles.num_bands)
      for (int slot = first_slot[static_cast<size_t>(strip)]; slot < first_slot[static_cast<size_t>(strip) + 1]; ++slot)
        visit(slot);
  }
};

struct Partition {
  Machine machine = {};
  Program program = {};
  Phases phases = {};
  int period = 0;                              // layers after which operations and types of weights repeat
  std::vector<MatrixPartition> matrices = {};  // of the period's phases in their order, then of the head
  TiledMatrix embedding = {};                  // rows of it are gathered

  const MatrixPartition& matrix_of(const Phase& phase) const;
  const MatrixPartition& matrix_of(WeightRole role, int layer) const;  // of the head: any layer
  // The matrix whose sums the buffer holds.
  const MatrixPartition& matrix_of(Shared sums, int layer) const;
  // Cells of a shared buffer: slots of sums, 16 columns of an attended head or of what a reduction leaves. Not of
  // states, which plans number.
  int64_t num_cells(Shared shared, int layer) const;
  // Cells of 16 columns that the worker makes by reductions, or merges states to (shares.h).
  Range owned_cells(Shared shared, int worker) const;
  int64_t head_cells() const { return (program.head_dim + kBandRows - 1) / kBandRows; }  // of an attended head
  Range attended_cells(Range columns) const;
};

// Shares the line out: panels to workers in order, each panel evenly, at tiles or at whole bands. Role, layer and
// entry_bytes are the caller's.
MatrixPartition deal(TiledMatrix tiles, int workers, bool whole_bands = false);

// Fewer workers than x_bytes makes panels: a panel each, as far as tiles divide so, and wider than x_bytes.
// More workers than a matrix has tiles: some have none of it, and do no more than arrive at the join.
// Throws Error(invalid_argument) for a machine without workers, a ring of less than two entries, entries that are
// smaller than a tile or not whole copies, x_bytes that hold no tile or not the head, Error(unsupported) for more than
// kItemRows query heads per KV head, and what make_phases and tile throw.
Partition make_partition(const Program& program, const ModelForm& form, const Machine& machine);

std::string to_string(const Partition& partition);

}  // namespace weft::decode::fused
