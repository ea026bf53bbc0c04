// Page append on the CPU: new keys and values to the last slots of each request.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/elementwise.h"
#include "ops/narrow.h"
#include "ops/paged.h"

namespace weft::ops {
namespace {

// A side with how it is written.
struct Side : AppendSide {
  bool scale_rows;  // by the largest magnitude of each, or of a group of tokens

  // Rows [row, row + count) to slots of one page from `slot` on, all of one group. `scratch` holds a row.
  void write(const ElementwiseTable& loops, int64_t row, int64_t count, int64_t page, int64_t slot,
             float* scratch) const {
    for (int64_t head = 0; head < rows.shape(1); ++head) {
      const float factor = is_narrow(dtype) ? find_factor(loops, row, count, page, slot, head, scratch) : 1.f;
      for (int64_t i = 0; i < count; ++i) write_row(loops, from(row + i, head), factor, cache.at(page, slot + i, head));
    }
  }

 private:
  const float* from(int64_t row, int64_t head) const {
    return rows.as<float>() + row * rows.stride(0) + head * rows.stride(1);
  }

  void write_row(const ElementwiseTable& loops, const float* x, float factor, char* to) const {
    const int64_t dim = rows.shape(2);
    switch (dtype) {
      case DType::fp32: std::memcpy(to, x, static_cast<size_t>(dim) * sizeof(float)); break;
      case DType::bf16: loops.to_bf16(x, dim, reinterpret_cast<unsigned short*>(to)); break;
      case DType::fp16: loops.to_fp16(x, dim, reinterpret_cast<unsigned short*>(to)); break;
      default: to_narrow(dtype, x, dim, factor, to);
    }
  }

  // What rows are multiplied by. Their scale is written where it is not given; where it outgrows that of the group's
  // tokens before them, these are rounded anew.
  float find_factor(const ElementwiseTable& loops, int64_t row, int64_t count, int64_t page, int64_t slot, int64_t head,
                    float* scratch) const {
    if (scales.data == nullptr) return 1.f;
    char* at = scales.at(page, slot / group, head);
    float old = 0;
    const int64_t first = slot / group * group;
    if (!scale_rows || first < slot) std::memcpy(&old, at, sizeof old);
    if (!scale_rows) return factor_of(old);
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = larger(loops.largest(from(row + i, head), rows.shape(2)), most);
    const float grown = scale_for(dtype, most);
    if (first < slot && grown <= old) return factor_of(old);
    const float scale = old == old ? grown : old;  // NaN stays
    std::memcpy(at, &scale, sizeof scale);
    for (int64_t before = first; before < slot; ++before) {
      char* numbers = cache.at(page, before, head);
      from_narrow(dtype, numbers, rows.shape(2), old, scratch);
      to_narrow(dtype, scratch, rows.shape(2), factor_of(scale), numbers);
    }
    return factor_of(scale);
  }
};

}  // namespace

void append_on_cpu(const AppendCall& call, Stream stream) {
  const Side sides[] = {{call.sides[0], call.writes_scales()}, {call.sides[1], call.writes_scales()}};
  const TensorView &k = sides[0].rows, &v = sides[1].rows;
  const std::span<const int32_t> indptr = call.append_indptr;
  const int64_t group = sides[0].group, page_size = call.pages.page_size;
  const ElementwiseTable& loops = elementwise();
  for_rows(stream.team(), k.shape(0), k.shape(1) * (k.shape(2) + v.shape(2)), [&](int64_t begin, int64_t end) {
    size_t request = 0;
    std::vector<float> scratch(group > 1 ? static_cast<size_t>(std::max(k.shape(2), v.shape(2))) : 0);
    for (int64_t row = begin; row < end; ++row) {
      while (indptr[request + 1] <= row) ++request;
      const int64_t left = indptr[request + 1] - row;
      const PagedRequest own = request_of(call.pages, request);
      const int64_t token = own.tokens - left, slot = token % page_size;
      // Whoever has a group's first new row writes all of them: they share a scale.
      if (slot % group != 0 && row != indptr[request]) continue;
      const int64_t page = own.pages[static_cast<size_t>(token / page_size)];
      const int64_t count = std::min(left, group - slot % group);
      for (const Side& s : sides) s.write(loops, row, count, page, slot, scratch.data());
    }
  });
}

}  // namespace weft::ops
