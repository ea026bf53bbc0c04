// What lies in a CTA's shared memory, and how much that is: for host and kernel alike. A kernel holds the size of its
// struct against what is said here.
#pragma once

#include "attention/abi.h"

namespace weft::attention::cuda {

// The positions that a query token sees: [lower[0], upper[0]) and [lower[1], upper[1]); an empty one is [0, 0).
struct Visible {
  int lower[2], upper[2];
  constexpr bool holds(int pos) const {
    return (pos >= lower[0] && pos < upper[0]) || (pos >= lower[1] && pos < upper[1]);
  }
};

// One fused row: a query token and a query head.
struct FusedRow {
  int q_row, request, idx, pos;
  int head;  // query head
  int kv_head;
  int qo_len, kv_len;
  int of_block;  // its place among the rows of its page list, which is its row of the bits of blocks
  Visible visible;
};

// What the rows of a tile see together, by intervals: a key that one of them sees lies in [low, high) of either
// interval, and every row sees all of [all_low, all_high).
struct VisibleRange {
  int low[2], high[2], all_low[2], all_high[2];
  constexpr bool touches(int begin, int end) const {
    return (low[0] < end && high[0] > begin) || (low[1] < end && high[1] > begin);
  }
  // By some row each, by the same interval.
  constexpr bool is_seen(int begin, int end) const {
    return (low[0] <= begin && end <= high[0]) || (low[1] <= begin && end <= high[1]);
  }
  // Without a branch.
  constexpr bool holds(int pos) const {
    return (static_cast<int>(low[0] <= pos) & static_cast<int>(pos < high[0])) +
               (static_cast<int>(low[1] <= pos) & static_cast<int>(pos < high[1])) !=
           0;
  }
  constexpr bool is_seen_by_all(int begin, int end) const {
    return (all_low[0] <= begin && end <= all_high[0]) || (all_low[1] <= begin && end <= all_high[1]);
  }
};

// Which tiles of an item's keys are multiplied (walk.h).
struct WalkOfTiles {
  int begin, end, num_tiles;
  int gap_tile, gap;  // from this tile on they lie so many tokens further: between two intervals nobody sees a key
};

// Where an item's tokens lie (Tokens in item.h).
struct TokensOfItem {
  const int* ids;  // of pages
  int tokens_a_page, last_id;
  unsigned reciprocal;               // of tokens_a_page
  long long first_page, first_slot;  // without page ids: of token 0
};

// Where a token's key and value lie; of blocks also its position, and the bits that say which rows see it.
template <bool kBlockSparse>
struct alignas(16) Source {
  const char *k, *v;
};
template <>
struct alignas(16) Source<true> {
  const char *k, *v;
  long long bits;
  int pos;
};

// A key of a list of blocks, for those who make logits: its position, and where the bits begin that say which rows see
// it, -1 where every row does.
struct alignas(16) ListedKey {
  long long bits;
  int pos;
};
// A tile of them: bits of each 32 keys that some row does not see, or that lie where no row sees any.
template <int kKeys>
struct ListedTile {
  unsigned not_by_all[4], by_none[4];
  ListedKey keys[kKeys];
};

// What a key's score and a value's probability are multiplied by.
struct Scales {
  float of_key, of_value;
};

// A token of the plain family's tile.
struct PlainToken {
  const char *k, *v, *rope;
  float k_scale, v_scale;
  int pos;
  long long bits;
};

// Bytes of members that follow each other as those of a struct do.
class MemberBytes {
 public:
  template <class T>
  constexpr MemberBytes& add(int count = 1, int alignment = alignof(T)) {
    alignment_ = alignment > alignment_ ? alignment : alignment_;
    bytes_ = up(bytes_, alignment) + count * static_cast<int>(sizeof(T));
    return *this;
  }
  // Of the struct.
  constexpr int total() const { return up(bytes_, alignment_); }

 private:
  static constexpr int up(int bytes, int to) { return (bytes + to - 1) / to * to; }
  int bytes_ = 0, alignment_ = 1;
};

// A tile of rows and keys of a kernel.
struct TileSizes {
  int dim_qk, dim_vo, threads, rows, keys;
  int stages;   // from here on of products alone
  int kv_bits;  // of a number of keys and values
  int scales;   // of the tokens on their way, or one
  bool is_block_sparse, by_warpgroup;

  constexpr int most_dim() const { return dim_qk > dim_vo ? dim_qk : dim_vo; }
};

// Scratch, with which each struct begins (merge.h).
constexpr MemberBytes& add_scratch(MemberBytes& to, int threads, int vector_dim) {
  return to.add<PlanHeader>(1, 16)
      .add<ItemRecord>(2)
      .add<float>(threads / 32 * vector_dim, 16)
      .add<int>((threads + 3) / 4 * 4);
}

// Plain::Shared.
constexpr int plain_shared_bytes(const TileSizes& of) {
  MemberBytes bytes;
  return add_scratch(bytes, of.threads, of.most_dim())
      .add<float>(of.rows * of.dim_qk, 16)
      .add<float>(of.keys * (of.most_dim() + 4), 16)
      .add<float>(of.keys * (of.rows + 4), 16)
      .add<float>(4 * of.rows)
      .add<FusedRow>(of.rows)
      .add<VisibleRange>()
      .add<PlainToken>(of.keys)
      .total();
}

// Products take keys and values 32 bytes at a time.
constexpr int numbers_of_piece(int bits) { return 256 / bits; }

// mma::Shape::Shared: four warps share the rows where these are 16, else each has its own.
constexpr int products_shared_bytes(const TileSizes& of) {
  const int warps = of.threads / 32, sharing = of.rows == 16 ? warps : 1;
  const int piece = numbers_of_piece(of.kv_bits);
  const int qk = (of.dim_qk + piece - 1) / piece * piece, vo = (of.dim_vo + piece - 1) / piece * piece;
  const int tiles = 2 * of.rows * qk + of.stages * of.keys * (qk + vo) * of.kv_bits / 8;
  const int out = 4 * sharing * of.rows * (vo + 4);
  const int sources = (of.stages + 1) * of.keys;
  MemberBytes bytes;
  add_scratch(bytes, of.threads, of.most_dim())
      .add<FusedRow>(of.rows)
      .add<VisibleRange>()
      .add<WalkOfTiles>()
      .add<TokensOfItem>()
      .add<float>((1 + 2 * sharing) * of.rows)
      .add<int>(warps)
      .add<int>();
  if (of.is_block_sparse)
    bytes.add<Source<true>>(sources);
  else
    bytes.add<Source<false>>(sources);
  bytes.add<Scales>(of.scales);
  return bytes.add<unsigned char>(tiles > out ? tiles : out, of.by_warpgroup ? 1024 : 128).total();
}

// merge_apart.h: threads of a CTA, and what lies in its shared memory.
inline constexpr int kMergeThreads = 256;
inline constexpr int kMergeSharedBytes =
    (MemberBytes().add<PlanHeader>(1, 16).total() + 4 * (2 * kMergeThreads + kMergeThreads / 16) + 15) / 16 * 16;

// S::kVectorDim of kernels without hooks of vectors.
inline constexpr int kDimWithoutHooks = 4;

// latent::Shape::Shared, and what the shape is made of: two warpgroups multiply, and a third loads.
inline constexpr int kLatentRows = 64, kLatentKeys = 64, kLatentStages = 2, kLatentThreads = 384;
constexpr int latent_shared_bytes(int dim_qk) {
  MemberBytes bytes;
  return add_scratch(bytes, kLatentThreads, kDimWithoutHooks)
      .add<FusedRow>(kLatentRows)
      .add<VisibleRange>()
      .add<WalkOfTiles>()
      .add<TokensOfItem>()
      .add<float>(4 * kLatentRows)
      .add<int>(8)
      .add<Source<false>>(kLatentKeys)
      .add<unsigned long long>(1 + 4 * kLatentStages)
      .add<unsigned char>(2 * dim_qk * (kLatentRows + kLatentStages * kLatentKeys), 1024)
      .total();
}

// Tiles of a producer begin at multiples of so many tokens of a page list, as items do that do not begin a unit: boxes
// of so many, or of a share of them, lie in one page.
inline constexpr int kProducerGranule = 64;
// Tiles whose rows are known: keys come a tile ahead of values, and the tile behind them is looked up meanwhile.
inline constexpr int kSourcesOfProducer = 3;
// Tiles whose positions, of lists of blocks, and tokens' scales are known: one more, whose logits are made meanwhile.
inline constexpr int kTilesOfLogits = 4;

// Warpgroups of a producer that multiply 64 rows each.
inline constexpr int kProducerGroups = 2;
// Registers of a producer's threads: those of all of them are what a CTA's threads begin with. Loaders that change
// what they bring have more.
struct ProducerRegisters {
  int of_loaders, of_multipliers;
};
constexpr ProducerRegisters producer_registers(bool converts, bool has_vector_hooks) {
  if (has_vector_hooks) return ProducerRegisters{104, 200};
  return converts ? ProducerRegisters{88, 208} : ProducerRegisters{72, 216};
}

// Queries or keys that a producer's loaders change at a time, by eight lanes each: a warp has four, in banks of their
// own.
inline constexpr int kVectorsOfLoaders = 16, kPadOfVectors = 8;

// producer::Shape::Shared.
constexpr int producer_shared_bytes(const TileSizes& of, int query_stages, bool gathers, bool has_vector_hooks) {
  const int qk = (of.dim_qk + 15) / 16 * 16, vo = (of.dim_vo + 15) / 16 * 16;
  MemberBytes job, bytes;
  job.add<ItemRecord>()
      .add<int>(7)
      .add<Scales>()
      .add<FusedRow>(of.rows)
      .add<VisibleRange>()
      .add<WalkOfTiles>()
      .add<TokensOfItem>();
  return add_scratch(bytes, of.threads, of.most_dim())
      .add<unsigned char>(2 * job.total(), 16)
      .add<unsigned long long>(2 * (2 + query_stages + 2 * of.stages) + 1)
      .add<Source<false>>(gathers ? kSourcesOfProducer * of.keys : 1)
      .add<ListedKey>(of.is_block_sparse ? kTilesOfLogits * (2 + of.keys) : 3)
      .add<Scales>(of.scales)
      .add<float>(has_vector_hooks ? kVectorsOfLoaders * (of.dim_qk + kPadOfVectors) : kDimWithoutHooks, 16)
      .add<unsigned char>(2 * (query_stages * of.rows * qk + of.stages * of.keys * (qk + vo)), 1024)
      .total();
}

}  // namespace weft::attention::cuda
