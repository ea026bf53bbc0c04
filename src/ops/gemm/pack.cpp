// Weights from the file's rows to panels (kernels/abi.h draws them), in chunks, by all workers at once.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "device/cpu/cpuid.h"
#include "ops/gemm/packed.h"

namespace weft::gemm {
namespace {

constexpr int64_t kReadBytes = 256 << 10;  // of file rows a worker reads at a time, about

Format format_of(WeightType type) {
  switch (type) {
    case WeightType::f32: return Format::f32;
    case WeightType::bf16: return Format::bf16;
    case WeightType::q8_0: return Format::q8_0;
    case WeightType::q4_0: return Format::q4_0;
    case WeightType::q4_1: return Format::q4_1;
  }
  throw InternalError("a weight type without a packed format");
}

bool is_quantised(Format format) { return format != Format::f32 && format != Format::bf16; }

// Bytes before a block's integers in the file: fp16 scales.
int64_t file_scale_bytes(Format format) { return format == Format::q4_1 ? 4 : 2; }
int64_t words_of(Format format) { return format == Format::q8_0 ? 8 : 4; }
int64_t file_block_bytes(Format format) { return file_scale_bytes(format) + 4 * words_of(format); }
int64_t file_row_bytes(Format format, int64_t cols) {
  if (format == Format::f32) return cols * 4;
  if (format == Format::bf16) return cols * 2;
  return cols / kBlock * file_block_bytes(format);
}

// `count` file rows into one panel; the columns that are missing become zeros.
template <Format format, int kPanel>
void pack_quantised(const char* from, int64_t count, int64_t cols, char* to) {
  constexpr int64_t kScales = format == Format::q4_1 ? 2 : 1;
  constexpr int64_t kWords = format == Format::q8_0 ? 8 : 4;
  constexpr int64_t kFileBlock = kScales * 2 + kWords * 4;
  const int64_t row_bytes = cols / kBlock * kFileBlock;
  for (int64_t b = 0; b < cols / kBlock; ++b, from += kFileBlock) {
    uint32_t words[kWords][kPanel] = {};
    uint16_t scales[kScales][kPanel] = {};
    for (int64_t c = 0; c < count; ++c) {
      const char* block = from + c * row_bytes;
      for (int64_t s = 0; s < kScales; ++s) std::memcpy(&scales[s][c], block + 2 * s, 2);
      for (int64_t j = 0; j < kWords; ++j) std::memcpy(&words[j][c], block + 2 * kScales + 4 * j, 4);
    }
    std::memcpy(to, words, sizeof words);
    std::memcpy(to + sizeof words, scales, sizeof scales);
    to += sizeof words + sizeof scales;
  }
}

// f32: [cols][panel]; bf16: pairs of inputs, [ceil(cols / 2)][panel][2].
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
void pack_panel(Format format, const char* from, int64_t count, int64_t cols, char* to) {
  switch (format) {
    case Format::f32: pack_floats<uint32_t, 1>(from, count, cols, kPanel, to); break;
    case Format::bf16: pack_floats<uint16_t, 2>(from, count, cols, kPanel, to); break;
    case Format::q8_0: pack_quantised<Format::q8_0, kPanel>(from, count, cols, to); break;
    case Format::q4_0: pack_quantised<Format::q4_0, kPanel>(from, count, cols, to); break;
    case Format::q4_1: pack_quantised<Format::q4_1, kPanel>(from, count, cols, to); break;
  }
}

void pack_part(const WeightSource& source, const PackedPart& part, int panel, WorkerTeam& team) {
  const Format format = part.panels.format;
  const int64_t row_bytes = file_row_bytes(format, source.cols);
  const int64_t step = std::max<int64_t>(1, kReadBytes / std::max<int64_t>(1, row_bytes * panel));  // panels
  const int workers = team.num_workers();
  team.run([&](int worker) {
    const int64_t begin = part.num_panels * worker / workers, end = part.num_panels * (worker + 1) / workers;
    if (begin == end) return;
    const auto rows =
        std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::min(step, end - begin) * panel * row_bytes));
    for (int64_t p = begin; p < end; p += step) {
      const int64_t p_end = std::min(end, p + step);
      source.read(p * panel, std::min(source.rows, p_end * panel), rows.get());
      for (int64_t i = p; i < p_end; ++i) {
        const int64_t count = std::min<int64_t>(panel, source.rows - i * panel);
        const char* from = rows.get() + (i - p) * panel * row_bytes;
        char* to = const_cast<char*>(part.panels.data) + i * part.panels.panel_bytes;
        switch (panel) {
          case 8: pack_panel<8>(format, from, count, source.cols, to); break;
          case 16: pack_panel<16>(format, from, count, source.cols, to); break;
          case 32: pack_panel<32>(format, from, count, source.cols, to); break;
          default: throw InternalError("a panel width that is not packed");
        }
      }
    }
  });
}

int64_t panels_of(const WeightSource& source, int panel) { return (source.rows + panel - 1) / panel; }

int64_t part_bytes(const WeightSource& source, int panel) {
  return (panels_of(source, panel) * panel_bytes(format_of(source.type), source.cols, panel) + 63) / 64 * 64;
}

float half_to_float(uint16_t half) {
  const uint32_t exponent = half >> 10 & 31u, fraction = half & 1023u, sign = (half & 0x8000u) << 16;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return (sign ? -1.f : 1.f) * static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <class T>
T get(const char* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

}  // namespace

const KernelTable& kernel_table(Isa isa) {
  switch (isa) {
    case Isa::plain: return plain::kernels;
    case Isa::avx2: return avx2::kernels;
    case Isa::avx512: return avx512::kernels;
    case Isa::avx512_bf16: return avx512_bf16::kernels;
  }
  throw InternalError("an instruction set without gemm kernels");
}

PackedLinear::PackedLinear() = default;
PackedLinear::~PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;
int64_t PackedLinear::rows() const { return impl_ ? impl_->rows : 0; }
int64_t PackedLinear::cols() const { return impl_ ? impl_->cols : 0; }
size_t PackedLinear::bytes() const { return impl_ ? impl_->bytes : 0; }

size_t packed_bytes(std::span<const WeightSource> sources, Isa isa) {
  int64_t bytes = 0;
  for (const WeightSource& source : sources) bytes += part_bytes(source, kernel_table(isa).panel);
  return static_cast<size_t>(bytes);
}

PackedLinear pack_linear(std::span<const WeightSource> sources, Precision precision, Isa isa, WorkerTeam& team,
                         void* memory) {
  check(!sources.empty(), ErrorCode::invalid_argument, "pack_linear: sources is empty; give at least one");
  auto impl = std::make_unique<PackedLinear::Impl>();
  impl->kernels = &kernel_table(isa);
  impl->cols = sources[0].cols;
  for (const WeightSource& source : sources) {
    check(source.rows >= 1 && source.cols >= 1 && source.cols == impl->cols, ErrorCode::invalid_shape,
          "pack_linear: a weight of {} x {}; rows and cols must be 1 or more, and cols equal those of the first, {}",
          source.rows, source.cols, impl->cols);
    check(!is_quantised(format_of(source.type)) || source.cols % kBlock == 0, ErrorCode::invalid_shape,
          "pack_linear: {} cols of quantised weights; a multiple of {} is needed", source.cols, kBlock);
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
    if (scheme == Scheme::bf16_dot && !cpu_info().bf16_dot_pays) scheme = Scheme::fp32;
    PackedPart part;
    part.panels = {.data = at,
                   .panel_bytes = panel_bytes(format, source.cols, impl->kernels->panel),
                   .rows = source.rows,
                   .cols = source.cols,
                   .format = format,
                   .scheme = scheme};
    part.first_row = impl->rows;
    part.num_panels = panels_of(source, impl->kernels->panel);
    pack_part(source, part, impl->kernels->panel, team);
    at += part_bytes(source, impl->kernels->panel);
    impl->rows += source.rows;
    impl->num_panels += part.num_panels;
    impl->parts.push_back(part);
  }
  PackedLinear packed;
  packed.impl_ = std::move(impl);
  return packed;
}

void read_row(const PackedLinear& weights, int64_t row, float* to) {
  const PackedLinear::Impl& w = weights.impl();
  check(row >= 0 && row < w.rows, ErrorCode::invalid_argument, "read_row: row = {}; allowed are 0 to {}", row,
        w.rows - 1);
  const auto part = std::find_if(w.parts.begin(), w.parts.end(),
                                 [&](const PackedPart& p) { return row < p.first_row + p.panels.rows; });
  const int64_t panel = w.kernels->panel, column = (row - part->first_row) % panel;
  const Panels& panels = part->panels;
  const char* from = panels.data + (row - part->first_row) / panel * panels.panel_bytes;
  if (panels.format == Format::f32) {
    for (int64_t k = 0; k < w.cols; ++k) to[k] = get<float>(from, k * panel + column);
    return;
  }
  if (panels.format == Format::bf16) {
    for (int64_t k = 0; k < w.cols; ++k)
      to[k] =
          std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(from, (k / 2 * panel + column) * 2 + k % 2)) << 16);
    return;
  }
  const int64_t words = words_of(panels.format);
  for (int64_t b = 0; b < w.cols / kBlock; ++b, to += kBlock) {
    const char* block = from + b * panel_bytes(panels.format, kBlock, static_cast<int>(panel));
    const char* scales = block + words * panel * 4;
    const float d = half_to_float(get<uint16_t>(scales, column));
    const float m = panels.format == Format::q4_1 ? half_to_float(get<uint16_t>(scales, panel + column)) : 0.f;
    for (int64_t j = 0; j < words; ++j)
      for (int64_t byte = 0; byte < 4; ++byte) {
        const auto bits = static_cast<uint8_t>(get<uint32_t>(block, j * panel + column) >> 8 * byte);
        if (panels.format == Format::q8_0) {
          to[4 * j + byte] = static_cast<float>(static_cast<int8_t>(bits)) * d;
        } else {
          const int offset = panels.format == Format::q4_0 ? 8 : 0;
          to[4 * j + byte] = static_cast<float>((bits & 15) - offset) * d + m;
          to[16 + 4 * j + byte] = static_cast<float>((bits >> 4) - offset) * d + m;
        }
      }
  }
}

}  // namespace weft::gemm
