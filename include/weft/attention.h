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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.h"
#include "weft/error.h"
#include "weft/merge.h"
#include "weft/page_table.h"
#include "weft/plan.h"
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
std::string_view to_string(KvForm form);
std::string_view to_string(Layout layout);

// How a cache of quantised numbers is scaled: a key or value is scale * stored number. Scale tensors are fp32 and have
// the cache's axes with the extents
//   none         no scales: fp8, and what is not quantised
//   tensor       1 everywhere
//   head         1 but for the heads
//   token        1 for dim: a scale for each token and head
//   token_group  the same, for each `kv_scale_group` tokens that follow each other along the cache's token axis and
//                begin at a multiple of it; in paged forms it divides page_size
enum class KvScales : uint8_t { none, tensor, head, token, token_group };
std::string_view to_string(KvScales scales);

// Causal masks are aligned bottom-right: query i of qo_len sees key j iff j <= i + kv_len - qo_len.
// custom: bool mask, flat; custom_packed: the same as little-endian bits (pack_mask). Plan is given where each
// request's elements lie (PlanInput::mask_indptr), run the tensor `mask` alone, uint8 [elements], or [bytes] and 4
// behind them.
enum class Mask : uint8_t { none, causal, custom, custom_packed };
std::string_view to_string(Mask mask);

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
std::string_view to_string(ScalarKind kind);
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
//   static bool leaves_logits(P p);                             // whether that returns every s: cards leave it out
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
Variant custom_mask();         // tensor mask, as with Mask::custom
Variant custom_mask_packed();  // the same with Mask::custom_packed
}  // namespace variants

// How a card's kernels bring keys and values to shared memory.
//   elements  one by one, converted on the way: any type, dim and stride; products in fp32
//   cp_async  16 bytes at a time, some tiles ahead, by the threads that multiply: fp16 and bf16 beside queries of that
//             type, and fp8, int8 and int4 beside either, which stay packed until a product takes them; strides are
//             multiples of 16 bytes
//   tma       boxes of tokens, by a warp that does nothing else, ahead over all work of its multiprocessor: fp16 and
//             bf16 beside queries of that type on sm_90a, head dims that 16 divides, pages that 8 tokens divide
// Where none is named a card takes the fastest one: in prefill on sm_90a rows of 16-byte pieces, by a warpgroup that
// does nothing else.
enum class Loader : uint8_t { elements, cp_async, tma };
std::string_view to_string(Loader loader);

// What is fixed when a kernel is compiled.
struct AttentionSpec {
  DType q_dtype = DType::fp32;   // fp32, fp16, bf16
  DType kv_dtype = DType::fp32;  // fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4 (two a byte along dim, low first)
  DType o_dtype = DType::fp32;   // fp32, fp16, bf16
  // What q . k and p . v are multiplied in: fp32; bf16 or fp16 where q and KV are that and the machine has the product,
  // on cards also where q is that and KV is fp8, int8 or int4, which becomes it exactly; int8 where KV is int8 or int4
  // and the machine has that dot product (AVX-512 with VNNI): queries and probabilities are rounded to 16 bits, two
  // bytes. Default: the fastest on this machine.
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
  int page_size = 0;                    // of every plan, where there are pages; 0: whatever plans have
  // Cards alone. Named: what it cannot serve is refused. Default: the fastest that serves a call.
  std::optional<Loader> loader = {};
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
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

struct TensorArg {
  std::string name;
  TensorView value;
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

// A batch whose lengths and pages only a device knows. Tensors are int32 and lie there.
struct DeviceBatch {
  TensorView kv_len;                    // [batch]
  TensorView page_table;                // [batch, most pages of a request]: a request's pages, from its first tokens on
  int64_t num_pages = 0;                // of the pool
  int qo_len = 1;                       // query tokens of every request; one tile holds them
  int num_workers = 0;                  // 0: as PlanInput's
  std::vector<ScalarArg> scalars = {};  // as PlanInput's
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
  // A kernel of the device writes into the workspace what `plan` with PlanMode::even and the same bounds would upload;
  // it may be captured. A length outside of [0, bounds.max_kv_len] or longer than its row of the page table, and a page
  // id outside of the pool, are clamped, and the next Stream::synchronize() throws Error(invalid_page). Throws what
  // plan throws, and Error(workspace_too_small | unsupported).
  void plan_on_device(const DeviceBatch& batch, const PlanBounds& bounds, Workspace& workspace,
                      Stream stream = {}) const;
  // What the plan in the workspace says of its query rows, for operators that a graph captures with the run: the
  // position of each, int32 [nnz_qo], and where its own token lies in the pool, page and slot, int32 [nnz_qo, 2]. Both
  // on the kernel's device; of paged and latent caches.
  void locate_rows(const Workspace& workspace, const TensorView& positions, const TensorView& places,
                   Stream stream = {}) const;
  // Of a plan of pages_to_set in the workspace. From then until the next upload, runs of it wait for the kernel before
  // them, which may have written there. Throws Error(plan_mismatch) for another plan.
  PlannedPages planned_pages(const Workspace& workspace) const;
  // Runs the plan that lies in the workspace. Checks that tensors and plan agree before it touches memory. o and lse
  // may have gaps, but no two of their elements share memory: each stride steps over all that the smaller ones reach.
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

}  // namespace weft
