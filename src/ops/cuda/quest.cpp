#include "ops/cuda/quest.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace weft::ops {
namespace {

constexpr int64_t kLeastPagesOfCta = 32;

CardSummaries summaries_of(std::string_view op, const PageSummaries& summaries) {
  for (const auto& [name, side] : {std::pair{"summaries.min", summaries.min}, {"summaries.max", summaries.max}}) {
    const int64_t bytes = bits_of(side.dtype()) / 8;
    const bool fits = reinterpret_cast<uintptr_t>(side.data()) % 16 == 0 && side.stride(0) * bytes % 16 == 0 &&
                      side.stride(1) * bytes % 16 == 0;
    check(fits && side.shape(2) % 8 == 0, ErrorCode::invalid_stride,
          "{}: {} on a card needs rows that begin on 16 bytes, of a multiple of 8 elements", op, name);
  }
  return {summaries.min.data(),    summaries.max.data(),    summaries.min.stride(0),
          summaries.min.stride(1), summaries.max.stride(0), summaries.max.stride(1)};
}

CardRequests requests_of(const PlannedCall& call) {
  const DeviceBatch& batch = call.batch;
  return {.kv_len = batch.kv_len.as<int>(),
          .page_table = batch.page_table.as<int>(),
          .table_stride = batch.page_table.stride(0),
          .batch = static_cast<int>(call.num_requests()),
          .qo_len = batch.qo_len,
          .most_pages = static_cast<int>(call.most_pages()),
          .most_tokens = static_cast<int>(call.most_tokens()),
          .page_size = call.to.page_size,
          .num_pages = static_cast<int>(batch.num_pages),
          .page_reciprocal = ~0u / static_cast<unsigned>(call.to.page_size),
          .clamped = cuda::runtime().clamped_flag(batch.kv_len.device())};
}
CardLists lists_of(const PlannedCall& call) {
  const PlannedPages& to = call.to;
  return {.page_ids = to.page_ids.as<int>(),
          .positions = to.positions.as<int>(),
          .kv_len = to.kv_len.as<int>(),
          .q_positions = to.q_positions.as<int>(),
          .q_position_stride = to.q_positions.stride(1),
          .num_kv_heads = static_cast<int>(call.num_kv_heads()),
          .budget = static_cast<int>(call.budget()),
          .hidden_position = kHiddenPosition};
}

}  // namespace

void summarise_on_card(const SummaryCall& call, Stream stream) {
  static_assert(sizeof(FilledPage) == sizeof(CachePlace));
  const TensorView& min = call.summaries.min;
  const Device device = min.device();
  SummariseArgs args{.keys = {call.keys.data, call.keys.page_stride, call.keys.slot_stride, call.keys.head_stride},
                     .places = call.places.as<CachePlace>(),
                     .to = {call.summaries.min.data(), call.summaries.max.data(), min.stride(0), min.stride(1),
                            call.summaries.max.stride(0), call.summaries.max.stride(1)},
                     .num_places = call.places ? call.places.shape(0) : static_cast<int64_t>(call.pages.size()),
                     .heads = static_cast<int>(min.shape(1)),
                     .dim = static_cast<int>(min.shape(2)),
                     .clamped = nullptr,
                     .num_pages = static_cast<int>(min.shape(0)),
                     .page_size = call.page_size};
  Workspace on_card;  // until the kernel has read it: freeing waits for that
  if (call.places) {
    args.clamped = cuda::runtime().clamped_flag(device);
  } else if (args.num_places > 0) {
    on_card = Workspace(device, call.pages.size_bytes());
    cuda::copy_to_card(cuda::Card::at(device.index), on_card.data(), call.pages.data(), on_card.bytes(),
                       static_cast<cuda::api::Stream>(stream.handle()));
    args.places = static_cast<const CachePlace*>(on_card.data());
  }
  constexpr int64_t kWarps = kQuestThreads / 32;
  launch(device, summarise_kernel(call.dtype, min.dtype()),
         {.ctas = (args.num_places * args.heads + kWarps - 1) / kWarps}, stream, args);
}

namespace {

// Whether products of warps bound the pages (kernels/quest/product_bounds.h): rows of queries lie at multiples of 4
// bytes.
bool has_product_bounds(const ChooseCall& call) {
  const TensorView &q = call.q, &min = call.summaries.min, &max = call.summaries.max;
  const int64_t dim = q.shape(2);
  const auto is_near = [](const TensorView& side) { return side.stride(0) < int64_t{1} << 32; };
  return q.dtype() == DType::bf16 && min.dtype() == DType::bf16 && dim % 16 == 0 && dim <= kMostProductDim &&
         reinterpret_cast<uintptr_t>(q.data()) % 4 == 0 && q.stride(0) % 2 == 0 && q.stride(1) % 2 == 0 &&
         is_near(min) && is_near(max);
}

}  // namespace

void choose_on_card(const ChooseCall& call, Stream stream) {
  const Device device = call.q.device();
  const cuda::Runtime& on = cuda::runtime();
  const bool in_clusters = on.architecture(device) >= "sm_90";
  const int64_t lists = call.num_requests() * call.num_kv_heads(), dim = call.q.shape(2);
  check(dim <= kMostQuestDim, ErrorCode::unsupported,
        "choose_pages: required queries of {} dims, supported on a card up to {}, missing: more; choose on the CPU",
        dim, kMostQuestDim);
  const CardSummaries summaries = summaries_of("choose_pages", call.summaries);
  if (lists == 0) return;
  const int64_t group = call.q.shape(1) / call.num_kv_heads(), rows = group * call.batch.qo_len;
  const KernelText text = in_clusters && has_product_bounds(call)
                              ? choose_by_products_kernel(static_cast<int>(dim))
                              : choose_pages_kernel(call.q.dtype(), call.summaries.min.dtype(),
                                                    rows == 1   ? 1
                                                    : rows == 2 ? 2
                                                                : 4);
  const cuda::LoadedKernel& kernel = on.load(device, text);
  cuda::Grid grid = text.grid(1);
  grid.programmatic_launch = true;
  // Enough CTAs for all multiprocessors, with a few pages for each of their warps.
  const int64_t tiles = std::max<int64_t>((call.most_pages() + kLeastPagesOfCta - 1) / kLeastPagesOfCta, 1);
  int64_t parts = std::clamp<int64_t>(2 * on.num_multiprocessors(device) / lists, 1, tiles);
  if (in_clusters) {
    grid.cluster = ctas_of_cluster(kernel, grid, device, lists, std::min<int64_t>(kMostChooseCtas, tiles));
    parts = grid.cluster;
  }
  grid.ctas = static_cast<int>(lists * parts);
  auto* const done = static_cast<unsigned*>(call.scratch.data());
  on.launch(kernel, grid,
            ChooseArgs{.q = call.q.data(),
                       .q_row_stride = call.q.stride(0),
                       .q_head_stride = call.q.stride(1),
                       .summaries = summaries,
                       .requests = requests_of(call),
                       .to = lists_of(call),
                       .keys = done + lists,
                       .done = done,
                       .group = static_cast<int>(group),
                       .dim = static_cast<int>(dim),
                       .parts = static_cast<int>(parts)},
            stream);
}

void set_pages_on_card(const SetPagesCall& call, Stream stream) {
  constexpr int64_t kWarps = kQuestThreads / 32;
  const int64_t lists = call.num_requests() * call.num_kv_heads();
  launch(call.selected.device(), set_pages_kernel(), {.ctas = (lists + kWarps - 1) / kWarps}, stream,
         SetPagesArgs{call.selected.as<int>(), requests_of(call), lists_of(call)});
}

}  // namespace weft::ops
