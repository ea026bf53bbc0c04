// The operators around attention: page append, absorbed weights, products, RoPE, norms, gates, caps, sampling.
// All check their arguments first, run on the stream, and accept fp32 unless stated. Page append, products, RoPE,
// norms, gates and caps take tensors of the CPU or, all of them, of one card; there they return at once. The others
// take the CPU's. A tensor that is written may have gaps and its axes in any order, but each stride steps over all that
// the smaller ones reach.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/attention.h"
#include "weft/device.h"
#include "weft/tensor.h"

namespace weft {

// Writes new keys and values into their pages: k, v [nnz, num_kv_heads, dim] hold, request by request
// (append_indptr [batch + 1]), the last append_indptr[r + 1] - append_indptr[r] tokens of request r's table.
// Converts to the cache's dtype (fp32, fp16, bf16, fp8 as it is). Indices are checked before anything is written. A
// latent pair is written so too: ckv as k and kpe as v of one head, the caches viewed as [pages, page_size, 1, dim].
void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, Stream stream = {});
// Appends to a cache with scales (fp8, int8, int4), rounding to nearest. token: a token's and head's scale is its
// largest magnitude by the type's largest number (int8 127, int4 7, e4m3 448, e5m2 57344), 0 where that magnitude is
// below 1e-30, NaN where an element is not finite; it is written too. token_group: the largest of a group's tokens so
// far; when a later token outgrows it, those before it are rounded once more (the group is page_size by the scales'
// extent). tensor, head: the scales are given, above 0, and what is too large for them becomes the largest number.
void append_paged_kv(const TensorView& k, const TensorView& v, std::span<const int32_t> append_indptr,
                     const PageTableView& pages, Layout layout, const KvCache& cache, KvScales kv_scales,
                     Stream stream = {});

// Appends on a card, row r to page places[r, 0], slot places[r, 1] of the cache: int32 [nnz, 2] beside k and v
// (AttentionKernel::locate_rows writes them). It reads nothing of the host, and may be captured. token_group: rows of a
// group follow each other. A place outside of the cache is clamped, and the next Stream::synchronize() throws
// Error(invalid_page). Throws Error(unsupported) on a CPU.
void append_paged_kv(const TensorView& k, const TensorView& v, const TensorView& places, Layout layout,
                     const KvCache& cache, KvScales kv_scales = KvScales::none, Stream stream = {});

// Numbers of 8 and 4 bits: x ~ scale * q. x [rows, heads, dim] or [rows, dim] fp32; q of the same shape in fp8_e4m3,
// fp8_e5m2, int8 or int4, its rows whole bytes; scales fp32 of the same rank, [1 or a divisor of rows, 1 or heads, 1]:
// each spans as many rows and heads as go to it. A scale is the largest magnitude by the type's largest number, as in
// append_paged_kv; quantize writes it.
void quantize(const TensorView& x, const TensorView& q, const TensorView& scales, Stream stream = {});
void dequantize(const TensorView& q, const TensorView& scales, const TensorView& x, Stream stream = {});

// MLA: the up-projections of a layer folded into those before and after attention, once a model, so that attention runs
// over latent rows (KvForm::latent; DeepSeek-V2, section 2.1). All fp32, last axis contiguous, sums in double.
// w_uq [heads, nope_dim, q_dim], w_uk [heads, nope_dim, kv_lora_rank] -> w_uq_uk [heads, kv_lora_rank, q_dim]: what
// w_uq_uk makes of a query's input has with a latent row the product that w_uq's and w_uk's have. The rotated part of a
// query is projected as before and stands behind the kv_lora_rank others.
void absorb_query_weights(const TensorView& w_uq, const TensorView& w_uk, const TensorView& w_uq_uk,
                          Stream stream = {});
// w_uv [heads, v_dim, kv_lora_rank], w_o [hidden, heads, v_dim] -> w_uv_o [hidden, heads, kv_lora_rank]: from the
// attention of latent rows to the layer's output.
void absorb_output_weights(const TensorView& w_uv, const TensorView& w_o, const TensorView& w_uv_o, Stream stream = {});

// Rotary position embedding. adjacent: pairs (2i, 2i + 1); halves: pairs (i, i + rotary_dim / 2).
enum class RopePairs : uint8_t { adjacent, halves };
std::string_view to_string(RopePairs pairs);
// llama3: by a pair's wavelength (Llama 3.1 report, section 5). yarn: by a pair's index (YaRN, section 3.2).
enum class RopeScaling : uint8_t { llama3, yarn };
std::string_view to_string(RopeScaling scaling);
struct RopeParams {
  RopePairs pairs = RopePairs::adjacent;
  int rotary_dim = 0;  // 0: the whole head
  float theta = 10000.f;
  float linear_scale = 1.f;  // positions are divided by it
  // How frequencies are lowered for contexts `factor` times as long as the original; nothing where factor is 1. Any
  // other factor needs the original context's number of positions.
  RopeScaling scaling = RopeScaling::llama3;
  float factor = 1.f;
  int original_context = 0;
  float low_freq_factor = 1.f, high_freq_factor = 4.f;  // llama3: turns within the original context
  float beta_fast = 32.f, beta_slow = 1.f;              // yarn: the same
  float attention_factor = 1.f;                         // cos and sin are multiplied by it
  std::vector<float> divisors = {};  // [rotary_dim / 2], of each pair's frequency, beside any scaling; empty: none
};
// In place on x [rows, heads, dim]; positions [rows]. Throws Error(invalid_argument) for params that are not finite or
// out of range.
void apply_rope(const TensorView& x, std::span<const int32_t> positions, const RopeParams& params, Stream stream = {});

// In place on x, by positions int32 [rows] that lie beside it on a card (AttentionKernel::locate_rows writes them): it
// may be captured. Throws Error(unsupported) on a CPU.
void apply_rope(const TensorView& x, const TensorView& positions, const RopeParams& params, Stream stream = {});

struct MatmulOptions {
  bool add = false;   // c += a b
  bool tf32 = false;  // on a card, a and b are rounded to 11 bits of mantissa first
  // On a card, memory in which CTAs share the sums of one element: a long `inner` beside few elements of c is slow
  // without. 32 MiB are what the library asks for; one product at a time. A graph that was captured keeps its address.
  const Workspace* workspace = nullptr;
};
// c = a b. a [rows, inner], b [inner, cols], c [rows, cols], fp32, on a card also all three bf16. A factor may be given
// as its transpose: a view whose rows lie next to each other and whose columns have no gaps. c overlaps neither. Sums
// are fp32; a card multiplies by cuBLASLt, and without it throws Error(unsupported). May be captured.
void matmul(const TensorView& a, const TensorView& b, const TensorView& c, MatmulOptions options = {},
            Stream stream = {});

// y = x / sqrt(mean(x^2) + eps) * weight. x, y [rows, dim] or [rows, heads, dim], weight [dim]. y may be x.
void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& y, Stream stream = {});
// residual += x; y = rms_norm(residual).
void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& y, Stream stream = {});
// y = silu(gate) * up, silu(x) = x / (1 + exp(-x)). All [rows, dim].
void silu_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream = {});
// y = gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). All [rows, dim].
void gelu_tanh_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream = {});
// x = cap * tanh(x / cap), in place on x [rows, dim]; inf is no cap. Throws Error(invalid_argument) unless cap > 0.
void soft_cap(const TensorView& x, float cap, Stream stream = {});

// Logits processors: they change one row of logits [vocab] in place before a token is drawn, in whatever order they are
// called. A token that is ruled out has the logit -inf; finite changes keep finite logits finite, at most the largest
// number of their sign.

// Constrained decoding: token i stays allowed iff bit i % 32 of mask[i / 32] is set, as grammar engines give it;
// ceil(vocab / 32) words. Throws Error(invalid_shape), and Error(invalid_argument) when no logit above -inf would be
// left; then the logits are as they were.
void apply_token_mask(std::span<float> logits, std::span<const uint32_t> mask);
// logits[id] += bias of each pair; -inf rules a token out, whatever its logit. Throws
// Error(invalid_token | invalid_argument) before the first change.
void apply_logit_bias(std::span<float> logits, std::span<const std::pair<int32_t, float>> bias);
// Against saying the same again. repetition divides positive and multiplies negative logits of every token that prompt
// or output holds (CTRL, section 4.1); presence is subtracted from those in the output, frequency once for each time.
struct Penalties {
  float repetition = 1.f;  // above 0; 1: off
  float presence = 0.f, frequency = 0.f;
};
// Throws Error(invalid_token | invalid_argument) before the first change.
void apply_penalties(std::span<float> logits, const Penalties& penalties, std::span<const int32_t> prompt,
                     std::span<const int32_t> output);

// Whether top_p is a share of what top_k left, or of all tokens.
enum class FilterOrder : uint8_t { top_k_first, joint };
std::string_view to_string(FilterOrder order);

// How the next token is drawn. temperature 0 is greedy. Filters apply in the order top_k, top_p, min_p, to the
// softmax of logits / temperature; the least of equal ids wins a tie. In the softmax, and in log-probabilities, logits
// of inf have all the mass in equal parts, and -inf and NaN have none: neither is ever drawn. Nor is a token that is
// less probable than the first by a factor of 1e-9 (e^-20.75): weights are integers, 2^30 of the most probable one.
struct SamplingParams {
  float temperature = 1.f;
  int top_k = 0;  // 0: off
  float top_p = 1.f;
  float min_p = 0.f;
  FilterOrder filter_order = FilterOrder::top_k_first;
};
// Where random numbers come from: number `position` of a seed's (Philox4x32-10 with the seed as its key and the
// position as its counter). A draw takes one number, and moves the position by 1; a greedy one takes none.
struct Philox {
  uint64_t seed = 0, position = 0;
  friend bool operator==(const Philox&, const Philox&) = default;
};
// All that decides the token behind a row of logits. The logits change first, in this order, each by fp32 operations
// that are the same on every device: repetition, presence and frequency of what prompt and output hold; biases, those
// of one token added up before; what is ruled out, and what the mask leaves out (apply_token_mask), becomes -inf.
struct TokenDraw {
  SamplingParams params = {};
  Philox random = {};  // whose number is taken
  Penalties penalties = {};
  std::span<const int32_t> prompt = {}, output = {};
  std::span<const std::pair<int32_t, float>> bias = {};
  std::span<const int32_t> ruled_out = {};  // ids
  std::span<const uint32_t> mask = {};      // empty: all may be drawn
};
// Draws from one row of logits [vocab]. The same params, logits, seed and position give the same id everywhere.
// Throws Error(invalid_argument) for params out of range, and for logits that are all -inf or NaN.
int32_t sample(std::span<const float> logits, const SamplingParams& params, Philox& random);
// One draw a row of logits [rows, vocab] fp32, of the CPU or a card: row i by params[i] and random[i], so that a row's
// token depends on nothing else in the batch, nor on where it lies. Throws like sample, and then no position has moved.
std::vector<int32_t> sample_rows(const TensorView& logits, std::span<const SamplingParams> params,
                                 std::span<Philox> random, Stream stream = {});
// One draw a row into ids int32 [rows] beside the logits: a card's stay there, and nothing waits for them. A row of all
// -inf or NaN gets -1 and, as the others, moves its position; the CPU throws behind the last row, a card by the next
// Stream::synchronize(), Error(invalid_argument) both.
void sample_rows(const TensorView& logits, std::span<const SamplingParams> params, std::span<Philox> random,
                 const TensorView& ids, Stream stream = {});
// Draws from rows of probabilities, whose filters and random numbers are arrays on the same device. Rows need not sum
// to 1: each token is drawn by its share of what filters leave. Those that are less probable than the first by a factor
// of 2^-30 are never drawn. A filter keeps all tokens that equal the last one it keeps.
struct ProbabilityDraws {
  TensorView probs;       // [rows, vocab] fp32
  TensorView top_k = {};  // int32 [rows]: of the most probable tokens; outside of 1 to vocab - 1, or none: off
  TensorView top_p = {};  // fp32 [rows]: tokens with less than top_p above them; 1 and more, or none: off
  TensorView min_p = {};  // fp32 [rows]: tokens with at least min_p of the largest probability; none: off
  // Whether top_p is a part of what top_k left, or is compared with probabilities as they are.
  FilterOrder filter_order = FilterOrder::top_k_first;
  TensorView rows = {};  // int32 [draws]: which row of probs each draw is of; none: a draw of each row
  TensorView bits;       // int64 [draws]: random bits, all 64 of which count
  TensorView ids;        // int32 [draws], written; -1: the row has a NaN or inf, nothing above 0, or is none of probs
};
// The same rows, filters and bits give the same ids on every device, whatever else is drawn. A card's ids are there
// when the stream's work is; nothing is uploaded, and the call may be captured. A top_p of NaN counts as 1, a min_p of
// NaN as 0, and one above 1 as 1. Throws for arrays that do not fit each other.
void sample_probabilities(const ProbabilityDraws& draws, Stream stream = {});
// Natural log-softmax of one token, in double.
double log_probability(std::span<const float> logits, int32_t token);
// The k most probable tokens, most probable first, with their log-probabilities; fewer where fewer are possible.
std::vector<std::pair<int32_t, double>> top_log_probabilities(std::span<const float> logits, int k);

}  // namespace weft
