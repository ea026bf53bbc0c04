// Weights from the file's rows to panels (kernels/abi.h draws them), in chunks, by all workers at once.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "device/cpu/cpuid.h"
#include "ops/gemm/packed.h"

namespace weft::gemm {
namespace {

constexpr int64_t kReadBytes = 256 << 10;  // of file rows a worker reads at a time, about

template <class T>
T get(const char* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// What weights of a type are packed as.
Format format_of(WeightType type) {
  switch (type) {
    case WeightType::f32: return Format::f32;
    case WeightType::f16: return Format::f16;
    case WeightType::bf16: return Format::bf16;
    case WeightType::q8_0:
    case WeightType::q5_0: return Format::q8_0;
    case WeightType::q4_0:
    case WeightType::q4_g128: return Format::q4_0;
    case WeightType::q4_1: return Format::q4_1;
    case WeightType::q4_k: return Format::q4_k;
    case WeightType::q6_k: return Format::q6_k;
  }
  throw InternalError("a weight type without a packed format");
}
int64_t file_row_bytes(const WeightSource& source) {
  const WeightBlock& block = weight_block(source.type);
  return source.cols / block.inputs * block.bytes;
}

// A column of a packed block (kernels/abi.h). Made from block `b` of 32 of a row in the file by one of those below.
template <Format format>
struct Column {
  static constexpr BlockLayout kLayout = block_layout(format);
  uint32_t words[kLayout.words];
  uint16_t halves[kLayout.halves];
  uint8_t bytes[kLayout.bytes + 1];  // at least one, as arrays are
};

// The file's scales and integers, as they stand.
template <Format format>
void read_plain(const char* row, int64_t b, Column<format>& to) {
  const char* block = row + b * static_cast<int64_t>(sizeof to.halves + sizeof to.words);
  std::memcpy(to.halves, block, sizeof to.halves);
  std::memcpy(to.words, block + sizeof to.halves, sizeof to.words);
}

// Byte i of words that hold one integer a byte.
uint8_t* bytes_of(uint32_t* words) { return reinterpret_cast<uint8_t*>(words); }

// d, a word of fifth bits, 16 bytes of nibbles: to bytes from -16 to 15.
void read_q5_0(const char* row, int64_t b, Column<Format::q8_0>& to) {
  const char* block = row + b * weight_block(WeightType::q5_0).bytes;
  to.halves[0] = get<uint16_t>(block, 0);
  uint32_t fifth;
  std::memcpy(&fifth, block + 2, sizeof fifth);
  uint8_t* q = bytes_of(to.words);
  for (int i = 0; i < 16; ++i) {
    const auto nibbles = get<uint8_t>(block + 6, i);
    q[i] = static_cast<uint8_t>(((nibbles & 15) | (fifth >> i & 1) << 4) - 16);
    q[i + 16] = static_cast<uint8_t>((nibbles >> 4 | (fifth >> (i + 16) & 1) << 4) - 16);
  }
}

// d, 64 bytes of nibbles, the low ones first: four blocks of 32 with one scale.
void read_q4_g128(const char* row, int64_t b, Column<Format::q4_0>& to) {
  const char* block = row + b / 4 * weight_block(WeightType::q4_g128).bytes;
  const char* nibbles = block + 2 + b % 2 * kBlock;
  const int shift = b % 4 < 2 ? 0 : 4;
  to.halves[0] = get<uint16_t>(block, 0);
  uint8_t* q = bytes_of(to.words);
  for (int i = 0; i < 16; ++i)
    q[i] = static_cast<uint8_t>((get<uint8_t>(nibbles, i) >> shift & 15) | (get<uint8_t>(nibbles, i + 16) >> shift & 15)
                                                                               << 4);
}

// A block of 256: d and the step of minima, 12 bytes with 8 scales and 8 minima of 6 bits, then for each 64 inputs 32
// bytes whose low nibbles are the first 32. Minima are taken off, so their step changes its sign.
void read_q4_k(const char* row, int64_t b, Column<Format::q4_k>& to) {
  const char* block = row + b / 8 * weight_block(WeightType::q4_k).bytes;
  const auto* six = reinterpret_cast<const uint8_t*>(block + 4);
  const int64_t eighth = b % 8;
  to.halves[0] = get<uint16_t>(block, 0);
  to.halves[1] = static_cast<uint16_t>(get<uint16_t>(block, 1) ^ 0x8000u);
  if (eighth < 4) {
    to.bytes[0] = six[eighth] & 63;
    to.bytes[1] = six[eighth + 4] & 63;
  } else {
    to.bytes[0] = static_cast<uint8_t>((six[eighth + 4] & 15) | six[eighth - 4] >> 6 << 4);
    to.bytes[1] = static_cast<uint8_t>(six[eighth + 4] >> 4 | six[eighth] >> 6 << 4);
  }
  const char* nibbles = block + 16 + eighth / 2 * 32;
  uint8_t* q = bytes_of(to.words);
  const int shift = eighth % 2 == 0 ? 0 : 4;
  for (int i = 0; i < 16; ++i) {
    const int low = get<uint8_t>(nibbles, i) >> shift & 15, high = get<uint8_t>(nibbles, i + 16) >> shift & 15;
    q[i] = static_cast<uint8_t>(low | high << 4);
  }
}

// A block of 256: 128 bytes of low nibbles, 64 bytes of upper bits, both in halves of 128 inputs, 16 scales of 8 bits,
// d. To bytes from -32 to 31.
void read_q6_k(const char* row, int64_t b, Column<Format::q6_k>& to) {
  const char* block = row + b / 8 * weight_block(WeightType::q6_k).bytes;
  const int64_t half = b % 8 / 4, quarter = b % 4;
  const char* low = block + half * 64 + quarter % 2 * 32;
  const char* high = block + 128 + half * 32;
  std::memcpy(to.halves, block + 208, 2);
  std::memcpy(to.bytes, block + 192 + b % 8 * 2, 2);
  uint8_t* q = bytes_of(to.words);
  for (int64_t i = 0; i < kBlock; ++i) {
    const int nibble = get<uint8_t>(low, i) >> (quarter < 2 ? 0 : 4) & 15;
    const int upper = get<uint8_t>(high, i) >> 2 * quarter & 3;
    q[i] = static_cast<uint8_t>((nibble | upper << 4) - 32);
  }
}

// `count` file rows into one panel; the columns that are missing become zeros.
template <Format format, int kPanel>
void pack_blocks(void (*read)(const char* row, int64_t b, Column<format>& to), const char* from, int64_t count,
                 int64_t cols, int64_t row_bytes, char* to) {
  constexpr BlockLayout kLayout = block_layout(format);
  for (int64_t b = 0; b < cols / kBlock; ++b) {
    uint32_t words[kLayout.words][kPanel] = {};
    uint16_t halves[kLayout.halves][kPanel] = {};
    uint8_t bytes[kLayout.bytes + 1][kPanel] = {};
    for (int64_t c = 0; c < count; ++c) {
      Column<format> column;
      read(from + c * row_bytes, b, column);
      for (int j = 0; j < kLayout.words; ++j) words[j][c] = column.words[j];
      for (int j = 0; j < kLayout.halves; ++j) halves[j][c] = column.halves[j];
      for (int j = 0; j < kLayout.bytes; ++j) bytes[j][c] = column.bytes[j];
    }
    std::memcpy(to, words, sizeof words);
    std::memcpy(to + sizeof words, halves, sizeof halves);
    std::memcpy(to + sizeof words + sizeof halves, bytes, kLayout.bytes * kPanel);
    to += panel_bytes(format, kBlock, kPanel);
  }
}

// f32 and f16: [cols][panel]; bf16: pairs of inputs, [ceil(cols / 2)][panel][2].
template <class Element, int kGroup>
void pack_floats(const char* from, int64_t count, int64_t cols, int panel, char* to) {
  auto* out = reinterpret_cast<Element*>(to);
  for (int64_t k = 0; k < (cols + kGroup - 1) / kGroup * kGroup; ++k)
    for (int64_t c = 0; c < panel; ++c) {
      Element value{};
      if (c < count && k < cols)
        std::memcpy(&value, from + (c * cols + k) * static_cast<int64_t>(sizeof value), sizeof value);
      out[(k / kGroup * panel + c) * kGroup + k % kGroup] = value;
    }
}

template <int kPanel>
void pack_panel(const WeightSource& source, const char* from, int64_t count, char* to) {
  const int64_t cols = source.cols, row_bytes = file_row_bytes(source);
  switch (source.type) {
    case WeightType::f32: pack_floats<uint32_t, 1>(from, count, cols, kPanel, to); break;
    case WeightType::f16: pack_floats<uint16_t, 1>(from, count, cols, kPanel, to); break;
    case WeightType::bf16: pack_floats<uint16_t, 2>(from, count, cols, kPanel, to); break;
    case WeightType::q8_0: pack_blocks<Format::q8_0, kPanel>(read_plain, from, count, cols, row_bytes, to); break;
    case WeightType::q5_0: pack_blocks<Format::q8_0, kPanel>(read_q5_0, from, count, cols, row_bytes, to); break;
    case WeightType::q4_0: pack_blocks<Format::q4_0, kPanel>(read_plain, from, count, cols, row_bytes, to); break;
    case WeightType::q4_1: pack_blocks<Format::q4_1, kPanel>(read_plain, from, count, cols, row_bytes, to); break;
    case WeightType::q4_k: pack_blocks<Format::q4_k, kPanel>(read_q4_k, from, count, cols, row_bytes, to); break;
    case WeightType::q6_k: pack_blocks<Format::q6_k, kPanel>(read_q6_k, from, count, cols, row_bytes, to); break;
    case WeightType::q4_g128: pack_blocks<Format::q4_0, kPanel>(read_q4_g128, from, count, cols, row_bytes, to); break;
  }
}

void pack_source(const WeightSource& source, const PackedSource& packed, int panel, WorkerTeam& team) {
  const int64_t row_bytes = file_row_bytes(source);
  const int64_t step = std::max<int64_t>(1, kReadBytes / std::max<int64_t>(1, row_bytes * panel));  // panels
  const int workers = team.num_workers();
  team.run([&](int worker) {
    const int64_t begin = packed.num_panels * worker / workers, end = packed.num_panels * (worker + 1) / workers;
    if (begin == end) return;
    const auto rows =
        std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::min(step, end - begin) * panel * row_bytes));
    for (int64_t p = begin; p < end; p += step) {
      const int64_t p_end = std::min(end, p + step);
      source.read(p * panel, std::min(source.rows, p_end * panel), rows.get());
      for (int64_t i = p; i < p_end; ++i) {
        const int64_t count = std::min<int64_t>(panel, source.rows - i * panel);
        const char* from = rows.get() + (i - p) * panel * row_bytes;
        char* to = const_cast<char*>(packed.panels.data) + i * packed.panels.panel_bytes;
        switch (panel) {
          case 8: pack_panel<8>(source, from, count, to); break;
          case 16: pack_panel<16>(source, from, count, to); break;
          case 32: pack_panel<32>(source, from, count, to); break;
          default: throw InternalError("a panel width that is not packed");
        }
      }
    }
  });
}

int64_t panels_of(const WeightSource& source, int panel) { return (source.rows + panel - 1) / panel; }

int64_t source_bytes(const WeightSource& source, int panel) {
  return (panels_of(source, panel) * panel_bytes(format_of(source.type), source.cols, panel) + 63) / 64 * 64;
}

}  // namespace

const KernelTable& kernel_table(Isa isa) {
  switch (isa) {
    WEFT_RETURN_PER_ISA(kernels)
    default: throw InternalError("an instruction set without gemm kernels");
  }
}

PackedLinear::PackedLinear() = default;
PackedLinear::~PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;
PackedLinear::Impl& PackedLinear::impl() const { return held(impl_, "packed weights", "pack_linear"); }
int64_t PackedLinear::rows() const { return impl_ ? impl_->rows : 0; }
int64_t PackedLinear::cols() const { return impl_ ? impl_->cols : 0; }
size_t PackedLinear::bytes() const { return impl_ ? impl_->bytes : 0; }

size_t packed_bytes(std::span<const WeightSource> sources, Isa isa) {
  int64_t bytes = 0;
  for (const WeightSource& source : sources) bytes += source_bytes(source, kernel_table(isa).panel);
  return static_cast<size_t>(bytes);
}

PackedLinear pack_linear(std::span<const WeightSource> sources, Precision precision, Isa isa, WorkerTeam& team,
                         void* memory) {
  check(!sources.empty(), ErrorCode::invalid_argument, "pack_linear: sources is empty; give at least one");
  check(static_cast<int>(precision) < kNumPrecisions, ErrorCode::invalid_argument,
        "pack_linear: precision: the value {} names none; allowed are exact, default and fast",
        static_cast<int>(precision));
  auto impl = std::make_unique<PackedLinear::Impl>();
  impl->kernels = &kernel_table(isa);
  impl->tile_rows = impl->kernels->tile_rows[are_vector_stores_halved()];
  impl->cols = sources[0].cols;
  for (const WeightSource& source : sources) {
    check(source.rows >= 1 && source.cols >= 1 && source.cols == impl->cols, ErrorCode::invalid_shape,
          "pack_linear: a weight of {} x {}; rows and cols must be 1 or more, and cols equal those of the first, {}",
          source.rows, source.cols, impl->cols);
    const int64_t block = weight_block(source.type).inputs;
    check(source.cols % block == 0, ErrorCode::invalid_shape,
          "pack_linear: {} cols of weights in blocks; a multiple of {} is needed", source.cols, block);
  }
  impl->bytes = packed_bytes(sources, isa);
  if (memory == nullptr) {
    impl->own = Workspace(Device::cpu(), impl->bytes);
    memory = impl->own.data();
  }
  auto* at = static_cast<char*>(memory);
  for (const WeightSource& source : sources) {
    const Format format = format_of(source.type);
    Scheme scheme = impl->kernels->schemes[static_cast<int>(format)][static_cast<int>(precision)];
    if (scheme == Scheme::bf16_dot && !is_bf16_dot_fast()) scheme = Scheme::fp32;
    PackedSource packed;
    packed.panels = {.data = at,
                     .panel_bytes = panel_bytes(format, source.cols, impl->kernels->panel),
                     .rows = source.rows,
                     .cols = source.cols,
                     .format = format,
                     .scheme = scheme};
    packed.first_row = impl->rows;
    packed.num_panels = panels_of(source, impl->kernels->panel);
    pack_source(source, packed, impl->kernels->panel, team);
    at += source_bytes(source, impl->kernels->panel);
    impl->rows += source.rows;
    impl->num_panels += packed.num_panels;
    impl->sources.push_back(packed);
  }
  PackedLinear packed;
  packed.impl_ = std::move(impl);
  return packed;
}

}  // namespace weft::gemm
