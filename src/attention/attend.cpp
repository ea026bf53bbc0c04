// attend: one request through build, plan and run.
#include <algorithm>

#include "attention/kernel.h"
#include "attention/plan/plan_builder.h"
#include "attention/spec.h"
#include "attention/traits.h"
#include "base/check.h"
#include "base/format_tensor.h"
#include "weft/attention.h"

namespace weft {
namespace {

// plan takes the scalars that intervals name, run takes them all.
std::vector<ScalarArg> scalars_of_plan(const AttentionSpec& spec, const std::vector<ScalarArg>& scalars) {
  const std::vector<Interval> intervals = combined_intervals(spec);
  const std::vector<std::string_view> names = interval_scalars(intervals);
  std::vector<ScalarArg> named;
  for (const ScalarArg& scalar : scalars)
    if (std::ranges::find(names, scalar.name) != names.end()) named.push_back(scalar);
  return named;
}

bool same_view(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.device() == b.device() &&
         std::ranges::equal(a.shape(), b.shape()) && std::ranges::equal(a.strides(), b.strides());
}

// `to` holds what `extra` has there: nothing, or what the call was given.
void set(const char* name, TensorView& to, const TensorView& given) {
  check(!to || same_view(to, given), ErrorCode::invalid_argument,
        "extra.{}: {} of {} is another tensor than the {} of the call, {} of {}; leave it out of extra", name, to,
        to_string(to.dtype()), name, given, to_string(given.dtype()));
  to = given;
}

// `extra` keeps what only it can hold: scales, scalars, tensors and sm_scale.
AttentionTensors all_tensors(const AttentionTensors& extra, const TensorView& q, const TensorView& k,
                             const TensorView& v, const TensorView& o, const TensorView& lse) {
  AttentionTensors all = extra;
  set("q", all.q, q);
  set("kv.k", all.kv.k, k);
  set("kv.v", all.kv.v, v);
  set("o", all.o, o);
  set("lse", all.lse, lse);
  return all;
}

}  // namespace

void attend(const AttentionSpec& spec, const TensorView& q, const TensorView& k, const TensorView& v,
            const TensorView& o, const TensorView& lse, const AttentionTensors& extra, Stream stream) {
  check(spec.kv_form == KvForm::ragged, ErrorCode::invalid_argument,
        "spec.kv_form: attend takes one request's k and v as they are; set it to KvForm::ragged");
  check(q.rank() == 3, ErrorCode::invalid_shape, "q: {} has rank {}; required is [qo_len, num_qo_heads, head_dim_qk]",
        q, q.rank());
  check(k.rank() == 3, ErrorCode::invalid_shape, "k: {} has rank {}; required is {}", k, k.rank(),
        spec.layout == Layout::nhd ? "[kv_len, num_kv_heads, head_dim_qk]" : "[num_kv_heads, kv_len, head_dim_qk]");
  constexpr int64_t kMaxTokens = 1 << 30;
  const int64_t kv_len = k.shape(spec.layout == Layout::nhd ? 0 : 1);
  const int64_t kv_heads = k.shape(spec.layout == Layout::nhd ? 1 : 0);
  check(q.shape(0) <= kMaxTokens && kv_len <= kMaxTokens && q.shape(1) <= kMaxTokens && kv_heads <= kMaxTokens,
        ErrorCode::invalid_shape, "q: {}, k: {}; at most {} tokens and heads are allowed", q, k, kMaxTokens);
  const AttentionTensors tensors = all_tensors(extra, q, k, v, o, lse);
  const AttentionKernel kernel = build(spec, q.device());
  const int32_t qo_indptr[] = {0, static_cast<int32_t>(q.shape(0))};
  const int32_t kv_indptr[] = {0, static_cast<int32_t>(kv_len)};
  PlanInput input;
  input.num_qo_heads = static_cast<int>(q.shape(1));
  input.num_kv_heads = static_cast<int>(kv_heads);
  input.qo_indptr = qo_indptr;
  input.kv_indptr = kv_indptr;
  input.num_workers = kernel.impl().backend->num_workers(stream);
  const Mask mask = kernel.impl().traits.custom_mask;
  const int64_t mask_indptr[] = {0, planner::mask_part(mask, qo_indptr[1], kv_indptr[1])};
  if (mask != Mask::none) input.mask_indptr = mask_indptr;
  input.scalars = scalars_of_plan(spec, extra.scalars);
  const Plan plan = kernel.plan(input);
  Workspace workspace(q.device(), plan.workspace_bytes());
  kernel.run(plan, tensors, workspace, stream);
}

}  // namespace weft
