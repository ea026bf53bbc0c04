// A model file and its forward pass: load, tokenize, forward.
//
//   weft::ModelFile file("model.gguf");                                   // weights stay in the file
//   weft::Tokenizer tokenizer(file);
//   weft::ForwardPass forward(file, {.precision = Precision::standard, .max_tokens = 2048});
//   auto seq = forward.add_sequence();
//   std::vector<int32_t> ids = tokenizer.encode("Once upon a time");
//   TensorView logits = forward.run({{.sequence = seq, .tokens = ids}});  // [1, vocab]: of the last token
//
// An object that was moved from may be destroyed and assigned to; all else throws Error(invalid_argument).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/attention.h"
#include "weft/device.h"
#include "weft/error.h"
#include "weft/levels.h"
#include "weft/ops.h"
#include "weft/tensor.h"
#include "weft/weight_type.h"

namespace weft {

namespace decode {
struct ModelSources;
struct StepProbe;
}  // namespace decode

// What is rounded; what a log-probability errs by for that depends on the model (docs/precision.md has measurements).
// exact     fp32 activations and KV
// standard  ("default") 16-bit activations and KV
// fast      8-bit activations, 8-bit KV allowed
enum class Precision : uint8_t { exact, standard, fast };
std::string_view to_string(Precision precision);         // "exact", "default", "fast"
Precision precision_from_string(std::string_view name);  // throws Error(invalid_argument)

// ---------------------------------------------------------------- file

// A weight as it lies in the file: rows x cols (cols innermost), row-major.
struct WeightInfo {
  std::string name;
  WeightType type = WeightType::f32;
  int64_t rows = 1, cols = 0;
  uint64_t offset = 0, bytes = 0;  // within the file, of parts: within all of them behind each other
};

// What the gate of a feed-forward layer goes through before it multiplies.
enum class Gate : uint8_t { silu, gelu_tanh };
std::string_view to_string(Gate gate);

// Shape and constants of a model.
struct ModelConfig {
  std::string architecture, name;  // "llama", ...
  int num_layers = 0, hidden_size = 0, intermediate_size = 0;
  int num_qo_heads = 0, num_kv_heads = 0, head_dim = 0;
  int vocab_size = 0, context_length = 0;
  float norm_eps = 1e-5f;
  RopeParams rope;
  bool tied_embeddings = false;  // no output.weight: token_embd.weight is the head
  bool qkv_bias = false;         // qwen2
  bool output_bias = false;      // of attention's output projection
  bool qk_norm = false;          // qwen3, gemma3
  bool post_norms = false;       // gemma2, gemma3: what attention and feed-forward give is normed before it is added
  Gate gate = Gate::silu;
  float embedding_scale = 1.f;                            // embeddings are multiplied by it
  float sm_scale = 0.f;                                   // of attention; 0: 1 / sqrt(head_dim)
  float attention_soft_cap = 0.f, logits_soft_cap = 0.f;  // cap * tanh(x / cap); 0: none
  // Layers that see a window only, each but the last of every sliding_period layers.
  int sliding_window = 0;  // tokens they see, the query's own included; 0: every layer sees all
  int sliding_period = 0;
  RopeParams sliding_rope;  // theirs
};

// A GGUF file (v2, v3), fully validated when opened; read, not mapped. Of a model that is split into files
// (NAME-00001-of-00003.gguf), any part opens all: they are read as one. Throws Error(io_error | invalid_file),
// Error(unsupported) for an architecture or a weight type that is not there, naming those that are.
// Thread-safe after construction.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path);
  ~ModelFile();
  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;

  const std::string& path() const;
  uint64_t file_bytes() const;
  const ModelConfig& config() const;  // throws Error(unsupported | invalid_file) when it has none
  std::span<const WeightInfo> weights() const;
  const WeightInfo* find_weight(std::string_view name) const;
  const WeightInfo& weight(std::string_view name) const;  // throws Error(invalid_file) when missing
  // Reads rows [row_begin, row_end) as they are. Throws Error(io_error | invalid_file) when the file changed.
  void read(const WeightInfo& weight, int64_t row_begin, int64_t row_end, void* to) const;

  // Metadata. Throws Error(invalid_file) for a wrong type; `get` for a missing key too.
  bool has(std::string_view key) const;
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<float> get_floats(std::string_view key) const;
  std::vector<int32_t> get_ints(std::string_view key) const;
  bool is_array(std::string_view key) const;
  size_t count(std::string_view key) const;  // elements of an array

 private:
  struct Impl;
  Impl& impl() const;
  explicit ModelFile(std::unique_ptr<Impl> impl);
  // models/byte_source.h
  friend ModelFile open_model(const std::string& name,
                              const std::function<std::unique_ptr<class ByteSource>(const std::string&)>& open);
  std::unique_ptr<Impl> impl_;
};

// How a model's makers say that it is sampled in a chat.
struct SamplingDefaults {
  SamplingParams params;
  Penalties penalties;
  std::string source;  // "the model's file", or the family whose makers say so: "Qwen 3, thinking"
};
// What the file says (general.sampling.*), else what is known of the model's family (docs/models.md lists both); none
// for a model that neither says anything of. Values out of range are left out with a warning.
// Throws Error(invalid_file) for a value that is no number.
std::optional<SamplingDefaults> sampling_defaults(const ModelFile& file);

// ---------------------------------------------------------------- tokenizer and chat template

struct EncodeOptions {
  bool add_special = true;     // BOS/EOS as the file asks, unless parse_special finds it there
  bool parse_special = false;  // texts of control tokens become those tokens
  // For text that may be long: Error(context_full) where it has more tokens, as soon as that is known.
  int64_t at_most = std::numeric_limits<int64_t>::max();
};

// Byte-level BPE ("gpt2": pre-tokenizers smollm, gpt-2, llama-bpe, qwen2, ...) or SentencePiece style ("llama").
// Throws Error(invalid_file | unsupported). Thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(const ModelFile& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  // How many tokens at least a text of so many bytes has, by the longest token.
  int64_t least_tokens(size_t bytes) const;
  // The text with marks in front of its control tokens' texts, for a place inside of text that is encoded with
  // parse_special: there it is text like any other.
  std::string as_plain_text(std::string_view text) const;
  // Bytes may end within a UTF-8 character; skip_special leaves control tokens out. Throws Error(invalid_token).
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  std::string piece(int32_t id, bool skip_special = true) const;  // the bytes of one token
  int32_t token(std::string_view text) const;                     // exact text of a token; -1 when there is none
  int vocab_size() const;
  int32_t bos() const, eos() const;  // -1: none
  bool is_end(int32_t id) const;     // ends an answer: eos, eot, eom and known names like <end_of_turn>
  bool adds_bos() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

// A chat template in Jinja (the subset that models use; docs/glossary.md). Values are JSON text.
// Throws Error(invalid_template) with the line of what it does not support.
class ChatTemplate {
 public:
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  // context_json: an object with messages, add_generation_prompt, bos_token, eos_token, tools, ...
  std::string render(std::string_view context_json) const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

// ---------------------------------------------------------------- forward pass

// How a card runs a step.
// layered    operation by operation, steps of few rows as a captured graph
// fused      steps of up to 8 rows, as many as fit, as one kernel, longer ones layered; an error where the card has no
//            such kernel
// automatic  ("auto") the same where the card has the kernel, but for rows that are better layered (those that share
//            pages or are invariant); else layered
// Weights lie once, whichever it is.
// Which of them is faster depends on model and context (docs/kernels/decode.md), so fused steps are for who asks.
enum class StepForm : uint8_t { automatic, layered, fused };
std::string_view to_string(StepForm form);              // "auto", "layered", "fused"
StepForm step_form_from_string(std::string_view name);  // throws Error(invalid_argument)

struct ForwardOptions {
  Precision precision = Precision::standard;
  Device device = Device::cpu();  // where weights and pages lie and the layers run; logits come back to the host
  int64_t max_tokens = 2048;      // of all sequences together: the size of the page pool
  int max_sequences = 1;
  int page_size = 16;
  int64_t max_rows = 512;              // tokens of a step: what goes through the layers together, and fits the caches
  std::optional<DType> kv_dtype = {};  // default: fp32 for exact, else bf16; int8 with fast alone
  PlanMode plan_mode = PlanMode::balanced;
  int fixed_split_size = 0;  // with PlanMode::fixed_split
  StepForm step = StepForm::layered;
  // CTAs of a fused step, at most one on each multiprocessor; 0: one on each. A row's bits follow from their number.
  int step_ctas = 0;
  bool levels = true;          // what sequences share is read once for all of them, where that pays
  WorkerTeam* team = nullptr;  // default: the shared team
  std::function<void(double fraction)> on_load = {};
};

// The layers of a model over a paged KV cache: any number of sequences, any number of new tokens each.
// Pages are held by sequences, and beside them by whoever keeps them for sequences to come, a prefix cache for one; a
// page is free again when nobody holds it.
// Not thread-safe. Throws Error(invalid_file | unsupported | out_of_memory).
class ForwardPass {
 public:
  using SequenceId = int64_t;
  ForwardPass(const ModelFile& file, const ForwardOptions& options);
  ~ForwardPass();
  ForwardPass(ForwardPass&&) noexcept;
  ForwardPass& operator=(ForwardPass&&) noexcept;

  const ModelConfig& config() const;
  SequenceId add_sequence();
  // One that begins with these pages, whole ones that somebody holds, in their order from a sequence's start.
  SequenceId add_sequence(std::span<const int32_t> pages);
  SequenceId fork(SequenceId sequence, int64_t tokens);  // shares the first `tokens` tokens
  void truncate(SequenceId sequence, int64_t tokens);
  void release(SequenceId sequence);
  int64_t length(SequenceId sequence) const;

  // In order, page_size() tokens each, the last one perhaps fewer. Valid until the sequence changes.
  std::span<const int32_t> pages(SequenceId sequence) const;
  // One more holder of each page, and one fewer. Throws Error(invalid_argument) and changes nothing for a page that is
  // free, or that was not held so.
  void hold_pages(std::span<const int32_t> pages);
  void unhold_pages(std::span<const int32_t> pages);
  int page_size() const;
  int64_t num_pages() const;
  int64_t num_free_pages() const;

  // For idle moments: has the system back some of the pages that come next, so that no step waits for it. A few ms a
  // call; false: enough of them are, or it does not do so ahead. Changes nothing else.
  bool prefault();

  static constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();
  struct Input {
    SequenceId sequence;
    std::span<const int32_t> tokens;
    int64_t logit_rows = 1;  // the last so many of them give logits
    // Gives the same bits beside any other inputs and on any number of workers: attention is cut as
    // PlanMode::fixed_split cuts it, every kInvariantSplit tokens. Inputs of either kind go through the layers apart.
    bool invariant = false;
  };
  static constexpr int kInvariantSplit = 256;
  // Appends the tokens and returns fp32 logits [rows, vocab], rows in the order of the inputs; valid until the
  // next call. Neighbouring inputs of up to max_rows tokens together are one step, more of them several.
  // `prefixes`: pages that the inputs' sequences have in common before these tokens, a node for each input; they are
  // read once for all where that pays. Without them what forks share is looked for.
  // Throws Error(context_full | invalid_token | invalid_argument) and changes nothing then.
  TensorView run(std::span<const Input> inputs, const SharedPrefixes& prefixes = {});
  TensorView run(std::initializer_list<Input> inputs);

  // Runs as run() does, and returns of each row no more than the id that greedy sampling draws: of the greatest logit,
  // of equals the least. -1: the row's logits are all -inf or NaN, of which sample() throws.
  std::span<const int32_t> run_greedy(std::span<const Input> inputs, const SharedPrefixes& prefixes = {});
  std::span<const int32_t> run_greedy(std::initializer_list<Input> inputs);
  // Runs as run() does, and returns an id for each row, drawn as draws[row] says: what sample() would draw after the
  // changes, on every device. -1: the changed logits are all -inf or NaN. Throws Error(invalid_argument | invalid_token
  // | invalid_shape), and changes nothing then, for a draw that is missing or does not fit the vocabulary.
  std::span<const int32_t> run_sampled(std::span<const Input> inputs, std::span<const TokenDraw> draws,
                                       const SharedPrefixes& prefixes = {});
  // Whether ids alone come back from the device then, and not logits.
  bool finds_ids() const;

  // How steps run, in words: "steps of up to 8 rows fused, ...", "layered: required ...".
  const std::string& step_form() const;
  size_t weight_bytes() const;  // read once for a token
  size_t kv_bytes_per_token() const;

 private:
  struct Impl;
  Impl& impl() const;
  explicit ForwardPass(std::unique_ptr<Impl> impl);
  friend ForwardPass make_forward_pass(const ModelConfig& config, decode::ModelSources sources,
                                       const ForwardOptions& options);  // decode/forward.h
  friend struct decode::StepProbe;                                      // decode/forward.h
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
