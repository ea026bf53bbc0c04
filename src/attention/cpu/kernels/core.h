// The CPU core of attention as the host sees it: one table of functions per instruction set.
//
//   const CoreTable& core = core_for(isa);
//   core.attend(args, item, scratch);              // one work item of a plan
//   core.merge(args, group, scratch);              // one merge group, all of whose items are done
//
// Plain structs and no standard header: the sources of the core are compiled once per instruction set.
#pragma once

#include "attention/abi.h"

namespace weft {
enum class Isa : unsigned char;
}

namespace weft::attention::cpu {

// What keys and queries, and values and probabilities, are multiplied in. int8: integer keys and values times queries
// and probabilities of 16 bits; what a hook made of them is multiplied in fp32.
enum class Compute : int { fp32, bf16, int8 };

// A run as the core sees it.
struct AttendArgs : RunArgs {
  const PlanHeader* plan;
  const abi::Leaf* leaf;
  Compute compute;
  // Null, or: every tile is treated as a boundary tile, and 1 is stored where its class disagrees with its rows'
  // intervals.
  int* mask_error;
  // Whether products in bf16 may be made in tiles of registers (has_bf16_tiles). Many rows are multiplied so then, and
  // few ones, whose keys and values no hook makes, in fp32.
  bool has_tiles;
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

}  // namespace weft::attention::cpu
