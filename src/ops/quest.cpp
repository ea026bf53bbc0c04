// Quest: summaries of pages, and the choice of pages by the bound that they give.
#include "weft/quest.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format_tensor.h"
#include "ops/elementwise.h"
#include "ops/paged.h"

namespace weft {
namespace {

constexpr int kMaxBudget = 65536;  // pages

void check_table(std::string_view op, std::string_view name, std::span<const int32_t> indptr, int64_t rows,
                 const PageTableView& pages, int64_t num_pages) {
  ops::check_requests(op, name, indptr, rows, pages);
  for (size_t r = 0; r + 1 < indptr.size(); ++r) ops::check_page_ids(op, pages, r, 0, num_pages);
}

void check_summaries(std::string_view op, const PageSummaries& summaries) {
  ops::check_fp32(op, "summaries.min", summaries.min, 3, 3);
  ops::check_fp32(op, "summaries.max", summaries.max, 3, 3);
  ops::check_same_shape(op, "summaries.max", summaries.max, "summaries.min", summaries.min);
}

float* summary(const TensorView& side, int64_t page, int64_t head) {
  return side.as<float>() + page * side.stride(0) + head * side.stride(1);
}

}  // namespace

void update_page_summaries(const TensorView& keys, std::span<const int32_t> append_indptr, const PageTableView& pages,
                           Layout layout, const PageSummaries& summaries, Stream stream) {
  constexpr std::string_view kOp = "update_page_summaries";
  check_summaries(kOp, summaries);
  check_written(kOp, "summaries.min", summaries.min);
  check_written(kOp, "summaries.max", summaries.max);
  check(!keys || keys.dtype() == DType::fp32 || keys.dtype() == DType::fp16 || keys.dtype() == DType::bf16,
        ErrorCode::invalid_dtype, "{}: keys have dtype {}; fp32, fp16 and bf16 are supported", kOp,
        to_string(keys.dtype()));
  ops::check_memory(kOp, "keys", keys);
  const int slots = ops::slot_axis(kOp, layout), head_axis = 3 - slots;
  const TensorView& min = summaries.min;
  check(keys.rank() == 4 && keys.shape(0) == min.shape(0) && keys.shape(slots) == pages.page_size &&
            keys.shape(head_axis) == min.shape(1) && keys.shape(3) == min.shape(2),
        ErrorCode::invalid_shape, "{}: keys are {}; pages {} x page size {} x heads {} x dim {} are needed in {} order",
        kOp, keys, min.shape(0), pages.page_size, min.shape(1), min.shape(2), layout == Layout::nhd ? "NHD" : "HND");
  ops::check_rows_of_bytes(kOp, "keys", keys);
  check_table(kOp, "append_indptr", append_indptr, -1, pages, min.shape(0));

  struct Page {
    int64_t id;
    int filled;
  };
  std::vector<Page> changed;
  for (size_t r = 0; r + 1 < append_indptr.size(); ++r) {
    const ops::PagedRequest request = ops::request_of(pages, r);
    const int64_t count = append_indptr[r + 1] - append_indptr[r];
    for (int64_t i = request.first_page_of_last(count, pages.page_size);
         count > 0 && i * pages.page_size < request.tokens; ++i)
      changed.push_back({request.pages[static_cast<size_t>(i)],
                         static_cast<int>(std::min<int64_t>(pages.page_size, request.tokens - i * pages.page_size))});
  }
  const ops::ElementwiseTable& loops = ops::elementwise();
  const int64_t dim = min.shape(2), heads = min.shape(1), bytes = bits_of(keys.dtype()) / 8;
  ops::for_rows(stream.team(), static_cast<int64_t>(changed.size()) * heads, dim * pages.page_size,
                [&](int64_t begin, int64_t end) {
                  std::vector<float> row(static_cast<size_t>(dim));
                  for (int64_t i = begin; i < end; ++i) {
                    const Page& page = changed[static_cast<size_t>(i / heads)];
                    const int64_t head = i % heads;
                    float* low = summary(summaries.min, page.id, head);
                    float* high = summary(summaries.max, page.id, head);
                    std::fill_n(low, dim, std::numeric_limits<float>::infinity());
                    std::fill_n(high, dim, -std::numeric_limits<float>::infinity());
                    for (int64_t slot = 0; slot < page.filled; ++slot) {
                      const char* from = keys.as<char>() + (page.id * keys.stride(0) + slot * keys.stride(slots) +
                                                            head * keys.stride(head_axis)) *
                                                               bytes;
                      const float* key = row.data();
                      switch (keys.dtype()) {
                        case DType::bf16:
                          loops.from_bf16(reinterpret_cast<const unsigned short*>(from), dim, row.data());
                          break;
                        case DType::fp16:
                          loops.from_fp16(reinterpret_cast<const unsigned short*>(from), dim, row.data());
                          break;
                        default: key = reinterpret_cast<const float*>(from); break;
                      }
                      loops.extend_range(key, dim, low, high);
                    }
                  }
                });
}

std::vector<int32_t> choose_pages(const TensorView& q, const PageSummaries& summaries,
                                  std::span<const int32_t> qo_indptr, const PageTableView& pages, int num_kv_heads,
                                  int budget, Stream stream) {
  constexpr std::string_view kOp = "choose_pages";
  check_summaries(kOp, summaries);
  ops::check_fp32(kOp, "q", q, 3, 3);
  check(num_kv_heads >= 1 && summaries.min.shape(1) == num_kv_heads && q.shape(1) % num_kv_heads == 0 &&
            q.shape(2) == summaries.min.shape(2),
        ErrorCode::invalid_shape,
        "{}: q is {}, summaries are {} and num_kv_heads = {}; heads of q are a multiple of it, and the last axes agree",
        kOp, q, summaries.min, num_kv_heads);
  check(budget >= 1 && budget <= kMaxBudget, ErrorCode::invalid_argument, "{}: budget = {}; allowed are 1 to {}", kOp,
        budget, kMaxBudget);
  check_table(kOp, "qo_indptr", qo_indptr, q.shape(0), pages, summaries.min.shape(0));

  // Pages without query tokens compete; those with some are chosen.
  const size_t batch = qo_indptr.size() - 1;
  std::vector<int64_t> competing(batch), first_page(batch + 1, 0);  // of those with a bound
  for (size_t r = 0; r < batch; ++r) {
    const ops::PagedRequest request = ops::request_of(pages, r);
    const int64_t count = static_cast<int64_t>(request.pages.size()), queries = qo_indptr[r + 1] - qo_indptr[r];
    competing[r] = queries == 0 ? 0 : request.first_page_of_last(queries, pages.page_size);
    check(queries == 0 || count - competing[r] <= budget, ErrorCode::invalid_argument,
          "{}: the {} query tokens of request {} lie in {} pages; budget = {} must hold them", kOp, queries, r,
          count - competing[r], budget);
    first_page[r + 1] = first_page[r] + (count <= budget ? 0 : competing[r]);
  }

  // Bounds [request][KV head][page], page by page, as summaries lie.
  std::vector<float> bounds(static_cast<size_t>(first_page[batch] * num_kv_heads));
  const ops::ElementwiseTable& loops = ops::elementwise();
  const int64_t group = q.shape(1) / num_kv_heads, dim = q.shape(2);
  ops::for_rows(stream.team(), first_page[batch], 2 * dim * q.shape(1), [&](int64_t begin, int64_t end) {
    size_t r = 0;
    for (int64_t i = begin; i < end; ++i) {
      while (first_page[r + 1] <= i) ++r;
      const int64_t page = i - first_page[r];
      const int64_t id = pages.kv_page_indices[static_cast<size_t>(pages.kv_page_indptr[r] + page)];
      for (int64_t head = 0; head < num_kv_heads; ++head) {
        const float* low = summary(summaries.min, id, head);
        const float* high = summary(summaries.max, id, head);
        float most = -std::numeric_limits<float>::infinity();
        for (int64_t row = qo_indptr[r]; row < qo_indptr[r + 1]; ++row)
          for (int64_t h = head * group; h < (head + 1) * group; ++h) {
            const float bound = loops.bound_dot(q.as<float>() + row * q.stride(0) + h * q.stride(1), low, high, dim);
            most = std::isnan(bound) ? std::numeric_limits<float>::infinity() : std::max(most, bound);
          }
        bounds[static_cast<size_t>(first_page[r] * num_kv_heads + head * competing[r] + page)] = most;
      }
    }
  });

  std::vector<int32_t> selected(batch * static_cast<size_t>(num_kv_heads) * static_cast<size_t>(budget), -1);
  ops::for_rows(
      stream.team(), static_cast<int64_t>(batch) * num_kv_heads, 16 * budget, [&](int64_t begin, int64_t end) {
        std::vector<int32_t> order;
        for (int64_t i = begin; i < end; ++i) {
          const auto r = static_cast<size_t>(i / num_kv_heads);
          const auto count = static_cast<int64_t>(ops::request_of(pages, r).pages.size());
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
