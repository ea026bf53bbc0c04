// attend: one request through build, plan and run.
#include "attention/leaf.h"
#include "attention/traits.h"
#include "base/check.h"
#include "weft/attention.h"

namespace weft {
namespace {

// plan takes the scalars that intervals name, run takes them all.
std::vector<ScalarArg> interval_scalars(const AttentionSpec& spec, const std::vector<ScalarArg>& scalars) {
  const std::vector<Interval> intervals = combined_intervals(spec);
  std::vector<ScalarArg> named;
  for (const ScalarArg& scalar : scalars)
    if (name_scalar(intervals, scalar.name)) named.push_back(scalar);
  return named;
}

}  // namespace

void attend(const AttentionSpec& spec, const TensorView& q, const TensorView& k, const TensorView& v,
            const TensorView& o, const TensorView& lse, const AttentionTensors& extra, Stream stream) {
  check(spec.kv_form == KvForm::ragged, ErrorCode::invalid_argument,
        "spec.kv_form: attend takes one request's k and v as they are; set it to KvForm::ragged");
  check(q.rank() == 3, ErrorCode::invalid_shape, "q: {} has rank {}; required is [qo_len, num_qo_heads, head_dim_qk]",
        shape_string(q), q.rank());
  check(k.rank() == 3, ErrorCode::invalid_shape, "k: {} has rank {}; required is {}", shape_string(k), k.rank(),
        spec.layout == Layout::nhd ? "[kv_len, num_kv_heads, head_dim_qk]" : "[num_kv_heads, kv_len, head_dim_qk]");
  constexpr int64_t kMaxTokens = 1 << 30;
  const int64_t kv_len = k.shape(spec.layout == Layout::nhd ? 0 : 1);
  const int64_t kv_heads = k.shape(spec.layout == Layout::nhd ? 1 : 0);
  check(q.shape(0) <= kMaxTokens && kv_len <= kMaxTokens && q.shape(1) <= kMaxTokens && kv_heads <= kMaxTokens,
        ErrorCode::invalid_shape, "q: {}, k: {}; at most {} tokens and heads are allowed", shape_string(q),
        shape_string(k), kMaxTokens);
  const AttentionKernel kernel = build(spec, Device::cpu());
  const int32_t qo_indptr[] = {0, static_cast<int32_t>(q.shape(0))};
  const int32_t kv_indptr[] = {0, static_cast<int32_t>(kv_len)};
  PlanInput input;
  input.num_qo_heads = static_cast<int>(q.shape(1));
  input.num_kv_heads = static_cast<int>(kv_heads);
  input.qo_indptr = qo_indptr;
  input.kv_indptr = kv_indptr;
  input.num_workers = stream.team().num_workers();
  input.scalars = interval_scalars(spec, extra.scalars);
  const Plan plan = kernel.plan(input);
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  AttentionTensors tensors = extra;
  tensors.q = q;
  tensors.kv = {k, v};
  tensors.o = o;
  tensors.lse = lse;
  kernel.run(plan, tensors, workspace, stream);
}

}  // namespace weft
