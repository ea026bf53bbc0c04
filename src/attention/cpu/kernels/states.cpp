// The attention states of a unit's rows while an item is worked on.
#include "attention/cpu/kernels/states.h"

#include "attention/cpu/kernels/output.h"
#include "attention/cpu/kernels/token_scales.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

States::States(const UnitView& of, const Seen* seen_by_rows, long long ld, Arena& arena)
    : unit(of), seen(seen_by_rows), ld_o(ld) {
  rows = arena.allocate<abi::ScoreRow>(unit.states);
  vectors = arena.allocate<abi::VectorRow>(unit.states);
  m = arena.allocate<float>(unit.states);
  l = arena.allocate<float>(unit.states);
  alpha = arena.allocate<float>(unit.states);
  o = arena.allocate<float>(unit.states * ld_o);
  vector_scratch = arena.allocate<float>(round_up(max_of(unit.args.head_dim_qk, unit.args.head_dim_vo), kLanes));
}

void States::clear() {
  const int* qo_len = section<int>(&unit.plan, unit.plan.qo_len);
  int state = 0;
  for (int head = unit.first_head; head < unit.first_head + unit.heads; ++head)
    for (int r = 0; r < unit.num_rows; ++r)
      for (int g = 0; g < unit.args.group_size; ++g, ++state) {
        const PlanRow& row = unit.rows[r];
        const Seen& s = seen[r];
        const int qo_head = head * unit.args.group_size + g;
        rows[state] = {.batch = row.request,
                       .qo_idx = row.idx,
                       .qo_head = qo_head,
                       .kv_head = head,
                       .qo_len = qo_len[row.request],
                       .kv_len = unit.kv_len(row.request),
                       .q_pos = row.pos,
                       .lower = {s.lower[0], s.lower[1]},
                       .upper = {s.upper[0], s.upper[1]}};
        vectors[state] = {row.request, row.idx, row.pos, qo_head};
        m[state] = -__builtin_inff();
        l[state] = 0;
      }
  __builtin_memset(o, 0, static_cast<unsigned long>(unit.states * ld_o) * sizeof(float));
}

bool States::has_non_finite() const {
  F32 sum0 = {}, sum1 = {};
  for (const float* p = o; p < o + unit.states * ld_o; p += kPanel) {
    sum0 += load(p) * broadcast(0.f);
    sum1 += load(p + kLanes) * broadcast(0.f);
  }
  return sum_lanes(sum0 + sum1) != 0;
}

void States::write(const WorkItem& item) {
  if (unit.args.scaling == Scaling::head && !unit.args.leaf->value)
    for (int head = 0; head < unit.heads; ++head)
      scale_vector(o_of(head), unit.group_rows * ld_o, head_scale(unit.args.v_scale, unit.first_head + head));
  float *lse = l, *rest = m;
  if (unit.args.leaf->use_softmax)
    for (int s = 0; s < unit.states; ++s) {
      float* row = o + s * ld_o;
      const float sum = l[s], log_sum = __builtin_logf(sum);
      lse[s] = sum == 0 ? -__builtin_inff() : m[s] + log_sum;
      rest[s] = sum != 0 && is_far(m[s]) ? m[s] - lse[s] + log_sum : 0;
      const F32 factor = broadcast(sum == 0 ? 0.f : 1.f / sum);
      for (int d = 0; d < ld_o; d += kLanes) store(row + d, load(row + d) * factor);
    }
  if (item.partial >= 0)
    write_partial(section<Partial>(&unit.plan, unit.plan.partials)[item.partial], lse, rest);
  else
    write_output(unit.args,
                 {unit.rows, unit.num_rows, unit.first_head, unit.heads, o, ld_o, lse, vectors, vector_scratch});
}

void States::write_partial(const Partial& partial, const float* lse, const float* rest) const {
  const int dim = unit.args.head_dim_vo, group = unit.args.group_size;
  float* data = section<float>(&unit.plan, unit.plan.partial_data) + partial.offset;
  float *data_lse = data + static_cast<long long>(unit.states) * dim, *data_rest = data_lse + unit.states;
  int state = 0;
  for (int head = 0; head < unit.heads; ++head)
    for (int r = 0; r < unit.num_rows; ++r)
      for (int g = 0; g < group; ++g, ++state) {
        const long long index = (static_cast<long long>(r) * unit.heads + head) * group + g;
        convert_from_f32(o + state * ld_o, dim, reinterpret_cast<char*>(data + index * dim), Element::fp32);
        data_lse[index] = lse[state];
        data_rest[index] = unit.args.leaf->use_softmax ? rest[state] : 0;
      }
}

void load_queries(const States& states, int head, float* queries) {
  const UnitView& unit = states.unit;
  const AttendArgs& args = unit.args;
  const int dim = args.head_dim_qk, group = args.group_size, first_head = (unit.first_head + head) * group;
  const abi::VectorRow* vectors = states.vectors + static_cast<long long>(head) * unit.group_rows;
  for (int r = 0; r < unit.num_rows; ++r)
    for (int g = 0; g < group; ++g, ++vectors) {
      float* query = queries + static_cast<long long>(r * group + g) * dim;
      float* converted = args.leaf->query ? states.vector_scratch : query;
      convert_to_f32(args.q.data + unit.rows[r].q_row * args.q.row_stride + (first_head + g) * args.q.head_stride,
                     args.q.element, dim, converted);
      if (!args.leaf->query) continue;
      const auto* from = reinterpret_cast<const char*>(converted);
      const abi::VectorTile tile = {args.params, vectors, 1, dim, &from, 0, query, dim};
      args.leaf->query(&tile);
    }
  if (args.scaling == Scaling::head && !args.leaf->key)
    scale_vector(queries, static_cast<long long>(unit.group_rows) * dim,
                 head_scale(args.k_scale, unit.first_head + head));
  if (args.compute == Compute::bf16)  // a narrow row ends before the next wide one begins
    for (long long r = 0; r < unit.group_rows; ++r)
      round_to_bf16(queries + r * dim, dim, reinterpret_cast<unsigned short*>(queries + r * dim / 2));
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
