// Quest on the CPU: summaries, and choices into an uploaded plan.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/elementwise.h"

namespace weft::ops {
namespace {

// The pages of a batch whose table lies in tensors, as page tables of the host.
struct TableOfTensors {
  std::vector<int32_t> page_indptr{0}, page_indices, last_page_len, qo_indptr{0};
  PageTableView view;

  explicit TableOfTensors(std::string_view op, const PlannedCall& call) {
    const TensorView &lengths = call.batch.kv_len, &table = call.batch.page_table;
    const int64_t size = call.to.page_size;
    for (int64_t r = 0; r < call.num_requests(); ++r) {
      const int64_t tokens = lengths.as<int32_t>()[r * lengths.stride(0)], pages = (tokens + size - 1) / size;
      check(tokens >= 0 && tokens <= call.most_tokens(), ErrorCode::invalid_page,
            "{}: kv_len[{}] = {}; allowed are 0 to {}", op, r, tokens, call.most_tokens());
      check(tokens >= call.batch.qo_len, ErrorCode::invalid_page,
            "{}: kv_len[{}] = {}; its {} query tokens are among them", op, r, tokens, call.batch.qo_len);
      for (int64_t page = 0; page < pages; ++page) {
        const int32_t id = table.as<int32_t>()[r * table.stride(0) + page];
        check(id >= 0 && id < call.batch.num_pages, ErrorCode::invalid_page,
              "{}: page_table[{}, {}] = {}; allowed are 0 to {}", op, r, page, id, call.batch.num_pages - 1);
        page_indices.push_back(id);
      }
      page_indptr.push_back(static_cast<int32_t>(page_indices.size()));
      last_page_len.push_back(static_cast<int32_t>(pages == 0 ? 0 : tokens - (pages - 1) * size));
      qo_indptr.push_back(static_cast<int32_t>((r + 1) * call.batch.qo_len));
    }
    view = {call.to.page_size, call.batch.num_pages, page_indptr, page_indices, last_page_len};
  }
};

// selected: [batch, num_kv_heads, budget], right for this table.
void write_lists(const PlannedCall& call, const TableOfTensors& table, const int32_t* selected) {
  const int64_t budget = call.budget(), heads = call.num_kv_heads();
  const PlannedPages& to = call.to;
  for (int64_t r = 0; r < call.num_requests(); ++r) {
    const int64_t begin = table.page_indptr[static_cast<size_t>(r)],
                  pages = table.page_indptr[static_cast<size_t>(r) + 1] - begin;
    const int64_t tokens = call.batch.kv_len.as<int32_t>()[r * call.batch.kv_len.stride(0)];
    to.kv_len.as<int32_t>()[r] = static_cast<int32_t>(tokens);
    for (int64_t i = 0; i < call.batch.qo_len; ++i)
      to.q_positions.as<int32_t>()[r * to.q_positions.stride(0) + i * to.q_positions.stride(1)] =
          static_cast<int32_t>(tokens - call.batch.qo_len + i);
    for (int64_t head = 0; head < heads; ++head) {
      const int32_t* from = selected + (r * heads + head) * budget;
      const int64_t list = (head * call.num_requests() + r) * budget;
      bool listed = true;
      for (int64_t i = 0; i < budget; ++i) {
        listed = listed && from[i] >= 0;
        const int64_t page = listed ? from[i] : pages - 1;
        to.page_ids.as<int32_t>()[list + i] = table.page_indices[static_cast<size_t>(begin + page)];
        to.positions.as<int32_t>()[list + i] = listed ? static_cast<int32_t>(page * to.page_size) : kHiddenPosition;
      }
    }
  }
}

}  // namespace

void summarise_on_cpu(const SummaryCall& call, Stream stream) {
  const ElementwiseTable& loops = elementwise();
  const TensorView &min = call.summaries.min, &max = call.summaries.max;
  const int64_t dim = min.shape(2), heads = min.shape(1);
  for_rows(stream.team(), static_cast<int64_t>(call.pages.size()) * heads, dim * call.page_size,
           [&](int64_t begin, int64_t end) {
             std::vector<float> row(static_cast<size_t>(dim)), low(row), high(row);
             for (int64_t i = begin; i < end; ++i) {
               const FilledPage& page = call.pages[static_cast<size_t>(i / heads)];
               const int64_t head = i % heads;
               std::fill(low.begin(), low.end(), std::numeric_limits<float>::infinity());
               std::fill(high.begin(), high.end(), -std::numeric_limits<float>::infinity());
               for (int64_t slot = 0; slot <= page.last_slot; ++slot)
                 loops.extend_range(as_floats(call.dtype, call.keys.at(page.page, slot, head), dim, row.data()), dim,
                                    low.data(), high.data());
               const auto at = [&](const TensorView& side) {
                 return page.page * side.stride(0) + head * side.stride(1);
               };
               if (min.dtype() == DType::fp32) {
                 std::copy(low.begin(), low.end(), min.as<float>() + at(min));
                 std::copy(high.begin(), high.end(), max.as<float>() + at(max));
               } else {
                 loops.to_bf16_below(low.data(), dim, min.as<uint16_t>() + at(min));
                 loops.to_bf16_above(high.data(), dim, max.as<uint16_t>() + at(max));
               }
             }
           });
}

void choose_on_cpu(const ChooseCall& call, Stream stream) {
  const TableOfTensors table("choose_pages", call);
  const std::vector<int32_t> selected =
      choose_pages(call.q, call.summaries, table.qo_indptr, table.view, static_cast<int>(call.num_kv_heads()),
                   static_cast<int>(call.budget()), stream);
  write_lists(call, table, selected.data());
}

void set_pages_on_cpu(const SetPagesCall& call, Stream) {
  const TableOfTensors table("set_pages", call);
  const int32_t* const selected = call.selected.as<int32_t>();
  for (int64_t list = 0; list < call.num_requests() * call.num_kv_heads(); ++list) {
    const int64_t r = list / call.num_kv_heads(), head = list % call.num_kv_heads();
    const int64_t pages = table.page_indptr[static_cast<size_t>(r) + 1] - table.page_indptr[static_cast<size_t>(r)];
    int64_t last = -1;
    for (int64_t i = 0; i < call.budget() && selected[list * call.budget() + i] != -1; ++i) {
      const int32_t page = selected[list * call.budget() + i];
      check(page > last && page < pages, ErrorCode::invalid_page,
            "set_pages: selected[{}, {}, {}] = {} after {}; places in the request's {} pages ascend", r, head, i, page,
            last, pages);
      last = page;
    }
    check(
        last + 1 == pages, ErrorCode::invalid_page,
        "set_pages: selected[{}, {}] ends with page {} of {}; a choice holds the last one, where the newest tokens are",
        r, head, last, pages);
  }
  write_lists(call, table, selected);
}

}  // namespace weft::ops
