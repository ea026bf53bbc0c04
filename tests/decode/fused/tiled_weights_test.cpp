// Weights in tiles: what is packed reads back, and products of it in the host machine are those in double.
#include "ops/cuda/tiled_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "base/fp16.h"
#include "decode/fused/walk_weights.h"
#include "tests/decode/fused/host_runtime.h"
#include "tests/decode/fused/instances.h"
#include "tests/decode/fused/tiled_args.h"
#include "tests/ops/weights.h"
#include "weft/error.h"

#define WEFT_DECLARE_TILED(weights, rows) extern "C" void weft_tiled_##weights##_##rows(weft::testing::TiledArgs args);
WEFT_TILED(WEFT_DECLARE_TILED)
extern "C" void weft_tiled_rows_Bf16Tile(weft::testing::TiledRowsArgs args);
extern "C" void weft_tiled_rows_Q8Tile(weft::testing::TiledRowsArgs args);
extern "C" void weft_tiled_rows_Q4Tile(weft::testing::TiledRowsArgs args);
extern "C" void weft_tiled_rows_Q4WithLeastTile(weft::testing::TiledRowsArgs args);
extern "C" void weft_tiled_rows_Q4Group128Tile(weft::testing::TiledRowsArgs args);

namespace weft::decode::fused::tiled {
namespace {

using testing::TiledArgs;
using testing::TiledRowsArgs;

constexpr WeightType kTypes[] = {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1,
                                 WeightType::q4_g128};

// Products by weights and rows, and rows by weights.
std::map<std::string, void (*)(TiledArgs)> products() {
#define WEFT_ENTRY_TILED(weights, rows) {#weights "_" #rows, weft_tiled_##weights##_##rows},
  return {WEFT_TILED(WEFT_ENTRY_TILED)};
}
void (*reader_of(WeightType type))(TiledRowsArgs) {
  switch (type) {
    case WeightType::bf16: return weft_tiled_rows_Bf16Tile;
    case WeightType::q8_0: return weft_tiled_rows_Q8Tile;
    case WeightType::q4_0: return weft_tiled_rows_Q4Tile;
    case WeightType::q4_1: return weft_tiled_rows_Q4WithLeastTile;
    default: return weft_tiled_rows_Q4Group128Tile;
  }
}

uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
double from_bf16(uint16_t bits) { return double{std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)}; }

MatrixForm form_of(int64_t cols, const std::vector<test::Weights>& parts) {
  MatrixForm form{.role = WeightRole::qkv, .layer = 0, .cols = cols};
  for (const test::Weights& part : parts) {
    if (form.parts.empty() || form.parts.back().type != part.type) form.parts.push_back({part.type, 0});
    form.parts.back().rows += part.rows;
  }
  return form;
}
Sources sources_of(const std::vector<test::Weights>& parts) {
  Sources sources;
  for (const test::Weights& part : parts) sources.push_back(part.source());
  return sources;
}

// A matrix of one type in its tiles, beside what it means; rows that are no multiple of 16.
struct Matrix {
  Matrix(WeightType type, int64_t rows, int64_t cols, float scale = 0, int byte = -1)
      : weights{test::random_weights(type, rows, cols, 7, scale, byte)}, tiles(tile(form_of(cols, weights), 64)) {
    WorkerTeam team(2);
    packed = ops::pack_tiles(tiles, "qkv", sources_of(weights), team);
  }
  double at(int64_t row, int64_t col) const { return weights[0].values[static_cast<size_t>(row * tiles.cols + col)]; }

  std::vector<test::Weights> weights;
  TiledMatrix tiles;
  std::vector<char> packed;
};

// Rows of x in bf16, and a worker's share of a matrix times some of them.
struct Product {
  Product(const Matrix& of, float size = 1) : matrix(of), tiles(of.tiles) {
    tile_bytes = static_cast<int>(tiles.parts[0].tile_bytes);
    ldx = static_cast<int>((tiles.band_tiles * tiles.tile_cols + 63) / 64 * 64 + 16);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    x.resize(static_cast<size_t>(8 * ldx));
    for (int row = 0; row < 8; ++row)
      for (int64_t col = 0; col < tiles.cols; ++col)
        x[static_cast<size_t>(row * ldx + col)] = to_bf16(normal(random) * size);
  }
  tile::MatvecShare share_of(int64_t begin, int64_t end, int rows, int entry_tiles, int round_entries) const {
    return share_of(static_cast<int>(begin), static_cast<int>(end), static_cast<int>(tiles.band_tiles),
                    static_cast<int>(tiles.tile_cols), entry_tiles, round_entries, rows);
  }
  static tile::MatvecShare share_of(int begin, int end, int band_tiles, int tile_cols, int entry_tiles,
                                    int round_entries, int rows) {
    tile::MatvecShare share{begin, end, band_tiles, tile_cols, entry_tiles, round_entries, rows, 0};
    share.half_parts = share.round_parts();
    return share;
  }
  // [bands of the share, rows, 16].
  std::vector<float> run(const tile::MatvecShare& share, int first_row = 0, int kernel_rows = 0) const {
    simt::Memory memory;
    const auto bytes = memory.make("tiles", std::vector<char>(matrix.packed.begin() + share.begin * tile_bytes,
                                                              matrix.packed.begin() + share.end * tile_bytes));
    const auto rows_of_x = memory.make(
        "x", std::vector<uint16_t>(x.begin() + first_row * ldx, x.begin() + (first_row + share.rows) * ldx));
    const auto y = memory.make<float>("y", static_cast<size_t>(share.num_bands() * share.rows * 16));
    int rows = kernel_rows;
    for (rows = std::max(rows, 1); rows < share.rows; rows *= 2) {
    }
    const auto call = products().at(fmt::format("{}_{}", ops::tile_struct(matrix.weights[0].type), rows));
    const TiledArgs args{
        reinterpret_cast<const unsigned char*>(bytes.data()), tile_bytes, share, rows_of_x.data(), ldx, y.data()};
    simt::run_in_all_orders(memory,
                            {.threads = 128, .shared_bytes = static_cast<size_t>(std::max(share.parts_bytes(), 4))},
                            [&] { call(args); });
    return {y.begin(), y.end()};
  }
  // In double, and the sum of sizes, of columns [begin, end) of tiles of the line.
  std::pair<double, double> exact(const tile::MatvecShare& share, int band, int x_row, int output) const {
    const int64_t line = (share.first_band() + band) * tiles.band_tiles,
                  row = tiles.first_row_of(share.first_band() + band) + output;
    double sum = 0, sizes = 0;
    if (output >= tiles.rows_of(share.first_band() + band)) return {0, 0};
    for (int64_t t = std::max<int64_t>(line, share.begin); t < std::min<int64_t>(line + tiles.band_tiles, share.end);
         ++t)
      for (int64_t col = (t - line) * tiles.tile_cols; col < std::min((t - line + 1) * tiles.tile_cols, tiles.cols);
           ++col) {
        const double product = matrix.at(row, col) * from_bf16(x[static_cast<size_t>(x_row * ldx + col)]);
        sum += product, sizes += std::fabs(product);
      }
    return {sum, sizes};
  }
  void check(const tile::MatvecShare& share) const {
    const std::vector<float> y = run(share);
    // Q4_1: integer and least value cancel, and are rounded apart.
    const double more = matrix.weights[0].type == WeightType::q4_1 ? 8 : 1;
    for (int band = 0; band < share.num_bands(); ++band)
      for (int row = 0; row < share.rows; ++row)
        for (int output = 0; output < 16; ++output) {
          const auto [sum, sizes] = exact(share, band, row, output);
          ASSERT_NEAR(double{y[static_cast<size_t>((band * share.rows + row) * 16 + output)]}, sum,
                      more * sizes * static_cast<double>(tiles.cols) * 0x1p-24)
              << weft::to_string(matrix.weights[0].type) << ", " << tiles.cols << " columns, tiles " << share.begin
              << ".." << share.end << ", band " << band << ", row " << row << ", output " << output;
        }
  }
  const Matrix& matrix;
  const TiledMatrix& tiles;
  int tile_bytes, ldx;
  std::vector<uint16_t> x;
};

// Columns that fill their tiles, and those that do not, of bands with fewer than 16 rows.
TEST(Divisor, GivesTheQuotientsOfDivisions) {
  constexpr int kMost = std::numeric_limits<int>::max();
  std::vector<int> divisors{1, 2, 3, 5, 7, 64, 112, 1088, 65535, 65536, 1 << 30, (1 << 30) + 1, kMost - 1, kMost};
  for (int by = 1; by < 3000; by += 13) divisors.push_back(by);
  for (const int by : divisors) {
    const tile::Divisor divisor = by;
    EXPECT_EQ(int{divisor}, by);
    std::vector<int> numbers{0, 1, by - 1, by, kMost / by * by, kMost / by * by - 1, kMost - 1, kMost};
    for (int64_t n = 0; n < kMost; n += 72'345'677) numbers.push_back(static_cast<int>(n));
    for (const int n : numbers) EXPECT_EQ(n / divisor, n / by) << n << " / " << by;
  }
}

TEST(TiledWeights, MultiplyRowsOfX) {
  for (const WeightType type : kTypes)
    for (const int64_t width : {576, 960, 1536, 608, 32}) {
      const Matrix matrix(type, 41, test::whole_blocks(type, width));
      const Product product(matrix);
      const int64_t tiles = matrix.tiles.num_tiles();
      for (const int rows : {1, 2, 3, 8}) {
        product.check(product.share_of(0, tiles, rows, 5, 128));
        product.check(product.share_of(tiles / 5, tiles - tiles / 4, rows, 4, 3));  // cut bands, rounds
      }
    }
}

TEST(TiledWeights, HaveTheFilesNumbersInEveryPlace) {
  for (const WeightType type : kTypes)
    for (const int64_t width : {256, 608}) {
      const Matrix matrix(type, 41, test::whole_blocks(type, width));
      const TiledMatrix& tiles = matrix.tiles;
      const auto padded = static_cast<int>(tiles.band_tiles * tiles.tile_cols);
      for (int64_t band = 0; band < tiles.num_bands; ++band) {
        simt::Memory memory;
        const auto* const from = matrix.packed.data() + tiles.byte_of(band * tiles.band_tiles);
        const auto bytes = memory.make(
            "tiles",
            std::vector<char>(from, from + tiles.bytes_of(band * tiles.band_tiles, (band + 1) * tiles.band_tiles)));
        const auto y = memory.make<float>("y", static_cast<size_t>(16 * padded));
        const TiledRowsArgs args{reinterpret_cast<const unsigned char*>(bytes.data()), padded, y.data()};
        simt::run_in_all_orders(memory, {.threads = 128}, [&] { reader_of(type)(args); });
        for (int64_t row = 0; row < 16; ++row)
          for (int64_t col = 0; col < padded; ++col) {
            const bool is_there = row < tiles.rows_of(band) && col < tiles.cols;
            const double value = is_there ? matrix.at(tiles.first_row_of(band) + row, col) : 0;
            ASSERT_EQ(y[static_cast<size_t>(row * padded + col)], static_cast<float>(value))
                << weft::to_string(type) << ", band " << band << ", row " << row << ", column " << col;
          }
      }
    }
}

// Whatever stands beside it, and whichever kernel multiplies it.
TEST(TiledWeights, GiveARowTheSameBitsAloneAndBesideOthers) {
  for (const WeightType type : kTypes) {
    const Matrix matrix(type, 41, test::whole_blocks(type, 608));
    const Product product(matrix);
    const int64_t end = matrix.tiles.num_tiles() - 2;
    const tile::MatvecShare share = product.share_of(3, end, 8, 4, 3);
    const std::vector<float> all = product.run(share);
    for (const int rows : {1, 2, 3, 4})
      for (int first = 0; first + rows <= 8; first += 3)
        for (const int kernel_rows : {rows, 8}) {
          if (kernel_rows == 3) continue;
          tile::MatvecShare some = share;
          some.rows = rows;
          const std::vector<float> y = product.run(some, first, kernel_rows);
          for (int band = 0; band < share.num_bands(); ++band)
            for (int row = 0; row < rows; ++row)
              for (int output = 0; output < 16; ++output)
                ASSERT_EQ(y[static_cast<size_t>((band * rows + row) * 16 + output)],
                          all[static_cast<size_t>((band * 8 + first + row) * 16 + output)])
                    << weft::to_string(type) << ", " << rows << " rows from " << first << ", band " << band;
        }
  }
}

// Sums are those of entries in their order, however many lie in shared memory at once; fewer rounds take more of it.
TEST(TiledWeights, HaveTheSameSumsInRoundsOfAnySize) {
  const Matrix matrix(WeightType::q4_0, 160, 256);  // bands of 4 tiles
  const Product product(matrix);
  for (const int entry_tiles : {1, 3, 4, 11}) {
    const tile::MatvecShare whole = product.share_of(2, 39, 2, entry_tiles, 1000);
    EXPECT_EQ(whole.num_rounds(), 1);
    const std::vector<float> y = product.run(whole);
    for (const int round_entries : {1, 2, 3, 7, 16}) {
      const tile::MatvecShare share = product.share_of(2, 39, 2, entry_tiles, round_entries);
      EXPECT_EQ(product.run(share), y) << entry_tiles << ", " << round_entries;
    }
  }
  // gate_up of a model of 8B, of one worker: 28 bands of 64 tiles, 8 rows.
  const tile::MatvecShare wide = Product::share_of(0, 869, 64, 64, 6, 64, 8);
  EXPECT_EQ(wide.num_rounds(), 3);
  EXPECT_EQ(wide.round_parts(), 64 + 7);
  const tile::MatvecShare at_once = Product::share_of(0, 869, 64, 64, 6, 1000, 8);
  EXPECT_EQ(at_once.parts_bytes(), 512 * (145 + 15));
}

TEST(TiledWeights, TakeExtremeScalesAndIntegers) {
  for (const WeightType type : kTypes)
    for (const float scale : {6e-8f, 6.1e-5f, 65504.f, -3.f})
      for (const int byte : {0x80, 0x7f, 0xff, 0x00}) {
        const Matrix matrix(type, 20, 256, scale, test::is_quantised(type) ? byte : -1);
        const Product product(matrix, 100.f);
        product.check(product.share_of(0, matrix.tiles.num_tiles(), 2, 3, 2));
      }
}

// Sources of one type follow each other within a band; a type of its own begins one. On a device as in the host's
// memory.
TEST(TiledWeights, ArePackedFromSeveralSources) {
  const std::vector<test::Weights> parts{
      test::random_weights(WeightType::q4_0, 21, 256, 1), test::random_weights(WeightType::q4_0, 7, 256, 2),
      test::random_weights(WeightType::q4_g128, 33, 256, 3), test::random_weights(WeightType::bf16, 16, 256, 4)};
  const TiledMatrix tiles = tile(form_of(256, parts), 64);
  EXPECT_EQ(tiles.tile_cols, 128);
  const Sources sources = sources_of(parts);
  WorkerTeam one(1), three(3);
  const std::vector<char> packed = ops::pack_tiles(tiles, "qkv", sources, one);
  simt::Memory memory;
  const testing::HostRuntime runtime(memory, {}, 1);
  std::vector<char> written(packed.size());
  ops::write_tiles(tiles, "qkv", sources, runtime, Device::cuda(0), written.data(), three, {});
  EXPECT_EQ(written, packed);
  int64_t first_row = 0;
  for (const test::Weights& part : parts) {
    for (int64_t r = 0; r < part.rows; ++r) {
      const int64_t band = tiles.band_of_row(first_row + r);
      for (int64_t t = 0; t < tiles.band_tiles; ++t) {
        const auto reader = reader_of(part.type);
        simt::Memory own;
        const char* const from = packed.data() + tiles.byte_of(band * tiles.band_tiles + t);
        const auto bytes = own.make("tile", std::vector<char>(from, from + tiles.part_of_band(band).tile_bytes));
        const auto y = own.make<float>("y", 16 * 128);
        if (r % 16 != 5) continue;
        simt::run(own, {.threads = 128}, [&] {
          reader({reinterpret_cast<const unsigned char*>(bytes.data()), 128, y.data()});
        });
        const auto in_band = static_cast<size_t>(first_row + r - tiles.first_row_of(band));
        for (size_t i = 0; i < 128; ++i)
          ASSERT_EQ(y[in_band * 128 + i],
                    static_cast<float>(part.values[static_cast<size_t>(r) * 256 + static_cast<size_t>(t) * 128 + i]));
      }
    }
    first_row += part.rows;
  }
}

// Panels of columns lie one behind the other, each packed as a matrix of those columns alone.
TEST(TiledWeights, ArePackedPanelByPanel) {
  WorkerTeam team(2);
  for (const WeightType type : kTypes) {
    const int64_t cols = 768, panels = 3, of_panel = cols / panels;
    const std::vector<test::Weights> weights{test::random_weights(type, 41, cols, 7)};
    TiledMatrix tiles = tile(form_of(cols, weights), 64);
    tiles.num_panels = panels;
    const std::vector<char> packed = ops::pack_tiles(tiles, "down", sources_of(weights), team);
    std::vector<char> expected;
    for (int64_t panel = 0; panel < panels; ++panel) {
      const WeightBlock& block = weight_block(type);
      const int64_t row_bytes = cols / block.inputs * block.bytes, bytes = row_bytes / panels;
      const ops::WeightSource own{type, 41, of_panel, [&](int64_t begin, int64_t end, void* to) {
                                    for (int64_t r = begin; r < end; ++r)
                                      std::memcpy(static_cast<char*>(to) + (r - begin) * bytes,
                                                  weights[0].bytes.data() + r * row_bytes + panel * bytes,
                                                  static_cast<size_t>(bytes));
                                  }};
      const MatrixForm form{.role = WeightRole::down, .layer = 0, .cols = of_panel, .parts = {{type, 41}}};
      const std::vector<char> part = ops::pack_tiles(tile(form, 64), "down", std::vector{own}, team);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(packed, expected) << weft::to_string(type);
  }
}

// What the CPU's walk makes of groups of 128, which no model file has.
TEST(TiledWeights, OfGroupsOf128AreWhatTheWalkMultiplies) {
  const test::Weights w = test::random_weights(WeightType::q4_g128, 3, 384, 5);
  std::vector<float> row(384);
  for (size_t r = 0; r < 3; ++r) {
    widen(WeightType::q4_g128, reinterpret_cast<const char*>(w.bytes.data()) + r * 198, 384, row.data());
    for (size_t i = 0; i < 384; ++i) ASSERT_EQ(row[i], static_cast<float>(w.values[r * 384 + i])) << r << ", " << i;
  }
}

TEST(TiledWeights, OfOtherTypesAreRefusedByName) {
  const auto refusal = [](WeightType type, int64_t tile_cols) -> std::string {
    try {
      const MatrixForm form{.role = WeightRole::down, .layer = 0, .cols = 256, .parts = {{type, 32}}};
      ops::check_tiles(tile(form, tile_cols), "down");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const WeightType type : kTypes) EXPECT_EQ(refusal(type, 64), "");
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::q5_0, WeightType::q4_k, WeightType::q6_k})
    EXPECT_EQ(refusal(type, 64),
              fmt::format("unsupported: down: required weights of type {0}; supported by fused kernels are BF16, Q8_0, "
                          "Q4_0, Q4_1 and Q4_G128; missing: {0}",
                          weft::to_string(type)));
  EXPECT_EQ(
      refusal(WeightType::q4_0, 32),
      "unsupported: down: required tiles of 32 columns of type Q4_0; supported are multiples of 64; missing: whole "
      "pieces of a tile");
}

}  // namespace
}  // namespace weft::decode::fused::tiled
