// The operators around attention (weft/ops.h): page append, quantisation, RoPE, norms, gates, caps.
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "enums.h"
#include "fields.h"
#include "module.h"
#include "objects.h"
#include "struct.h"
#include "weft/ops.h"

namespace weft::python {
namespace {

using OptionalStream = std::optional<PyStream>;

// The array that is written: `out`, or one like `like` with the shape and type of `form`.
nb::any output(const std::optional<ArrayLike>& out, const ArrayLike& like, const TensorView& form) {
  return out ? nb::borrow<nb::any>(out->object) : new_like(like.object, form.shape(), form.dtype(), form.device());
}

KvCache written_cache(Arguments& call, const PyKvCache& kv, bool scales_are_written) {
  const auto written = [&](const char* name, const std::optional<ArrayLike>& array) {
    return array ? call.write(name, array->object) : TensorView();
  };
  const auto scale = [&](const char* name, const std::optional<ArrayLike>& array) {
    return scales_are_written ? written(name, array) : call.read(name, array);
  };
  const TensorView k = call.write("cache.k", kv.k.object);
  if (!kv.v) {
    KvCache both(k);
    both.k_scale = scale("cache.k_scale", kv.k_scale);
    both.v_scale = scale("cache.v_scale", kv.v_scale);
    return both;
  }
  return {k, written("cache.v", kv.v), scale("cache.k_scale", kv.k_scale), scale("cache.v_scale", kv.v_scale)};
}

void define_append(nb::module_& m) {
  m.def(
      "append_paged_kv",
      [](const ArrayLike& k, const ArrayLike& v, const IntsLike& append_indptr, const PyPages& pages, Layout layout,
         const KvLike& cache, KvScales kv_scales, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from_k = call.read("k", k), from_v = call.read("v", v);
        const std::span<const int32_t> indptr = call.ints("append_indptr", append_indptr);
        const PageTableView table = call.pages("pages", pages);
        const KvCache to = written_cache(call, cache.cache, kv_scales >= KvScales::token);
        call.check_apart();
        call.run([&] { append_paged_kv(from_k, from_v, indptr, table, layout, to, kv_scales, call.stream()); });
      },
      nb::arg("k"), nb::arg("v"), nb::arg("append_indptr"), nb::arg("pages"), nb::arg("layout"), nb::arg("cache"),
      nb::arg("kv_scales") = KvScales::none, nb::arg("stream") = nb::none(),
      "Writes new keys and values into their pages: k, v [nnz, num_kv_heads, dim] hold, request by request "
      "(append_indptr int32 [batch + 1]), the last tokens of each request's table. Converts to the cache's type; with "
      "`kv_scales` it rounds to nearest, and writes the scales of tokens and token groups. Indices are checked before "
      "anything is written.");
  m.def(
      "append_paged_kv_at",
      [](const ArrayLike& k, const ArrayLike& v, const ArrayLike& places, Layout layout, const KvLike& cache,
         KvScales kv_scales, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from_k = call.read("k", k), from_v = call.read("v", v), at = call.read("places", places);
        const KvCache to = written_cache(call, cache.cache, kv_scales >= KvScales::token);
        call.check_apart();
        call.run([&] { append_paged_kv(from_k, from_v, at, layout, to, kv_scales, call.stream()); });
      },
      nb::arg("k"), nb::arg("v"), nb::arg("places"), nb::arg("layout"), nb::arg("cache"),
      nb::arg("kv_scales") = KvScales::none, nb::arg("stream") = nb::none(),
      "The same on a card, where row r goes to page places[r, 0], slot places[r, 1] (int32 [nnz, 2] beside k and v; "
      "AttentionKernel.locate_rows writes them). Raises Error(unsupported) on a CPU.");
}

void define_quantise(nb::module_& m) {
  m.def(
      "quantize",
      [](const ArrayLike& x, const ArrayLike& q, const ArrayLike& scales, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("x", x), to = call.write("q", q.object),
                         to_scales = call.write("scales", scales.object);
        call.check_apart();
        call.run([&] { quantize(from, to, to_scales, call.stream()); });
      },
      nb::arg("x"), nb::arg("q"), nb::arg("scales"), nb::arg("stream") = nb::none(),
      "x ~ scale * q: x [rows, heads, dim] or [rows, dim] fp32; q of the same shape in fp8_e4m3, fp8_e5m2, int8 or "
      "int4; scales fp32 of the same rank, [1 or a divisor of rows, 1 or heads, 1]. Writes q and scales.");
  m.def(
      "dequantize",
      [](const ArrayLike& q, const ArrayLike& scales, const ArrayLike& x, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("q", q), from_scales = call.read("scales", scales),
                         to = call.write("x", x.object);
        call.check_apart();
        call.run([&] { dequantize(from, from_scales, to, call.stream()); });
      },
      nb::arg("q"), nb::arg("scales"), nb::arg("x"), nb::arg("stream") = nb::none(), "Writes x = scale * q.");
}

void define_absorb(nb::module_& m) {
  using Absorb = void (*)(const TensorView&, const TensorView&, const TensorView&, Stream);
  const auto define = [&](const char* name, const char* a, const char* b, const char* doc, Absorb absorb) {
    m.def(
        name,
        [absorb, a, b](const ArrayLike& first, const ArrayLike& second, const ArrayLike& out,
                       const OptionalStream& stream) {
          Arguments call(stream_of(stream));
          const TensorView x = call.read(a, first), y = call.read(b, second), to = call.write("out", out.object);
          call.check_apart();
          call.run([&] { absorb(x, y, to, call.stream()); });
        },
        nb::arg(a), nb::arg(b), nb::arg("out"), nb::arg("stream") = nb::none(), doc);
  };
  define(
      "absorb_query_weights", "w_uq", "w_uk",
      "MLA: w_uq [heads, nope_dim, q_dim], w_uk [heads, nope_dim, kv_lora_rank] -> out [heads, kv_lora_rank, q_dim], "
      "all fp32.",
      &absorb_query_weights);
  define("absorb_output_weights", "w_uv", "w_o",
         "MLA: w_uv [heads, v_dim, kv_lora_rank], w_o [hidden, heads, v_dim] -> out [hidden, heads, kv_lora_rank], all "
         "fp32.",
         &absorb_output_weights);
}

void define_rope(nb::module_& m) {
  bind_enum<RopePairs>(m, "RopePairs", "adjacent: pairs (2i, 2i + 1); halves: pairs (i, i + rotary_dim / 2).");
  bind_enum<RopeScaling>(m, "RopeScaling", "How frequencies are lowered for longer contexts.");
  bind_struct<RopeParams>(m, "RopeParams",
                          "Rotary position embedding. rotary_dim 0: the whole head. Positions are divided by "
                          "linear_scale. factor 1: frequencies as they are; any other one needs original_context. "
                          "divisors [rotary_dim / 2]: of each pair's frequency.");
  m.def(
      "apply_rope",
      [](const ArrayLike& x, const IntsLike& positions, const RopeParams& params, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView to = call.write("x", x.object);
        if (to.device().kind == DeviceKind::cuda) {
          const TensorView at = call.read("positions", positions.object);
          call.check_apart();
          return call.run([&] { apply_rope(to, at, params, call.stream()); });
        }
        const std::span<const int32_t> at = call.ints("positions", positions);
        call.run([&] { apply_rope(to, at, params, call.stream()); });
      },
      nb::arg("x"), nb::arg("positions"), nb::arg("params"), nb::arg("stream") = nb::none(),
      "In place on x [rows, heads, dim] fp32; positions int32 [rows], beside x where that lies on a card.");
}

// y = op(x, ...), y like x.
using Binary = void (*)(const TensorView&, const TensorView&, const TensorView&, Stream);

void define_rows(nb::module_& m) {
  m.def(
      "rms_norm",
      [](const ArrayLike& x, const ArrayLike& weight, float eps, const std::optional<ArrayLike>& out,
         const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("x", x), scale = call.read("weight", weight);
        const nb::any made = output(out, x, from);
        const TensorView to = call.write("out", made, &from);
        call.check_apart();
        call.run([&] { rms_norm(from, scale, eps, to, call.stream()); });
        return made;
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("out") = nb::none(), nb::arg("stream") = nb::none(),
      "out = x / sqrt(mean(x^2) + eps) * weight: x, out [rows, dim] or [rows, heads, dim], weight [dim], fp32. out may "
      "be x. Returns out.");
  m.def(
      "add_rms_norm",
      [](const ArrayLike& x, const ArrayLike& residual, const ArrayLike& weight, float eps,
         const std::optional<ArrayLike>& out, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("x", x), scale = call.read("weight", weight),
                         sum = call.write("residual", residual.object);
        const nb::any made = output(out, x, from);
        const TensorView to = call.write("out", made, &from);
        call.check_apart();
        call.run([&] { add_rms_norm(from, sum, scale, eps, to, call.stream()); });
        return made;
      },
      nb::arg("x"), nb::arg("residual"), nb::arg("weight"), nb::arg("eps"), nb::arg("out") = nb::none(),
      nb::arg("stream") = nb::none(), "residual += x, in place; out = rms_norm(residual, weight, eps). Returns out.");
  const auto define_gate = [&](const char* name, const char* doc, Binary gate_and_mul) {
    m.def(
        name,
        [gate_and_mul](const ArrayLike& gate, const ArrayLike& up, const std::optional<ArrayLike>& out,
                       const OptionalStream& stream) {
          Arguments call(stream_of(stream));
          const TensorView a = call.read("gate", gate), b = call.read("up", up);
          const nb::any made = output(out, gate, a);
          const TensorView to = call.write("out", made, &a);
          call.check_apart();
          call.run([&] { gate_and_mul(a, b, to, call.stream()); });
          return made;
        },
        nb::arg("gate"), nb::arg("up"), nb::arg("out") = nb::none(), nb::arg("stream") = nb::none(), doc);
  };
  define_gate("silu_and_mul", "out = silu(gate) * up, all [rows, dim] fp32. Returns out.", &silu_and_mul);
  define_gate("gelu_tanh_and_mul", "out = gelu(gate) * up with tanh's form of gelu, all [rows, dim] fp32. Returns out.",
              &gelu_tanh_and_mul);
  m.def(
      "soft_cap",
      [](const ArrayLike& x, float cap, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView to = call.write("x", x.object);
        call.run([&] { soft_cap(to, cap, call.stream()); });
      },
      nb::arg("x"), nb::arg("cap"), nb::arg("stream") = nb::none(),
      "x = cap * tanh(x / cap), in place on x [rows, dim] fp32; inf is no cap. Raises Error(invalid_argument) unless "
      "cap > 0.");
}

}  // namespace

void define_operators(nb::module_& m) {
  define_append(m);
  define_quantise(m);
  define_absorb(m);
  define_rope(m);
  define_rows(m);
}

}  // namespace weft::python
