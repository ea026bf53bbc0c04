// Products of packed tiles (prefill) in tiles of registers. Both sides lie as they do for pairs: rows of words, and
// panels of [words][kPanel].
#include "attention/cpu/kernels/dense.h"
#include "tile/cpu/lanes.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

#if defined(WEFT_HAS_BF16_TILES)
namespace {

static_assert(kLanes == kTileRows && kTileBytes == kLanes * sizeof(float));
static_assert(kRowsBeyond == kTileRows - 1);  // multiply_block reads whole tiles of rows
constexpr int kMostVectors = 4;
constexpr long long kPanelBytes = kPanel * sizeof(float);

// work.operator()<v>() for each of V vectors.
template <int V, class Work>
WEFT_INLINE void for_vectors(const Work& work) {
  [&]<int... v>(Lanes<v...>) __attribute__((always_inline)) { (work.template operator()<v>(), ...); }
  (typename MakeLanes<V>::Type());
}

// 16 rows by V vectors of columns: sums in tiles 0 to 3, rows in 4 and 5, columns in 6 and 7, by turns. Rows come from
// the second-level cache: each is read once for all columns, and one step ahead.
template <int V>
void multiply_block(const Product& x, const float* a, const float* b, float* c, long long ldc) {
  const long long lda = x.lda * static_cast<long long>(sizeof(float)), ld = ldc * static_cast<long long>(sizeof(float));
  for_vectors<V>([&]<int v>() __attribute__((always_inline)) {
    if (x.alpha != nullptr)
      load_tile<v>(c + v * kLanes, ld);
    else
      zero_tile<v>();
  });
  const long long stride = x.stride;
  int left = x.words;
  const auto step = [&]<int kRows>() __attribute__((always_inline)) {
    left -= kLanes;
    a += kLanes;
    if (left > 0) load_tile<9 - kRows>(a, lda);
    for_vectors<V>([&]<int v>() __attribute__((always_inline)) {
      load_tile<6 + v % 2>(b + v / 2 * stride + v % 2 * kLanes, kPanelBytes);
      multiply_tiles<v, kRows, 6 + v % 2>();
    });
    b += kLanes * kPanel;
  };
  load_tile<4>(a, lda);
  while (left > 0) {
    step.template operator()<4>();
    if (left > 0) step.template operator()<5>();
  }
  for_vectors<V>([&]<int v>() __attribute__((always_inline)) { store_tile<v>(c + v * kLanes, ld); });
}

// Fewer rows than a tile has: the sums of the others go nowhere.
template <int V>
void multiply_last_rows(const Product& x, int rows, const float* a, const float* b, float* c) {
  alignas(64) float sums[kTileRows * V * kLanes] = {};
  const auto copy = [&](float* to, long long ld_to, const float* from, long long ld_from) {
    for (int row = 0; row < rows; ++row)
      for (int j = 0; j < V * kLanes; j += kLanes) store(to + row * ld_to + j, load(from + row * ld_from + j));
  };
  if (x.alpha != nullptr) copy(sums, V * kLanes, c, x.ldc);
  multiply_block<V>(x, a, b, sums, V * kLanes);
  copy(c, x.ldc, sums, V * kLanes);
}

template <int V>
void multiply_columns(const Product& x, const float* b, float* c, Prefetcher& prefetcher) {
  const int lines = prefetcher.lines_a_tile() * num_register_tiles(x.rows, x.words, V);
  const int row_tiles = (x.rows + kTileRows - 1) / kTileRows;
  for (int row = 0; row < x.rows; row += kTileRows) {
    const float* a = x.a + row * x.lda;
    prefetcher.fetch_each((lines + row_tiles - 1) / row_tiles);
    if (row + kTileRows <= x.rows)
      multiply_block<V>(x, a, b, c + row * x.ldc, x.ldc);
    else
      multiply_last_rows<V>(x, x.rows - row, a, b, c + row * x.ldc);
  }
}

}  // namespace

TilesInUse::TilesInUse(const AttendArgs& args) : in_use_(args.compute == Compute::bf16 && args.has_tiles) {
  if (in_use_) configure_tiles();
}
TilesInUse::~TilesInUse() {
  if (in_use_) release_tiles();
}

void multiply_in_tiles(const Product& x, Prefetcher& prefetcher) {
  if (x.alpha != nullptr)
    for (int row = 0; row < x.rows; ++row)
      if (x.alpha[row] != 1) scale_vector(x.c + row * x.ldc, x.vectors * kLanes, x.alpha[row]);
  for (int vector = 0; vector < x.vectors; vector += kMostVectors) {
    const float* b = x.b + vector / 2 * x.stride;
    float* c = x.c + vector * kLanes;
    switch (x.vectors - vector) {
      case 1: multiply_columns<1>(x, b, c, prefetcher); break;
      case 2: multiply_columns<2>(x, b, c, prefetcher); break;
      case 3: multiply_columns<3>(x, b, c, prefetcher); break;
      default: multiply_columns<kMostVectors>(x, b, c, prefetcher); break;
    }
  }
}
#endif

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
