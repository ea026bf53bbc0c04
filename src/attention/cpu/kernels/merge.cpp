// Partial states become one state.
//   o = sum_i w_i o_i / sum_i w_i,  lse = max + log(sum_i w_i),  w_i = exp(lse_i - max)
// where the lse_i of partials are sums of two floats each (Partial in abi.h), and max is that of the first ones.
// Empty states (lse = -inf) weigh nothing and are not read. Without softmax o is the plain sum.
#include "attention/cpu/kernels/merge.h"

#include "attention/cpu/kernels/arena.h"
#include "attention/cpu/kernels/dense.h"
#include "attention/cpu/kernels/output.h"
#include "tile/cpu/exp.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

constexpr float kEmpty = -__builtin_inff();

float max_of_lse(float a, float b) { return b > a ? b : a; }
float weight(float lse, float rest, float max) { return exp(broadcast(lse - (max == kEmpty ? 0.f : max) + rest))[0]; }
float joint_lse(float max, float sum) { return sum == 0 ? kEmpty : max + __builtin_logf(sum); }

void scale(float* o, int n, float factor) {
  for_lanes(
      n, [&](int i) { store(o + i, load(o + i) * factor); },
      [&]([[maybe_unused]] int i) {
#if WEFT_LANES == 16
        Fp32::store_half(o + i, Fp32::load_half(o + i) * factor);
#endif
      });
}

template <class Type>
void add_scaled(const char* from, int n, float factor, float* o) {
  for_lanes(
      n, [&](int i) { store(o + i, fma(Type::load(from + bytes_of<Type>(i)), broadcast(factor), load(o + i))); },
      [&]([[maybe_unused]] int i) {
#if WEFT_LANES == 16
        Fp32::store_half(o + i,
                         fma(Type::load_half(from + bytes_of<Type>(i)), broadcast(factor), Fp32::load_half(o + i)));
#endif
      });
}

void add_scaled(const char* from, Element element, int n, float factor, float* o) {
  switch (element) {
    case Element::fp32: return add_scaled<Fp32>(from, n, factor, o);
    case Element::fp16: return add_scaled<Fp16>(from, n, factor, o);
    default: return add_scaled<Bf16>(from, n, factor, o);
  }
}

struct MergeBuffers {
  float *o, *lse, *vector_scratch;
  abi::VectorRow* vectors;
  int ld;
  long long bytes;
};
MergeBuffers lay_out(const AttendArgs& args, int kv_heads, char* base) {
  MergeBuffers b = {};
  const int states = kv_heads * args.group_size;
  b.ld = round_up(args.head_dim_vo, kPanel);
  Arena arena(base);
  b.o = arena.allocate<float>(static_cast<long long>(states) * b.ld);
  b.lse = arena.allocate<float>(states);
  b.vectors = arena.allocate<abi::VectorRow>(states);
  b.vector_scratch = arena.allocate<float>(args.head_dim_vo);
  b.bytes = arena.bytes();
  return b;
}

// One row of one head: its states lie in the sources' partials.
float merge_head(const AttendArgs& args, const MergeGroup& group, int row, int kv_head, int g, float* o) {
  const PlanHeader* plan = args.plan;
  const MergeSource* sources = section<MergeSource>(plan, plan->merge_sources);
  const Partial* partials = section<Partial>(plan, plan->partials);
  const Unit* units = section<Unit>(plan, plan->units);
  const float* data = section<float>(plan, plan->partial_data);
  const int dim = args.head_dim_vo;
  struct State {
    const float* o;
    float lse, rest;
  };
  const auto state_of = [&](int s) -> State {
    const Partial& partial = partials[sources[s].partial];
    const Unit& unit = units[partial.unit];
    const long long heads = static_cast<long long>(unit.kv_head_end - unit.kv_head_begin) * args.group_size;
    const long long num_states = (unit.row_end - unit.row_begin) * heads;
    const long long index =
        (sources[s].row_offset + row - group.row_begin) * heads + (kv_head - unit.kv_head_begin) * args.group_size + g;
    const float* base = data + partial.offset;
    return {base + index * dim, base[num_states * dim + index], base[num_states * (dim + 1) + index]};
  };
  __builtin_memset(o, 0, static_cast<unsigned long>(dim) * sizeof(float));
  if (!args.leaf->use_softmax) {
    for (int s = group.source_begin; s < group.source_end; ++s)
      add_scaled<Fp32>(reinterpret_cast<const char*>(state_of(s).o), dim, 1.f, o);
    return 0;
  }
  float max = kEmpty;
  for (int s = group.source_begin; s < group.source_end; ++s) max = max_of_lse(max, state_of(s).lse);
  float sum = 0;
  for (int s = group.source_begin; s < group.source_end; ++s) {
    const State state = state_of(s);
    if (state.lse == kEmpty) continue;
    const float w = weight(state.lse, state.rest, max);
    add_scaled<Fp32>(reinterpret_cast<const char*>(state.o), dim, w, o);
    sum += w;
  }
  if (sum != 0) scale(o, dim, 1.f / sum);
  return joint_lse(max, sum);
}

}  // namespace

long long merge_scratch(const AttendArgs& args, int kv_heads) { return lay_out(args, kv_heads, nullptr).bytes; }

void merge(const AttendArgs& args, const MergeGroup& group, char* scratch) {
  const int kv_heads = group.kv_head_end - group.kv_head_begin;
  const MergeBuffers b = lay_out(args, kv_heads, scratch);
  const PlanRow* rows = section<PlanRow>(args.plan, args.plan->rows);
  for (int row = group.row_begin; row < group.row_end; ++row) {
    int state = 0;
    for (int head = group.kv_head_begin; head < group.kv_head_end; ++head)
      for (int g = 0; g < args.group_size; ++g, ++state)
        b.lse[state] = merge_head(args, group, row, head, g, b.o + state * b.ld);
    write_output(args, {rows + row, 1, group.kv_head_begin, kv_heads, b.o, b.ld, b.lse, b.vectors, b.vector_scratch});
  }
}

void merge_states(const MergeStatesArgs& x, long long begin, long long end) {
  alignas(64) float o[kMaxHeadDim];
  for (long long row = begin; row < end; ++row)
    for (int head = 0; head < x.num_heads; ++head) {
      const long long first = x.indptr ? x.indptr[row] : 0, last = x.indptr ? x.indptr[row + 1] : x.num_states;
      const char* o_in = x.o + row * x.o_row_stride + head * x.o_head_stride;
      const float* lse_in = x.lse + row * x.lse_row_stride + head * x.lse_head_stride;
      float max = kEmpty;
      for (long long s = first; s < last; ++s) max = max_of_lse(max, lse_in[s * x.lse_state_stride]);
      float sum = 0;
      __builtin_memset(o, 0, static_cast<unsigned long>(x.dim) * sizeof(float));
      for (long long s = first; s < last; ++s) {
        const float lse = lse_in[s * x.lse_state_stride];
        if (lse == kEmpty) continue;
        const float w = weight(lse, 0, max);
        add_scaled(o_in + s * x.o_state_stride, x.element, x.dim, w, o);
        sum += w;
      }
      if (sum != 0) scale(o, x.dim, 1.f / sum);
      convert_from_f32(o, x.dim, x.o_out.data + row * x.o_out.row_stride + head * x.o_out.head_stride, x.o_out.element);
      x.lse_out[row * x.lse_out_row_stride + head * x.lse_out_head_stride] = joint_lse(max, sum);
    }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
