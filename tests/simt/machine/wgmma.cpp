// Products of warpgroups: what they take when they begin, and what they leave when a wait says so.
#include "tests/simt/machine/wgmma.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {
namespace {

constexpr int kRows = 64, kSteps = 16;  // of a product

int span_of(const Matrix& matrix) { return 16 << matrix.swizzle; }

// Where 16-byte chunk i of an operand with mn rows or columns lies, as the hardware finds it: by distances from the
// start, then by what the swizzle makes of the address. Along k there are two chunks of each row, else mn / 8 of each
// step of k.
const char* chunk_of(const Matrix& matrix, int mn, int i) {
  const int span = span_of(matrix);
  int at = 0;
  if (matrix.along_k) {
    const int row = i / 2, half = i % 2;
    at = row / 8 * matrix.stride + row % 8 * span + half * (matrix.swizzle == 0 ? matrix.leading : 16);
  } else {
    const int k = i / (mn / 8), first = i % (mn / 8) * 8;
    at = matrix.swizzle == 0
             ? first / 8 * matrix.stride + k / 8 * matrix.leading + k % 8 * 16
             : first / (span / 2) * matrix.leading + first % (span / 2) * 2 + k / 8 * matrix.stride + k % 8 * span;
  }
  auto address = reinterpret_cast<uintptr_t>(matrix.start) + static_cast<uintptr_t>(at);
  address ^= (address >> 7 & static_cast<uintptr_t>(span / 16 - 1)) << 4;
  return reinterpret_cast<const char*>(address);
}

double value_of(unsigned short bits, bool bf16) {
  return static_cast<double>(bf16 ? std::bit_cast<float>(static_cast<unsigned>(bits) << 16) : from_fp16(bits));
}

// [mn][kSteps]
std::vector<double> values_of(const Matrix& matrix, int mn, bool bf16) {
  std::vector<double> values(static_cast<size_t>(mn * kSteps));
  for (int i = 0; i < 2 * mn; ++i) {
    unsigned short bits[8];
    std::memcpy(bits, chunk_of(matrix, mn, i), 16);
    for (int e = 0; e < 8; ++e) {
      const int row = matrix.along_k ? i / 2 : i % (mn / 8) * 8 + e, k = matrix.along_k ? i % 2 * 8 + e : i / (mn / 8);
      values[static_cast<size_t>(row * kSteps + k)] = value_of(bits[e], bf16);
    }
  }
  return values;
}
std::vector<double> values_of(const std::vector<unsigned>& registers, bool bf16) {
  std::vector<double> values(kRows * kSteps);
  for (int thread = 0; thread < kWarpgroup; ++thread)
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8, k = thread % 4 * 2 + r / 2 * 8 + half;
        const unsigned word = registers[static_cast<size_t>(4 * thread + r)];
        values[static_cast<size_t>(row * kSteps + k)] =
            value_of(static_cast<unsigned short>(word >> (16 * half)), bf16);
      }
  return values;
}

bool is_same(const Matrix& a, const Matrix& b) {
  return a.tile == b.tile && a.start == b.start && a.leading == b.leading && a.stride == b.stride &&
         a.swizzle == b.swizzle;
}

}  // namespace

Warpgroup& Machine::warpgroup_of(const Thread& thread) {
  return ctas_[static_cast<size_t>(thread.cta)].warpgroups[static_cast<size_t>(thread.index / kWarpgroup)];
}

std::string Machine::writer_of(const Event& write) const {
  return fmt::format("{} wrote it ({})", is_thread(write) ? name_of(write.who) : "a copy", place(write.pc));
}

// Where the descriptor begins, and whether all that it names lies in its tile.
void Machine::check_descriptor(const Matrix& matrix, const char* name, int mn, const void* pc) {
  const auto* tile = reinterpret_cast<const char*>(matrix.tile);
  const auto bytes = static_cast<size_t>(matrix.tile_bytes);
  const int span = span_of(matrix);
  std::string why;
  require_own_shared(tile, bytes, "multiplies", pc);
  if (!may_access(tile, bytes, Access::read, why))
    fault(fmt::format("multiplies {}, a tile at {}: {}", name, place_of(tile, bytes), why), pc);
  if (reinterpret_cast<uintptr_t>(tile) % static_cast<uintptr_t>(8 * span) != 0)
    fault(fmt::format("multiplies {}, a tile at {}: tiles with panels of {} bytes begin at multiples of {}", name,
                      place_of(tile, bytes), span, 8 * span),
          pc);
  const long from = matrix.start - matrix.tile;
  const long in_pattern = from % (8 * span);  // of eight rows
  if (from < 0 || (matrix.along_k ? in_pattern >= span || in_pattern % 32 != 0 : in_pattern != 0))
    fault(fmt::format("multiplies {} from byte {} of its tile on, which is no multiple of eight rows of {} bytes{}",
                      name, from, span, matrix.along_k ? " and 32 bytes within a row" : ""),
          pc);
  for (int i = 0; i < 2 * mn; ++i) {
    const char* chunk = chunk_of(matrix, mn, i);
    if (chunk < tile || chunk + 16 > tile + bytes)
      fault(fmt::format("multiplies {}, whose descriptor names {}: outside of its tile, {}", name, place_of(chunk, 16),
                        place_of(tile, bytes)),
            pc);
  }
}

// `seen`: what all threads of the warpgroup know.
void Machine::check_operand(const Matrix& matrix, const char* name, int mn, const Clock& seen, const void* pc) {
  Thread* const threads = current_ - current_->index % kWarpgroup;
  for (int i = 0; i < 2 * mn; ++i) {
    const char* chunk = chunk_of(matrix, mn, i);
    for (const char* byte = chunk; byte < chunk + 16; ++byte) {
      const ShadowByte& found = shared_[byte];
      const auto what = [&] { return fmt::format("multiplies {} of {}", name, place_of(chunk, 16)); };
      if (found.flight != Flight::none) fault(fmt::format("{}: {}", what(), in_flight(found, byte)), pc);
      if (found.is_mbarrier) fault(fmt::format("{}: an mbarrier lies there", what()), pc);
      if (found.write.clock == 0) continue;
      if (found.swizzle != 0 && found.swizzle != matrix.swizzle + 1)
        fault(fmt::format("{}: a copy ({}) brought it in rows of {} bytes, and the descriptor's have {}", what(),
                          place(found.write.pc), 16 << (found.swizzle - 1), span_of(matrix)),
              pc);
      if (!found.write.is_before(seen)) {
        for (int t = 0; t < kWarpgroup && found.write.is_before(current_->clock); ++t) current_ = threads + t;
        fault(fmt::format("{}: {}, and {}", what(), writer_of(found.write),
                          is_thread(found.write) ? "no barrier orders the two" : "this thread has not waited for that"),
              pc);
      }
      if (!found.write.is_async && !seen.is_fenced(found.write, Space::shared))
        fault(fmt::format("{}: {} through the generic proxy, and no fence_async_shared() lies between the two", what(),
                          writer_of(found.write)),
              pc);
    }
  }
}

void Machine::touch_registers(const char* p, size_t bytes, const char* verb, const void* pc) {
  for (const HeldRegisters& held : current_->products.held) {
    if (p + bytes <= held.begin || p >= held.begin + held.bytes) continue;
    const char* whose = held.is_accumulator ? "accumulators" : "registers of A";
    if (held.waited_at != nullptr)
      fault(fmt::format("{} {} of a product ({}): wgmma_wait ({}) waits for it, and does not name them", verb, whose,
                        place(held.pc), place(held.waited_at)),
            pc);
    fault(fmt::format("{} {} of a product ({}) that is under way: {}", verb, whose, place(held.pc),
                      held.product > current_->products.committed ? "it is in no group yet; wgmma_commit(), then wait"
                                                                  : "wait for its group"),
          pc);
  }
  const auto first = static_cast<size_t>(p - stacks_) / 4, last = (static_cast<size_t>(p - stacks_) + bytes - 1) / 4;
  for (size_t word = first; word <= last; ++word) touched_[word] = {current_->products.fences, pc};
}

// Registers that a product takes: fenced, and no other's but accumulators of the same shape.
void Machine::check_registers(const void* registers, size_t bytes, bool is_accumulator, const void* pc) {
  const auto* begin = static_cast<const char*>(registers);
  const Products& own = current_->products;
  const char* name = is_accumulator ? "accumulators" : "registers of A";
  if (own.fences == 1) fault("multiplies, and no wgmma_fence() lies before its first product", pc);
  for (const HeldRegisters& held : own.held) {
    if (begin + bytes <= held.begin || begin >= held.begin + held.bytes) continue;
    const bool is_same = held.begin == begin && held.bytes == bytes && held.is_accumulator == is_accumulator;
    if (is_same || held.waited_at != nullptr) continue;
    fault(fmt::format("multiplies with {} that another product ({}) has in another shape; wait for it", name,
                      place(held.pc)),
          pc);
  }
  const auto first = static_cast<size_t>(begin - stacks_) / 4;
  for (size_t word = first; word < first + bytes / 4; ++word)
    if (touched_[word].fences == own.fences)
      fault(fmt::format("multiplies with {} that this thread has touched ({}) since its last wgmma_fence()", name,
                        place(touched_[word].pc)),
            pc);
}

void Machine::wgmma(const ProductCall& call, const void* pc) {
  const int index = current_->index / kWarpgroup;
  if ((index + 1) * kWarpgroup > launch_.threads)
    fault(fmt::format("multiplies: its warpgroup has {} of 4 warps", launch_.threads % kWarpgroup / 32), pc);
  const auto d_bytes = static_cast<size_t>(call.n) / 2 * sizeof(float);
  if (!is_stack(reinterpret_cast<const char*>(call.d))) fault("multiplies into memory that is no local array", pc);
  check_registers(call.d, d_bytes, true, pc);
  if (call.a_registers != nullptr) check_registers(call.a_registers, 16, false, pc);

  ProductQueue& queue = warpgroup_of(*current_).products;
  if (queue.arrived == 0) {
    queue.first_at = pc;
    queue.first_thread = current_->id;
    queue.calls.assign(kWarpgroup, nullptr);
  } else if (!same_place(queue.first_at, pc)) {
    fault(fmt::format("comes to a product while {} of its warpgroup waits in one at {}: divergent warpgroup",
                      name_of(queue.first_thread), place(queue.first_at)),
          pc);
  } else {
    const ProductCall& first =
        *queue.calls[static_cast<size_t>(threads_[static_cast<size_t>(queue.first_thread)].index % kWarpgroup)];
    const bool agrees = is_same(first.b, call.b) && first.accumulates == call.accumulates &&
                        (call.a_registers != nullptr || is_same(first.a, call.a));
    if (!agrees)
      fault(fmt::format("multiplies what {} of its warpgroup does not: their descriptors, or whether they accumulate, "
                        "differ",
                        name_of(queue.first_thread)),
            pc);
  }
  queue.calls[static_cast<size_t>(current_->index % kWarpgroup)] = &call;
  if (++queue.arrived < kWarpgroup) {
    wait("a product of its warpgroup", pc);
    return;
  }
  begin_product(queue, pc);
  queue.arrived = 0;
  Thread* const threads = current_ - current_->index % kWarpgroup;
  for (int t = 0; t < kWarpgroup; ++t) release(threads[t]);
}

void Machine::begin_product(ProductQueue& queue, const void* pc) {
  Thread* const threads = current_ - current_->index % kWarpgroup;
  const ProductCall& call = *queue.calls[0];
  Clock seen = threads[0].clock;
  for (int t = 1; t < kWarpgroup; ++t) seen.meet(threads[t].clock);
  if (call.a_registers == nullptr) {
    check_descriptor(call.a, "A", kRows, pc);
    check_operand(call.a, "A", kRows, seen, pc);
  }
  check_descriptor(call.b, "B", call.n, pc);
  check_operand(call.b, "B", call.n, seen, pc);
  if (queue.who == 0) queue.who = new_who("multiplies", pc);

  WarpgroupProduct product{.number = ++queue.issued,
                           .call = call,
                           .pc = pc,
                           .seen = std::move(seen),
                           .d = std::vector<float*>(kWarpgroup),
                           .before = std::vector<std::vector<float>>(kWarpgroup),
                           .a_registers = {}};
  const auto n = static_cast<size_t>(call.n) / 2;
  for (size_t t = 0; t < kWarpgroup; ++t) {
    Products& own = threads[t].products;
    const ProductCall& its = *queue.calls[t];
    product.d[t] = its.d;
    const auto* begin = reinterpret_cast<const char*>(its.d);
    const bool is_next = std::any_of(own.held.begin(), own.held.end(), [&](const HeldRegisters& held) {
      return held.begin == begin && held.waited_at == nullptr;
    });
    if (!is_next) {
      product.before[t].assign(its.d, its.d + n);
      std::memset(its.d, 0xff, n * sizeof(float));
    }
    std::erase_if(own.held, [&](const HeldRegisters& held) { return held.begin == begin; });
    own.held.push_back({begin, n * sizeof(float), product.number, pc, true});
    if (its.a_registers != nullptr) {
      product.a_registers.insert(product.a_registers.end(), its.a_registers, its.a_registers + 4);
      own.held.push_back({reinterpret_cast<const char*>(its.a_registers), 16, product.number, pc, false});
    }
    own.last = product.number;
    threads[t].clock.count(static_cast<size_t>(threads[t].id));
  }
  queue.under_way.push_back(std::move(product));
  ++changes_;
}

// What the operand's bytes are now, and that nobody has written them since the product began.
void Machine::read_operand(const WarpgroupProduct& product, const Matrix& matrix, const char* name, int mn,
                           uint16_t who, const void* pc) {
  const Event event{product.number, who, false, true, product.pc};
  for (int i = 0; i < 2 * mn; ++i) {
    const char* chunk = chunk_of(matrix, mn, i);
    for (const char* byte = chunk; byte < chunk + 16; ++byte) {
      const ShadowByte& found = shared_[byte];
      const auto what = [&] {
        return fmt::format("waits for a product ({}) that reads {} of {}", place(product.pc), name,
                           place_of(chunk, 16));
      };
      if (found.flight != Flight::none) fault(fmt::format("{}: {}", what(), in_flight(found, byte)), pc);
      if (found.write.clock != 0 && !found.write.is_before(product.seen))
        fault(fmt::format("{}: {} in the meantime", what(), writer_of(found.write)), pc);
      shared_.read(byte, slot_of(who), event, product.seen);
    }
  }
}

// Products are exact and their sum is rounded once a step; the card's sums are a little less exact.
void Machine::land(const WarpgroupProduct& product, uint16_t who, const void* pc) {
  const ProductCall& call = product.call;
  if (call.a_registers == nullptr) read_operand(product, call.a, "A", kRows, who, pc);
  read_operand(product, call.b, "B", call.n, who, pc);
  const std::vector<double> a = call.a_registers == nullptr ? values_of(call.a, kRows, call.bf16)
                                                            : values_of(product.a_registers, call.bf16),
                            b = values_of(call.b, call.n, call.bf16);
  for (size_t t = 0; t < kWarpgroup; ++t) {
    float* const d = product.d[t];
    if (!product.before[t].empty()) std::copy(product.before[t].begin(), product.before[t].end(), d);
    for (size_t r = 0; r < static_cast<size_t>(call.n) / 2; ++r) {
      const size_t row = t / 32 * 16 + t % 32 / 4 + r % 4 / 2 * 8, column = r / 4 * 8 + t % 4 * 2 + r % 2;
      double sum = call.accumulates ? static_cast<double>(d[r]) : 0.;
      for (size_t k = 0; k < kSteps; ++k) sum += a[row * kSteps + k] * b[column * kSteps + k];
      d[r] = static_cast<float>(sum);
    }
  }
}

void Machine::fence_products(const void* pc) {
  collective("wgmma_fence", nullptr, nullptr, false, pc);
  ++current_->products.fences;
}

void Machine::commit_products(const void* pc) {
  collective("wgmma_commit", nullptr, nullptr, false, pc);
  Products& own = current_->products;
  own.committed = own.last;
  own.groups.push_back(own.last);
}

void Machine::wait_products(size_t pending, std::span<const Registers> named, const void* pc) {
  collective("wgmma_wait", nullptr, nullptr, false, pc);
  Products& own = current_->products;
  uint32_t done = 0;
  for (; own.groups.size() > pending; own.groups.pop_front()) done = own.groups.front();
  ProductQueue& queue = warpgroup_of(*current_).products;
  for (; !queue.under_way.empty() && queue.under_way.front().number <= done; queue.under_way.pop_front())
    land(queue.under_way.front(), queue.who, pc);
  if (done > current_->clock[queue.who] && done > 0) current_->clock.set(queue.who, done);
  std::erase_if(own.held, [&](HeldRegisters& held) {
    if (held.waited_at == nullptr && held.product > done) return false;
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const Registers& all) {
      const auto* begin = static_cast<const char*>(all.begin);
      return held.begin >= begin && held.begin + held.bytes <= begin + all.bytes;
    });
    if (is_named || !held.is_accumulator) return true;
    if (held.waited_at == nullptr) held.waited_at = pc;
    return false;
  });
}

}  // namespace weft::simt
