// Plans: who computes what of one step, from lengths alone. kernel.plan (weft/attention.h) makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.h"
#include "weft/page_table.h"
#include "weft/tensor.h"

namespace weft {

// balanced     all work on one line, cut at worker boundaries (default)
// paper        FlashInfer's Algorithm 1: chunks of one size, largest first onto the least loaded worker
// fixed_split  chunks of fixed_split_size tokens from each request's start: batch-invariant
// no_split     a unit is never cut
// even         in closed form, for requests of as many query tokens that one tile holds (decode): a card makes the same
//              plan from lengths that only it knows (AttentionKernel::plan_on_device)
enum class PlanMode : uint8_t { balanced, paper, fixed_split, no_split, even };
std::string_view to_string(PlanMode mode);

// A named number: an integer scalar for plan, any declared scalar for run. Those that plan was given, or took a default
// for, hold for run too: it may leave them out, and another number there is refused.
struct ScalarArg {
  std::string name;
  double value;
};

// Composable formats: a request's keys are those of its entries on every level, level after level. Entry g of a level
// is query tokens [qo_indptr[g], qo_indptr[g + 1]), of one request or of several that share the entry's pages: those
// pages are read once for all of them. Level 0 is the most shared; requests of one entry begin it at the same position.
struct Level {
  std::span<const int32_t> qo_indptr;  // [entries + 1], ends at the number of query tokens
  PageTableView pages;                 // of [entries]; an entry without pages adds no key
};
inline constexpr int kMaxLevels = 8;

struct PlanInput {
  int num_qo_heads = 0;
  int num_kv_heads = 0;                     // divides num_qo_heads
  std::span<const int32_t> qo_indptr = {};  // [batch + 1], starts at 0, never decreases; empty: the last level's
  // One of the four, as the spec's kv_form says:
  PageTableView pages = {};  // paged, latent
  const struct BlockSparse* blocks = nullptr;
  std::span<const int32_t> kv_indptr = {};  // ragged [batch + 1]
  std::span<const int32_t> kv_len = {};     // padded [batch]
  int64_t max_kv_len = 0;                   // padded: extent of the tensor's token axis
  int num_workers = 0;  // 0: as many as run at once, within the bounds; on the CPU, the shared team's
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;            // fixed_split: tokens of a chunk
  std::span<const Level> levels = {};  // instead of pages
  // With levels: [batch], the order of requests in which levels count query tokens; empty: as they are. So requests
  // that share pages need not stand together in q.
  std::span<const int32_t> request_order = {};
  // Of a custom mask [batch + 1], begins at 0 and never decreases: request r's elements, qo_len x kv_len of them, lie
  // in mask[mask_indptr[r]] to mask[mask_indptr[r + 1]]; of custom_packed it counts bytes.
  std::span<const int64_t> mask_indptr = {};
  std::vector<ScalarArg> scalars = {};  // integer scalars that intervals name, e.g. window_left
  // Given: the plan needs the bytes of these bounds, and one beyond them is refused.
  const struct PlanBounds* bounds = nullptr;
  // Room for so many page ids more than there are: the plan covers steps in which requests have got further pages. Not
  // with bounds, which say how many there may be.
  int64_t spare_pages = 0;
  // true: page ids are not copied into the plan; `pages` must live, unchanged, until the plan was uploaded.
  bool borrow_page_ids = false;
};

// The largest plans that a workspace is made for: every plan made with them needs as many bytes, and a graph that
// captured the run of one of them runs whichever was uploaded last.
struct PlanBounds {
  int max_requests = 0;
  int64_t max_rows = 0;  // query tokens of a step
  int max_qo_len =
      0;  // of a request, without levels; 0: as max_rows. Decode says 1, and runs kernels of small tiles alone
  int64_t max_pages = 0;  // entries of kv_page_indices, of all levels, or of block_indices; 0 for ragged and padded
  int max_levels = 1;
  int64_t max_kv_len = 0;  // of a request; block-sparse: keys of a list, and positions
  int page_size = 0;       // 0 for ragged and padded; block-sparse: block_cols
  int num_qo_heads = 0, num_kv_heads = 0;
  int workers = 0;
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
  // Block-sparse alone: query tokens of a row block, entries of kv_positions for each listed block, bytes of bits.
  int block_rows = 0, positions_per_block = 0;
  int64_t max_bits_bytes = 0;
};

// Where the plan of pages_to_set (weft/block_sparse.h) that lies in a workspace keeps its pages, for choose_pages and
// set_pages (weft/quest.h) to write: int32, in the workspace's memory, and good until the next upload.
struct PlannedPages {
  TensorView page_ids;     // [num_kv_heads, batch, budget]
  TensorView positions;    // the same, of each page's first key
  TensorView kv_len;       // [batch]
  TensorView q_positions;  // [batch, qo_len]
  int page_size = 0;
  int64_t num_pages = 0;  // of the pool
};

// Who computes what. A pure function of lengths: no tensor is read, and the same input gives the same bytes.
class Plan {
 public:
  Plan();
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  size_t workspace_bytes() const;  // exact
  // Copies the plan into the workspace. Throws Error(workspace_too_small) and leaves it as it was.
  void upload(Workspace& workspace, Stream stream = {}) const;
  // True while the plan is right for these lengths too: same requests, same pages as far as they were
  // listed, every length within its last chunk. Then `update` brings lengths and page ids up to date.
  bool covers(const PlanInput& input) const;
  void update(const PlanInput& input);  // Throws Error(plan_mismatch) unless covers(input).

  int num_workers() const;
  int num_items() const;
  int num_partials() const;
  double makespan() const;     // cost of the busiest worker
  double lower_bound() const;  // max(total / workers, largest uncuttable item)
  uint64_t signature() const;
  std::string to_string() const;  // a table of workers and work items
  std::string to_svg() const;

  struct Impl;
  const Impl& impl() const;

 private:
  friend class Planner;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
