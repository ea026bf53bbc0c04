// Copies of boxes of tensors: which bytes they move, from what a map says of its tensor.
#include <fmt/format.h>

#include <algorithm>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"
#include "tile/abi/tensor_map.h"

namespace weft::simt {
namespace {

constexpr int kChunk = 16;

// Bytes of a box that lie side by side in both memories; `global` is null outside of the tensor.
struct Run {
  char* global;
  char* shared;
  size_t bytes;
};

template <class Visit>
void for_each_run(const abi::TensorLayout& layout, std::span<const int> at, char* shared, const Visit& visit) {
  const int row_bytes = layout.row_bytes(), rows = layout.box_bytes() / row_bytes;
  const auto mask = static_cast<uintptr_t>(abi::span_of(layout.swizzle) / kChunk - 1);
  for (int row = 0; row < rows; ++row) {
    char* global = static_cast<char*>(layout.data);
    bool is_inside = true;
    for (int dim = 1, rest = row; dim < layout.dims; rest /= layout.box[dim++]) {
      const long coordinate = static_cast<long>(at[static_cast<size_t>(dim)]) + rest % layout.box[dim];
      is_inside = is_inside && coordinate >= 0 && static_cast<unsigned long>(coordinate) < layout.sizes[dim];
      global += coordinate * static_cast<long>(layout.strides[dim]);
    }
    const long first = static_cast<long>(at[0]) * layout.element_bytes,  // of the row, in bytes of the tensor's
        end = static_cast<long>(layout.sizes[0]) * layout.element_bytes;
    for (int byte = 0; byte < row_bytes; byte += kChunk) {
      auto to = reinterpret_cast<uintptr_t>(shared) + static_cast<uintptr_t>(row * row_bytes + byte);
      to ^= (to >> 7 & mask) << 4;
      char* const chunk = reinterpret_cast<char*>(to);
      // Before the tensor, in it, behind it.
      const long begin = first + byte;
      const long inside = is_inside ? std::clamp(-begin, 0l, long{kChunk}) : kChunk,
                 behind = is_inside ? std::clamp(end - begin, inside, long{kChunk}) : kChunk;
      if (inside > 0) visit(Run{nullptr, chunk, static_cast<size_t>(inside)});
      if (behind > inside) visit(Run{global + begin + inside, chunk + inside, static_cast<size_t>(behind - inside)});
      if (behind < kChunk) visit(Run{nullptr, chunk + behind, static_cast<size_t>(kChunk - behind)});
    }
  }
}

}  // namespace

void Machine::check_box(const abi::TensorMap& map, std::span<const int> at, const char* shared, bool is_store,
                        const void* pc) {
  const abi::TensorLayout& layout = map.layout;
  const char* const verb = is_store ? "stores" : "loads";
  const auto bytes = static_cast<size_t>(layout.box_bytes());
  if (static_cast<size_t>(layout.dims) != at.size())
    fault(fmt::format("{} a box of a tensor of {} dimensions by {} coordinates", verb, layout.dims, at.size()), pc);
  // A card ends with "illegal instruction" for both.
  if (layout.element_bytes * at[0] % kChunk != 0)
    fault(
        fmt::format("{} a box from byte {} of rows on: no multiple of {}", verb, layout.element_bytes * at[0], kChunk),
        pc);
  if (const auto before = std::ranges::find_if(at, [](int x) { return x < 0; }); is_store && before != at.end())
    fault(fmt::format("stores a box from {} of dimension {} on: before the tensor", *before, before - at.begin()), pc);
  require_own_shared(shared, bytes, verb, pc);
  const int alignment = abi::alignment_of(layout.swizzle);
  if (reinterpret_cast<uintptr_t>(shared) % static_cast<uintptr_t>(alignment) != 0)
    fault(fmt::format("{} a box with rows of {} bytes in {}: not aligned to {} bytes", verb, layout.row_bytes(),
                      place_of(shared, bytes), alignment),
          pc);
}

void Machine::tensor_load(void* shared, const abi::TensorMap& map, std::span<const int> at, const void* mbarrier,
                          const void* pc) {
  check_box(map, at, static_cast<char*>(shared), false, pc);
  PhaseCopy copy = {.pieces = {},
                    .bytes = static_cast<size_t>(map.layout.box_bytes()),
                    .swizzle = static_cast<int>(map.layout.swizzle),
                    .thread = current_->id,
                    .pc = pc,
                    .seen = current_->clock};
  for_each_run(map.layout, at, static_cast<char*>(shared), [&](const Run& run) {
    copy.pieces.push_back({run.shared, run.global, run.bytes});
  });
  start_copy(std::move(copy), mbarrier, pc);
}

void Machine::tensor_store(const abi::TensorMap& map, std::span<const int> at, const void* shared, const void* pc) {
  auto* from = const_cast<char*>(static_cast<const char*>(shared));
  check_box(map, at, from, true, pc);
  std::vector<StorePiece> pieces;
  for_each_run(map.layout, at, from, [&](const Run& run) {
    if (run.global != nullptr) pieces.push_back({run.global, run.shared, run.bytes});
  });
  start_store(std::move(pieces), pc);
}

}  // namespace weft::simt
