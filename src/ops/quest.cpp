// Quest: summaries of pages, and the choice of pages by the bound that they give.
#include "weft/quest.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format_tensor.h"
#include "ops/backend.h"
#include "ops/elementwise.h"
#include "ops/paged.h"

namespace weft {

using namespace ops;

int64_t ops::PlannedCall::most_tokens() const {
  constexpr int64_t kMost = kHiddenPosition - 1;
  return std::min(most_pages() * to.page_size, kMost);
}

namespace {

constexpr int kMaxBudget = 65536;  // pages

void check_table(std::string_view op, std::string_view name, std::span<const int32_t> indptr, int64_t rows,
                 const PageTableView& pages, int64_t num_pages) {
  check_requests(op, name, indptr, rows, pages);
  for (size_t r = 0; r + 1 < indptr.size(); ++r) check_page_ids(op, pages, r, 0, num_pages);
}

// A tensor of rank 3 or 4 in one of the given types, rows without gaps.
void check_numbers(std::string_view op, std::string_view name, const TensorView& tensor, int rank, bool may_be_fp16,
                   Device device) {
  const DType dtype = tensor.dtype();
  check(!tensor || dtype == DType::fp32 || dtype == DType::bf16 || (may_be_fp16 && dtype == DType::fp16),
        ErrorCode::invalid_dtype, "{}: {} has dtype {}; {} are supported", op, name, to_string(dtype),
        may_be_fp16 ? "fp32, fp16 and bf16" : "fp32 and bf16");
  check_memory(op, name, tensor, device);
  check(tensor.rank() == rank, ErrorCode::invalid_shape, "{}: {} is {}; rank {} is needed", op, name, tensor, rank);
  check_rows_of_bytes(op, name, tensor);
}

void check_summaries(std::string_view op, const PageSummaries& summaries, Device device) {
  check_numbers(op, "summaries.min", summaries.min, 3, false, device);
  check_numbers(op, "summaries.max", summaries.max, 3, false, device);
  check_same_shape(op, "summaries.max", summaries.max, "summaries.min", summaries.min);
  check(summaries.min.dtype() == summaries.max.dtype(), ErrorCode::invalid_dtype,
        "{}: summaries.min has dtype {}, summaries.max {}; they must be equal", op, to_string(summaries.min.dtype()),
        to_string(summaries.max.dtype()));
}

// All but the pages.
SummaryCall summary_call(const TensorView& keys, int page_size, Layout layout, const PageSummaries& summaries,
                         Device device, Stream stream) {
  constexpr std::string_view kOp = "update_page_summaries";
  check_stream(kOp, stream, device);
  check_summaries(kOp, summaries, device);
  check_written(kOp, "summaries.min", summaries.min);
  check_written(kOp, "summaries.max", summaries.max);
  check_numbers(kOp, "keys", keys, 4, true, device);
  const int slots = slot_axis(kOp, layout), head_axis = 3 - slots;
  const TensorView& min = summaries.min;
  check(keys.shape(0) == min.shape(0) && keys.shape(slots) == page_size && keys.shape(head_axis) == min.shape(1) &&
            keys.shape(3) == min.shape(2),
        ErrorCode::invalid_shape, "{}: keys are {}; pages {} x page size {} x heads {} x dim {} are needed in {} order",
        kOp, keys, min.shape(0), page_size, min.shape(1), min.shape(2), layout == Layout::nhd ? "NHD" : "HND");
  return {.keys = {keys.as<char>(), keys.stride(0), keys.stride(slots), keys.stride(head_axis), bits_of(keys.dtype())},
          .dtype = keys.dtype(),
          .summaries = summaries,
          .pages = {},
          .places = {},
          .page_size = page_size};
}

void check_places(std::string_view op, const TensorView& places, Device device) {
  check(!places || places.dtype() == DType::int32, ErrorCode::invalid_dtype, "{}: places has dtype {}; int32 is needed",
        op, to_string(places.dtype()));
  check_memory(op, "places", places, device);
  check(places.rank() == 2 && places.shape(1) == 2, ErrorCode::invalid_shape,
        "{}: places is {}; page and slot of each row are needed", op, places);
  check(places.shape(0) == 0 || (places.stride(1) == 1 && (places.shape(0) == 1 || places.stride(0) == 2)),
        ErrorCode::invalid_stride, "{}: places must lie together", op);
}

}  // namespace

void update_page_summaries(const TensorView& keys, std::span<const int32_t> append_indptr, const PageTableView& pages,
                           Layout layout, const PageSummaries& summaries, Stream stream) {
  constexpr std::string_view kOp = "update_page_summaries";
  const Device device = device_of(keys);
  SummaryCall call = summary_call(keys, pages.page_size, layout, summaries, device, stream);
  check_table(kOp, "append_indptr", append_indptr, -1, pages, keys.shape(0));
  std::vector<FilledPage> changed;
  for (size_t r = 0; r + 1 < append_indptr.size(); ++r) {
    const PagedRequest request = request_of(pages, r);
    const int64_t count = append_indptr[r + 1] - append_indptr[r];
    for (int64_t i = request.first_page_of_last(count, pages.page_size);
         count > 0 && i * pages.page_size < request.tokens; ++i)
      changed.push_back(
          {request.pages[static_cast<size_t>(i)],
           static_cast<int32_t>(std::min<int64_t>(pages.page_size, request.tokens - i * pages.page_size) - 1)});
  }
  call.pages = changed;
  backend_of(kOp, device).summarise(call, stream);
}

void update_page_summaries(const TensorView& keys, const TensorView& places, Layout layout,
                           const PageSummaries& summaries, Stream stream) {
  constexpr std::string_view kOp = "update_page_summaries";
  const Device device = device_of(keys);
  const int slots = slot_axis(kOp, layout);
  check(keys && keys.rank() == 4, ErrorCode::invalid_shape, "{}: keys are {}; pages of rank 4 are needed", kOp,
        keys ? shape_string(keys) : "missing");
  const auto page_size = static_cast<int>(keys.shape(slots));
  SummaryCall call = summary_call(keys, page_size, layout, summaries, device, stream);
  check_places(kOp, places, device);
  if (device != Device::cpu()) {
    call.places = places;
    return backend_of(kOp, device).summarise(call, stream);
  }
  std::vector<FilledPage> changed;
  const int32_t* const place = places.as<int32_t>();
  for (int64_t row = 0; row < places.shape(0); ++row) {
    const int32_t page = place[2 * row], slot = place[2 * row + 1];
    check(page >= 0 && page < keys.shape(0) && slot >= 0 && slot < page_size, ErrorCode::invalid_page,
          "{}: places[{}] = page {}, slot {}; allowed are 0 to {} and 0 to {}", kOp, row, page, slot, keys.shape(0) - 1,
          page_size - 1);
    const bool goes_on = !changed.empty() && changed.back().page == page && changed.back().last_slot + 1 == slot;
    if (goes_on)
      changed.back().last_slot = slot;
    else
      changed.push_back({page, slot});
  }
  call.pages = changed;
  cpu_backend().summarise(call, stream);
}

namespace {

void check_queries(std::string_view op, const TensorView& q, const PageSummaries& summaries, int64_t num_kv_heads) {
  check(num_kv_heads >= 1 && summaries.min.shape(1) == num_kv_heads && q.shape(1) % num_kv_heads == 0 &&
            q.shape(2) == summaries.min.shape(2),
        ErrorCode::invalid_shape,
        "{}: q is {}, summaries are {} and num_kv_heads = {}; heads of q are a multiple of it, and the last axes agree",
        op, q, summaries.min, num_kv_heads);
}

void check_ints(std::string_view op, std::string_view name, const TensorView& t, int rank, Device device) {
  check(!t || t.dtype() == DType::int32, ErrorCode::invalid_dtype, "{}: {} has dtype {}; int32 is needed", op, name,
        to_string(t.dtype()));
  check_memory(op, name, t, device);
  check(t.rank() == rank, ErrorCode::invalid_shape, "{}: {} is {}; rank {} is needed", op, name, t, rank);
  check(t.shape(rank - 1) <= 1 || t.stride(rank - 1) == 1, ErrorCode::invalid_stride,
        "{}: the last axis of {} has stride {}; 1 is needed", op, name, t.stride(rank - 1));
}

void check_planned(std::string_view op, const PlannedCall& call, Device device, Stream stream) {
  const DeviceBatch& batch = call.batch;
  const PlannedPages& to = call.to;
  check_stream(op, stream, device);
  check_ints(op, "batch.kv_len", batch.kv_len, 1, device);
  check_ints(op, "batch.page_table", batch.page_table, 2, device);
  check_ints(op, "planned pages", to.page_ids, 3, device);
  check(batch.page_table.shape(0) == batch.kv_len.shape(0), ErrorCode::invalid_shape,
        "{}: batch.page_table has {} rows, batch.kv_len {}", op, batch.page_table.shape(0), batch.kv_len.shape(0));
  check(to.page_ids.shape(1) == batch.kv_len.shape(0) && to.q_positions.shape(1) == batch.qo_len,
        ErrorCode::plan_mismatch,
        "{}: {} requests of {} query tokens; the planned pages are of {} requests of {} query tokens", op,
        batch.kv_len.shape(0), batch.qo_len, to.page_ids.shape(1), to.q_positions.shape(1));
  check(batch.num_pages >= 1 && batch.num_pages <= to.num_pages, ErrorCode::invalid_argument,
        "{}: batch.num_pages = {}; allowed are 1 to {}, the plan's pool", op, batch.num_pages, to.num_pages);
}

}  // namespace

size_t choose_pages_bytes(int batch, int num_kv_heads, int64_t most_pages) {
  check(batch >= 0 && num_kv_heads >= 1 && most_pages >= 0, ErrorCode::invalid_argument,
        "choose_pages_bytes: batch = {}, num_kv_heads = {}, most_pages = {}; allowed are 0, 1 and 0, and more", batch,
        num_kv_heads, most_pages);
  return static_cast<size_t>(batch) * static_cast<size_t>(num_kv_heads) * static_cast<size_t>(most_pages + 1) *
         sizeof(uint32_t);
}

void choose_pages(const TensorView& q, const PageSummaries& summaries, const DeviceBatch& batch,
                  const PlannedPages& planned, const Workspace& scratch, Stream stream) {
  constexpr std::string_view kOp = "choose_pages";
  const Device device = device_of(q);
  check_numbers(kOp, "q", q, 3, true, device);
  check_summaries(kOp, summaries, device);
  const ChooseCall call{{batch, planned}, q, summaries, scratch};
  check_planned(kOp, call, device, stream);
  check_queries(kOp, q, summaries, call.num_kv_heads());
  check(q.shape(0) == call.num_requests() * batch.qo_len, ErrorCode::invalid_shape,
        "{}: q is {}; {} requests have {} query tokens each", kOp, q, call.num_requests(), batch.qo_len);
  check(batch.num_pages <= summaries.min.shape(0), ErrorCode::invalid_argument,
        "{}: batch.num_pages = {}; summaries are of {}", kOp, batch.num_pages, summaries.min.shape(0));
  check_on(kOp, "scratch", scratch.device(), device);
  const int64_t page_size = planned.page_size, least = (batch.qo_len + page_size - 2) / page_size + 1;
  check(call.num_requests() == 0 || call.budget() >= least, ErrorCode::invalid_argument,
        "{}: budget = {}; {} query tokens may lie in {} pages of {}, which are always chosen", kOp, call.budget(),
        batch.qo_len, least, page_size);
  const size_t bytes = choose_pages_bytes(static_cast<int>(call.num_requests()), static_cast<int>(call.num_kv_heads()),
                                          call.most_pages());
  check(scratch.bytes() >= bytes, ErrorCode::workspace_too_small,
        "{}: scratch has {} bytes; {} are needed: ask choose_pages_bytes", kOp, scratch.bytes(), bytes);
  backend_of(kOp, device).choose(call, stream);
}

void set_pages(const TensorView& selected, const DeviceBatch& batch, const PlannedPages& planned, Stream stream) {
  constexpr std::string_view kOp = "set_pages";
  const Device device = device_of(selected);
  const SetPagesCall call{{batch, planned}, selected};
  check_planned(kOp, call, device, stream);
  check_ints(kOp, "selected", selected, 3, device);
  const int64_t heads = call.num_kv_heads(), budget = call.budget();
  check(selected.shape(0) == call.num_requests() && selected.shape(1) == heads && selected.shape(2) == budget,
        ErrorCode::invalid_shape, "{}: selected is {}; [batch, num_kv_heads, budget] = [{}, {}, {}] is needed", kOp,
        selected, call.num_requests(), heads, budget);
  check(selected.size() == 0 || (selected.stride(1) == budget && selected.stride(0) == heads * budget),
        ErrorCode::invalid_stride, "{}: selected must lie together", kOp);
  backend_of(kOp, device).set_pages(call, stream);
}

std::vector<int32_t> choose_pages(const TensorView& q, const PageSummaries& summaries,
                                  std::span<const int32_t> qo_indptr, const PageTableView& pages, int num_kv_heads,
                                  int budget, Stream stream) {
  constexpr std::string_view kOp = "choose_pages";
  check_summaries(kOp, summaries, Device::cpu());
  check_numbers(kOp, "q", q, 3, true, Device::cpu());
  check_queries(kOp, q, summaries, num_kv_heads);
  check(budget >= 1 && budget <= kMaxBudget, ErrorCode::invalid_argument, "{}: budget = {}; allowed are 1 to {}", kOp,
        budget, kMaxBudget);
  check_table(kOp, "qo_indptr", qo_indptr, q.shape(0), pages, summaries.min.shape(0));

  // Pages without query tokens compete; those with some are chosen.
  const size_t batch = qo_indptr.size() - 1;
  std::vector<int64_t> competing(batch), first_page(batch + 1, 0);  // of those with a bound
  for (size_t r = 0; r < batch; ++r) {
    const PagedRequest request = request_of(pages, r);
    const int64_t count = static_cast<int64_t>(request.pages.size()), queries = qo_indptr[r + 1] - qo_indptr[r];
    competing[r] = queries == 0 ? 0 : request.first_page_of_last(queries, pages.page_size);
    check(queries == 0 || count - competing[r] <= budget, ErrorCode::invalid_argument,
          "{}: the {} query tokens of request {} lie in {} pages; budget = {} must hold them", kOp, queries, r,
          count - competing[r], budget);
    first_page[r + 1] = first_page[r] + (count <= budget ? 0 : competing[r]);
  }

  // Bounds [request][KV head][page], page by page, as summaries lie.
  std::vector<float> bounds(static_cast<size_t>(first_page[batch] * num_kv_heads));
  const ElementwiseTable& loops = elementwise();
  const int64_t group = q.shape(1) / num_kv_heads, dim = q.shape(2);
  for_rows(stream.team(), first_page[batch], 2 * dim * q.shape(1), [&](int64_t begin, int64_t end) {
    size_t r = 0;
    std::vector<float> scratch(static_cast<size_t>(3 * dim));
    const auto row_of = [&](const TensorView& from, int64_t outer, int64_t head, int64_t at) {
      const int64_t bytes = bits_of(from.dtype()) / 8;
      const char* const row = from.as<char>() + (outer * from.stride(0) + head * from.stride(1)) * bytes;
      return as_floats(from.dtype(), row, dim, scratch.data() + at * dim);
    };
    for (int64_t i = begin; i < end; ++i) {
      while (first_page[r + 1] <= i) ++r;
      const int64_t page = i - first_page[r];
      const int64_t id = pages.kv_page_indices[static_cast<size_t>(pages.kv_page_indptr[r] + page)];
      for (int64_t head = 0; head < num_kv_heads; ++head) {
        const float* low = row_of(summaries.min, id, head, 0);
        const float* high = row_of(summaries.max, id, head, 1);
        float most = -std::numeric_limits<float>::infinity();
        for (int64_t row = qo_indptr[r]; row < qo_indptr[r + 1]; ++row)
          for (int64_t h = head * group; h < (head + 1) * group; ++h) {
            const float bound = loops.bound_dot(row_of(q, row, h, 2), low, high, dim);
            most = std::isnan(bound) ? std::numeric_limits<float>::infinity() : std::max(most, bound);
          }
        bounds[static_cast<size_t>(first_page[r] * num_kv_heads + head * competing[r] + page)] = most;
      }
    }
  });

  std::vector<int32_t> selected(batch * static_cast<size_t>(num_kv_heads) * static_cast<size_t>(budget), -1);
  for_rows(stream.team(), static_cast<int64_t>(batch) * num_kv_heads, 16 * budget, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> order;
    for (int64_t i = begin; i < end; ++i) {
      const auto r = static_cast<size_t>(i / num_kv_heads);
      const auto count = static_cast<int64_t>(request_of(pages, r).pages.size());
      if (qo_indptr[r] == qo_indptr[r + 1]) continue;
      int32_t* out = selected.data() + i * budget;
      const auto places = [&](int64_t from) {
        for (int64_t page = from; page < count; ++page) *out++ = static_cast<int32_t>(page);
      };
      if (count <= budget) {
        places(0);
        continue;
      }
      const float* bound = bounds.data() + first_page[r] * num_kv_heads + i % num_kv_heads * competing[r];
      order.resize(static_cast<size_t>(competing[r]));
      for (size_t page = 0; page < order.size(); ++page) order[page] = static_cast<int32_t>(page);
      const auto chosen = order.begin() + static_cast<std::ptrdiff_t>(budget - (count - competing[r]));
      std::nth_element(order.begin(), chosen, order.end(),
                       [&](int32_t a, int32_t b) { return bound[a] != bound[b] ? bound[a] > bound[b] : a < b; });
      std::sort(order.begin(), chosen);
      out = std::copy(order.begin(), chosen, out);
      places(competing[r]);
    }
  });
  return selected;
}

}  // namespace weft
