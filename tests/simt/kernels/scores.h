// Every hook of a variant, on a matrix of scores and a vector: what a kernel asks of a variant's text, and nothing
// else. Instances are written behind the text of a variant: WEFT_KERNEL(128, 1) void weft_scores(...) { Scores<P, V,
// M>::run(args); }
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/cuda/variant.h"

namespace weft {

template <class P, class V, class M>
struct Scores {
  using HV = detail::Hooks<V, P>;
  using HM = detail::Hooks<M, P>;

  WEFT_INLINE static void run(const ScoresArgs& args) {
    const P p = P::weft_load(args.params);
    V variant{};
    M mask{};
    if constexpr (HV::init) variant.init(p, Request{0});
    if constexpr (HM::init) mask.init(p, Request{0});
    for (int i = ptx::thread_index(); i < args.rows * args.columns; i += ptx::num_threads()) {
      const int row = i / args.columns, key = i % args.columns;
      const Score c{0, row, key, 0, 0, row, key, args.rows, args.columns, {}};
      float s = args.scores[i] * p.sm_scale;
      if constexpr (HV::logits_transform) s = variant.logits_transform(p, c, s);
      bool sees = true;
      if constexpr (HV::logits_mask) sees = variant.logits_mask(p, c);
      if constexpr (HM::logits_mask) sees = sees && mask.logits_mask(p, c);
      args.scores[i] = sees ? s : HV::use_softmax ? -infinity() : 0.f;
    }
    Row row{0, 0, 0, 0, 1.f};
    if constexpr (HV::lse_transform) row.lse = variant.lse_transform(p, row);
    const Vec x{args.vector, args.dim, 1.f, 2.f};
    for (int i = ptx::thread_index(); i < args.dim; i += ptx::num_threads()) {
      float y = row.lse;
      if constexpr (HV::query_transform) y += variant.query_transform(p, x, i, row);
      if constexpr (HV::key_transform) y += variant.key_transform(p, x, i, row);
      if constexpr (HV::value_transform) y += variant.value_transform(p, x, i, row);
      if constexpr (HV::output_transform) y += variant.output_transform(p, x, i, row);
      args.to[i] = y;
    }
  }
};

}  // namespace weft
