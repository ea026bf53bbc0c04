#include "decode/step_attention.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "attention/backend.h"
#include "attention/kernel.h"
#include "base/check.h"
#include "models/layers.h"
#include "weft/levels.h"

namespace weft::decode {
namespace {

constexpr int64_t kGrowth = 32;  // a plan is kept until KV has grown by one part in so many

AttentionSpec spec_of(const ModelConfig& config, const ForwardOptions& options, DType kv_dtype, bool slides) {
  AttentionSpec spec;
  spec.kv_dtype = kv_dtype;
  spec.kv_scales = kv_scales_of(kv_dtype);
  const attention::Backend& backend = attention::backend_of(options.device);
  if (options.precision != Precision::exact && (kv_dtype == DType::bf16 || bits_of(kv_dtype) < 16))
    spec.q_dtype = backend.query_type(spec, backend.target({}, options.device));
  spec.o_dtype = DType::fp32;
  spec.head_dim_qk = spec.head_dim_vo = config.head_dim;
  spec.mask = Mask::causal;
  spec.sliding_window = slides;
  if (config.attention_soft_cap > 0.f) spec.variant = variants::logits_soft_cap();
  return spec;
}

}  // namespace

DType kv_dtype_of(const ForwardOptions& options) {
  const bool exact = options.precision == Precision::exact;
  const DType dtype = options.kv_dtype.value_or(exact ? DType::fp32 : DType::bf16);
  const bool wide = dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
  check(wide || dtype == DType::int8, ErrorCode::unsupported,
        "kv_dtype: required {}; supported fp32, fp16, bf16, and int8 with precision fast; missing: a precision that "
        "allows the error of {}",
        to_string(dtype), to_string(dtype));
  check(wide || options.precision == Precision::fast, ErrorCode::invalid_argument,
        "kv_dtype = {} with precision {}; only precision fast allows it", to_string(dtype),
        to_string(options.precision));
  check(!exact || dtype == DType::fp32, ErrorCode::invalid_argument,
        "kv_dtype = {} with precision exact; exact keeps fp32: leave kv_dtype out, or use precision default, which "
        "allows {}",
        to_string(dtype), to_string(dtype));
  return dtype;
}

KvScales kv_scales_of(DType kv_dtype) { return bits_of(kv_dtype) <= 8 ? KvScales::token : KvScales::none; }

StepAttention::StepAttention(const ModelConfig& config, const ForwardOptions& options, Stream stream)
    : config_(config),
      options_(options),
      stream_(stream),
      workers_(attention::backend_of(options.device).num_workers(stream)) {
  const DType kv_dtype = kv_dtype_of(options);
  add_kind(false, config.rope, {}, kv_dtype);
  if (config.sliding_window > 0)
    add_kind(true, config.sliding_rope, {{"window_left", static_cast<double>(config.sliding_window - 1)}}, kv_dtype);
  // Refuses plan options now, not in the first run.
  kinds_[0].kernel.workspace_bytes({.max_requests = options.max_sequences,
                                    .max_rows = 1,
                                    .max_pages = 1,
                                    .max_kv_len = options.page_size,
                                    .page_size = options.page_size,
                                    .num_qo_heads = config.num_qo_heads,
                                    .num_kv_heads = config.num_kv_heads,
                                    .workers = most_workers(),
                                    .mode = options.plan_mode,
                                    .fixed_split_size = options.fixed_split_size});
}

void StepAttention::add_kind(bool slides, const RopeParams& rope, std::vector<ScalarArg> scalars, DType kv_dtype) {
  kinds_.push_back(
      {build(spec_of(config_, options_, kv_dtype, slides), options_.device), rope, std::move(scalars), {}, {}, {}, {}});
}

int StepAttention::most_workers() const {
  return workers_ != 0 ? workers_ : kinds_[0].kernel.impl().traits.most_default_workers();
}

size_t StepAttention::kind_of(int layer) const { return layer_slides(config_, layer) ? 1 : 0; }

// Steps that a graph may run, which few rows are: plans within bounds that change rarely lie in the same memory. On a
// CPU there are no graphs.
const PlanBounds* StepAttention::bounds_of(const Step& step) {
  if (options_.device.kind != DeviceKind::cuda || step.rows() > kMostRowsOfGraphs) return nullptr;
  int64_t longest = 1;
  for (const int32_t position : step.positions) longest = std::max<int64_t>(longest, position + 1);
  const auto requests = static_cast<int>(step.qo_indptr.size()) - 1;
  const auto kv_len = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(longest, 1024))));
  // More than one for each granule of keys have nothing to do.
  const int granule = kinds_[0].kernel.impl().traits.granule;
  const int64_t most_items = config_.num_kv_heads * ((kv_len + granule - 1) / granule);
  bounds_ = {.max_requests = requests,
             .max_rows = step.rows(),
             .max_pages = requests * ((kv_len + options_.page_size - 1) / options_.page_size),
             .max_levels = requests > 1 ? kMaxLevels : 1,
             .max_kv_len = kv_len,
             .page_size = options_.page_size,
             .num_qo_heads = config_.num_qo_heads,
             .num_kv_heads = config_.num_kv_heads,
             .workers = static_cast<int>(std::min<int64_t>(most_workers(), step.rows() * most_items)),
             .mode = mode_of(step),
             .fixed_split_size = split_of(step)};
  return &bounds_;
}

PlanMode StepAttention::mode_of(const Step& step) const {
  return step.invariant ? PlanMode::fixed_split : options_.plan_mode;
}
int StepAttention::split_of(const Step& step) const {
  return step.invariant ? ForwardPass::kInvariantSplit : options_.fixed_split_size;
}

PlanInput StepAttention::input_of(const Step& step) {
  PlanInput input;
  input.num_qo_heads = config_.num_qo_heads;
  input.num_kv_heads = config_.num_kv_heads;
  input.qo_indptr = step.qo_indptr;
  input.pages = step.pages.get();
  input.mode = mode_of(step);
  input.fixed_split_size = split_of(step);
  input.bounds = bounds_of(step);
  input.num_workers = workers_;
  input.borrow_page_ids = input.bounds == nullptr;  // few ids are one upload with their plan
  if (input.bounds == nullptr)
    input.spare_pages = step.kv_tokens() / kGrowth / options_.page_size + static_cast<int64_t>(step.qo_indptr.size());
  return input;
}

void StepAttention::plan(const Step& step, int64_t num_shares) {
  PlanInput input = input_of(step);
  bool keeps = may_keep_plans(step, num_shares);
  made_.any = false;  // until all went well
  for (Kind& kind : kinds_) {
    input.scalars = kind.plan_scalars;
    keeps = keeps && keep_plan(kind, input);
  }
  for (Kind& kind : kinds_) {
    input.scalars = kind.plan_scalars;
    if (!keeps) make_plan(kind, step, input, num_shares > 0);
    if (kind.workspace.bytes() < kind.plan.workspace_bytes()) {
      kind.workspace = Workspace();
      kind.workspace = Workspace(options_.device, kind.plan.workspace_bytes());
    }
    kind.plan.upload(kind.workspace, stream_);
    ops::make_rope_table(step.positions, kind.rope_params, config_.head_dim, kind.rope);
  }
  if (!keeps)
    made_ = {true,
             step.invariant,
             step.kv_tokens(),
             num_shares,
             step.prefix_parents,
             step.prefix_pages,
             step.node_of_request};
  made_.any = true;
}

// A plan covers lengths that its workers would share unevenly: they may grow by a little only.
bool StepAttention::may_keep_plans(const Step& step, int64_t num_shares) const {
  const int64_t tokens = step.kv_tokens();
  return made_.any && made_.invariant == step.invariant && tokens >= made_.kv_tokens &&
         tokens - made_.kv_tokens <= made_.kv_tokens / kGrowth && num_shares == made_.num_shares &&
         step.prefix_parents == made_.prefix_parents && step.prefix_pages == made_.prefix_pages &&
         step.node_of_request == made_.node_of_request;
}

// Brings the last plan up to date where it covers the step.
bool StepAttention::keep_plan(Kind& kind, const PlanInput& input) {
  if (!kind.shared.empty() && !kind.shared.follow(input)) return false;
  const PlanInput leveled = kind.shared.apply(input);
  if (!kind.plan.covers(leveled)) return false;
  kind.plan.update(leveled);
  return true;
}

void StepAttention::make_plan(Kind& kind, const Step& step, const PlanInput& input, bool may_share) {
  kind.shared = {};
  // What sequences share is read once for all of them. Under fixed splits levels begin at multiples of the split, and
  // do not change a bit.
  if (options_.levels && step.qo_indptr.size() > 2) {
    if (step.has_prefixes())
      kind.shared = levels_from_prefixes(kind.kernel, input, step.prefixes());
    else if (may_share)
      kind.shared = levels_from_page_tables(kind.kernel, input);
  }
  kind.plan = kind.kernel.plan(kind.shared.apply(input));
  ++num_plans_;
}

void StepAttention::run(int layer, AttentionTensors tensors) {
  Kind& kind = kinds_[kind_of(layer)];
  if (config_.sm_scale > 0.f) tensors.sm_scale = config_.sm_scale;
  if (config_.attention_soft_cap > 0.f) tensors.scalars = {{"cap", config_.attention_soft_cap}};
  kind.kernel.run(kind.workspace, tensors, stream_);
}

}  // namespace weft::decode
