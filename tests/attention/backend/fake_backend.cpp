#include "fake_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "attention/backend.h"
#include "attention/kernel.h"
#include "base/check.h"
#include "base/device_checks.h"
#include "device/memory.h"
#include "tests/attention/kernels/problem.h"

namespace weft::testing {
namespace {

using namespace attention;

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

// ---------------------------------------------------------------- memory

// No address of a process: its upper bits are not alike.
constexpr uintptr_t kBase = 0x5fa0'0000'0000'0000;

std::vector<char>& arena() {
  static std::vector<char> bytes(64 << 20);
  return bytes;
}
// Where the device finds a pointer's bytes; all that its kernels do goes through here.
template <class T>
T* real(T* pointer) {
  return reinterpret_cast<T*>(arena().data() + (reinterpret_cast<uintptr_t>(pointer) - kBase));
}

void* allocate(Device, size_t bytes) {
  static size_t used = 64;
  if (bytes > arena().size() - used) return nullptr;
  void* pointer = reinterpret_cast<void*>(kBase + used);
  used += (bytes + 127) / 64 * 64;
  return pointer;
}
constexpr device::Memory kMemory = {[](Device device, std::string_view name) {
                                      if (device != Device::cuda()) refuse_device(name, device);
                                    },
                                    allocate, [](Device, void*, size_t) {},
                                    [](Device, void* to, const void* from, size_t bytes) {
                                      std::memmove(real(static_cast<char*>(to)), real(static_cast<const char*>(from)),
                                                   bytes);
                                    }};

// ---------------------------------------------------------------- kernels

struct State {
  std::vector<float> o;
  float lse = kEmpty;
};

float number(const char* row, Element element, int i) {
  constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
  return static_cast<float>(get(real(row), kTypes[static_cast<int>(element)], i));
}
void write_row(const RowsView& to, int64_t row, int head, const State& state) {
  constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
  char* out = real(to.data + row * to.row_stride + head * to.head_stride);
  for (size_t i = 0; i < state.o.size(); ++i)
    put(out, kTypes[static_cast<int>(to.element)], static_cast<int64_t>(i), state.o[i]);
}
void add(State& sum, const float* o, float lse) {
  const float max = std::max(sum.lse, lse);
  if (lse == kEmpty) return;
  const float a = std::exp(sum.lse - max), b = std::exp(lse - max);
  for (size_t i = 0; i < sum.o.size(); ++i) sum.o[i] = (sum.o[i] * a + o[i] * b) / (a + b);
  sum.lse = max + std::log(a + b);
}

class Run {
 public:
  Run(const RunArgs& args, const void* workspace)
      : args_(args), plan_(*static_cast<const PlanHeader*>(real(workspace))) {}

  void all() {
    for (int i = 0; i < static_cast<int>(plan_.items.count); ++i) attend(section<WorkItem>(&plan_, plan_.items)[i]);
    for (int g = 0; g < static_cast<int>(plan_.merge_groups.count); ++g)
      merge(section<MergeGroup>(&plan_, plan_.merge_groups)[g]);
  }

 private:
  bool sees(const PlanRow& row, int pos) const {
    const int kv_len = section<int>(&plan_, plan_.kv_len)[row.request];
    const auto bound = [&](const BoundTerm& b) { return b.q_pos * row.pos + b.kv_len * kv_len + b.constant; };
    bool seen = plan_.num_intervals == 0;
    for (int i = 0; i < plan_.num_intervals; ++i) {
      const ResolvedInterval& interval = plan_.intervals[i];
      bool inside = true;
      for (int k = 0; k < interval.num_lower; ++k) inside &= pos >= bound(interval.lower[k]);
      for (int k = 0; k < interval.num_upper; ++k) inside &= pos < bound(interval.upper[k]);
      seen |= inside;
    }
    return seen;
  }

  const char* token_row(const TokensView& view, const PageList& list, int t, int kv_head) const {
    int64_t row = list.first + t;
    if (args_.paged)
      row = int64_t{section<int>(&plan_, plan_.page_indices)[list.first + t / plan_.page_size]} * plan_.page_size +
            t % plan_.page_size;
    const int64_t page = args_.token_page_size == 0 ? 0 : row / args_.token_page_size;
    const int64_t slot = row - page * args_.token_page_size;
    return view.data + page * view.page_stride + slot * view.token_stride + kv_head * view.head_stride;
  }

  State attend_row(const WorkItem& item, const PageList& list, const PlanRow& row, int head) const {
    State state{std::vector<float>(static_cast<size_t>(args_.head_dim_vo))};
    std::vector<float> value(state.o.size());
    const char* q = args_.q.data + row.q_row * args_.q.row_stride + head * args_.q.head_stride;
    const int len = list.len >= 0 ? list.len : section<int>(&plan_, plan_.kv_len)[list.request] - list.first_pos;
    for (int t = item.kv_begin; t < std::min(item.kv_end, len); ++t) {
      if (!sees(row, list.first_pos + t)) continue;
      const char* k = token_row(args_.k, list, t, head / args_.group_size);
      const char* v = token_row(args_.v, list, t, head / args_.group_size);
      float score = 0;
      for (int i = 0; i < args_.head_dim_qk; ++i)
        score += number(q, args_.q.element, i) * number(k, args_.kv_element, i);
      for (size_t i = 0; i < value.size(); ++i) value[i] = number(v, args_.kv_element, static_cast<int>(i));
      add(state, value.data(), score * static_cast<float>(args_.params[0].real));
    }
    return state;
  }

  void finish(const PlanRow& row, int head, const State& state) {
    write_row(args_.o, row.q_row, head, state);
    if (args_.lse != nullptr)
      *real(args_.lse + row.q_row * args_.lse_row_stride + head * args_.lse_head_stride) = state.lse;
  }

  void attend(const WorkItem& item) {
    const Unit& unit = section<Unit>(&plan_, plan_.units)[item.unit];
    const PageList& list = section<PageList>(&plan_, plan_.page_lists)[unit.page_list];
    const int first = unit.kv_head_begin * args_.group_size, heads = unit.kv_head_end * args_.group_size - first;
    for (int r = unit.row_begin; r < unit.row_end; ++r)
      for (int h = 0; h < heads; ++h) {
        const PlanRow& row = section<PlanRow>(&plan_, plan_.rows)[r];
        const State state = attend_row(item, list, row, first + h);
        if (item.partial < 0) {
          finish(row, first + h, state);
          continue;
        }
        const int at = (r - unit.row_begin) * heads + h;
        std::ranges::copy(state.o, partial_o(item.partial) + at * args_.head_dim_vo);
        partial_o(item.partial)[(unit.row_end - unit.row_begin) * heads * args_.head_dim_vo + at] = state.lse;
      }
  }

  float* partial_o(int partial) const {
    return section<float>(&plan_, plan_.partial_data) + section<Partial>(&plan_, plan_.partials)[partial].offset;
  }

  void merge(const MergeGroup& group) {
    const MergeSource* sources = section<MergeSource>(&plan_, plan_.merge_sources);
    for (int r = group.row_begin; r < group.row_end; ++r)
      for (int head = group.kv_head_begin * args_.group_size; head < group.kv_head_end * args_.group_size; ++head) {
        State state{std::vector<float>(static_cast<size_t>(args_.head_dim_vo))};
        for (int s = group.source_begin; s < group.source_end; ++s) {
          const int partial = sources[s].partial;
          const Unit& unit = section<Unit>(&plan_, plan_.units)[section<Partial>(&plan_, plan_.partials)[partial].unit];
          const int first = unit.kv_head_begin * args_.group_size;
          const int heads = unit.kv_head_end * args_.group_size - first;
          const int at = (sources[s].row_offset + r - group.row_begin) * heads + head - first;
          const float* o = partial_o(partial);
          add(state, o + at * args_.head_dim_vo, o[(unit.row_end - unit.row_begin) * heads * args_.head_dim_vo + at]);
        }
        finish(section<PlanRow>(&plan_, plan_.rows)[r], head, state);
      }
  }

  const RunArgs& args_;
  const PlanHeader& plan_;
};

// ---------------------------------------------------------------- the backend

class FakeBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override {
    if (device != Device::cuda()) refuse_device(name, device);
  }
  int num_workers(Stream) const override { return 3; }
  std::string target(const BuildOptions&, Device) const override { return "fake"; }
  DType compute_type(const AttentionSpec& spec, const std::string&) const override {
    check(spec.compute.value_or(DType::fp32) == DType::fp32, ErrorCode::unsupported, "compute: fp32 is all there is");
    return DType::fp32;
  }
  Rounding rounding(const AttentionSpec&, DType) const override { return {}; }
  KernelTraits traits(const AttentionSpec& spec, const std::string&, Device) const override {
    KernelTraits traits = traits_of(spec);
    traits.granule = 16;
    traits.classes = {{.kind = TileKind::direct, .rows = 4, .row = 1, .token = 1, .row_token = 1, .item = 1},
                      {.kind = TileKind::packed, .rows = 16, .row = 1, .token = 4, .row_token = 0.5, .item = 1}};
    traits.thresholds = {.level_enough = 1.1,
                         .granules_per_worker = 4,
                         .shared_cost_at_most = 1,
                         .merge_row = 1,
                         .prefix_tree_depth = 2};
    for (TileClass& c : traits.classes) c.default_workers = num_workers({});
    return traits;
  }
  std::shared_ptr<const Code> build(const AttentionSpec& spec, const std::string&, Device) const override {
    check(spec.variant.text.empty() && spec.kv_scales == KvScales::none && bits_of(spec.kv_dtype) >= 16 &&
              spec.kv_form != KvForm::block_sparse && spec.kv_form != KvForm::latent,
          ErrorCode::unsupported, "spec: plain attention over 16 and 32 bits is all there is");
    return std::make_shared<Code>();
  }

  void write(const Workspace& to, std::span<const Bytes> pieces, Stream) const override {
    copy(pieces, real(static_cast<char*>(to.data())));
    to.host_copy() = std::make_shared<PlanHeader>(*static_cast<const PlanHeader*>(pieces[0].data));
  }
  void read(Device, const void* from, void* to, int64_t bytes, Stream) const override {
    std::memcpy(to, real(static_cast<const char*>(from)), static_cast<size_t>(bytes));
  }
  const PlanHeader* plan_in(const Workspace& workspace) const override {
    return static_cast<const PlanHeader*>(workspace.host_copy().get());
  }

  void launch(const AttentionKernel::Impl&, const RunArgs& args, Workspace& workspace, Stream) const override {
    Run(args, workspace.data()).all();
  }
  void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t, Device, Stream) const override {
    for (int64_t r = 0; r < rows; ++r)
      for (int h = 0; h < args.num_heads; ++h) {
        State state{std::vector<float>(static_cast<size_t>(args.dim))};
        std::vector<float> o(state.o.size());
        const int64_t begin = args.indptr ? args.indptr[r] : 0,
                      end = args.indptr ? args.indptr[r + 1] : args.num_states;
        for (int64_t s = begin; s < end; ++s) {
          const char* from = args.o + s * args.o_state_stride + r * args.o_row_stride + h * args.o_head_stride;
          for (int i = 0; i < args.dim; ++i) o[static_cast<size_t>(i)] = number(from, args.element, i);
          add(state, o.data(),
              *real(args.lse + s * args.lse_state_stride + r * args.lse_row_stride + h * args.lse_head_stride));
        }
        write_row(args.o_out, r, h, state);
        *real(args.lse_out + r * args.lse_out_row_stride + h * args.lse_out_head_stride) = state.lse;
      }
  }
};

class FakeTarget : public Target {
 public:
  FakeTarget() {
    device::add_memory(DeviceKind::cuda, kMemory);
    add_backend(DeviceKind::cuda, backend_);
  }
  std::string name() const override { return "fake"; }
  Device device() const override { return Device::cuda(); }
  Stream stream(WorkerTeam&) const override { return {}; }
  std::vector<DType> compute_types(const AttentionSpec&) const override { return {DType::fp32}; }
  void* place(void* host, size_t bytes) const override {
    void* placed = allocate(device(), bytes);
    ensure(placed != nullptr, "the fake device has no memory left");
    std::memcpy(real(static_cast<char*>(placed)), host, bytes);
    return placed;
  }
  void fetch(void* host, void* placed, size_t bytes) const override {
    if (bytes > 0) backend_.read(device(), placed, host, static_cast<int64_t>(bytes), {});
  }
  void poison(const Workspace& workspace) const override {
    std::memset(real(static_cast<char*>(workspace.data())), 0xff, workspace.bytes());
  }

 private:
  FakeBackend backend_;
};

}  // namespace

const Target& fake_target() {
  static const FakeTarget target;
  return target;
}

}  // namespace weft::testing
