#include "ops/cuda/tiled_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace weft::ops {
namespace {

constexpr int64_t kPackedBytes = 32 << 20;  // that are packed before they are written, about
constexpr int64_t kFragmentCols = 16;

// How a quantised type lies: integers of one file byte or half of one, a scale for `group` columns, perhaps a least
// value.
struct IntegerForm {
  int64_t cols, group;
  bool has_bytes, has_least;

  int64_t integer_bytes() const { return kBandRows * cols / (has_bytes ? 1 : 2); }
  int64_t scale_words() const { return cols / group * (has_least ? 2 : 1); }  // of two rows
  int64_t bytes() const { return integer_bytes() + 32 * scale_words(); }
};
constexpr IntegerForm kQ8{64, 32, true, false}, kQ4{64, 32, false, false}, kQ4WithLeast{64, 32, false, true},
    kQ4Group128{128, 128, false, false};
const IntegerForm* integer_form(WeightType type) {
  switch (type) {
    case WeightType::q8_0: return &kQ8;
    case WeightType::q4_0: return &kQ4;
    case WeightType::q4_1: return &kQ4WithLeast;
    case WeightType::q4_g128: return &kQ4Group128;
    default: return nullptr;
  }
}

// Rows of a band in file layout, the missing ones left out.
struct BandRows {
  const char* data;
  int64_t row_bytes, count, cols;
};

// Lane 4 g + t of a fragment: pair `p` of columns of its 4, of row g or g + 8.
struct Place {
  int64_t row, col;
};
Place place_of(int64_t lane, int64_t half, int64_t pair) { return {lane / 4 + 8 * half, 4 * (lane % 4) + 2 * pair}; }

void pack_bf16(const BandRows& from, int64_t first_col, char* to) {
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t pair = 0; pair < 2; ++pair)
      for (int64_t half = 0; half < 2; ++half, to += 4) {
        const Place place = place_of(lane, half, pair);
        const int64_t col = first_col + place.col;
        const int64_t there = place.row < from.count ? std::clamp<int64_t>(from.cols - col, 0, 2) : 0;
        std::memset(to, 0, 4);
        if (there > 0)
          std::memcpy(to, from.data + place.row * from.row_bytes + 2 * col, static_cast<size_t>(2 * there));
      }
}

void read_integers(const IntegerForm& form, const WeightBlock& block, const char* file_block, uint8_t* to) {
  const char* const from = file_block + (form.has_least ? 4 : 2);
  if (form.has_bytes) {
    std::memcpy(to, from, static_cast<size_t>(block.inputs));
    return;
  }
  const int64_t half = block.inputs / 2;
  for (int64_t i = 0; i < half; ++i) {
    const auto two = static_cast<uint8_t>(from[i]);
    to[i] = two & 15;
    to[i + half] = two >> 4;
  }
}

// Integers of padding are 0, and so are its scales.
template <int64_t kCols>
void pack_integers(const IntegerForm& form, const WeightBlock& block, const BandRows& from, int64_t first_col,
                   char* to) {
  uint8_t integers[kBandRows][kCols] = {};
  uint16_t scales[kBandRows][4] = {};  // of each group: its scale, and its least value where it has one
  const int64_t kinds = form.has_least ? 2 : 1;
  for (int64_t row = 0; row < from.count; ++row)
    for (int64_t group = 0; group < kCols / form.group && first_col + group * form.group < from.cols; ++group) {
      const char* const file_block = from.data + row * from.row_bytes + (first_col / form.group + group) * block.bytes;
      std::memcpy(scales[row] + group * kinds, file_block, static_cast<size_t>(2 * kinds));
      read_integers(form, block, file_block, integers[row] + group * form.group);
    }
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t fragment = 0; fragment < kCols / kFragmentCols; ++fragment) {
      uint32_t words[2] = {};
      for (int64_t i = 0; i < 4; ++i) {  // a register of the product
        const int64_t half = i % 2, pair = i / 2;
        const Place place = place_of(lane, half, pair);
        const uint8_t* const two = integers[place.row] + fragment * kFragmentCols + place.col;
        if (form.has_bytes)
          words[pair] |= uint32_t{two[0]} << 8 * half | uint32_t{two[1]} << (16 + 8 * half);
        else
          words[0] |= uint32_t{two[0]} << 4 * i | uint32_t{two[1]} << (16 + 4 * i);
      }
      const int64_t count = form.has_bytes ? 2 : 1, first = fragment * count;  // of the lane's words, in runs of 4
      std::memcpy(to + first / 4 * 512 + 16 * lane + 4 * (first % 4), words, static_cast<size_t>(4 * count));
    }
  to += form.integer_bytes();
  for (int64_t g = 0; g < 8; ++g)
    for (int64_t i = 0; i < form.scale_words(); ++i)
      for (int64_t half = 0; half < 2; ++half, to += 2) std::memcpy(to, &scales[g + 8 * half][i], 2);
}

void pack_tile(WeightType type, const BandRows& from, int64_t first_col, int64_t tile_cols, char* to) {
  const TilePiece piece = tile_piece(type);
  for (int64_t col = first_col; col < first_col + tile_cols; col += piece.cols, to += piece.bytes)
    if (const IntegerForm* form = integer_form(type); form == nullptr)
      pack_bf16(from, col, to);
    else if (form->cols == 64)
      pack_integers<64>(*form, weight_block(type), from, col, to);
    else
      pack_integers<128>(*form, weight_block(type), from, col, to);
}

// A scale or a least value that is no finite number, the first one of the matrix; there is none where the row is the
// largest.
struct NotFinite {
  int64_t row = std::numeric_limits<int64_t>::max(), col = 0, kind = 0;
  uint16_t bits = 0;
  friend auto operator<=>(const NotFinite&, const NotFinite&) = default;

  std::string in_words(std::string_view name) const {
    if (row == NotFinite{}.row) return "";
    return fmt::format("{}, row {}, columns from {} on: a {} of fp16 bits {:#06x}, which is no finite number", name,
                       row, col, kind == 0 ? "scale" : "least value", bits);
  }
};

// Bands whose rows are read from the sources, and packed.
class BandPacker {
 public:
  BandPacker(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources)
      : tiles_(tiles), name_(name), sources_(sources) {
    check_tiles(tiles, name);
    for (const WeightSource& source : sources) {
      ensure(source.cols == tiles.cols, "{}: a source of {} columns, and not {}", name, source.cols, tiles.cols);
      first_row_.push_back(first_row_.back() + source.rows);
    }
    ensure(first_row_.back() == tiles.rows, "{}: sources of {} rows, and not {}", name, first_row_.back(), tiles.rows);
  }

  // All tiles of the band, from the left; `to` says where each goes.
  template <class To>
  void pack(int64_t band, std::vector<char>& rows, NotFinite& first_bad, const To& to) const {
    const TiledMatrix::Part& part = tiles_.part_of_band(band);
    const WeightBlock& block = weight_block(part.type);
    const int64_t first = tiles_.first_row_of(band), count = tiles_.rows_of(band);
    const int64_t row_bytes = tiles_.cols / block.inputs * block.bytes;
    rows.resize(static_cast<size_t>(kBandRows * row_bytes));
    read(part.type, first, first + count, row_bytes, rows.data());
    if (const IntegerForm* form = integer_form(part.type); form != nullptr)
      look_at_scales(*form, block, {rows.data(), row_bytes, count, tiles_.cols}, first, first_bad);
    for (int64_t tile = 0; tile < tiles_.band_tiles; ++tile)
      pack_tile(part.type, {rows.data(), row_bytes, count, tiles_.cols}, tile * tiles_.tile_cols, tiles_.tile_cols,
                to(tile));
  }

 private:
  // Integers times a scale that is no number are none either, whatever x is.
  void look_at_scales(const IntegerForm& form, const WeightBlock& block, const BandRows& from, int64_t first_row,
                      NotFinite& first) const {
    const int64_t kinds = form.has_least ? 2 : 1;
    for (int64_t row = 0; row < from.count; ++row)
      for (int64_t at = 0; at < from.row_bytes; at += block.bytes)
        for (int64_t kind = 0; kind < kinds; ++kind) {
          uint16_t scale = 0;
          std::memcpy(&scale, from.data + row * from.row_bytes + at + 2 * kind, sizeof scale);
          if ((scale & 0x7c00) == 0x7c00)
            first = std::min(first, {first_row + row, at / block.bytes * block.inputs, kind, scale});
        }
  }

  void read(WeightType type, int64_t begin, int64_t end, int64_t row_bytes, char* to) const {
    auto source = static_cast<size_t>(std::ranges::upper_bound(first_row_, begin) - first_row_.begin() - 1);
    for (; begin < end; ++source) {
      const WeightSource& from = sources_[source];
      ensure(from.type == type, "row {} of type {}, and not {}", begin, weft::to_string(from.type),
             weft::to_string(type));
      const int64_t stop = std::min(end, first_row_[source + 1]);
      if (stop > begin) from.read(begin - first_row_[source], stop - first_row_[source], to);
      to += (stop - begin) * row_bytes;
      begin = stop;
    }
  }

  const TiledMatrix& tiles_;
  const std::string_view name_;
  std::span<const WeightSource> sources_;
  std::vector<int64_t> first_row_{0};  // of each source, then of all
};

// Bands that are packed together: in each panel their tiles follow each other.
class Chunk {
 public:
  Chunk(const TiledMatrix& tiles, int64_t first_band) : tiles_(tiles), first_(first_band), end_(first_band + 1) {
    int64_t at = bytes_of(first_band);
    while (end_ < tiles.num_bands && at + bytes_of(end_) <= kPackedBytes) at += bytes_of(end_++);
    at = 0;
    for (int64_t panel = 0; panel < tiles.num_panels; ++panel) {
      at_.push_back(at);
      at += run(panel).second;
    }
    bytes_ = at;
  }
  int64_t first_band() const { return first_; }
  int64_t end_band() const { return end_; }
  int64_t bytes() const { return bytes_; }
  // Of the matrix's bytes: where those of the panel begin, and how many they are.
  std::pair<int64_t, int64_t> run(int64_t panel) const {
    const int64_t strip = tiles_.strip_tiles(), first = tiles_.tile_at(first_, panel * strip);
    const int64_t first_byte = tiles_.byte_of(first);
    return {first_byte, tiles_.byte_of(first + (end_ - first_) * strip) - first_byte};
  }
  // In the chunk's bytes, panel by panel.
  int64_t at(int64_t panel) const { return at_[static_cast<size_t>(panel)]; }
  int64_t place_of(int64_t band, int64_t in_band) const {
    const int64_t panel = in_band / tiles_.strip_tiles();
    return at(panel) + tiles_.byte_of(tiles_.tile_at(band, in_band)) - run(panel).first;
  }

 private:
  int64_t bytes_of(int64_t band) const { return tiles_.band_tiles * tiles_.part_of_band(band).tile_bytes; }

  const TiledMatrix& tiles_;
  int64_t first_, end_, bytes_ = 0;
  std::vector<int64_t> at_ = {};
};

// give(first byte of the matrix, bytes, how many), for runs of tiles of the line. Gives the scale that is not finite,
// in words.
template <class Give>
std::string for_runs(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources,
                     WorkerTeam& team, const Give& give) {
  const BandPacker packer(tiles, name, sources);
  std::vector<char> packed;
  std::vector<NotFinite> not_finite(static_cast<size_t>(team.num_workers()));
  for (int64_t band = 0; band < tiles.num_bands;) {
    const Chunk chunk(tiles, band);
    packed.resize(std::max(packed.size(), static_cast<size_t>(chunk.bytes())));
    const int64_t bands = chunk.end_band() - band, workers = team.num_workers();
    team.run([&](int worker) {
      std::vector<char> rows;
      for (int64_t b = band + bands * worker / workers; b < band + bands * (worker + 1) / workers; ++b)
        packer.pack(b, rows, not_finite[static_cast<size_t>(worker)],
                    [&](int64_t tile) { return packed.data() + chunk.place_of(b, tile); });
    });
    for (int64_t panel = 0; panel < tiles.num_panels; ++panel)
      give(chunk.run(panel).first, packed.data() + chunk.at(panel), chunk.run(panel).second);
    band = chunk.end_band();
  }
  return std::ranges::min(not_finite).in_words(name);
}

}  // namespace

TilePiece tile_piece(WeightType type) {
  if (type == WeightType::bf16) return {kFragmentCols, 2 * kBandRows * kFragmentCols};
  const IntegerForm* const form = integer_form(type);
  return form != nullptr ? TilePiece{form->cols, form->bytes()} : TilePiece{};
}

std::string_view tile_struct(WeightType type) {
  switch (type) {
    case WeightType::bf16: return "Bf16Tile";
    case WeightType::q8_0: return "Q8Tile";
    case WeightType::q4_0: return "Q4Tile";
    case WeightType::q4_1: return "Q4WithLeastTile";
    case WeightType::q4_g128: return "Q4Group128Tile";
    default: throw InternalError("a weight type without tiles");
  }
}

void check_tiles(const TiledMatrix& tiles, std::string_view name) {
  for (const TiledMatrix::Part& part : tiles.parts) {
    const TilePiece piece = tile_piece(part.type);
    check(
        piece.cols > 0, ErrorCode::unsupported,
        "{}: required weights of type {}; supported by fused kernels are BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; missing: "
        "{}",
        name, weft::to_string(part.type), weft::to_string(part.type));
    check(tiles.tile_cols % piece.cols == 0, ErrorCode::unsupported,
          "{}: required tiles of {} columns of type {}; supported are multiples of {}; missing: whole pieces of a tile",
          name, tiles.tile_cols, weft::to_string(part.type), piece.cols);
    ensure(part.tile_bytes == tiles.tile_cols / piece.cols * piece.bytes, "a tile of {} with {} bytes",
           weft::to_string(part.type), part.tile_bytes);
  }
}

std::string write_tiles(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources,
                        const cuda::Runtime& runtime, Device device, void* to, WorkerTeam& team, Stream stream) {
  return for_runs(tiles, name, sources, team, [&](int64_t first_byte, const char* packed, int64_t bytes) {
    const Bytes piece{packed, bytes};
    runtime.write(device, static_cast<char*>(to) + first_byte, {&piece, 1}, stream);
  });
}

std::vector<char> pack_tiles(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources,
                             WorkerTeam& team) {
  std::vector<char> all(static_cast<size_t>(tiles.bytes));
  for_runs(tiles, name, sources, team, [&](int64_t first_byte, const char* packed, int64_t bytes) {
    std::memcpy(all.data() + first_byte, packed, static_cast<size_t>(bytes));
  });
  return all;
}

}  // namespace weft::ops
