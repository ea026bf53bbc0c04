// Inputs of plans that tests own, and a reading of plans that shares nothing with the planner.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attention/plan/planner.h"
#include "weft/attention.h"

namespace weft::test {

// Lengths of a batch with the arrays that PlanInput points to.
struct Batch {
  KvForm form = KvForm::paged;
  int num_qo_heads = 32, num_kv_heads = 8, page_size = 16, workers = 4;
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
  std::vector<int> qo, kv;
  std::vector<ScalarArg> scalars;
  const PlanBounds* bounds = nullptr;
  int64_t spare_pages = 0;
  bool borrow_page_ids = false;
  int64_t max_kv_len = 0;  // padded; 0: the largest

  PlanInput input();  // valid until the batch changes
  std::vector<int32_t> qo_indptr, kv_indptr, page_ids, last_page_len, kv_len;
  int64_t num_pages = 0;  // of the pool; 0: as many as are listed
};

enum class Keys { all, causal, window, sink_and_window, prefix };
std::vector<Interval> intervals_of(Keys keys);
std::vector<ScalarArg> scalars_of(Keys keys, int window_left);

// Three classes, the smallest with whole tokens; costs in nanoseconds of a small CPU.
KernelTraits cpu_like_traits(Keys keys = Keys::all, KvForm form = KvForm::paged);
// Classes of one KV head, of which an item may walk several, and a record of each item.
KernelTraits per_head_traits(Keys keys = Keys::all, KvForm form = KvForm::paged);

// Does query idx of a request see key t? Written out for each kind.
bool sees(Keys keys, int window_left, int qo_len, int kv_len, int idx, int t);

// Every (q row, KV head, key) that the plan's items reach, counted; [rows][kv heads][longest kv].
struct Reached {
  std::vector<int> count;
  int heads, longest;
  int at(int row, int head, int t) const { return count[(static_cast<size_t>(row) * heads + head) * longest + t]; }
};
Reached reached_by(const Plan& plan);

enum class Lengths { constant, uniform, zipf, one_long };
std::vector<int> draw_lengths(Lengths kind, int requests, std::mt19937& random);
std::string name_of(Lengths kind);

// The plan's bytes as a string.
std::string bytes_of(const Plan& plan);

}  // namespace weft::test
