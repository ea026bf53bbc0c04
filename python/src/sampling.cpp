// Logits processors and sampling (weft/ops.h).
#include <nanobind/stl/pair.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format_tensor.h"
#include "enums.h"
#include "fields.h"
#include "module.h"
#include "objects.h"
#include "struct.h"
#include "weft/ops.h"

namespace weft::python {
namespace {

std::span<float> row_of(const TensorView& logits) {
  check(logits.dtype() == DType::fp32, ErrorCode::invalid_dtype, "logits: are {}; required is fp32",
        to_string(logits.dtype()));
  check(logits.rank() == 1, ErrorCode::invalid_shape, "logits: {} has rank {}; required is one row, [vocab]", logits,
        logits.rank());
  check(logits.is_contiguous(), ErrorCode::invalid_stride, "logits: are not contiguous; copy them first");
  check(logits.device().kind != DeviceKind::cuda, ErrorCode::invalid_device,
        "logits: lie on {}; these calls read the CPU's: copy them first, with x.cpu()", to_string(logits.device()));
  return {logits.as<float>(), static_cast<size_t>(logits.size())};
}

void define_processors(nb::module_& m) {
  m.def(
      "apply_token_mask",
      [](const ArrayLike& logits, const IntsLike& mask) {
        Arguments call;
        const std::span<float> row = row_of(call.write("logits", logits.object));
        const std::span<const int32_t> words = call.ints("mask", mask);
        apply_token_mask(row, {reinterpret_cast<const uint32_t*>(words.data()), words.size()});
      },
      nb::arg("logits"), nb::arg("mask"),
      "Constrained decoding, in place on logits [vocab]: token i stays allowed iff bit i % 32 of mask[i // 32] is set; "
      "int32 [ceil(vocab / 32)], as grammar engines give it.");
  m.def(
      "apply_logit_bias",
      [](const ArrayLike& logits, const std::vector<std::pair<int32_t, float>>& bias) {
        Arguments call;
        apply_logit_bias(row_of(call.write("logits", logits.object)), bias);
      },
      nb::arg("logits"), nb::arg("bias"), "logits[id] += bias of each pair (id, bias); -inf rules a token out.");
  bind_struct<Penalties>(m, "Penalties",
                         "Against saying the same again: repetition divides positive and multiplies negative logits of "
                         "tokens that prompt or output holds; presence and frequency are subtracted.");
  m.def(
      "apply_penalties",
      [](const ArrayLike& logits, const Penalties& penalties, const IntsLike& prompt, const IntsLike& output) {
        Arguments call;
        const std::span<float> row = row_of(call.write("logits", logits.object));
        const std::span<const int32_t> before = call.ints("prompt", prompt), said = call.ints("output", output);
        apply_penalties(row, penalties, before, said);
      },
      nb::arg("logits"), nb::arg("penalties"), nb::arg("prompt"), nb::arg("output"), "In place on logits [vocab].");
}

void define_draws(nb::module_& m) {
  bind_enum<FilterOrder>(m, "FilterOrder", "Whether top_p is a share of what top_k left, or of all tokens.");
  bind_struct<SamplingParams>(
      m, "SamplingParams",
      "How the next token is drawn. temperature 0 is greedy; top_k 0 is off. Filters apply in the "
      "order top_k, top_p, min_p.");
  nb::class_<PyGenerator>(m, "Generator",
                          "Random numbers by counter (Philox4x32-10): number `position` of the seed's is next. A draw "
                          "moves it by 1, a greedy one not.")
      .def(
          "__init__",
          [](PyGenerator* self, uint64_t seed, uint64_t position) {
            new (self) PyGenerator{{seed, position}};
          },
          nb::arg("seed") = 0, nb::arg("position") = 0)
      .def_prop_ro("seed", [](const PyGenerator& self) { return self.philox.seed; })
      .def_prop_rw(
          "position", [](const PyGenerator& self) { return self.philox.position; },
          [](PyGenerator& self, uint64_t position) { self.philox.position = position; });
  m.def(
      "sample",
      [](const ArrayLike& logits, const SamplingParams& params, PyGenerator& generator) {
        Arguments call;
        return sample(row_of(call.read("logits", logits)), params, generator.philox);
      },
      nb::arg("logits"), nb::arg("params"), nb::arg("generator"),
      "Draws from one row of logits [vocab] fp32. The same params, logits and generator give the same id everywhere.");
  m.def(
      "sample_rows",
      [](const ArrayLike& logits, const std::vector<SamplingParams>& params,
         const std::vector<PyGenerator*>& generators, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView rows = call.read("logits", logits);
        for (size_t i = 0; i < generators.size(); ++i)
          check(std::count(generators.begin(), generators.end(), generators[i]) == 1, ErrorCode::invalid_argument,
                "generators[{}]: stands for two rows; give each row one of its own", i);
        std::vector<Philox> states;
        for (const PyGenerator* generator : generators) states.push_back(generator->philox);
        std::vector<int32_t> ids = call.run([&] { return sample_rows(rows, params, states, call.stream()); });
        for (size_t i = 0; i < states.size(); ++i) generators[i]->philox = states[i];
        return ids;
      },
      nb::arg("logits"), nb::arg("params"), nb::arg("generators"), nb::arg("stream") = nb::none(),
      "One draw a row of logits [rows, vocab] fp32: row i by params[i] and generators[i].");
  m.def(
      "sample_probabilities",
      [](const ArrayLike& probs, const ArrayLike& bits, const ArrayLike& ids, const std::optional<ArrayLike>& top_k,
         const std::optional<ArrayLike>& top_p, const std::optional<ArrayLike>& min_p, FilterOrder filter_order,
         const std::optional<ArrayLike>& rows, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const ProbabilityDraws draws{.probs = call.read("probs", probs),
                                     .top_k = call.read("top_k", top_k),
                                     .top_p = call.read("top_p", top_p),
                                     .min_p = call.read("min_p", min_p),
                                     .filter_order = filter_order,
                                     .rows = call.read("rows", rows),
                                     .bits = call.read("bits", bits),
                                     .ids = call.write("ids", ids.object)};
        call.check_apart();
        call.run([&] { sample_probabilities(draws, call.stream()); });
      },
      nb::arg("probs"), nb::arg("bits"), nb::arg("ids"), nb::arg("top_k") = nb::none(), nb::arg("top_p") = nb::none(),
      nb::arg("min_p") = nb::none(), nb::arg("filter_order") = FilterOrder::top_k_first, nb::arg("rows") = nb::none(),
      nb::arg("stream") = nb::none(),
      "Writes ids int32 [draws]: draw i from probs [rows, vocab] fp32, row rows[i], or row i without `rows`, by its "
      "random bits[i] int64. top_k int32, top_p and min_p fp32 [rows] keep all tokens that equal the last one they "
      "keep. "
      "-1: the row has a NaN or inf, nothing above 0, or is none of probs. The same everywhere, on every device.");
  m.def(
      "log_probability",
      [](const ArrayLike& logits, int32_t token) {
        Arguments call;
        return log_probability(row_of(call.read("logits", logits)), token);
      },
      nb::arg("logits"), nb::arg("token"), "Natural log-softmax of one token, in double.");
  m.def(
      "top_log_probabilities",
      [](const ArrayLike& logits, int k) {
        Arguments call;
        return top_log_probabilities(row_of(call.read("logits", logits)), k);
      },
      nb::arg("logits"), nb::arg("k"), "The k most probable tokens as (id, log-probability), most probable first.");
}

}  // namespace

void define_sampling(nb::module_& m) {
  define_processors(m);
  define_draws(m);
}

}  // namespace weft::python
