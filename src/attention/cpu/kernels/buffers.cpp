// The scratch of a work item.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

namespace {

constexpr int kMinTokens = 32, kMaxTokens = kDirectTokens;
// Keys and values of a tile: it and the next stay in the second-level cache, of 1 MiB and more beside 512-bit vectors.
constexpr long long kTileBytes = kRegisters == 32 ? 256 << 10 : 128 << 10;

int tile_tokens(long long bytes_per_token) {
  int tokens = kMaxTokens;
  while (tokens > kMinTokens && tokens * bytes_per_token > kTileBytes) tokens /= 2;
  return tokens;
}

}  // namespace

Buffers lay_out(const AttendArgs& args, const Unit& unit, char* base) {
  Buffers b = {};
  const int query_tokens = unit.row_end - unit.row_begin, heads = unit.kv_head_end - unit.kv_head_begin;
  const int dqk = args.head_dim_qk, dvo = args.head_dim_vo, larger = max_of(dqk, dvo);
  b.direct = unit.tile_kind == TileKind::direct;
  b.streamed = b.direct || unit.tile_kind == TileKind::streamed;
  b.group_rows = query_tokens * args.group_size;
  b.states = b.group_rows * heads;
  b.latent = args.v_is_k_prefix && !b.direct && !args.leaf->key && !args.leaf->value;
  b.int8_keys = kHasByteDot && args.compute_int8 && !args.leaf->key;
  b.int8_values = kHasByteDot && args.compute_int8 && !args.leaf->value;
  const int bits = b.direct ? bits_of(args.kv_element) : args.compute_bf16 ? 16 : 32;
  // Of latent rows half as much is held; packed, they get twice the room, as each tile is a pass over all of o.
  const int stored = args.v_is_k_prefix ? dqk / (b.latent ? 2 : 1) : dqk + dvo;
  b.tokens = tile_tokens(static_cast<long long>(stored) * bits / 8 * (b.direct ? heads : 1));
  b.ld_o = round_up(dvo, kPanel);
  if constexpr (kHasByteDot)
    if (b.int8_values) b.ld_o = value_columns(args.kv_element, dvo);
  b.ld_scores = b.direct ? kDirectLd : b.tokens;
  b.ld_by_token = round_up(b.group_rows, kLanes);

  const long long tokens = b.tokens, states = b.states;
  const int key_words = b.int8_keys ? dqk / 4 : b.direct ? 0 : dqk, key_panels = b.int8_keys ? b.tokens / kPanel : 1;
  const int value_words = b.int8_values ? b.tokens / 4 : b.direct ? 0 : b.tokens;
  const long long transformed_tokens = args.leaf->key || args.leaf->value ? tokens : 0;
  Arena arena(base);
  b.seen = arena.allocate<Seen>(query_tokens);
  b.rows = arena.allocate<abi::ScoreRow>(states);
  b.query_vectors = arena.allocate<abi::VectorRow>(states);
  b.m = arena.allocate<float>(states);
  b.l = arena.allocate<float>(states);
  b.alpha = arena.allocate<float>(states);
  b.o = arena.allocate<float>(states * b.ld_o);
  b.query = arena.allocate<float>((b.direct ? b.group_rows : states) * dqk);
  b.direct_query = arena.allocate<float>(b.direct && !b.int8_keys ? states * direct_query_size(dqk) : 0);
  b.query_split = arena.allocate<unsigned>(b.int8_keys ? states * kSplitLd : 0);
  b.query_scales = arena.allocate<float>(b.int8_keys ? states : 0);
  b.query_sums = arena.allocate<int>(b.int8_keys ? states : 0);
  b.prob_split = arena.allocate<unsigned>(b.int8_values ? states * kSplitLd : 0);
  b.prob_scales = arena.allocate<float>(b.int8_values ? states : 0);
  b.prob_sums = arena.allocate<int>(b.int8_values ? states : 0);
  b.value_sums = arena.allocate<int>(b.int8_values && b.direct ? states * b.ld_o : 0);
  const long long scores = (b.direct ? states : b.group_rows) * b.ld_scores;
  b.scores = arena.allocate<float>(scores);
  b.probs = args.compute_bf16 ? arena.allocate<unsigned short>(scores) : nullptr;
  b.positions = arena.allocate<int>(tokens);
  const int packed_columns = b.latent ? round_up(dqk, kPanel) : static_cast<int>(b.ld_o);
  b.keys = arena.allocate<float>(b.latent || key_words == 0 ? 0 : key_panels * panel_stride(key_words));
  b.values = arena.allocate<float>(value_words > 0 ? packed_columns / kPanel * panel_stride(value_words) : 0);
  b.query_panels = arena.allocate<float>(b.latent ? round_up(b.group_rows, kPanel) / kPanel * panel_stride(dqk) : 0);
  b.by_token = arena.allocate<float>(b.latent ? tokens * b.ld_by_token : 0);
  const bool join = args.rope_dim > 0 || (b.latent && args.compute_bf16);
  const long long joined = join ? tokens * dqk * bits_of(args.kv_element) / 8 : 0;
  const bool scaled = args.scaling == Scaling::token;
  for (int i = 0; i < 2; ++i) {
    b.key_rows[i] = arena.allocate<const char*>(tokens);
    b.value_rows[i] = args.v_is_k_prefix ? b.key_rows[i] : arena.allocate<const char*>(tokens);
    b.joined[i] = join ? arena.allocate<char>(joined) : nullptr;
    for (const char**& rows : b.scale_rows[i]) rows = arena.allocate<const char*>(scaled ? tokens : 0);
    b.scales[i] = arena.allocate<float>(scaled ? tokens * heads : 0);
  }
  b.masked_rows = arena.allocate<const char*>(tokens);
  b.marks = arena.allocate<unsigned char>(tokens);
  b.non_finite = arena.allocate<unsigned char>(query_tokens > 1 ? heads * tokens : 0);
  b.visible = arena.allocate<unsigned char>(args.plan->bits_index.count > 0 ? tokens : 0);
  b.transformed = arena.allocate<char>(transformed_tokens * larger * (args.compute_bf16 ? 2 : 4));
  b.dequantised = arena.allocate<float>(transformed_tokens > 0 && !args.compute_bf16 ? kHookTokens * larger : 0);
  b.transformed_rows = arena.allocate<const char*>(transformed_tokens);
  b.key_vectors = arena.allocate<abi::VectorRow>(transformed_tokens);
  b.vector_scratch = arena.allocate<float>(round_up(larger, kLanes));
  b.bytes = arena.bytes();
  return b;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
