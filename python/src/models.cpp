// weft.ModelFile, weft.Tokenizer, weft.ChatTemplate, weft.ForwardPass.
#include "models.h"

#include <nanobind/stl/filesystem.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "base/check.h"
#include "enums.h"
#include "fields.h"
#include "module.h"

namespace weft::python {
namespace {

// ---------------------------------------------------------------- files

void define_config(nb::module_& m) {
  bind_enum<WeightType>(m, "WeightType", "Element types of weights, as files call them.");
  bind_enum<Gate>(m, "Gate", "What the gate of a feed-forward layer goes through.");
  nb::class_<WeightInfo>(m, "WeightInfo", "A weight as it lies in the file: rows x cols, row-major.")
      .def_ro("name", &WeightInfo::name)
      .def_ro("type", &WeightInfo::type)
      .def_ro("rows", &WeightInfo::rows)
      .def_ro("cols", &WeightInfo::cols)
      .def_ro("offset", &WeightInfo::offset)
      .def_ro("bytes", &WeightInfo::bytes);
  nb::class_<ModelConfig>(m, "ModelConfig", "Shape and constants of a model.")
      .def_ro("architecture", &ModelConfig::architecture)
      .def_ro("name", &ModelConfig::name)
      .def_ro("num_layers", &ModelConfig::num_layers)
      .def_ro("hidden_size", &ModelConfig::hidden_size)
      .def_ro("intermediate_size", &ModelConfig::intermediate_size)
      .def_ro("num_qo_heads", &ModelConfig::num_qo_heads)
      .def_ro("num_kv_heads", &ModelConfig::num_kv_heads)
      .def_ro("head_dim", &ModelConfig::head_dim)
      .def_ro("vocab_size", &ModelConfig::vocab_size)
      .def_ro("context_length", &ModelConfig::context_length)
      .def_ro("norm_eps", &ModelConfig::norm_eps)
      .def_ro("rope", &ModelConfig::rope)
      .def_ro("tied_embeddings", &ModelConfig::tied_embeddings)
      .def_ro("qkv_bias", &ModelConfig::qkv_bias)
      .def_ro("output_bias", &ModelConfig::output_bias)
      .def_ro("qk_norm", &ModelConfig::qk_norm)
      .def_ro("post_norms", &ModelConfig::post_norms)
      .def_ro("gate", &ModelConfig::gate)
      .def_ro("embedding_scale", &ModelConfig::embedding_scale)
      .def_ro("sm_scale", &ModelConfig::sm_scale)
      .def_ro("attention_soft_cap", &ModelConfig::attention_soft_cap)
      .def_ro("logits_soft_cap", &ModelConfig::logits_soft_cap)
      .def_ro("sliding_window", &ModelConfig::sliding_window)
      .def_ro("sliding_period", &ModelConfig::sliding_period)
      .def_ro("sliding_rope", &ModelConfig::sliding_rope);
}

PyTensorView read_rows(const ModelFile& self, const WeightInfo& weight, int64_t row_begin,
                       std::optional<int64_t> row_end) {
  const int64_t end = row_end.value_or(weight.rows);
  check(row_begin >= 0 && row_begin <= end && end <= weight.rows, ErrorCode::invalid_argument,
        "rows {} to {}: '{}' has {}", row_begin, end, weight.name, weight.rows);
  const int64_t row_bytes = weight.rows > 0 ? static_cast<int64_t>(weight.bytes) / weight.rows : 0;
  const std::array<int64_t, 2> shape{end - row_begin, row_bytes};
  PyTensorView made{new_array(shape, DType::uint8, Device::cpu()), nb::none()};
  const WithoutGil free;
  self.read(weight, row_begin, end, made.array.view.data());
  return made;
}

nb::object metadata(const ModelFile& self, const std::string& key) {
  const auto tried = [&](auto&& get) -> nb::object {
    try {
      return nb::cast(get());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_file) throw;
      return nb::object();
    }
  };
  check(self.has(key), ErrorCode::invalid_file, "'{}' is missing in '{}'", key, self.path());
  nb::object found;
  if (self.is_array(key)) {
    found = tried([&] { return self.get_ints(key); });
    if (!found.is_valid()) found = tried([&] { return self.get_floats(key); });
    return found.is_valid() ? found : nb::cast(self.get_strings(key));
  }
  found = tried([&] { return self.get_bool(key); });
  if (!found.is_valid()) found = tried([&] { return self.get_int(key); });
  if (!found.is_valid()) found = tried([&] { return self.get_float(key); });
  return found.is_valid() ? found : nb::cast(self.get_string(key));
}

void define_file(nb::module_& m) {
  nb::class_<ModelFile>(m, "ModelFile",
                        "A GGUF file (v2, v3), validated when it is opened; its weights stay in it. Raises "
                        "Error(io_error | invalid_file | unsupported).")
      .def(
          "__init__",
          [](ModelFile* self, const std::filesystem::path& path) {
            const WithoutGil free;
            new (self) ModelFile(path.string());
          },
          nb::arg("path"))
      .def_prop_ro("path", &ModelFile::path)
      .def_prop_ro("file_bytes", &ModelFile::file_bytes)
      .def_prop_ro("config", [](const ModelFile& self) { return self.config(); })
      .def_prop_ro(
          "weights",
          [](const ModelFile& self) { return std::vector<WeightInfo>(self.weights().begin(), self.weights().end()); })
      .def(
          "weight", [](const ModelFile& self, std::string_view name) { return self.weight(name); }, nb::arg("name"),
          "Raises Error(invalid_file) when it is missing.")
      .def("read", &read_rows, nb::arg("weight"), nb::arg("row_begin") = 0, nb::arg("row_end") = nb::none(),
           "Rows as they lie in the file: uint8 [rows, bytes of a row].")
      .def(
          "__contains__", [](const ModelFile& self, std::string_view key) { return self.has(key); }, nb::arg("key"))
      .def("metadata", &metadata, nb::arg("key"), "bool, int, float, str, or a list of them.");
  m.def(
      "sampling_defaults",
      [](const ModelFile& file) -> nb::object {
        const std::optional<SamplingDefaults> found = sampling_defaults(file);
        if (!found) return nb::none();
        return nb::make_tuple(found->params, found->penalties, found->source);
      },
      nb::arg("file"),
      "How a model's makers say that it is sampled in a chat: (SamplingParams, Penalties, who says so), or None.");
}

// ---------------------------------------------------------------- text

void define_text(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "Byte-level BPE or SentencePiece style, as the file says. Thread-safe.")
      .def(
          "__init__",
          [](Tokenizer* self, const ModelFile& file) {
            const WithoutGil free;
            new (self) Tokenizer(file);
          },
          nb::arg("file"))
      .def(
          "encode",
          [](const Tokenizer& self, std::string_view text, bool add_special, bool parse_special,
             std::optional<int64_t> at_most) {
            EncodeOptions options{add_special, parse_special};
            if (at_most) options.at_most = *at_most;
            const WithoutGil free;
            return self.encode(text, options);
          },
          nb::arg("text"), nb::kw_only(), nb::arg("add_special") = true, nb::arg("parse_special") = false,
          nb::arg("at_most") = nb::none(),
          "Token ids. add_special: BOS/EOS as the file asks. parse_special: texts of control tokens become those "
          "tokens. "
          "Raises Error(context_full) for more than `at_most` tokens.")
      .def(
          "decode",
          [](const Tokenizer& self, const IntsLike& ids, bool skip_special) {
            Arguments call;
            const std::string text = self.decode(call.ints("ids", ids), skip_special);
            return nb::steal<nb::str>(PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace"));
          },
          nb::arg("ids"), nb::arg("skip_special") = true,
          "Text; bytes that are no UTF-8, as where ids end within a character, become U+FFFD.")
      .def(
          "decode_bytes",
          [](const Tokenizer& self, const IntsLike& ids, bool skip_special) {
            Arguments call;
            const std::string text = self.decode(call.ints("ids", ids), skip_special);
            return nb::bytes(text.data(), text.size());
          },
          nb::arg("ids"), nb::arg("skip_special") = true, "The bytes, whatever they are. Raises Error(invalid_token).")
      .def(
          "piece",
          [](const Tokenizer& self, int32_t id, bool skip_special) {
            const std::string text = self.piece(id, skip_special);
            return nb::bytes(text.data(), text.size());
          },
          nb::arg("id"), nb::arg("skip_special") = true, "The bytes of one token.")
      .def(
          "token", [](const Tokenizer& self, std::string_view text) { return self.token(text); }, nb::arg("text"),
          "-1 when there is none.")
      .def(
          "as_plain_text", [](const Tokenizer& self, std::string_view text) { return self.as_plain_text(text); },
          nb::arg("text"),
          "With marks in front of its control tokens' texts, for a place inside of text that is encoded with "
          "parse_special: there it is text like any other.")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("bos", &Tokenizer::bos, "-1: none.")
      .def_prop_ro("eos", &Tokenizer::eos, "-1: none.")
      .def_prop_ro("adds_bos", &Tokenizer::adds_bos)
      .def("is_end", &Tokenizer::is_end, nb::arg("id"), "Whether the token ends an answer.");
  nb::class_<ChatTemplate>(
      m, "ChatTemplate",
      "A chat template in Jinja, the subset that models use. Raises Error(invalid_template) with the "
      "line of what it does not support.")
      .def(nb::init<std::string_view>(), nb::arg("source"))
      .def(
          "render",
          [](const ChatTemplate& self, nb::handle context) {
            const HoldsExit holds;
            const nb::object json = nb::isinstance<nb::str>(context) ? nb::borrow(context)
                                                                     : nb::module_::import_("json").attr("dumps")(
                                                                           context, nb::arg("ensure_ascii") = false);
            return self.render(nb::cast<std::string>(json));
          },
          nb::arg("context"),
          "`context`: a dict with messages, add_generation_prompt, bos_token, eos_token, tools, ..., or its JSON.",
          nb::sig("def render(self, context: dict[str, typing.Any] | str) -> str"));
}

// ---------------------------------------------------------------- forward pass

struct PyForwardPass {
  std::shared_ptr<ModelFile> file;
  std::shared_ptr<WorkerTeam> team;
  ForwardPass forward;
  std::mutex mutex;
};

struct PyInput {
  ForwardPass::SequenceId sequence = 0;
  IntsLike tokens = {};
  int64_t logit_rows = 1;
  bool invariant = false;
};

PyTensorView run_forward(PyForwardPass& self, const std::vector<PyInput>& inputs, const std::optional<IntsLike>& parent,
                         const std::optional<IntsLike>& num_pages, const std::optional<IntsLike>& node_of_input) {
  Arguments call;
  const SharedPrefixes prefixes{call.ints("parent", parent), call.ints("num_pages", num_pages),
                                call.ints("node_of_input", node_of_input)};
  std::vector<ForwardPass::Input> views;
  for (const PyInput& input : inputs)
    views.push_back({input.sequence, call.ints("tokens", input.tokens), input.logit_rows, input.invariant});
  call.hold(self.mutex);
  PyTensorView made;
  call.run([&] {
    const TensorView logits = self.forward.run(views, prefixes);
    made.array = new_array(logits.shape(), logits.dtype(), Device::cpu());
    if (logits.size() > 0) std::memcpy(made.array.view.data(), logits.data(), static_cast<size_t>(logits.size()) * 4);
  });
  made.source = nb::none();
  return made;
}

template <class Do>
auto with(PyForwardPass& self, const Do& work) {
  const auto lock = locked(self.mutex);
  const WithoutGil free;
  return work(self.forward);
}

void define_forward(nb::module_& m) {
  nb::enum_<Precision>(m, "Precision",
                       "exact: fp32 activations and KV; standard: 16-bit; fast: 8-bit activations, 8-bit KV allowed.")
      .value("exact", Precision::exact)
      .value("standard", Precision::standard)
      .value("fast", Precision::fast);
  nb::enum_<StepForm>(m, "StepForm", "How a card runs a step.")
      .value("automatic", StepForm::automatic)
      .value("layered", StepForm::layered)
      .value("fused", StepForm::fused);
  nb::class_<PyInput>(m, "Input", "New tokens of a sequence; the last `logit_rows` of them give logits.")
      .def(
          "__init__",
          [](PyInput* self, ForwardPass::SequenceId sequence, IntsLike tokens, int64_t logit_rows, bool invariant) {
            new (self) PyInput{sequence, std::move(tokens), logit_rows, invariant};
          },
          nb::arg("sequence"), nb::arg("tokens"), nb::arg("logit_rows") = 1, nb::arg("invariant") = false,
          "tokens: ids, a list or int32. invariant: the same bits beside any other inputs.");
  nb::class_<PyForwardPass>(m, "ForwardPass",
                            "The layers of a model over a paged KV cache: any number of sequences, any number of new "
                            "tokens each. Calls of several threads take turns.")
      .def(
          "__init__",
          [](PyForwardPass* self, std::shared_ptr<ModelFile> file, Precision precision, const DeviceLike& device,
             int64_t max_tokens, int max_sequences, int page_size, int64_t max_rows, std::optional<DType> kv_dtype,
             PlanMode plan_mode, int fixed_split_size, StepForm step, bool levels, std::shared_ptr<WorkerTeam> team,
             const std::optional<OnLoad>& on_load) {
            const PyForwardOptions options =
                forward_options(precision, device_of(device), max_tokens, max_sequences, page_size, max_rows, kv_dtype,
                                plan_mode, fixed_split_size, step, levels, std::move(team), on_load);
            std::optional<ForwardPass> made;
            {
              const WithoutGil free;
              made.emplace(*file, options.options);
            }
            options.rethrow();
            new (self) PyForwardPass{std::move(file), options.team, std::move(*made), {}};
          },
          nb::arg("file"), nb::kw_only(), nb::arg("precision") = Precision::standard, nb::arg("device") = "cpu",
          nb::arg("max_tokens") = 2048, nb::arg("max_sequences") = 1, nb::arg("page_size") = 16,
          nb::arg("max_rows") = 512, nb::arg("kv_dtype") = nb::none(), nb::arg("plan_mode") = PlanMode::balanced,
          nb::arg("fixed_split_size") = 0, nb::arg("step") = StepForm::layered, nb::arg("levels") = true,
          nb::arg("team") = nb::none(), nb::arg("on_load") = nb::none(),
          "Loads the weights. max_tokens: of all sequences together. on_load(fraction) is called while they load. "
          "Raises Error(invalid_file | unsupported | out_of_memory).")
      .def_prop_ro("config", [](PyForwardPass& self) { return self.forward.config(); })
      .def(
          "add_sequence",
          [](PyForwardPass& self, const std::optional<IntsLike>& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            return with(
                self, [&](ForwardPass& forward) { return pages ? forward.add_sequence(ids) : forward.add_sequence(); });
          },
          nb::arg("pages") = nb::none(),
          "A new sequence: empty, or one that begins with these pages, whole ones that somebody holds, in their order "
          "from a sequence's start. Raises Error(invalid_argument) for a page that is free.")
      .def(
          "fork",
          [](PyForwardPass& self, ForwardPass::SequenceId sequence, int64_t tokens) {
            return with(self, [&](ForwardPass& forward) { return forward.fork(sequence, tokens); });
          },
          nb::arg("sequence"), nb::arg("tokens"), "A sequence that shares the first `tokens` tokens.")
      .def(
          "truncate",
          [](PyForwardPass& self, ForwardPass::SequenceId sequence, int64_t tokens) {
            with(self, [&](ForwardPass& forward) { forward.truncate(sequence, tokens); });
          },
          nb::arg("sequence"), nb::arg("tokens"), "Keeps the first `tokens` tokens.")
      .def(
          "release",
          [](PyForwardPass& self, ForwardPass::SequenceId sequence) {
            with(self, [&](ForwardPass& forward) { forward.release(sequence); });
          },
          nb::arg("sequence"), "Ends the sequence; pages that nobody else holds are free.")
      .def(
          "length",
          [](PyForwardPass& self, ForwardPass::SequenceId sequence) {
            return with(self, [&](ForwardPass& forward) { return forward.length(sequence); });
          },
          nb::arg("sequence"), "In tokens.")
      .def(
          "pages",
          [](PyForwardPass& self, ForwardPass::SequenceId sequence) {
            return with(self, [&](ForwardPass& forward) {
              const std::span<const int32_t> ids = forward.pages(sequence);
              return std::vector<int32_t>(ids.begin(), ids.end());
            });
          },
          nb::arg("sequence"), "Its pages in order, page_size tokens each, the last one perhaps fewer.")
      .def(
          "hold_pages",
          [](PyForwardPass& self, const IntsLike& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            with(self, [&](ForwardPass& forward) { forward.hold_pages(ids); });
          },
          nb::arg("pages"),
          "One more holder of each page, beside sequences. Raises Error(invalid_argument), and changes nothing, for a "
          "page that is free.")
      .def(
          "unhold_pages",
          [](PyForwardPass& self, const IntsLike& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            with(self, [&](ForwardPass& forward) { forward.unhold_pages(ids); });
          },
          nb::arg("pages"),
          "One holder of each page fewer. Raises Error(invalid_argument), and changes nothing, for a page that was not "
          "held so.")
      .def_prop_ro("page_size", [](PyForwardPass& self) { return self.forward.page_size(); })
      .def_prop_ro("num_pages", [](PyForwardPass& self) { return self.forward.num_pages(); })
      .def_prop_ro(
          "num_free_pages",
          [](PyForwardPass& self) { return with(self, [](ForwardPass& forward) { return forward.num_free_pages(); }); })
      .def("run", &run_forward, nb::arg("inputs"), nb::kw_only(), nb::arg("parent") = nb::none(),
           nb::arg("num_pages") = nb::none(), nb::arg("node_of_input") = nb::none(),
           "Appends the tokens of a list of weft.Input and returns fp32 logits [rows, vocab], rows in the order of the "
           "inputs, in memory of their own. parent, num_pages and node_of_input say, as those of levels_from_prefixes, "
           "which "
           "pages the inputs' sequences have in common; without them it is looked for. Raises Error(context_full | "
           "invalid_token | invalid_argument), and changes "
           "nothing then.")
      .def_prop_ro("step_form", [](PyForwardPass& self) { return self.forward.step_form(); })
      .def_prop_ro("weight_bytes", [](PyForwardPass& self) { return self.forward.weight_bytes(); })
      .def_prop_ro("kv_bytes_per_token", [](PyForwardPass& self) { return self.forward.kv_bytes_per_token(); });
}

}  // namespace

void define_models(nb::module_& m) {
  define_config(m);
  define_file(m);
  define_text(m);
  define_forward(m);
}

}  // namespace weft::python
