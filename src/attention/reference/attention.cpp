// Attention as text books have it, one row and head at a time: s = q k^T, p = softmax(s), o = p v.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/reference/observer.h"
#include "attention/reference/reference.h"

namespace weft {
namespace reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

bool is_seen(const Hooks& hooks, const Keys& list, const Score& c) {
  return (!list.sees || list.sees(c.qo_idx - list.first_idx, c.kv_idx)) &&
         std::all_of(hooks.visible.begin(), hooks.visible.end(), [&](const auto& visible) { return visible(c); });
}

KvHead kv_head_of(const AttentionSpec& spec, const KvCache& cache, const Hooks& hooks, const Keys& list, int kv_head) {
  KvHead kv;
  for (size_t t = 0; t < list.tokens.size(); ++t) {
    const Token& token = list.tokens[t];
    const abi::VectorRow row{list.request, static_cast<int>(t), token.position, kv_head};
    kv.keys.push_back(transformed(hooks.key, row, key_vector(spec, cache, token, kv_head)));
    kv.values.push_back(transformed(hooks.value, row, value_vector(spec, cache, token, kv_head)));
  }
  return kv;
}

// Without softmax p is the logit itself.
State attend(const Hooks& hooks, const Place& place, const Vector& q, const Keys& list, const KvHead& kv,
             double sm_scale, int head_dim_vo) {
  const size_t n = kv.keys.size();
  State state{std::vector<bool>(n), Vector(n), Vector(n), Vector(n), Vector(static_cast<size_t>(head_dim_vo))};
  double top = -kInfinity;
  for (size_t j = 0; j < n; ++j) {
    const Score c = place.score_of(list, j);
    state.seen[j] = is_seen(hooks, list, c);
    if (!state.seen[j]) continue;
    state.s[j] = dot(q, kv.keys[j]) * sm_scale;
    state.logits[j] = hooks.logits ? hooks.logits(c, state.s[j]) : state.s[j];
    top = std::max(top, state.logits[j]);
  }
  if (hooks.use_softmax) state.lse = top;
  if (state.lse == -kInfinity) return state;  // the empty one

  double sum = 0;
  for (size_t j = 0; j < n; ++j)
    if (state.seen[j]) sum += state.p[j] = hooks.use_softmax ? std::exp(state.logits[j] - top) : state.logits[j];
  for (size_t j = 0; j < n; ++j) {
    if (!state.seen[j]) continue;
    if (hooks.use_softmax) state.p[j] /= sum;
    for (size_t d = 0; d < state.o.size(); ++d) state.o[d] += state.p[j] * kv.values[j][d];
  }
  if (hooks.use_softmax) state.lse += std::log(sum);
  return state;
}

}  // namespace
}  // namespace reference

ReferenceResult attention_reference(const AttentionSpec& spec, const PlanInput& in, const AttentionTensors& tensors,
                                    const ReferenceScope& scope, reference::Observer* observer) {
  using namespace reference;
  const std::vector<Keys> lists = keys(spec, in);
  const Hooks hooks = reference::hooks(spec, in, tensors, scope);
  const double sm_scale = tensors.sm_scale ? static_cast<double>(*tensors.sm_scale) : 1 / std::sqrt(spec.head_dim_qk);
  const int group = in.num_qo_heads / in.num_kv_heads;
  const size_t states = lists.empty() ? 0 : static_cast<size_t>(lists.back().row_end * in.num_qo_heads);
  ReferenceResult result{Vector(states * static_cast<size_t>(spec.head_dim_vo)),
                         Vector(hooks.use_softmax ? states : 0)};

  for (const Keys& list : lists)
    for (int kv_head = list.kv_head_begin; kv_head < list.kv_head_end; ++kv_head) {
      const int64_t row_begin = std::max(list.row_begin, scope.row_begin),
                    row_end = std::min(list.row_end, scope.row_end);
      if (row_begin >= row_end) continue;
      const KvHead kv = kv_head_of(spec, tensors.kv, hooks, list, kv_head);
      if (observer != nullptr) observer->keys(list, kv_head, kv);
      for (int64_t q_row = row_begin; q_row < row_end; ++q_row)
        for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const auto i = static_cast<size_t>(q_row - list.row_begin);
          const int idx = list.first_idx + static_cast<int>(i), pos = list.q_pos[i];
          const Place place{q_row,
                            head,
                            {list.request, idx, 0, head, kv_head, pos, 0, list.qo_len, list.kv_len},
                            {list.request, idx, pos, head}};
          const Vector q = transformed(hooks.query, place.row, vector_at(tensors.q, q_row, head));
          const State state = attend(hooks, place, q, list, kv, sm_scale, spec.head_dim_vo);
          if (observer != nullptr) observer->row({place, q, state, list, kv});

          const size_t at = static_cast<size_t>(q_row * in.num_qo_heads + head);
          const Vector o = transformed(hooks.output, place.finished_row(state), state.o);
          std::copy(o.begin(), o.end(), result.o.begin() + static_cast<std::ptrdiff_t>(at * o.size()));
          if (hooks.use_softmax) result.lse[at] = hooks.lse ? hooks.lse(place.finished_row(state)) : state.lse;
        }
    }
  return result;
}

}  // namespace weft
