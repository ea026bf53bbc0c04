// What planner, host code and kernels of attention share: the plan as it lies in the workspace, and the tensors of a
// call. Plain structs, 32-bit fields, sections at byte offsets from the header; the same for every backend.
//
// A plan is a list of units: (rows, KV heads, pages). A work item is a chunk of a unit's keys, for
// one worker. An item that covers its unit alone writes the output; otherwise it writes a partial state, and the item
// that arrives last at a merge group merges the group's partials in plan order.
#pragma once

#include "tile/abi/leaf.h"

namespace weft::attention {

inline constexpr unsigned long long kPlanMagic = 0x354e414c50544657ull;  // "WFTPLAN5"
inline constexpr int kOpenEnd = 0x7fffffff;  // kv_end of a last chunk: ends where the page list ends at run time

// How a kernel computes a unit. Each tile class of a kernel has a kind of its own, and a unit carries that of its
// class: kernels ask for nothing else. The planner reads nothing into it; a kernel that computes in another way adds a
// kind.
enum class TileKind : int {
  direct,    // keys and values are used as they are stored (decode)
  streamed,  // they are packed first; the unit is the only one to read its keys, which come from memory
  packed,    // they are packed first; units of other rows read the same keys, which stay in the caches
};
inline constexpr int kMaxTileClasses = 3;

// One query token. `pos` is its position among the keys: kv_len - qo_len + index (bottom-right).
struct PlanRow {
  int q_row;  // row of q and o
  int request;
  int idx;  // index within its request
  int pos;
};

// The keys a unit attends: consecutive tokens, the first at position first_pos. Token t (from 0) lies
//   paged:      in page page_indices[first + t / page_size], slot t % page_size
//   otherwise:  in row first + t of the token axis
// len < 0: the list goes on to the end of `request`, kv_len[request] - first_pos tokens.
// The KV heads [kv_head_begin, kv_head_end) of the rows [row_begin, row_end) attend it; `request` is that of the first
// of them. Rows of several requests share a list where they share a level: level 0 is the most shared, and a request's
// levels follow each other in position.
struct PageList {
  long long first;
  int first_pos;
  int len;
  int request;
  int level;
  int row_begin, row_end;  // into rows
  int kv_head_begin, kv_head_end;
};

struct Unit {
  int row_begin, row_end;  // into rows
  int kv_head_begin, kv_head_end;
  int page_list;
  TileKind tile_kind;  // of its tile class
  // The merge groups that its partials belong to: merge_begin + i * merge_stride + j (merge_stride of the header)
  // for i < merge_rows, j < merge_heads. None: it is written directly.
  int merge_begin, merge_rows, merge_heads;
};

struct WorkItem {
  int unit;
  int kv_begin, kv_end;  // tokens of the unit's page list; kv_end may be kOpenEnd
  int partial;           // -1: writes the output itself, else its partial's index
};

// Partial p holds, for each of its unit's rows x query heads (row-major: row, then query head from
// kv_head_begin * group), head_dim_vo fp32 of o and two of lse; `offset` counts floats from the partials section:
// first rows * heads * head_dim_vo of o (normalised when softmax is used), then rows * heads of lse, then as many that
// say what rounding took from each lse: 0 unless the row's largest logit is far from 0.
struct Partial {
  long long offset;
  int unit;
  int reserved;
};

// The rows [row_begin, row_end) x KV heads whose partials are merged together once `expected` items have arrived.
struct MergeGroup {
  int row_begin, row_end;
  int kv_head_begin, kv_head_end;
  int source_begin, source_end;  // into merge sources, in plan order
  int expected;
  int counter;  // index into counters
};
struct MergeSource {
  int partial;
  int row_offset;  // the group's first row within the partial's unit
};

// Floats of one row and head of a partial, and of a partial of so many, in whole cache lines.
inline constexpr long long floats_of_state(int head_dim_vo) { return head_dim_vo + 2; }
inline constexpr long long partial_floats(long long states, int head_dim_vo) {
  return (states * floats_of_state(head_dim_vo) + 15) & ~15ll;
}

// A work item with all that the sections say of it, for kernels to which each load on the way to the first key is a
// trip to memory. Records lie right behind the header (kRecordsOffset): that of a worker's first item is the worker's
// own, and `next` leads to the others. They name no length that grows: an open-ended item reads kv_len beside its page
// ids.
struct alignas(16) ItemRecord {
  int next;            // record of the worker's next item; -1: none
  TileKind tile_kind;  // of the unit
  int kv_head_begin, kv_head_end;
  int row_begin, num_rows;  // into rows; no rows: the worker has no item
  // Not negative: the rows follow each other in q from here on, and are tokens idx, idx + 1, ... of the request's
  // qo_len, at positions kv_len[request] - qo_len + idx, ... Else -1: as `rows` says.
  int q_row;
  int block_row;             // row_begin, counted from the page list's first row
  int request, idx, qo_len;  // the page list's request
  int first_pos;             // of the page list
  int kv_begin, kv_end;
  long long first;        // of the page list
  long long partial;      // own, floats into partial_data; -1: the item writes the output
  int chunk, num_chunks;  // of the unit, of one level; their partials follow each other
  // As in Unit. Of one level the one group is the unit: merge_begin is its counter, and its sources are the unit's
  // chunks.
  int merge_begin, merge_rows, merge_heads;
  int num_page_ids;  // of the page list, as long as it was when the plan was written
};
static_assert(sizeof(ItemRecord) == 96);

// Interval bounds, resolved: position = (q_pos ? row pos : 0) + (kv_len ? kv_len : 0) + constant.
struct BoundTerm {
  int q_pos, kv_len, constant;
};
inline constexpr int kMaxTerms = 6;
struct ResolvedInterval {
  int num_lower, num_upper;
  BoundTerm lower[kMaxTerms], upper[kMaxTerms];
};
inline constexpr int kMaxIntervals = 2;
inline constexpr int kMaxScalars = kMaxIntervals * 2 * kMaxTerms;

// Bytes of a pattern of bits: row-major, little-endian.
inline constexpr long long bytes_of_bits(int rows, int columns) {
  return (static_cast<long long>(rows) * columns + 7) / 8;
}

struct Section {
  long long offset;  // bytes from the header
  long long count;   // elements in use
};
// Typed view of a section of a plan at `base` (a Plan's bytes or a workspace).
template <class T>
inline T* section(const void* base, const Section& s) {
  return reinterpret_cast<T*>(static_cast<char*>(const_cast<void*>(base)) + s.offset);
}

struct PlanHeader {
  unsigned long long magic;
  unsigned long long signature;  // kernels with this signature may run the plan
  unsigned long long bounds;     // digest of the plan's bounds; 0: it was made without
  long long total_bytes;
  int num_workers, num_requests, num_qo_heads, num_kv_heads;
  int head_dim_vo, page_size;  // page_size 0: ragged or padded
  int num_intervals;           // 0: every key
  int fixed_split_size;
  int num_levels;
  int block_rows;          // block-sparse: query tokens of a list; else 0
  int positions_per_page;  // 0: keys follow each other from first_pos on; 1: pages have positions; page_size: keys have
  int tile_kinds;          // bit k: some unit has TileKind k; with bounds: some plan within them may have
  int merge_stride;        // merge groups from one range of rows to the next, of units that share rows
  long long num_rows_q;    // rows of q
  long long num_pool_pages;  // paged: extent of the pool; else of the token axis
  long long mask_bytes;      // that a custom mask has, at least
  ResolvedInterval intervals[kMaxIntervals];
  int scalars[kMaxScalars];  // that the bounds named, in the order of interval_scalars; the others 0
  // Written by the planner, copied by upload:
  Section records;        // ItemRecord, where the kernel asks for them: first of all
  Section worker_indptr;  // int [workers + 1] into items
  Section items;          // WorkItem
  Section units;          // Unit
  Section rows;           // PlanRow
  Section page_lists;     // PageList
  Section partials;       // Partial
  Section merge_groups;   // MergeGroup
  Section merge_sources;  // MergeSource
  Section qo_len;         // int [requests]
  Section kv_len;         // int [requests], current lengths
  Section mask_indptr;    // long long [requests + 1], of custom masks
  Section page_indices;   // int
  // Block-sparse, by entries of page_indices:
  Section kv_positions;  // int, positions_per_page for each
  Section bits_index;    // int, -1: every row sees the whole page; else a pattern
  Section bits;          // bytes, patterns of block_rows x page_size bits
  // Zero, and by the kernel's doing after every run.
  Section counters;  // int, one per merge group
  // Owned by the kernel: never initialised.
  Section partial_data;  // float
};

inline constexpr long long kRecordsOffset = (sizeof(PlanHeader) + 63) / 64 * 64;

// ---------------------------------------------------------------- tensors of a call, as every kernel finds them

inline constexpr int kMaxHeadDim = 576;

enum class Element : int { fp32, fp16, bf16, e4m3, e5m2, int8, int4 };
constexpr int bits_of(Element element) {
  constexpr int kBits[] = {32, 16, 16, 8, 8, 8, 4};
  return kBits[static_cast<int>(element)];
}

// Rows x heads of a tensor; strides in bytes.
struct RowsView {
  char* data;
  long long row_stride, head_stride;
  Element element;
};

// Keys, values or their scales. Row t of the token axis lies at data + (t / page_size) * page_stride
// + (t % page_size) / group * token_stride; ragged: page_size 0, data + t / group * token_stride.
struct TokensView {
  const char* data;
  long long page_stride, token_stride, head_stride;
  int group;  // tokens that share a row
};

// Whose scale a stored number has.
enum class Scaling : int { none, head, token };

// What one run of a plan is given, checked against it.
struct RunArgs {
  const abi::Slot* params;  // sm_scale, then what the variant declares
  RowsView q, o;
  TokensView k, v;
  // Extents of both, the smaller ones: of pages (1: ragged), and of the token axis.
  long long kv_pages, kv_tokens;
  // Latent rows: a value is the beginning of its key, v is k, and the last rope_dim elements of a key lie in `rope`, or
  // with the others where rope_dim is 0.
  int v_is_k_prefix, rope_dim;
  TokensView rope;
  Element kv_element;
  Scaling scaling;              // of K and V alike
  TokensView k_scale, v_scale;  // fp32
  int paged;                    // page lists go through page_indices, else they name rows of the token axis
  int token_page_size;          // paged: page size; padded: extent of the token axis; ragged: 0
  float* lse;                   // null: not wanted
  long long lse_row_stride, lse_head_stride;  // in elements
  int head_dim_qk, head_dim_vo, group_size;
};

// Vectors of dim elements, a multiple of 8 up to kMaxHeadDim; n states a row (indptr null), or states
// [indptr[row], indptr[row + 1]) of one list. Strides: o in bytes, lse in elements.
struct MergeStatesArgs {
  const char* o;
  const float* lse;
  const int* indptr;
  long long num_states;
  long long o_state_stride, o_row_stride, o_head_stride;
  long long lse_state_stride, lse_row_stride, lse_head_stride;
  Element element;
  RowsView o_out;
  float* lse_out;
  long long lse_out_row_stride, lse_out_head_stride;
  int num_heads, dim;
};

}  // namespace weft::attention
