// The CPU core of attention as the host sees it: one table of functions per instruction set.
//
//   const CoreTable& core = core_for(isa);
//   core.attend(args, item, scratch);              // one work item of a plan
//   core.merge(args, group, scratch);              // one merge group, all of whose items are done
//
// Plain structs and no standard header: the sources of the core are compiled once per instruction set.
#pragma once

#include "attention/kernels/abi.h"

namespace weft {
enum class Isa : unsigned char;
}

namespace weft::attention::cpu {

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

struct AttendArgs {
  const PlanHeader* plan;
  const abi::Leaf* leaf;
  const abi::Slot* params;
  RowsView q, o;
  TokensView k, v;
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
  int compute_bf16;
  int compute_digits;  // integer keys and values times queries and probabilities of 16 bits
  int check_masks;     // treat every tile as a boundary and compare its class with its intervals
  int* mask_error;     // set to 1 when they disagree
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

// A tile of scores, as the leaf leaves them where the variant has one.
struct SoftmaxTile {
  const abi::ScoreRow* rows;
  const int* kv_positions;      // [num_kv_padded]; -1 where there is no key, which makes it a boundary tile
  int num_rows, num_kv_padded;  // a multiple of kColumnStep
  int use_softmax;
  int boundary;   // 0: every row sees every column
  float scale;    // of the scores; 1 where the leaf has scaled them
  float* scores;  // out: probabilities, relative to the row's m; without softmax the scaled scores; 0 where hidden
  long long ld;   // row stride, in elements
  unsigned short* probs_bf16;  // out, in place of scores: the same, rounded. Null: not wanted
  float* m;                    // [num_rows] running maximum of the logits, natural; -inf before the first tile
  float* l;                    // [num_rows] running sum of exp(logit - m)
  float* alpha;                // [num_rows] out: factor for what was accumulated before; 1 without softmax
};

struct CoreTable {
  // Bytes of scratch, 64-byte aligned, that the items of a unit need, and the merge groups of `kv_heads` heads.
  long long (*attend_scratch)(const AttendArgs& args, const Unit& unit);
  long long (*merge_scratch)(const AttendArgs& args, int kv_heads);
  void (*attend)(const AttendArgs& args, const WorkItem& item, char* scratch);
  void (*merge)(const AttendArgs& args, const MergeGroup& group, char* scratch);
  void (*softmax)(const SoftmaxTile& tile);
  // Rows [begin, end).
  void (*merge_states)(const MergeStatesArgs& args, long long begin, long long end);
};

// Runs only where the machine has the instruction set.
const CoreTable& core_for(Isa isa);

// Units of tile class 0 use keys and values as they are stored (decode), the others pack them first. Those of class 1 are
// the only ones that read their keys, which come from memory (short prompts after long contexts, shared prefixes); what
// longer prompts read (class 2) stays in the caches from tile to tile.
inline constexpr int kDirectClass = 0, kStreamedClass = 1;

inline constexpr int kMaxHeadDim = 576;

}  // namespace weft::attention::cpu
