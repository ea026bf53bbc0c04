#include "ops/cuda/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "device/cuda/card.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/tiled_weights.h"

namespace weft::ops {
namespace {

constexpr int64_t kBlock = 32;            // weights that share a scale
constexpr int64_t kPiece = 16;            // bytes
constexpr int64_t kChunkBytes = 4 << 20;  // of the file that are packed before they are copied, about
constexpr int64_t kPlaneAlignment = 256, kTileCols = 64;

// The 16 bytes of nibbles of block b of 32: number(i) is that of weight i, of which the low four bits count.
template <class Number>
void put_nibbles(char* quants, int64_t b, const Number& number) {
  for (int i = 0; i < 16; ++i) quants[16 * b + i] = static_cast<char>((number(i) & 15) | (number(i + 16) & 15) << 4);
}

void pack_q5_0(const char* row, int64_t blocks, const PlanesOfRow& to) {
  const int64_t bytes = weight_block(WeightType::q5_0).bytes;
  for (int64_t b = 0; b < blocks; ++b, row += bytes) {
    uint32_t fifth, planes = 0;
    std::memcpy(&fifth, row + 2, sizeof fifth);
    for (int i = 0; i < 32; ++i) planes |= (fifth >> i & 1u) << (8 * (i % 4) + i / 4);
    std::memcpy(to.scales + 2 * b, row, 2);
    std::memcpy(to.high + 4 * b, &planes, 4);
    std::memcpy(to.quants + 16 * b, row + 6, 16);
  }
}

// A block of 256: d and the step of minima, 12 bytes with 8 scales and 8 minima of 6 bits, then for each 64 weights 32
// bytes whose low nibbles are the first 32.
void pack_q4_k(const char* row, int64_t blocks, const PlanesOfRow& to) {
  const int64_t bytes = weight_block(WeightType::q4_k).bytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const auto* block = reinterpret_cast<const uint8_t*>(row + b / 8 * bytes);
    const uint8_t* six = block + 4;
    const int64_t eighth = b % 8;
    if (eighth == 0) std::memcpy(to.supers + b / 8 * 4, block, 4);
    int scale, least;
    if (eighth < 4) {
      scale = six[eighth] & 63;
      least = six[eighth + 4] & 63;
    } else {
      scale = (six[eighth + 4] & 15) | six[eighth - 4] >> 6 << 4;
      least = six[eighth + 4] >> 4 | six[eighth] >> 6 << 4;
    }
    to.scales[2 * b] = static_cast<char>(scale);
    to.scales[2 * b + 1] = static_cast<char>(least);
    const uint8_t* nibbles = block + 16 + eighth / 2 * 32;
    put_nibbles(to.quants, b, [&](int i) { return nibbles[i] >> (eighth % 2 == 0 ? 0 : 4); });
  }
}

// A block of 256: 128 bytes of low nibbles, 64 bytes of upper bits, both in halves of 128 weights, 16 steps of 8 bits,
// d.
void pack_q6_k(const char* row, int64_t blocks, const PlanesOfRow& to) {
  const int64_t bytes = weight_block(WeightType::q6_k).bytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const auto* block = reinterpret_cast<const uint8_t*>(row + b / 8 * bytes);
    const int64_t half = b % 8 / 4, quarter = b % 4;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    if (b % 8 == 0) std::memcpy(to.supers + b / 8 * 2, block + 208, 2);
    std::memcpy(to.scales + 2 * b, block + 192 + b % 8 * 2, 2);
    put_nibbles(to.quants, b, [&](int i) { return low[i] >> (quarter < 2 ? 0 : 4); });
    std::array<uint32_t, 2> upper{};
    for (int i = 0; i < 32; ++i)
      upper[static_cast<size_t>(i / 16)] |= (high[i] >> 2 * quarter & 3u) << (8 * (i % 4) + 2 * (i / 4 % 4));
    std::memcpy(to.high + 8 * b, upper.data(), 8);
  }
}

// A block of 128: d, then 64 bytes whose low nibbles are the first 64. Four blocks of 32 with one scale, as q4_0.
void pack_q4_g128(const char* row, int64_t blocks, const PlanesOfRow& to) {
  const int64_t bytes = weight_block(WeightType::q4_g128).bytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const char* block = row + b / 4 * bytes;
    const auto* nibbles = reinterpret_cast<const uint8_t*>(block + 2 + b % 2 * kBlock);
    std::memcpy(to.scales + 2 * b, block, 2);
    put_nibbles(to.quants, b, [&](int i) { return nibbles[i] >> (b % 4 < 2 ? 0 : 4); });
  }
}

// Blocks whose integers lie behind their scales in the file.
void pack_plain(const char* row, int64_t blocks, int64_t scale_bytes, int64_t quant_bytes, const PlanesOfRow& to) {
  for (int64_t b = 0; b < blocks; ++b, row += scale_bytes + quant_bytes) {
    std::memcpy(to.scales + scale_bytes * b, row, static_cast<size_t>(scale_bytes));
    std::memcpy(to.quants + quant_bytes * b, row + scale_bytes, static_cast<size_t>(quant_bytes));
  }
}

struct Planes {
  char *quants, *high, *scales, *supers;
  int64_t bytes = 0;
};
// Planes of so many rows, one behind the other from `at` on.
Planes planes_at(char* at, WeightType type, int64_t rows, int64_t cols) {
  const PlaneBytes row = plane_bytes(type, cols);
  int64_t offset = 0;
  const auto take = [&](int64_t bytes) {
    char* plane = at + offset;
    offset += (bytes * rows + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
    return plane;
  };
  Planes planes{take(row.quants), take(row.high), take(row.scales), take(row.supers)};
  planes.bytes = offset;
  return planes;
}

// Rows of a source into planes on the card whose first of them is row `first`.
void load_source(cuda::Card& card, const WeightSource& source, const Planes& to, int64_t first, WorkerTeam& team) {
  const int64_t file_bytes = file_row_bytes(source.type, source.cols);
  const PlaneBytes bytes = plane_bytes(source.type, source.cols);
  const int64_t step = std::clamp<int64_t>(kChunkBytes / file_bytes, 1, source.rows);
  std::vector<char> file(static_cast<size_t>(step * file_bytes));
  std::vector<char> packed(static_cast<size_t>(planes_at(nullptr, source.type, step, source.cols).bytes));
  const Planes from = planes_at(packed.data(), source.type, step, source.cols);
  const int workers = team.num_workers();
  for (int64_t begin = 0; begin < source.rows; begin += step) {
    const int64_t count = std::min(step, source.rows - begin);
    team.run([&](int worker) {
      const int64_t own = count * worker / workers, own_end = count * (worker + 1) / workers;
      if (own == own_end) return;
      source.read(begin + own, begin + own_end, file.data() + own * file_bytes);
      for (int64_t r = own; r < own_end; ++r)
        pack_row(source.type, file.data() + r * file_bytes, source.cols,
                 {from.quants + r * bytes.quants, from.high + r * bytes.high, from.scales + r * bytes.scales,
                  from.supers + r * bytes.supers});
    });
    const auto copy = [&](char* plane, const char* of, int64_t row_bytes) {
      if (row_bytes > 0)
        cuda::copy_to_card(card, plane + (first + begin) * row_bytes, of, static_cast<size_t>(count * row_bytes),
                           nullptr);
    };
    copy(to.quants, from.quants, bytes.quants);
    copy(to.high, from.high, bytes.high);
    copy(to.scales, from.scales, bytes.scales);
    copy(to.supers, from.supers, bytes.supers);
    cuda::synchronize(card, nullptr);  // the next chunk takes the same memory
  }
}

// Rows and their types; where they lie is to be said.
CardMatrix form_rows(Device device, std::string_view name, std::span<const WeightSource> sources) {
  ensure(!sources.empty(), "{}: a matrix without sources", name);
  CardMatrix matrix{.device = device, .name = std::string(name), .cols = sources[0].cols};
  for (const WeightSource& source : sources) {
    check(source.rows >= 1 && source.cols == matrix.cols && source.cols % weight_block(source.type).inputs == 0,
          ErrorCode::invalid_shape,
          "weights of {} x {}; rows must be 1 or more, and cols those of the first, {}, and whole blocks of {}",
          source.rows, source.cols, matrix.cols, weight_block(source.type).inputs);
    if (matrix.typed_rows.empty() || matrix.typed_rows.back().type != source.type)
      matrix.typed_rows.push_back({.type = source.type, .first_row = matrix.rows});
    matrix.typed_rows.back().rows += source.rows;
    matrix.rows += source.rows;
  }
  return matrix;
}

// Products of warps take bf16 from sm_80 on.
bool multiplies_tiles(Device device) { return cuda::runtime().architecture(device) != "sm_75"; }

}  // namespace

int64_t file_row_bytes(WeightType type, int64_t cols) {
  const WeightBlock& block = weight_block(type);
  return cols / block.inputs * block.bytes;
}

PlaneBytes plane_bytes(WeightType type, int64_t cols) {
  const int64_t blocks = cols / kBlock, supers = blocks / 8;
  const auto floats = [&](int64_t bytes) { return (cols * bytes + kPiece - 1) / kPiece * kPiece; };
  switch (type) {
    case WeightType::f32: return {.quants = floats(4)};
    case WeightType::f16:
    case WeightType::bf16: return {.quants = floats(2)};
    case WeightType::q8_0: return {.quants = 32 * blocks, .scales = 2 * blocks};
    case WeightType::q5_0: return {.quants = 16 * blocks, .high = 4 * blocks, .scales = 2 * blocks};
    case WeightType::q4_0:
    case WeightType::q4_g128: return {.quants = 16 * blocks, .scales = 2 * blocks};
    case WeightType::q4_1: return {.quants = 16 * blocks, .scales = 4 * blocks};
    case WeightType::q4_k: return {.quants = 16 * blocks, .scales = 2 * blocks, .supers = 4 * supers};
    case WeightType::q6_k:
      return {.quants = 16 * blocks, .high = 8 * blocks, .scales = 2 * blocks, .supers = 2 * supers};
  }
  throw InternalError("a weight type without planes");
}

void pack_row(WeightType type, const char* row, int64_t cols, const PlanesOfRow& to) {
  const int64_t blocks = cols / kBlock;
  switch (type) {
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16: {
      const auto bytes = static_cast<size_t>(file_row_bytes(type, cols));
      std::memcpy(to.quants, row, bytes);
      std::memset(to.quants + bytes, 0, static_cast<size_t>(plane_bytes(type, cols).quants) - bytes);
      return;
    }
    case WeightType::q8_0: return pack_plain(row, blocks, 2, 32, to);
    case WeightType::q4_0: return pack_plain(row, blocks, 2, 16, to);
    case WeightType::q4_1: return pack_plain(row, blocks, 4, 16, to);
    case WeightType::q5_0: return pack_q5_0(row, blocks, to);
    case WeightType::q4_k: return pack_q4_k(row, blocks, to);
    case WeightType::q6_k: return pack_q6_k(row, blocks, to);
    case WeightType::q4_g128: return pack_q4_g128(row, blocks, to);
  }
}

CardMatrix form_planes(Device device, std::string_view name, std::span<const WeightSource> sources) {
  CardMatrix matrix = form_rows(device, name, sources);
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows)
    matrix.bytes += planes_at(nullptr, typed.type, typed.rows, matrix.cols).bytes;
  return matrix;
}

CardMatrix form_matrix(Device device, std::string_view name, std::span<const WeightSource> sources, TiledMatrix tiles) {
  CardMatrix matrix = form_rows(device, name, sources);
  check_tiles(tiles, name);
  ensure(tiles.rows == matrix.rows && tiles.cols == matrix.cols && tiles.parts.size() == matrix.typed_rows.size(),
         "{}: tiles of {} x {} for {} x {}", name, tiles.rows, tiles.cols, matrix.rows, matrix.cols);
  matrix.bytes = tiles.bytes;
  matrix.tiles = std::move(tiles);
  return matrix;
}

CardMatrix form_matrix(Device device, std::string_view name, std::span<const WeightSource> sources) {
  if (!multiplies_tiles(device) ||
      std::ranges::any_of(sources, [](const WeightSource& source) { return tile_piece(source.type).cols == 0; }))
    return form_planes(device, name, sources);
  const CardMatrix rows = form_rows(device, name, sources);
  std::vector<TypedRows> parts;
  for (const CardMatrix::TypedRows& typed : rows.typed_rows) parts.push_back({typed.type, typed.rows});
  return form_matrix(device, name, sources, tile(name, rows.cols, parts, kTileCols));
}

void load(CardMatrix& matrix, void* memory, std::span<const WeightSource> sources, WorkerTeam& team) {
  auto* at = static_cast<char*>(memory);
  if (matrix.is_tiled()) {
    const TiledMatrix& tiles = matrix.tiles;
    matrix.not_finite = write_tiles(tiles, matrix.name, sources, cuda::runtime(), matrix.device, at, team, {});
    cuda::synchronize(cuda::Card::at(matrix.device.index), nullptr);
    for (size_t i = 0; i < tiles.parts.size(); ++i) {
      const TiledMatrix::Part& part = tiles.parts[i];
      const int64_t of_tile = tiles.tile_cols / tile_piece(part.type).cols;
      matrix.typed_rows[i].tiles = {
          .data = reinterpret_cast<const unsigned char*>(at) + part.first_byte / tiles.num_panels,
          .panel_bytes = tiles.panel_bytes(),
          .panels = static_cast<int>(tiles.num_panels),
          .strip_pieces = static_cast<int>(tiles.strip_tiles() * of_tile)};
    }
    return;
  }
  const WeightSource* source = sources.data();
  for (CardMatrix::TypedRows& typed : matrix.typed_rows) {
    const Planes planes = planes_at(at, typed.type, typed.rows, matrix.cols);
    typed.planes = {planes.quants, planes.high, planes.scales, planes.supers};
    for (int64_t row = 0; row < typed.rows; row += source++->rows)
      load_source(cuda::Card::at(matrix.device.index), *source, planes, row, team);
    at += planes.bytes;
  }
}

CardMatrix load_matrix(CardMatrix form, std::span<const WeightSource> sources, WorkerTeam& team) {
  form.memory = Workspace(form.device, static_cast<size_t>(form.bytes));
  load(form, form.memory.data(), sources, team);
  return form;
}

CardMatrix load_matrix(Device device, std::span<const WeightSource> sources, WorkerTeam& team) {
  return load_matrix(form_matrix(device, "weights", sources), sources, team);
}

}  // namespace weft::ops
