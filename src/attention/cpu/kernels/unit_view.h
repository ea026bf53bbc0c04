// A unit of a plan as the kernels see it.
#pragma once

#include "attention/cpu/kernels/core.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

constexpr int round_up(int n, int step) { return (n + step - 1) / step * step; }
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }

// What words of packed products are: floats, pairs of bf16, or pairs that are multiplied in tiles of registers.
enum class Words { floats, pairs, tiles };

// Elements of a word of a product.
inline int per_word(const AttendArgs& args) { return args.compute == Compute::bf16 ? 2 : 1; }

// How packed products over `dim` elements are multiplied; of those over tokens, which are padded, it is kColumnStep.
inline Words packed_words(const AttendArgs& args, int dim) {
  if (args.compute != Compute::bf16) return Words::floats;
  return args.has_tiles && dim % abi::kColumnStep == 0 ? Words::tiles : Words::pairs;
}

// What all items of a unit have in common: its rows, heads and page list.
struct UnitView {
  UnitView(const AttendArgs& run, const Unit& of)
      : args(run),
        plan(*run.plan),
        unit(of),
        list(section<PageList>(run.plan, plan.page_lists)[of.page_list]),
        rows(section<PlanRow>(run.plan, plan.rows) + of.row_begin),
        num_rows(of.row_end - of.row_begin),
        first_head(of.kv_head_begin),
        heads(of.kv_head_end - of.kv_head_begin),
        group_rows(num_rows * run.group_size),
        states(group_rows * heads) {}

  int kv_len(int request) const { return section<int>(&plan, plan.kv_len)[request]; }

  const AttendArgs& args;
  const PlanHeader& plan;
  const Unit& unit;
  const PageList& list;
  const PlanRow* rows;
  int num_rows;           // query tokens
  int first_head, heads;  // KV heads
  int group_rows;         // fused rows of one KV head
  int states;             // fused rows of all of them, in order [KV head][query token][query head of the group]
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
