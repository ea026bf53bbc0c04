// The kernels of one instruction set: loops over panels, row blocks and chunks of k around the tile kernels.
// Compiled once per ISA (weft_isa_sources).
#include "ops/gemm/kernels/floating.h"
#include "ops/gemm/kernels/integer.h"
#include "ops/gemm/kernels/prepare.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

constexpr int kPackedTileRows = 4;
// Chunks of k: an unpacked chunk of a panel and a tile's activations fit the first-level cache.
constexpr long long kChunkBlocks = 256 / kPanel;
constexpr long long kFloatChunk = 4096 / kPanel;

constexpr long long kAccBytes = static_cast<long long>(kRowBlock) * kPanel * 4;
constexpr long long kChunkBytes = kChunkBlocks * kUnpackedBytes<Pair16>;
static_assert(kFloatChunk * kPanel * 4 <= kChunkBytes && kRowBlock % 24 == 0);  // whole tiles of every height

// Rows [row_begin, row_end) in tiles of kMost, then of 4, 2 and 1: tile(Index<rows>, first row).
template <int kMost, class Tile>
inline void for_tiles(long long row_begin, long long row_end, const Tile& tile) {
  long long row = row_begin;
  if constexpr (kMost > 2)
    for (; row + kMost <= row_end; row += kMost) tile(Index<kMost>{}, row);
  if constexpr (kMost > 4)
    for (; row + 4 <= row_end; row += 4) tile(Index<4>{}, row);
  for (; row + 2 <= row_end; row += 2) tile(Index<2>{}, row);
  if (row < row_end) tile(Index<1>{}, row);
}

// What write_rows will write: other weights have passed through the caches since y was last there.
inline void fetch_outputs(const Job& job, long long panel, long long row_begin, long long row_end) {
  const float* y = job.y + row_begin * job.ldy + panel * kPanel;
  for (long long row = row_begin; row < row_end; ++row, y += job.ldy)
    for (int i = 0; i < kPanel; i += 16) __builtin_prefetch(y + i, 1);
}

// The rows' sums in acc, scaled, to y.
inline void write_rows(const Job& job, long long panel, long long row_begin, long long row_end, const float* acc,
                       bool row_scale) {
  const long long left = job.w.rows - panel * kPanel;
  for (long long row = row_begin; row < row_end; ++row, acc += kPanel) {
    float* y = job.y + row * job.ldy + panel * kPanel;
    const float scale = row_scale ? job.x.scales[row] : 1.f;
    if (left >= kPanel) {
      unroll<kVecs>([&](auto v) { store(y + v.value * kLanes, load(acc + v.value * kLanes) * broadcast(scale)); });
    } else {
      for (long long i = 0; i < left; ++i) y[i] = acc[i] * scale;
    }
  }
}

// Tiles of kRows. Each unpacks the weights where there are few, else the first one a chunk for the others.
template <class S, Format format, int kRows>
void tiled_panel(const Job& job, const char* w, long long row_begin, long long row_end, float* acc, char* chunk) {
  constexpr long long kFewRows = kHoldsSums<kRows> ? 16 : kRows;
  if (row_end - row_begin <= kFewRows) {
    for (long long row = row_begin; row < row_end; row += kRows)
      packed_tile<S, format, kRows, false>(w, 0, job.x.blocks, job.x, row, acc + (row - row_begin) * kPanel, chunk);
    return;
  }
  for (long long first = 0; first < job.x.blocks; first += kChunkBlocks) {
    const long long count = job.x.blocks - first < kChunkBlocks ? job.x.blocks - first : kChunkBlocks;
    packed_tile<S, format, kRows, true>(w + first * kBlockBytesOf<format>, first, count, job.x, row_begin, acc, chunk);
    for (long long row = row_begin + kRows; row < row_end; row += kRows)
      unpacked_tile<S, kScales<format>, S::template kOffset<format>, kRows>(chunk, first, count, job.x, row,
                                                                            acc + (row - row_begin) * kPanel);
  }
}

// One panel times a block of rows, whose sums start at zero in acc, those of a whole last group.
template <class S, Format format>
void integer_panel(const Job& job, const char* w, long long row_begin, long long row_end, float* acc, char* chunk) {
  if (row_end - row_begin <= kFusedRows) {
    for_tiles<kPackedTileRows>(row_begin, row_end, [&](auto rows, long long row) {
      packed_tile<S, format, rows.value, false>(w, 0, job.x.blocks, job.x, row, acc + (row - row_begin) * kPanel,
                                                chunk);
    });
    return;
  }
  if (job.x.group == kTileRows)
    tiled_panel<S, format, kTileRows>(job, w, row_begin, row_end, acc, chunk);
  else if (job.x.group == kLowTileRows)
    tiled_panel<S, format, kLowTileRows>(job, w, row_begin, row_end, acc, chunk);
  else if (job.x.group == kSmallTileRows)
    tiled_panel<S, format, kSmallTileRows>(job, w, row_begin, row_end, acc, chunk);
  else
    tiled_panel<S, format, kLowSmallTileRows>(job, w, row_begin, row_end, acc, chunk);
}

template <class S>
void float_rows(const Job& job, const char* w, long long first, long long steps, long long row_begin, long long row_end,
                float* acc) {
  for_tiles<kTileRows>(row_begin, row_end, [&](auto rows, long long row) {
    float_tile<S, rows.value>(w, steps, job.x.data + row * job.x.row_bytes + first * 4, job.x.row_bytes,
                              acc + (row - row_begin) * kPanel);
  });
}

void fp32_panel(const Job& job, const char* w, long long row_begin, long long row_end, float* acc, char* chunk) {
  for (long long first = 0; first < job.w.cols; first += kFloatChunk) {
    const long long count = job.w.cols - first < kFloatChunk ? job.w.cols - first : kFloatChunk;
    const long long blocks = count / kBlock;
    const char* packed = w + panel_bytes(job.w.format, first, kPanel);
    float* expanded = reinterpret_cast<float*>(chunk);
    const char* from = chunk;
    switch (job.w.format) {
      case Format::f32: from = packed; break;
      case Format::f16: expand_f16(packed, count, expanded); break;
      case Format::bf16: expand_bf16(packed, (count + 1) / 2, expanded); break;
      case Format::q8_0: expand_blocks<Format::q8_0>(packed, blocks, expanded); break;
      case Format::q4_0: expand_blocks<Format::q4_0>(packed, blocks, expanded); break;
      case Format::q4_1: expand_blocks<Format::q4_1>(packed, blocks, expanded); break;
      case Format::q4_k: expand_blocks<Format::q4_k>(packed, blocks, expanded); break;
      case Format::q6_k: expand_blocks<Format::q6_k>(packed, blocks, expanded); break;
    }
    float_rows<Fp32Step>(job, from, first, count, row_begin, row_end, acc);
  }
}

template <class S>
void quantised_panel(const Job& job, const char* w, long long row_begin, long long row_end, float* acc, char* chunk) {
  switch (job.w.format) {
#if defined(WEFT_ISA_avx2)
    case Format::q8_0:
      if constexpr (S::kRowScale) integer_panel<S, Format::q8_0>(job, w, row_begin, row_end, acc, chunk);
      break;
#else
    case Format::q8_0: integer_panel<S, Format::q8_0>(job, w, row_begin, row_end, acc, chunk); break;
#endif
    case Format::q4_0: integer_panel<S, Format::q4_0>(job, w, row_begin, row_end, acc, chunk); break;
    case Format::q4_1: integer_panel<S, Format::q4_1>(job, w, row_begin, row_end, acc, chunk); break;
    case Format::q4_k: integer_panel<S, Format::q4_k>(job, w, row_begin, row_end, acc, chunk); break;
    case Format::q6_k:
      if constexpr (S::kRowScale) integer_panel<S, Format::q6_k>(job, w, row_begin, row_end, acc, chunk);
      break;
    case Format::f32:
    case Format::f16:
    case Format::bf16: break;  // never with an integer scheme
  }
}

#if defined(WEFT_HAS_BYTE_DOT)
constexpr int kSplitRows = 3;

template <Format format>
void split_int8_tiles(const Job& job, const char* w, long long row_begin, long long row_end, float* acc) {
  for_tiles<2>(row_begin, row_end, [&](auto rows, long long row) {
    packed_tile<SplitInt8, format, rows.value, false>(w, 0, job.x.blocks, job.x, row, acc + (row - row_begin) * kPanel,
                                                      nullptr);
  });
}

void split_int8_panel(const Job& job, const char* w, long long row_begin, long long row_end, float* acc) {
  switch (job.w.format) {
    case Format::q8_0: split_int8_tiles<Format::q8_0>(job, w, row_begin, row_end, acc); break;
    case Format::q4_0: split_int8_tiles<Format::q4_0>(job, w, row_begin, row_end, acc); break;
    case Format::q4_1: split_int8_tiles<Format::q4_1>(job, w, row_begin, row_end, acc); break;
    case Format::q4_k: split_int8_tiles<Format::q4_k>(job, w, row_begin, row_end, acc); break;
    case Format::q6_k:  // offsets would need sums of half blocks
    case Format::f32:
    case Format::f16:
    case Format::bf16: break;  // never with split_int8
  }
}
#else
constexpr int kSplitRows = 0;
#endif

void multiply(const Job& job) {
  float* acc = reinterpret_cast<float*>(job.scratch);
  char* chunk = job.scratch + kAccBytes;
  for (long long row = job.row_begin; row < job.row_end; row += kRowBlock) {
    const long long end = row + kRowBlock < job.row_end ? row + kRowBlock : job.row_end;
    const long long padded = (end - row + job.x.group - 1) / job.x.group * job.x.group;
    for (long long panel = job.panel_begin; panel < job.panel_end; ++panel) {
      const char* w = job.w.data + panel * job.w.panel_bytes;
      fetch_outputs(job, panel, row, end);
      for (long long i = 0; i < padded * kVecs; ++i) store(acc + i * kLanes, F32{});
      bool row_scale = false;
      switch (job.w.scheme) {
        case Scheme::fp32: fp32_panel(job, w, row, end, acc, chunk); break;
        case Scheme::pair16:
          quantised_panel<Pair16>(job, w, row, end, acc, chunk);
          row_scale = true;
          break;
#if !defined(WEFT_ISA_plain)
        case Scheme::quad8: quantised_panel<Quad8>(job, w, row, end, acc, chunk); break;
#endif
#if defined(WEFT_HAS_BYTE_DOT)
        case Scheme::split_int8:
          split_int8_panel(job, w, row, end, acc);
          row_scale = true;
          break;
#endif
#if defined(WEFT_HAS_BF16_DOT)
        case Scheme::bf16_dot: float_rows<Bf16Step>(job, w, 0, (job.w.cols + 1) / 2, row, end, acc); break;
#endif
        default: break;  // not in this table's schemes
      }
      write_rows(job, panel, row, end, acc, row_scale);
    }
  }
}

}  // namespace

#if defined(WEFT_ISA_plain)
#define WEFT_INT8 Scheme::pair16
#define WEFT_INT4 Scheme::pair16
#elif defined(WEFT_ISA_avx2)
#define WEFT_INT8 Scheme::pair16  // signed bytes overflow the int16 sums of vpmaddubsw; pair16 costs no more
#define WEFT_INT4 Scheme::quad8
#else
#define WEFT_INT8 Scheme::quad8
#define WEFT_INT4 Scheme::quad8
#endif
#if defined(WEFT_HAS_BF16_DOT)
#define WEFT_BF16 Scheme::bf16_dot
#else
#define WEFT_BF16 Scheme::fp32
#endif

// Rows: f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k; columns: exact, standard, fast.
extern const KernelTable kernels = {
    .panel = kPanel,
    .tile_rows = {{kLowTileRows, kTileRows}, {kLowSmallTileRows, kSmallTileRows}},
    .split_rows = kSplitRows,
    .scratch_bytes = kAccBytes + kChunkBytes,
    .schemes = {{Scheme::fp32, Scheme::fp32, Scheme::fp32},
                {Scheme::fp32, Scheme::fp32, Scheme::fp32},
                {Scheme::fp32, WEFT_BF16, WEFT_BF16},
                {Scheme::fp32, Scheme::pair16, WEFT_INT8},
                {Scheme::fp32, Scheme::pair16, WEFT_INT4},
                {Scheme::fp32, Scheme::pair16, WEFT_INT4},
                {Scheme::fp32, Scheme::pair16, WEFT_INT4},
                {Scheme::fp32, Scheme::pair16, Scheme::pair16}},
    .prepare = prepare,
    .multiply = multiply,
};

#undef WEFT_INT8
#undef WEFT_INT4
#undef WEFT_BF16

}  // namespace weft::gemm::WEFT_ISA_NAME
