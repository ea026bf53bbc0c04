// weft.AttentionSpec, weft.Variant and their parts, weft.variants.
#include "enums.h"
#include "fields.h"
#include "module.h"
#include "objects.h"
#include "struct.h"

namespace weft::python {
namespace {

void define_variants(nb::module_& m) {
  nb::module_ all =
      m.def_submodule("variants", "Built-in variants of attention, in the form that any of one's own has.");
  all.def("plain", &variants::plain, "Softmax of scores as they are.");
  all.def("logits_soft_cap", &variants::logits_soft_cap, "cap * tanh(s / cap); scalar cap (inf, 0 or below: none).");
  all.def("alibi", &variants::alibi, "s + slope[head] * (kv_pos - q_pos); tensor slopes [num_qo_heads] fp32.");
  all.def("sigmoid", &variants::sigmoid, "sigmoid(s + bias), no softmax; scalar bias (0).");
  all.def("attention_sink", &variants::attention_sink,
          "A learned sink a head: exp(s_h) in the softmax's denominator, without a value; tensor sinks [num_qo_heads] "
          "fp32. The lse counts it.");
  all.def("causal", &variants::causal, "kv_pos <= q_pos, as Mask.causal.");
  all.def("sliding_window", &variants::sliding_window, "kv_pos >= q_pos - window_left; integer scalar window_left.");
  all.def("custom_mask", &variants::custom_mask, "Tensor mask, as with Mask.custom.");
  all.def("custom_mask_packed", &variants::custom_mask_packed, "Tensor mask, as with Mask.custom_packed.");
}

}  // namespace

void define_specs(nb::module_& m) {
  bind_enum<KvForm>(
      m, "KvForm",
      "How keys and values lie, with Layout.nhd / Layout.hnd:\n\n"
      "padded       k, v [batch, max_len, num_kv_heads, dim] / [batch, num_kv_heads, max_len, dim]\n"
      "ragged       k, v [nnz_kv, num_kv_heads, dim] / [num_kv_heads, nnz_kv, dim]\n"
      "paged        k, v [pages, page_size, num_kv_heads, dim] / [pages, num_kv_heads, page_size, dim], or "
      "one 5-D array with an axis of 2 after the pages\n"
      "block_sparse the arrays of the paged form, a page a block\n"
      "latent       ckv [pages, page_size, head_dim_vo] with kpe [pages, page_size, head_dim_qk - "
      "head_dim_vo], or both in one");
  bind_enum<Layout>(m, "Layout", "Whether an array's tokens come before its heads (nhd) or behind (hnd).");
  bind_enum<KvScales>(m, "KvScales", "How a cache of quantised numbers is scaled: value = scale * stored number.");
  bind_enum<Mask>(m, "Mask",
                  "causal: aligned bottom-right, query i of qo_len sees key j iff j <= i + kv_len - qo_len. custom: a "
                  "flat bool mask; custom_packed: the same as little-endian bits (pack_mask).");
  bind_enum<Loader>(m, "Loader", "How a card's kernels bring keys and values to shared memory.");
  bind_enum<ScalarKind>(m, "ScalarKind", "Of a variant's named number.");
  bind_enum<PlanMode>(m, "PlanMode",
                      "balanced (default), paper (FlashInfer's Algorithm 1), fixed_split (batch-invariant), no_split, "
                      "even (the plan that a card makes too).");

  bind_struct<Bound>(m, "Bound", "One limit of the interval of key positions that a row sees: a sum of what is set.");
  bind_struct<Interval>(m, "Interval", "Keys at positions [max(lower), min(upper)).");
  bind_struct<ScalarDecl>(m, "ScalarDecl", "A named number that a variant reads as p.name.");
  bind_struct<TensorDecl>(
      m, "TensorDecl",
      "An array that a variant reads as p.name(i, j, ...): fp32, int32, int64 or uint8 of rank 1 to "
      "4, its last axis contiguous.");
  bind_struct<Variant>(
      m, "Variant",
      "A variant of attention: `text` is that of one C++ class called `name`, with any of "
      "query_transform, key_transform, value_transform, logits_transform, logits_mask, output_transform, "
      "lse_transform and init (docs/variants.md). It reads the scalars and tensors that are declared. "
      "`intervals`: none, one, or two whose union is seen.");
  bind_struct<AttentionSpec>(
      m, "AttentionSpec",
      "What is fixed when a kernel is compiled. q_dtype and o_dtype: fp32, fp16 or bf16; kv_dtype also fp8_e4m3, "
      "fp8_e5m2, int8 and int4, the last two with kv_scales. Head dims: 8 to 576 in steps of 8. `compute`: what "
      "products "
      "are made in (None: the fastest here). page_size and `loader`: 0 and None, or what every plan and card kernel "
      "has.");
  define_variants(m);
}

}  // namespace weft::python
