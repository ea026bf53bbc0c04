// run: every check of tensors against the plan in the workspace, then the backend launches it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/fields.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "attention/record.h"
#include "base/check.h"
#include "base/device_checks.h"
#include "base/format_tensor.h"
#include "base/tensor_checks.h"

namespace weft {
namespace {

using namespace attention;

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::fp16: return Element::fp16;
    case DType::bf16: return Element::bf16;
    case DType::fp8_e4m3: return Element::e4m3;
    case DType::fp8_e5m2: return Element::e5m2;
    case DType::int8: return Element::int8;
    case DType::int4: return Element::int4;
    default: return Element::fp32;
  }
}

// ---------------------------------------------------------------- checks

void check_devices(const AttentionTensors& tensors, bool latent, Device device) {
  for_each_tensor(tensors, [&](std::string_view name, const TensorView& tensor, TensorUse) {
    if (latent && name == "k") name = "ckv";
    if (latent && name == "v") name = "kpe";
    if (tensor) check_on("", name, tensor.device(), device);
  });
}

void check_tensor(const char* name, const TensorView& t, DType dtype, int rank, const char* form) {
  check(static_cast<bool>(t), ErrorCode::invalid_argument, "{}: is missing; give {}", name, form);
  check(t.dtype() == dtype, ErrorCode::invalid_dtype, "{}: is {}; the kernel was built for {}", name,
        to_string(t.dtype()), to_string(dtype));
  check(t.rank() == rank, ErrorCode::invalid_shape, "{}: {} has rank {}; required is {}", name, t, t.rank(), form);
  check(t.data() != nullptr || t.size() == 0, ErrorCode::invalid_argument, "{}: {} has no data", name, t);
  const auto bytes = static_cast<uintptr_t>(std::max(bits_of(dtype) / 8, 1));
  check(reinterpret_cast<uintptr_t>(t.data()) % bytes == 0, ErrorCode::invalid_stride,
        "{}: its data is not aligned to its elements of {} bytes", name, bytes);
}

void check_extent(const char* name, const TensorView& t, int axis, int64_t required, const char* what) {
  check(t.shape(axis) == required, ErrorCode::invalid_shape, "{}: {} has {} along axis {}; {} is {}", name, t,
        t.shape(axis), axis, what, required);
}

void check_extent_at_least(const char* name, const TensorView& t, int64_t required, const char* what) {
  check(t.shape(0) >= required, ErrorCode::invalid_shape, "{}: {} has {} elements; {} is {}", name, t, t.shape(0), what,
        required);
}

void check_last_stride(const char* name, const TensorView& t) {
  const int last = t.rank() - 1;
  check(t.shape(last) <= 1 || t.stride(last) == 1, ErrorCode::invalid_stride,
        "{}: has stride {} along its last axis; it must be 1: copy the tensor", name, t.stride(last));
}

void check_rows(const char* name, const TensorView& t, DType dtype, const PlanHeader& plan, int head_dim,
                const char* form) {
  check_tensor(name, t, dtype, 3, form);
  check(t.shape(0) == plan.num_rows_q, ErrorCode::invalid_shape, "{}: {} has {} rows; the plan has {} query tokens",
        name, t, t.shape(0), plan.num_rows_q);
  check_extent(name, t, 1, plan.num_qo_heads, "num_qo_heads of the plan");
  check_extent(name, t, 2, head_dim, "the head dim of the kernel");
  check_last_stride(name, t);
}

const PlanHeader& checked_plan(const AttentionKernel::Impl& kernel, const Workspace& workspace) {
  check_on("", "workspace", workspace.device(), kernel.device);
  check(workspace.bytes() >= sizeof(PlanHeader), ErrorCode::plan_mismatch,
        "workspace: has {} bytes and holds no plan; make it of plan.workspace_bytes() and call plan.upload",
        workspace.bytes());
  const PlanHeader* plan = kernel.backend->plan_in(workspace);
  check(plan != nullptr && plan->magic == kPlanMagic, ErrorCode::plan_mismatch,
        "workspace: holds no plan; call plan.upload(workspace) first");
  check(plan->signature == kernel.signature, ErrorCode::plan_mismatch,
        "workspace: its plan has signature {:016x}, this kernel {:016x}; plan with a kernel of the same tile classes, "
        "head_dim_vo, KV form and mask intervals",
        plan->signature, kernel.signature);
  check(plan->total_bytes <= static_cast<long long>(workspace.bytes()), ErrorCode::plan_mismatch,
        "workspace: its plan needs {} bytes, it has {}; upload the plan again", plan->total_bytes, workspace.bytes());
  return *plan;
}

// K or V. Fills in where its tokens lie.
TokensView check_cache(const char* name, const TensorView& t, const AttentionSpec& spec, const PlanHeader& plan,
                       int head_dim) {
  const bool nhd = spec.layout == Layout::nhd;
  const bool ragged = spec.kv_form == KvForm::ragged;
  const bool paged = spec.kv_form == KvForm::paged || spec.kv_form == KvForm::block_sparse;
  const char* form = paged ? (nhd ? "[pages, page_size, num_kv_heads, dim]" : "[pages, num_kv_heads, page_size, dim]")
                     : ragged ? (nhd ? "[nnz_kv, num_kv_heads, dim]" : "[num_kv_heads, nnz_kv, dim]")
                              : (nhd ? "[batch, max_len, num_kv_heads, dim]" : "[batch, num_kv_heads, max_len, dim]");
  check_tensor(name, t, spec.kv_dtype, ragged ? 3 : 4, form);
  const int first = ragged ? 0 : 1;
  const int token_axis = nhd ? first : first + 1, head_axis = nhd ? first + 1 : first, dim_axis = first + 2;
  check_extent(name, t, head_axis, plan.num_kv_heads, "num_kv_heads of the plan");
  check_extent(name, t, dim_axis, head_dim, "the head dim of the kernel");
  check_last_stride(name, t);
  switch (spec.kv_form) {
    case KvForm::paged:
    case KvForm::block_sparse:
      check(t.shape(0) >= plan.num_pool_pages, ErrorCode::invalid_shape, "{}: {} has {} pages; the plan's pool has {}",
            name, t, t.shape(0), plan.num_pool_pages);
      check_extent(name, t, token_axis, plan.page_size, "page_size of the plan");
      break;
    case KvForm::ragged:
      check(t.shape(token_axis) >= plan.num_pool_pages, ErrorCode::invalid_shape,
            "{}: {} has {} tokens; the plan's kv_indptr ends at {}", name, t, t.shape(token_axis), plan.num_pool_pages);
      break;
    default:
      check(t.shape(0) >= plan.num_requests, ErrorCode::invalid_shape, "{}: {} has {} requests; the plan has {}", name,
            t, t.shape(0), plan.num_requests);
      check_extent(name, t, token_axis,
                   plan.num_requests > 0 ? plan.num_pool_pages / plan.num_requests : t.shape(token_axis),
                   "max_kv_len of the plan");
      break;
  }
  const int64_t bits = bits_of(t.dtype());
  for (int axis = 0; axis < dim_axis; ++axis)
    check(t.shape(axis) <= 1 || t.stride(axis) * bits % 8 == 0, ErrorCode::invalid_stride,
          "{}: has stride {} along axis {}; rows of {} must begin on a byte", name, t.stride(axis), axis,
          to_string(t.dtype()));
  return {static_cast<const char*>(t.data()), ragged ? 0 : t.stride(0) * bits / 8, t.stride(token_axis) * bits / 8,
          t.stride(head_axis) * bits / 8, 1};
}

// The scales of K or V, whose own tensor is `cache`. Fills in where they lie.
TokensView check_scales(const char* name, const TensorView& t, const TensorView& cache, const AttentionSpec& spec,
                        const PlanHeader& plan) {
  if (spec.kv_scales == KvScales::none) {
    check(!t, ErrorCode::invalid_argument, "{}: is given; the kernel was built for a cache without scales", name);
    return {};
  }
  const bool nhd = spec.layout == Layout::nhd, ragged = spec.kv_form == KvForm::ragged;
  const int first = ragged ? 0 : 1, token_axis = nhd ? first : first + 1, head_axis = nhd ? first + 1 : first;
  const bool by_token = spec.kv_scales >= KvScales::token;
  const int group = spec.kv_scales == KvScales::token_group ? spec.kv_scale_group : 1;
  check_tensor(name, t, DType::fp32, cache.rank(), "the cache's axes");
  const bool paged = spec.kv_form == KvForm::paged || spec.kv_form == KvForm::block_sparse;
  check(!paged || plan.page_size % group == 0, ErrorCode::invalid_argument,
        "kv_scale_group = {}: must divide page_size = {} of the plan", group, plan.page_size);
  for (int axis = 0; axis < cache.rank(); ++axis) {
    int64_t extent = 1;
    if (axis == head_axis && spec.kv_scales != KvScales::tensor) extent = cache.shape(axis);
    if (by_token && axis == token_axis) extent = (cache.shape(axis) + group - 1) / group;
    if (by_token && axis < first) extent = cache.shape(axis);
    check(t.shape(axis) == extent, ErrorCode::invalid_shape,
          "{}: {} has {} along axis {}; with kv_scales = {} and a cache of {} it is {}", name, t, t.shape(axis), axis,
          to_string(spec.kv_scales), cache, extent);
  }
  const auto stride = [&](int axis) { return t.shape(axis) > 1 ? t.stride(axis) * 4 : 0; };
  return {static_cast<const char*>(t.data()), ragged ? 0 : stride(0), stride(token_axis), stride(head_axis), group};
}

// Latent rows: ckv, then kpe, or both in one tensor.
void check_latent(const KvCache& kv, const AttentionSpec& spec, const PlanHeader& plan, RunArgs& args) {
  const int64_t bytes = bits_of(spec.kv_dtype) / 8;
  const auto rows = [&](const char* name, const TensorView& t, int dim, const char* what) -> TokensView {
    check_tensor(name, t, spec.kv_dtype, 3, "[pages, page_size, dim]");
    check(t.shape(0) >= plan.num_pool_pages, ErrorCode::invalid_shape, "{}: {} has {} pages; the plan's pool has {}",
          name, t, t.shape(0), plan.num_pool_pages);
    check_extent(name, t, 1, plan.page_size, "page_size of the plan");
    check_extent(name, t, 2, dim, what);
    check_last_stride(name, t);
    return {static_cast<const char*>(t.data()), t.stride(0) * bytes, t.stride(1) * bytes, 0, 1};
  };
  args.v_is_k_prefix = 1;
  if (!kv.v) {
    args.k = rows("ckv and kpe", kv.k, spec.head_dim_qk, "head_dim_qk of the kernel");
  } else {
    args.rope_dim = spec.head_dim_qk - spec.head_dim_vo;
    args.k = rows("ckv", kv.k, spec.head_dim_vo, "head_dim_vo of the kernel");
    args.rope = rows("kpe", kv.v, args.rope_dim, "head_dim_qk - head_dim_vo of the kernel");
  }
  args.v = args.k;
}

RowsView rows_view(const TensorView& t) {
  const int64_t bytes = bits_of(t.dtype()) / 8;
  return {static_cast<char*>(t.data()), t.stride(0) * bytes, t.stride(1) * bytes, element_of(t.dtype())};
}

const TensorView& named(const std::vector<TensorArg>& tensors, std::string_view name) {
  return std::find_if(tensors.begin(), tensors.end(), [&](const TensorArg& arg) { return arg.name == name; })->value;
}

// Kernels follow the plan's mask_indptr without looking.
void check_custom_mask(const AttentionKernel::Impl& kernel, const PlanHeader& plan,
                       const std::vector<TensorArg>& tensors) {
  if (kernel.traits.custom_mask == Mask::none) return;
  const TensorView& mask = named(tensors, "mask");
  check(mask.shape(0) >= plan.mask_bytes, ErrorCode::invalid_shape,
        "mask: has {} bytes; the plan's mask_indptr needs {}{}", mask.shape(0), plan.mask_bytes,
        kernel.traits.custom_mask == Mask::custom ? "" : ", 4 of them padding");
}

void check_lse(const TensorView& lse, const AttentionSpec& spec, const PlanHeader& plan) {
  check(spec.variant.use_softmax, ErrorCode::invalid_argument,
        "lse: variant '{}' has no softmax and so no lse; leave it empty", spec.variant.name);
  check_tensor("lse", lse, DType::fp32, 2, "[nnz_qo, num_qo_heads]");
  check_extent("lse", lse, 0, plan.num_rows_q, "the plan's number of query tokens");
  check_extent("lse", lse, 1, plan.num_qo_heads, "num_qo_heads of the plan");
  check_written("", "lse", lse);
}

// Every tensor of the call, checked against kernel and plan, as kernels find it; without params.
RunArgs checked_args(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const AttentionTensors& tensors) {
  const AttentionSpec& spec = kernel.spec;
  check_devices(tensors, spec.kv_form == KvForm::latent, kernel.device);
  check_rows("q", tensors.q, spec.q_dtype, plan, spec.head_dim_qk, "[nnz_qo, num_qo_heads, head_dim_qk]");
  check_rows("o", tensors.o, spec.o_dtype, plan, spec.head_dim_vo, "[nnz_qo, num_qo_heads, head_dim_vo]");
  check_written("", "o", tensors.o);
  RunArgs args = {};
  if (spec.kv_form == KvForm::latent) {
    check_latent(tensors.kv, spec, plan, args);
  } else {
    args.k = check_cache("k", tensors.kv.k, spec, plan, spec.head_dim_qk);
    args.v = check_cache("v", tensors.kv.v, spec, plan, spec.head_dim_vo);
    args.k_scale = check_scales("k_scale", tensors.kv.k_scale, tensors.kv.k, spec, plan);
    args.v_scale = check_scales("v_scale", tensors.kv.v_scale, tensors.kv.v, spec, plan);
  }
  const auto extent = [&](int axis) {
    const TensorView &k = tensors.kv.k, &v = tensors.kv.v;
    return v ? std::min(k.shape(axis), v.shape(axis)) : k.shape(axis);
  };
  const bool ragged = spec.kv_form == KvForm::ragged, latent = spec.kv_form == KvForm::latent;
  args.kv_pages = ragged ? 1 : extent(0);
  args.kv_tokens = extent((ragged ? 0 : 1) + (spec.layout == Layout::hnd && !latent ? 1 : 0));
  args.q = rows_view(tensors.q);
  args.o = rows_view(tensors.o);
  args.kv_element = element_of(spec.kv_dtype);
  args.scaling = spec.kv_scales == KvScales::none   ? Scaling::none
                 : spec.kv_scales < KvScales::token ? Scaling::head
                                                    : Scaling::token;
  args.paged = has_page_table(spec.kv_form) || spec.kv_form == KvForm::block_sparse;
  args.token_page_size = args.paged ? plan.page_size
                         : spec.kv_form == KvForm::ragged
                             ? 0
                             : static_cast<int>(tensors.kv.k.shape(spec.layout == Layout::nhd ? 1 : 2));
  if (tensors.lse) {
    check_lse(tensors.lse, spec, plan);
    args.lse = tensors.lse.as<float>();
    args.lse_row_stride = tensors.lse.stride(0);
    args.lse_head_stride = tensors.lse.stride(1);
  }
  args.head_dim_qk = spec.head_dim_qk;
  args.head_dim_vo = spec.head_dim_vo;
  args.group_size = plan.num_qo_heads / plan.num_kv_heads;
  return args;
}

// What the variant declares, as kernels find it: good until this thread's next call.
const abi::Slot* packed_params(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const Workspace& workspace,
                               const AttentionTensors& tensors, float sm_scale) {
  thread_local std::vector<abi::Slot> slots;  // grows to the largest call's
  if (slots.size() < kernel.params.num_slots()) slots.resize(kernel.params.num_slots());
  const Params::Planned planned{plan.scalars, section<int64_t>(workspace.data(), plan.mask_indptr)};
  kernel.params.pack(sm_scale, tensors.scalars, tensors.tensors, &planned, slots.data());
  check_custom_mask(kernel, plan, tensors.tensors);
  if (const char* name = kernel.per_head)
    check_extent_at_least(name, named(tensors.tensors, name), plan.num_qo_heads, "num_qo_heads of the plan");
  return slots.data();
}

}  // namespace

KvCache::KvCache(TensorView pages_5d) {
  check(pages_5d.rank() == 5 && pages_5d.shape(1) == 2, ErrorCode::invalid_shape,
        "kv: {} is no 5-D cache; required is [pages, 2, page_size, num_kv_heads, dim] or "
        "[pages, 2, num_kv_heads, page_size, dim]",
        pages_5d);
  k = pages_5d.select(1, 0);
  v = pages_5d.select(1, 1);
}

void AttentionKernel::run(Workspace& workspace, const AttentionTensors& tensors, Stream stream) const {
  const Impl& kernel = impl();
  if (!stream.is_default()) check_on("", "stream", stream.device(), kernel.device);
  const PlanHeader& plan = checked_plan(kernel, workspace);
  RunArgs args = checked_args(kernel, plan, tensors);
  const float sm_scale = tensors.sm_scale.value_or(1.f / std::sqrt(static_cast<float>(kernel.spec.head_dim_qk)));
  args.params = packed_params(kernel, plan, workspace, tensors, sm_scale);
  const std::string recorded = record_call(kernel, workspace, tensors, sm_scale, stream);
  kernel.backend->launch(kernel, args, workspace, stream);
  if (!recorded.empty()) record_result(recorded, kernel, tensors, stream);
}

PlannedPages AttentionKernel::planned_pages(const Workspace& workspace) const {
  const Impl& kernel = impl();
  const PlanHeader& plan = checked_plan(kernel, workspace);
  const int64_t batch = plan.num_requests, heads = plan.num_kv_heads, lists = batch * heads;
  const int64_t listed = plan.page_indices.count, qo_len = plan.block_rows;
  check(
      kernel.spec.kv_form == KvForm::block_sparse && plan.positions_per_page == 1 && plan.bits_index.count == 0 &&
          plan.page_lists.count == lists && plan.num_rows_q == batch * qo_len && (lists == 0 || listed % lists == 0),
      ErrorCode::plan_mismatch,
      "planned_pages: the plan in the workspace has {} lists of {} pages in all for {} requests and {} KV heads; make "
      "it of pages_to_set",
      plan.page_lists.count, listed, batch, heads);
  kernel.backend->expect_changes(workspace);
  const auto ints = [&](const void* data, std::span<const int64_t> shape, std::span<const int64_t> strides) {
    return TensorView(data, DType::int32, shape, strides, workspace.device());
  };
  const int64_t budget = lists == 0 ? 0 : listed / lists, row_ints = sizeof(PlanRow) / sizeof(int);
  // Sections as the header says; the plan itself may lie on a device.
  const auto at = [&](const Section& s) { return static_cast<const char*>(workspace.data()) + s.offset; };
  const auto pages = [&](const Section& s) {
    return ints(at(s), std::array{heads, batch, budget}, std::array{batch * budget, budget, int64_t{1}});
  };
  return {.page_ids = pages(plan.page_indices),
          .positions = pages(plan.kv_positions),
          .kv_len = ints(at(plan.kv_len), std::array{batch}, std::array{int64_t{1}}),
          .q_positions = ints(at(plan.rows) + offsetof(PlanRow, pos), std::array{batch, qo_len},
                              std::array{qo_len * row_ints, row_ints}),
          .page_size = plan.page_size,
          .num_pages = plan.num_pool_pages};
}

void AttentionKernel::locate_rows(const Workspace& workspace, const TensorView& positions, const TensorView& places,
                                  Stream stream) const {
  const Impl& kernel = impl();
  check(has_page_table(kernel.spec.kv_form), ErrorCode::unsupported,
        "locate_rows: required a paged cache; supported paged and latent; missing: the other forms");
  if (!stream.is_default()) check_on("", "stream", stream.device(), kernel.device);
  const PlanHeader& plan = checked_plan(kernel, workspace);
  const auto check_ints = [&](const char* name, const TensorView& t, int rank, const char* form) {
    check_tensor(name, t, DType::int32, rank, form);
    check_on("", name, t.device(), kernel.device);
    check_extent(name, t, 0, plan.num_rows_q, "the plan's number of query tokens");
    if (rank == 2) check_extent(name, t, 1, 2, "page and slot");
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; stride *= t.shape(axis--))
      check(t.shape(axis) <= 1 || t.stride(axis) == stride, ErrorCode::invalid_stride,
            "{}: has stride {} along axis {}; it must lie together", name, t.stride(axis), axis);
  };
  check_ints("positions", positions, 1, "[nnz_qo]");
  check_ints("places", places, 2, "[nnz_qo, 2]");
  kernel.backend->locate_rows(kernel, workspace, positions.as<int32_t>(), places.as<int32_t>(), stream);
}

}  // namespace weft
