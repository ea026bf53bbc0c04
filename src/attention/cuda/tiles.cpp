// Which tiles kernels have: what fits shared memory and registers.
#include <algorithm>

#include "attention/cuda/shared_bytes.h"
#include "attention/cuda/text.h"
#include "attention/variant/text.h"
#include "base/check.h"

namespace weft::attention::cuda {
namespace {

// Shared memory of a multiprocessor and, of that, what one CTA may have. A kilobyte of each CTA's is the system's.
struct Memory {
  int of_multiprocessor, of_cta;
};
Memory memory_of(const std::string& architecture) {
  constexpr int kKilobyte = 1024;
  if (architecture == "sm_75") return {64 * kKilobyte, 64 * kKilobyte};
  if (architecture == "sm_80") return {164 * kKilobyte, 163 * kKilobyte};
  if (architecture == "sm_90a") return {228 * kKilobyte, 227 * kKilobyte};
  return {100 * kKilobyte, 99 * kKilobyte};
}

// What a CTA may have where two are to fit.
int half_of(const Memory& memory) { return memory.of_multiprocessor / 2 - 1024; }

constexpr int kThreads = 128, kSmall = 16;
// Fewer keys than the small tiles', which four warps share, can have.
constexpr int kKeys = 64, kFewKeys = 32;

bool fits(const AttentionSpec& spec, int rows, int stages, int bytes, int keys = kKeys) {
  return mma_shared_bytes(spec, rows, keys, stages) <= bytes;
}

int bytes_of(const AttentionSpec& spec, const MmaTiles& tiles, bool small) {
  const int stages = small ? tiles.stages_of_small : tiles.stages;
  int bytes = mma_shared_bytes(spec, kSmall, tiles.keys_of_small, stages);
  for (int rows = 64; !small && rows <= tiles.most_rows; rows *= 2)
    bytes = std::max(bytes, mma_shared_bytes(spec, rows, tiles.keys, stages));
  return bytes;
}

}  // namespace

PlainTile plain_tile(const AttentionSpec& spec) {
  const int most = std::max(spec.head_dim_qk, spec.head_dim_vo);
  return {.rows = most <= 256 ? 16 : 8, .keys = most <= 128 ? 32 : most <= 256 ? 16 : 8, .threads = kThreads};
}

std::optional<DType> mma_type(const AttentionSpec& spec, const std::string& architecture) {
  if (spec.loader == Loader::elements) return {};
  const DType type = spec.q_dtype;
  const bool has_products = type == DType::fp16 || (type == DType::bf16 && architecture != "sm_75");
  if (!has_products || spec.kv_dtype != type) return {};
  // Of fp16, probabilities without softmax may be too large.
  if (type == DType::fp16 && !spec.variant.use_softmax) return {};
  // A lane keeps an eighth of 16 outputs in registers.
  if (spec.kv_form == KvForm::latent || spec.head_dim_vo > 256 || spec.head_dim_qk > 256) return {};
  if (names_hook(spec.variant, {"value_transform"})) return {};
  if (!fits(spec, kSmall, 2, memory_of(architecture).of_cta)) return {};
  return type;
}

MmaTiles mma_tiles(const AttentionSpec& spec, const std::string& architecture) {
  const Memory memory = memory_of(architecture);
  const int half = half_of(memory);
  MmaTiles tiles{.keys_of_small = kKeys,
                 .keys = kKeys,
                 .threads = kThreads,
                 .stages_of_small = 2,
                 .stages = 2,
                 .most_rows = kSmall};
  // A tile costs a warp some time whatever it has: of short rows it has more, so that memory is what binds.
  const bool is_short = spec.head_dim_qk <= 64 && spec.head_dim_vo <= 64;
  AttentionSpec paged = spec;  // every form has the same tiles: the same keys make the same bits in each
  paged.kv_form = KvForm::paged;
  if (is_short && fits(paged, kSmall, 3, half, 2 * kKeys)) tiles.keys_of_small = 2 * kKeys;
  for (const int stages : {3, 4})
    if (fits(spec, kSmall, stages, half, tiles.keys_of_small)) tiles.stages_of_small = stages;
  for (const int rows : {64, 128})
    if (fits(spec, rows, tiles.stages, memory.of_cta) && (rows == 64 || spec.head_dim_vo <= 128))
      tiles.most_rows = rows;
  // Two CTAs hide each other's waits: fewer keys where that makes room for the second.
  MmaTiles narrow = tiles;
  narrow.keys = kFewKeys;
  if (bytes_of(paged, tiles, false) > half && bytes_of(paged, narrow, false) <= half) return narrow;
  return tiles;
}

int shared_bytes(const AttentionSpec& spec, const std::string& architecture, Path path) {
  if (path == Path::plain) return plain_shared_bytes(spec, plain_tile(spec));
  return bytes_of(spec, mma_tiles(spec, architecture), path == Path::small_tiles);
}

int resident_ctas(const AttentionSpec& spec, const std::string& architecture, Path path) {
  return shared_bytes(spec, architecture, path) <= half_of(memory_of(architecture)) ? 2 : 1;
}

}  // namespace weft::attention::cuda
