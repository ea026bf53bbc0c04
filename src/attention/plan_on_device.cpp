// plan_on_device: what of an even plan follows from the batch's size is made here, the rest by a kernel.
#include <algorithm>
#include <vector>

#include "attention/kernel.h"
#include "attention/plan/plan_builder.h"
#include "base/check.h"
#include "base/device_checks.h"

namespace weft {

using namespace attention;

namespace {

void check_ids(const char* name, const TensorView& t, int rank, Device device) {
  check(static_cast<bool>(t), ErrorCode::invalid_argument, "{}: is missing", name);
  check_on("", name, t.device(), device);
  check(t.dtype() == DType::int32, ErrorCode::invalid_dtype, "{}: is {}; it must be int32", name, to_string(t.dtype()));
  check(t.rank() == rank, ErrorCode::invalid_shape, "{}: has rank {}; required is {}", name, t.rank(), rank);
  check(t.shape(rank - 1) <= 1 || t.stride(rank - 1) == 1, ErrorCode::invalid_stride,
        "{}: has stride {} along its last axis; it must be 1", name, t.stride(rank - 1));
}

void check_batch(const AttentionKernel::Impl& kernel, const DeviceBatch& batch, const PlanBounds& bounds,
                 const Workspace& workspace, Stream stream) {
  check(has_page_table(kernel.spec.kv_form), ErrorCode::unsupported,
        "plan_on_device: required a paged cache; supported paged and latent; missing: the other forms");
  check(
      kernel.traits.custom_mask == Mask::none, ErrorCode::unsupported,
      "plan_on_device: required a custom mask; supported are none and causal; missing: mask_indptr of lengths that the "
      "host does not know; use AttentionKernel::plan");
  if (!stream.is_default()) check_on("", "stream", stream.device(), kernel.device);
  check_on("", "workspace", workspace.device(), kernel.device);
  check_ids("kv_len", batch.kv_len, 1, kernel.device);
  check_ids("page_table", batch.page_table, 2, kernel.device);
  check(batch.page_table.shape(0) == batch.kv_len.shape(0), ErrorCode::invalid_shape,
        "page_table: has {} rows; kv_len has {}", batch.page_table.shape(0), batch.kv_len.shape(0));
  check(batch.qo_len >= 1, ErrorCode::invalid_argument, "qo_len = {}; allowed are 1 and more", batch.qo_len);
  check(bounds.mode == PlanMode::even, ErrorCode::invalid_argument, "bounds.mode = {}; plans of a device are even",
        to_string(bounds.mode));
  check(batch.kv_len.shape(0) <= bounds.max_requests, ErrorCode::invalid_argument,
        "requests = {}: beyond bounds.max_requests = {}; plan less, or raise the bound", batch.kv_len.shape(0),
        bounds.max_requests);
}

}  // namespace

void AttentionKernel::plan_on_device(const DeviceBatch& batch, const PlanBounds& bounds, Workspace& workspace,
                                     Stream stream) const {
  const Impl& kernel = impl();
  check_batch(kernel, batch, bounds, workspace, stream);
  const auto requests = static_cast<int32_t>(batch.kv_len.shape(0));
  // The same batch without keys: its header has all but what follows from lengths.
  std::vector<int32_t> qo_indptr(static_cast<size_t>(requests) + 1), no_pages(qo_indptr.size(), 0);
  for (int32_t r = 0; r <= requests; ++r) qo_indptr[static_cast<size_t>(r)] = r * batch.qo_len;
  PlanInput input{.num_qo_heads = bounds.num_qo_heads, .num_kv_heads = bounds.num_kv_heads, .qo_indptr = qo_indptr};
  input.pages = {bounds.page_size, batch.num_pages, no_pages, {}, std::span(no_pages).first(no_pages.size() - 1)};
  input.num_workers = batch.num_workers;
  input.mode = PlanMode::even;
  input.scalars = batch.scalars;
  input.bounds = &bounds;
  const Planner::Outline outline = Planner::outline(kernel.traits, input);
  const PlanHeader& header = outline.header;
  const int64_t pages =
      std::min<int64_t>(batch.page_table.shape(1), planner::ceil_div(bounds.max_kv_len, bounds.page_size));
  check(requests * pages <= bounds.max_pages, ErrorCode::invalid_argument,
        "bounds.max_pages = {}: {} requests may have {} pages each; the host does not see how many they have, so raise "
        "it to {}",
        bounds.max_pages, requests, pages, requests * pages);
  check(static_cast<int64_t>(workspace.bytes()) >= header.total_bytes, ErrorCode::workspace_too_small,
        "workspace: has {} bytes, the bounds need {}; ask kernel.workspace_bytes(bounds)", workspace.bytes(),
        header.total_bytes);
  if (requests == 0) return plan(input).upload(workspace, stream);
  check(outline.unit_heads == 1, ErrorCode::unsupported,
        "plan_on_device: required units of one KV head; this device's hold {}", outline.unit_heads);
  const auto tile_class = static_cast<int>(outline.tile_class - kernel.traits.classes.data());
  kernel.backend->plan_even(kernel, header,
                            {.kv_len = batch.kv_len.as<int32_t>(),
                             .page_table = batch.page_table.as<int32_t>(),
                             .page_table_stride = batch.page_table.stride(0),
                             .pages_of_request = static_cast<int>(batch.page_table.shape(1)),
                             .max_kv_len = static_cast<int>(bounds.max_kv_len),
                             .qo_len = batch.qo_len,
                             .granule = kernel.traits.granule,
                             .overhead = planner::even_overhead(
                                 kernel.traits, tile_class, batch.qo_len * bounds.num_qo_heads / bounds.num_kv_heads),
                             .tile_kind = outline.tile_class->kind},
                            workspace, stream);
}

}  // namespace weft
