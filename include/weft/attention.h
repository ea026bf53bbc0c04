// Attention over any KV cache: spec -> kernel -> plan -> run.
//
//   AttentionSpec spec{.q_dtype = DType::bf16, .kv_dtype = DType::bf16, .o_dtype = DType::bf16,
//                      .head_dim_qk = 128, .head_dim_vo = 128, .mask = Mask::causal};
//   AttentionKernel kernel = build(spec, Device::cpu());
//   Plan plan = kernel.plan({.num_qo_heads = 32, .num_kv_heads = 8, .qo_indptr = qo_indptr,
//                            .pages = pages.view(requests)});                 // once a step
//   Workspace ws(Device::cpu(), plan.workspace_bytes());
//   plan.upload(ws);
//   kernel.run(ws, {.q = q, .kv = {k, v}, .o = o, .lse = lse});               // once a layer
//
// An attention call computes a state (o, lse): o [nnz_qo, num_qo_heads, head_dim_vo] and
// lse [nnz_qo, num_qo_heads] fp32, the natural log of the sum of exp of the scaled and transformed
// logits. The empty state is o = 0, lse = -inf. States over parts of the keys merge into the state
// over all of them (merge_states). Without softmax the state is o alone, and merging adds.
//
// A kernel, plan or page table that was moved from may be destroyed and assigned to; all else throws
// Error(invalid_argument).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/device.h"
#include "weft/error.h"
#include "weft/tensor.h"

namespace weft {

// ---------------------------------------------------------------- spec

// How keys and values are stored. With Layout::nhd / Layout::hnd:
//   padded       k, v [batch, max_len, num_kv_heads, dim] / [batch, num_kv_heads, max_len, dim] and kv_len [batch]
//   ragged       k, v [nnz_kv, num_kv_heads, dim] / [num_kv_heads, nnz_kv, dim] and kv_indptr [batch + 1]
//   paged        k, v [pages, page_size, num_kv_heads, dim] / [pages, num_kv_heads, page_size, dim], or one
//                5-D tensor with an axis of 2 after the pages; page table: kv_page_indptr, kv_page_indices,
//                kv_last_page_len
//   block_sparse the tensors of the paged form, a page a block; which blocks each row attends: weft/block_sparse.h
//   latent       one row a token for all heads (MLA): ckv [pages, page_size, head_dim_vo] with
//                kpe [pages, page_size, head_dim_qk - head_dim_vo], or both in one [pages, page_size, head_dim_qk].
//                The key is the whole, the value is ckv; page table as in the paged form, num_kv_heads = 1
enum class KvForm : uint8_t { padded, ragged, paged, block_sparse, latent };
enum class Layout : uint8_t { nhd, hnd };

// How a cache of quantised numbers is scaled: a key or value is scale * stored number. Scale tensors are fp32 and have
// the cache's axes with the extents
//   none         no scales: fp8, and what is not quantised
//   tensor       1 everywhere
//   head         1 but for the heads
//   token        1 for dim: a scale for each token and head
//   token_group  the same, for each `kv_scale_group` tokens that follow each other along the cache's token axis and
//                begin at a multiple of it; in paged forms it divides page_size
enum class KvScales : uint8_t { none, tensor, head, token, token_group };
constexpr std::string_view to_string(KvScales scales) {
  constexpr std::string_view kNames[] = {"none", "tensor", "head", "token", "token_group"};
  return scales <= KvScales::token_group ? kNames[static_cast<size_t>(scales)] : "no such scales";
}

// Causal masks are aligned bottom-right: query i of qo_len sees key j iff j <= i + kv_len - qo_len.
// custom: bool mask, flat; custom_packed: the same as little-endian bits (pack_mask).
enum class Mask : uint8_t { none, causal, custom, custom_packed };

// ---------------------------------------------------------------- variant

// One limit of the interval of key positions that a row sees: a sum of the parts that are set.
//   {.q_pos = true, .constant = 1}                 q_pos + 1
//   {.q_pos = true, .scalar = "window_left", .scalar_sign = -1}   q_pos - window_left
struct Bound {
  bool q_pos = false;
  bool kv_len = false;
  int32_t constant = 0;
  std::string scalar = {};  // a named integer scalar, given to plan or with a default; -1 switches this bound off
  int scalar_sign = +1;     // +1 or -1
  friend bool operator==(const Bound&, const Bound&) = default;
};

// Keys at positions [max(lower), min(upper)); 0 <= position < kv_len always holds besides.
struct Interval {
  std::vector<Bound> lower = {}, upper = {};
  friend bool operator==(const Interval&, const Interval&) = default;
};

enum class ScalarKind : uint8_t { real, integer };
struct ScalarDecl {
  std::string name;
  ScalarKind kind = ScalarKind::real;
  std::optional<double> default_value = {};
  friend bool operator==(const ScalarDecl&, const ScalarDecl&) = default;
};
// A tensor the variant reads as p.name(i, j, ...): rank 1 to 4, last axis contiguous.
struct TensorDecl {
  std::string name;
  DType dtype = DType::fp32;  // fp32, int32, int64 or uint8
  int rank = 1;
  friend bool operator==(const TensorDecl&, const TensorDecl&) = default;
};

// An attention variant: the text of one class with any of these members (docs/variants.md):
//   static constexpr bool use_softmax = true;
//   void init(P p, Request r);                                  // per-request state, kept in the class's members
//   real query_transform(P p, Vec x, int i, Row r);             // element i of the new vector
//   real key_transform(P p, Vec x, int i, Row r);
//   real value_transform(P p, Vec x, int i, Row r);
//   real logits_transform(P p, Score c, real s);                // s is scaled by sm_scale
//   bool logits_mask(P p, Score c);
//   real output_transform(P p, Vec x, int i, Row r);            // once a row, after its last merge; r.lse is its lse
//   real lse_transform(P p, Row r);                             // the same, for the lse that run returns
// `name` is the class's name in the text. The same text runs on every backend, and in double in the reference.
struct Variant {
  std::string name = {};  // empty: plain attention
  std::string text = {};
  std::vector<ScalarDecl> scalars = {};
  std::vector<TensorDecl> tensors = {};
  std::vector<Interval> intervals = {};  // none (every key), one, or two whose union is seen
  bool use_softmax = true;               // must agree with the text
  friend bool operator==(const Variant&, const Variant&) = default;
};

namespace variants {
Variant plain();
Variant logits_soft_cap();  // cap * tanh(s / cap); scalar cap (inf, 0 or below: none)
Variant alibi();            // s + slope[head] * (kv_pos - q_pos); tensor slopes [num_qo_heads]
Variant sigmoid();          // sigmoid(s + bias), no softmax; scalar bias (0)
// A learned sink a head: exp(s_h) in the softmax's denominator, with no value (gpt-oss); tensor sinks [num_qo_heads].
// The lse returned counts it: (o, lse) is the state over the keys and the sink. Of parts to be merged, one has it.
Variant attention_sink();
// Masks in the same form; AttentionSpec::mask and ::sliding_window name them too.
Variant causal();
Variant sliding_window();      // kv_pos >= q_pos - window_left; integer scalar window_left
Variant custom_mask();         // tensors mask uint8 [elements], mask_indptr int64 [batch + 1]
Variant custom_mask_packed();  // tensors mask uint8 [bytes], mask_indptr int64 [batch + 1], in bytes
}  // namespace variants

// What is fixed when a kernel is compiled.
struct AttentionSpec {
  DType q_dtype = DType::fp32;   // fp32, fp16, bf16
  DType kv_dtype = DType::fp32;  // fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4 (two a byte along dim, low first)
  DType o_dtype = DType::fp32;   // fp32, fp16, bf16
  // What q . k and p . v are multiplied in: fp32; bf16 where q and KV are bf16 and the machine has the dot product; int8
  // where KV is int8 or int4 and the machine has that dot product (AVX-512 with VNNI): queries and probabilities are
  // rounded to 16 bits, two bytes. Default: the fastest on this machine.
  std::optional<DType> compute = {};
  int head_dim_qk = 64;  // 8 to 576 in steps of 8
  int head_dim_vo = 64;
  KvForm kv_form = KvForm::paged;
  Layout layout = Layout::nhd;
  Mask mask = Mask::none;
  bool sliding_window = false;          // adds kv_pos >= q_pos - window_left; plan takes window_left
  Variant variant = {};                 // its mask is intersected with the two above
  KvScales kv_scales = KvScales::none;  // of int8 and int4, which need some, and of fp8
  int kv_scale_group = 0;               // token_group: tokens that share a scale
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

// ---------------------------------------------------------------- page table

// Which pages hold which request's tokens. Token t of request r lies in page
// kv_page_indices[kv_page_indptr[r] + t / page_size], slot t % page_size.
struct PageTableView {
  int page_size = 0;
  int64_t num_pages = 0;                      // of the pool: every index is below it
  std::span<const int32_t> kv_page_indptr;    // [batch + 1]
  std::span<const int32_t> kv_page_indices;   // [kv_page_indptr[batch]]
  std::span<const int32_t> kv_last_page_len;  // [batch], 1..page_size; 0 for a request without pages
  bool ids_checked = false;                   // set by PageTable::view: plan need not look at every page id
};

// Host side owner of a pool's pages: hands them out, shares prefixes, takes them back, and checks each id once.
// Not thread-safe. Requests are named by a handle; a page is freed when its last request releases it.
class PageTable {
 public:
  using RequestId = int64_t;
  // Throws Error(invalid_argument) unless page_size >= 1 and num_pages >= 0.
  PageTable(int page_size, int64_t num_pages);
  ~PageTable();
  PageTable(PageTable&&) noexcept;
  PageTable& operator=(PageTable&&) noexcept;

  RequestId add();  // an empty request
  // A new request that begins with the first `tokens` tokens of `other`: full pages are shared. A last page
  // that is not full gets a page of its own, and its `copied_slots` first slots must be copied by the caller
  // from `source_page` to `target_page` (-1 when nothing is to be copied).
  struct Fork {
    RequestId request;
    int32_t source_page = -1, target_page = -1;
    int copied_slots = 0;
  };
  Fork fork(RequestId other, int64_t tokens);
  // Makes room for `tokens` more. Throws Error(context_full) and changes nothing when the pool is too small, and
  // Error(invalid_argument) when the request was truncated inside a page that another one reads: fork it first.
  void append(RequestId request, int64_t tokens);
  void truncate(RequestId request, int64_t tokens);  // keeps the first `tokens` tokens
  void release(RequestId request);
  int64_t length(RequestId request) const;
  std::span<const int32_t> pages(RequestId request) const;
  int page_size() const;
  int64_t num_pages() const;
  int64_t num_free_pages() const;
  // The table of these requests, in this order. Valid until the next call that changes the table or asks for a view.
  PageTableView view(std::span<const RequestId> requests);
  PageTableView view(std::initializer_list<RequestId> requests);

 private:
  struct Impl;
  Impl& impl() const;  // throws for an empty one
  std::unique_ptr<Impl> impl_;
};

// ---------------------------------------------------------------- plan

// balanced     all work on one line, cut at worker boundaries (default)
// paper        FlashInfer's Algorithm 1: chunks of one size, largest first onto the least loaded worker
// fixed_split  chunks of fixed_split_size tokens from each request's start: batch-invariant
// no_split     a unit is never cut
enum class PlanMode : uint8_t { balanced, paper, fixed_split, no_split };
std::string_view to_string(PlanMode mode);

// A named number: an integer scalar for plan, any declared scalar for run. Those that plan was given, or took a default
// for, hold for run too: it may leave them out, and another number there is refused.
struct ScalarArg {
  std::string name;
  double value;
};
struct TensorArg {
  std::string name;
  TensorView value;
};

// Composable formats: a request's keys are those of its entries on every level, level after level. Entry g of a level
// is query tokens [qo_indptr[g], qo_indptr[g + 1]), of one request or of several that share the entry's pages: those
// pages are read once for all of them. Level 0 is the most shared; requests of one entry begin it at the same position.
struct Level {
  std::span<const int32_t> qo_indptr;  // [entries + 1], ends at the number of query tokens
  PageTableView pages;                 // of [entries]; an entry without pages adds no key
};
inline constexpr int kMaxLevels = 8;

struct PlanInput {
  int num_qo_heads = 0;
  int num_kv_heads = 0;                     // divides num_qo_heads
  std::span<const int32_t> qo_indptr = {};  // [batch + 1], starts at 0, never decreases; empty: the last level's
  // One of the four, as the spec's kv_form says:
  PageTableView pages = {};  // paged, latent
  const struct BlockSparse* blocks = nullptr;
  std::span<const int32_t> kv_indptr = {};  // ragged [batch + 1]
  std::span<const int32_t> kv_len = {};     // padded [batch]
  int64_t max_kv_len = 0;                   // padded: extent of the tensor's token axis
  int num_workers = 0;                      // 0: the kernel's default; on the CPU, the shared team's
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;            // fixed_split: tokens of a chunk
  std::span<const Level> levels = {};  // instead of pages
  // With levels: [batch], the order of requests in which levels count query tokens; empty: as they are. So requests
  // that share pages need not stand together in q.
  std::span<const int32_t> request_order = {};
  std::vector<ScalarArg> scalars = {};  // integer scalars that intervals name, e.g. window_left
  // Given: sections lie in the workspace at the offsets of these bounds, and a plan beyond them is refused.
  const struct PlanBounds* bounds = nullptr;
  // true: page ids are not copied into the plan; `pages` must live, unchanged, until the plan was uploaded.
  bool borrow_page_ids = false;
};

// The largest plans that a workspace is made for; every plan made with them has the same section offsets.
struct PlanBounds {
  int max_requests = 0;
  int64_t max_rows = 0;   // query tokens of a step
  int64_t max_pages = 0;  // entries of kv_page_indices, of all levels; 0 for ragged and padded
  int max_levels = 1;
  int64_t max_kv_len = 0;
  int page_size = 0;  // 0 for ragged and padded
  int num_qo_heads = 0, num_kv_heads = 0;
  int workers = 0;
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
};

// Who computes what. A pure function of lengths: no tensor is read, and the same input gives the same bytes.
class Plan {
 public:
  Plan();
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  size_t workspace_bytes() const;  // exact
  // Copies the plan into the workspace. Throws Error(workspace_too_small) and leaves it as it was.
  void upload(Workspace& workspace, Stream stream = {}) const;
  // True while the plan is right for these lengths too: same requests, same pages as far as they were
  // listed, every length within its last chunk. Then `update` brings lengths and page ids up to date.
  bool covers(const PlanInput& input) const;
  void update(const PlanInput& input);  // Throws Error(plan_mismatch) unless covers(input).

  int num_workers() const;
  int num_items() const;
  int num_partials() const;
  double makespan() const;     // cost of the busiest worker
  double lower_bound() const;  // max(total / workers, largest uncuttable item)
  uint64_t signature() const;
  std::string to_string() const;  // a table of workers and work items
  std::string to_svg() const;

  struct Impl;
  const Impl& impl() const;

 private:
  friend class Planner;
  std::unique_ptr<Impl> impl_;
};

// ---------------------------------------------------------------- run

// Keys and values: a pair, or one 5-D tensor [pages, 2, ...] for the paged form.
struct KvCache {
  TensorView k, v;
  TensorView k_scale, v_scale;  // as the spec's kv_scales says
  KvCache() = default;
  KvCache(TensorView keys, TensorView values, TensorView key_scale = {}, TensorView value_scale = {})
      : k(keys), v(values), k_scale(key_scale), v_scale(value_scale) {}
  explicit KvCache(TensorView pages_5d);  // Throws Error(invalid_shape).
  // KvForm::latent: a pair, or one tensor of both.
  static KvCache latent(TensorView ckv, TensorView kpe = {}) { return {ckv, kpe}; }
};

struct AttentionTensors {
  TensorView q;  // [nnz_qo, num_qo_heads, head_dim_qk]
  KvCache kv;
  TensorView o;                         // [nnz_qo, num_qo_heads, head_dim_vo]
  TensorView lse = {};                  // optional, fp32 [nnz_qo, num_qo_heads]
  std::optional<float> sm_scale = {};   // default 1 / sqrt(head_dim_qk); MLA scales by the dim before absorption
  std::vector<ScalarArg> scalars = {};  // of the variant
  std::vector<TensorArg> tensors = {};
};

struct BuildOptions {
  std::optional<Isa> isa = {};  // default: current_isa()
};

// A compiled kernel. Cheap to copy; safe to use from several threads on several workspaces.
class AttentionKernel {
 public:
  const AttentionSpec& spec() const;
  // Throws Error(invalid_argument | invalid_indptr | invalid_page | invalid_shape | unsupported).
  Plan plan(const PlanInput& input) const;
  size_t workspace_bytes(const PlanBounds& bounds) const;
  // Runs the plan that lies in the workspace. Checks that tensors and plan agree before it touches memory. o and lse may
  // have gaps, but no two of their elements share memory: each stride steps over all that the smaller ones reach.
  // Throws Error(plan_mismatch | invalid_shape | invalid_stride | invalid_dtype | invalid_device | invalid_argument).
  void run(Workspace& workspace, const AttentionTensors& tensors, Stream stream = {}) const;
  // upload and run.
  void run(const Plan& plan, const AttentionTensors& tensors, Workspace& workspace, Stream stream = {}) const;

  struct Impl;
  const Impl& impl() const;

 private:
  friend AttentionKernel build(const AttentionSpec&, Device, const BuildOptions&);
  std::shared_ptr<const Impl> impl_;
};

// Compiles, or finds in memory, on disk or among the built-in kernels, the kernel of a spec.
// Throws Error(unsupported) with required, supported and missing; Error(no_compiler | compile_failed).
AttentionKernel build(const AttentionSpec& spec, Device device, const BuildOptions& options = {});

// One request, everything in one call: q [qo_len, num_qo_heads, d], k, v [kv_len, num_kv_heads, d] (NHD) or
// [num_kv_heads, kv_len, d] (HND), o like q. spec.kv_form must be ragged. `extra` holds the rest: the scales of a
// quantised cache in kv, sm_scale, scalars and tensors; its q, k, v, o and lse are empty, or the same views.
void attend(const AttentionSpec& spec, const TensorView& q, const TensorView& k, const TensorView& v,
            const TensorView& o, const TensorView& lse = {}, const AttentionTensors& extra = {}, Stream stream = {});

// ---------------------------------------------------------------- states and masks

// Merges n states a row: o [n, rows, heads, dim] (fp32, fp16 or bf16), lse [n, rows, heads] fp32 into
// o_out [rows, heads, dim], lse_out [rows, heads]. Associative and commutative up to rounding; the empty
// state is its identity. (FlashInfer, section 2.2.)
void merge_states(const TensorView& o, const TensorView& lse, const TensorView& o_out, const TensorView& lse_out,
                  Stream stream = {});
// A variable number a row: row r merges states [indptr[r], indptr[r + 1]) of o [nnz, heads, dim], lse [nnz, heads].
void merge_states(const TensorView& o, const TensorView& lse, std::span<const int32_t> indptr, const TensorView& o_out,
                  const TensorView& lse_out, Stream stream = {});

// Packs a flat bool mask, request r at [mask_indptr[r], mask_indptr[r + 1]), into little-endian bits, each
// request starting on a byte. Returns the bytes; `byte_indptr` [batch + 1] receives where each request starts.
// The bytes end with 4 of padding, so that a kernel may read words.
std::vector<uint8_t> pack_mask(std::span<const uint8_t> mask, std::span<const int64_t> mask_indptr,
                               std::vector<int64_t>& byte_indptr);

}  // namespace weft
