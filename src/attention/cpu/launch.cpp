#include "attention/cpu/launch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "attention/trace.h"
#include "base/check.h"
#include "device/cpu/cpuid.h"

namespace weft::attention::cpu {
namespace {

constexpr int64_t kMinFloatsPerWorker = 1 << 14;  // of merge_states: less is not worth waking a worker for

// Scratch of one thread. It grows to the largest item that the thread has met and stays: runs after the first of
// their size allocate nothing.
class Scratch {
 public:
  char* reserve(long long bytes) {
    const auto wanted = static_cast<size_t>(bytes);
    if (wanted > bytes_) {
      memory_.reset(static_cast<char*>(::operator new(wanted, kAlignment)));
      bytes_ = wanted;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(char* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t bytes_ = 0;
};
thread_local Scratch scratch;

Compute compute_of(DType dtype) {
  return dtype == DType::bf16 ? Compute::bf16 : dtype == DType::int8 ? Compute::int8 : Compute::fp32;
}

// Whether items of two units need as much scratch.
bool are_alike(const Unit& a, const Unit& b) {
  return a.tile_kind == b.tile_kind && a.row_end - a.row_begin == b.row_end - b.row_begin &&
         a.kv_head_end - a.kv_head_begin == b.kv_head_end - b.kv_head_begin;
}

// One worker's queue: every item, and every merge group whose last item it finished.
void run_queue(const AttendArgs& args, const CoreTable& core, const WorkItem* items, int begin, int end,
               Trace::Lane lane) {
  const void* base = args.plan;
  const Unit* units = section<Unit>(base, args.plan->units);
  const MergeGroup* groups = section<MergeGroup>(base, args.plan->merge_groups);
  int* counters = section<int>(base, args.plan->counters);
  const Unit* sized = nullptr;  // for whose items `bytes` are enough
  long long bytes = 0;
  for (int i = begin; i < end; ++i) {
    const WorkItem& item = items[i];
    const Unit& unit = units[item.unit];
    lane.begin();
    if (sized == nullptr || !are_alike(*sized, unit)) bytes = core.attend_scratch(args, unit);
    sized = &unit;
    core.attend(args, item, scratch.reserve(bytes));
    lane.end_item(i);
    if (item.partial < 0) continue;
    for (int k = 0; k < unit.merge_rows * unit.merge_heads; ++k) {
      const int row = k / unit.merge_heads, head = k % unit.merge_heads;
      const int g = unit.merge_begin + row * args.plan->merge_stride + head;
      const MergeGroup& group = groups[g];
      int& counter = counters[group.counter];
      // Release: this item's partial is seen by whoever merges. Acquire: the last one sees all of them.
      if (__atomic_add_fetch(&counter, 1, __ATOMIC_ACQ_REL) != group.expected) continue;
      lane.begin();
      core.merge(args, group, scratch.reserve(core.merge_scratch(args, group.kv_head_end - group.kv_head_begin)));
      lane.end_merge(g);
      __atomic_store_n(&counter, 0, __ATOMIC_RELAXED);
    }
  }
}

}  // namespace

void launch(const AttentionKernel::Impl& kernel, const RunArgs& given, Workspace& workspace, Stream stream) {
  const auto& code = static_cast<const CpuCode&>(*kernel.code);
  const auto& plan = *static_cast<const PlanHeader*>(workspace.data());
  int mask_error = 0;
  const AttendArgs args = {given,
                           &plan,
                           code.leaf.leaf,
                           compute_of(kernel.compute),
                           kernel.check_masks ? &mask_error : nullptr,
                           kernel.compute == DType::bf16 && has_bf16_tiles()};
  const int* indptr = section<int>(&plan, plan.worker_indptr);
  const WorkItem* items = section<WorkItem>(&plan, plan.items);
  WorkerTeam& team = stream.team();
  const int num_threads = team.num_workers();
  Trace* trace = Trace::instance();
  try {
    team.run([&](int thread) {
      for (int w = thread; w < plan.num_workers; w += num_threads)
        run_queue(args, *code.core, items, indptr[w], indptr[w + 1], {trace, plan, w});
    });
  } catch (...) {
    // Out of memory: the workspace must still be fit for the next run.
    std::memset(section<int>(&plan, plan.counters), 0, static_cast<size_t>(plan.counters.count) * sizeof(int));
    throw;
  }
  ensure(mask_error == 0, "WEFT_CHECK: a tile's class disagrees with its rows' intervals");
}

void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t floats, Stream stream) {
  const CoreTable& core = core_for(current_isa());
  WorkerTeam& team = stream.team();
  const int64_t ranges = std::min<int64_t>(team.num_workers(), floats / kMinFloatsPerWorker);
  if (ranges <= 1) {
    core.merge_states(args, 0, rows);
    return;
  }
  team.run([&](int worker) {
    if (worker < ranges) core.merge_states(args, rows * worker / ranges, rows * (worker + 1) / ranges);
  });
}

}  // namespace weft::attention::cpu
