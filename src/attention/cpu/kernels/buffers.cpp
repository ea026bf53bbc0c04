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
  b.key_digits = kHasByteDot && args.compute_digits && !args.leaf->key;
  b.value_digits = kHasByteDot && args.compute_digits && !args.leaf->value;
  const int bits = b.direct ? bits_of(args.kv_element) : args.compute_bf16 ? 16 : 32;
  // Of latent rows half as much is held; packed, they get twice the room, as each tile is a pass over all of o.
  const int stored = args.v_is_k_prefix ? dqk / (b.latent ? 2 : 1) : dqk + dvo;
  b.tokens = tile_tokens(static_cast<long long>(stored) * bits / 8 * (b.direct ? heads : 1));
  b.ld_o = round_up(dvo, kPanel);
  if constexpr (kHasByteDot)
    if (b.value_digits) b.ld_o = value_columns(args.kv_element, dvo);
  b.ld_scores = b.direct ? kDirectLd : b.tokens;
  b.ld_by_token = round_up(b.group_rows, kLanes);

  const long long tokens = b.tokens, states = b.states;
  const int key_units = b.key_digits ? dqk / 4 : b.direct ? 0 : dqk, key_panels = b.key_digits ? b.tokens / kPanel : 1;
  const int value_units = b.value_digits ? b.tokens / 4 : b.direct ? 0 : b.tokens;
  const long long changed = args.leaf->key || args.leaf->value ? tokens : 0;
  Carver carver(base);
  b.seen = carver.take<Seen>(query_tokens);
  b.rows = carver.take<abi::ScoreRow>(states);
  b.query_vectors = carver.take<abi::VectorRow>(states);
  b.m = carver.take<float>(states);
  b.l = carver.take<float>(states);
  b.alpha = carver.take<float>(states);
  b.o = carver.take<float>(states * b.ld_o);
  b.query = carver.take<float>((b.direct ? b.group_rows : states) * dqk);
  b.direct_query = carver.take<float>(b.direct && !b.key_digits ? states * direct_query_size(dqk) : 0);
  b.query_digits = carver.take<unsigned>(b.key_digits ? states * kDigitLd : 0);
  b.query_scales = carver.take<float>(b.key_digits ? states : 0);
  b.query_sums = carver.take<int>(b.key_digits ? states : 0);
  b.prob_digits = carver.take<unsigned>(b.value_digits ? states * kDigitLd : 0);
  b.prob_scales = carver.take<float>(b.value_digits ? states : 0);
  b.prob_sums = carver.take<int>(b.value_digits ? states : 0);
  b.value_sums = carver.take<int>(b.value_digits && b.direct ? states * b.ld_o : 0);
  const long long scores = (b.direct ? states : b.group_rows) * b.ld_scores;
  b.scores = carver.take<float>(scores);
  b.probs = args.compute_bf16 ? carver.take<unsigned short>(scores) : nullptr;
  b.positions = carver.take<int>(tokens);
  const int packed_columns = b.latent ? round_up(dqk, kPanel) : static_cast<int>(b.ld_o);
  b.keys = carver.take<float>(b.latent || key_units == 0 ? 0 : key_panels * panel_stride(key_units));
  b.values = carver.take<float>(value_units > 0 ? packed_columns / kPanel * panel_stride(value_units) : 0);
  b.query_panels = carver.take<float>(b.latent ? round_up(b.group_rows, kPanel) / kPanel * panel_stride(dqk) : 0);
  b.by_token = carver.take<float>(b.latent ? tokens * b.ld_by_token : 0);
  const bool join = args.rope_dim > 0 || (b.latent && args.compute_bf16);
  const long long joined = join ? tokens * dqk * bits_of(args.kv_element) / 8 : 0;
  const bool scaled = args.scaling == Scaling::token;
  for (int i = 0; i < 2; ++i) {
    b.key_rows[i] = carver.take<const char*>(tokens);
    b.value_rows[i] = args.v_is_k_prefix ? b.key_rows[i] : carver.take<const char*>(tokens);
    b.joined[i] = join ? carver.take<char>(joined) : nullptr;
    for (const char**& rows : b.scale_rows[i]) rows = carver.take<const char*>(scaled ? tokens : 0);
    b.scales[i] = carver.take<float>(scaled ? tokens * heads : 0);
  }
  b.shown_rows = carver.take<const char*>(tokens);
  b.marks = carver.take<unsigned char>(tokens);
  b.non_finite = carver.take<unsigned char>(query_tokens > 1 ? heads * tokens : 0);
  b.shown = carver.take<unsigned char>(args.plan->bits_index.count > 0 ? tokens : 0);
  b.changed = carver.take<char>(changed * larger * (args.compute_bf16 ? 2 : 4));
  b.widened = carver.take<float>(changed > 0 && !args.compute_bf16 ? kHookTokens * larger : 0);
  b.changed_rows = carver.take<const char*>(changed);
  b.key_vectors = carver.take<abi::VectorRow>(changed);
  b.vector_scratch = carver.take<float>(round_up(larger, kLanes));
  b.bytes = carver.bytes();
  return b;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
