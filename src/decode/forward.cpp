// The forward pass, layer by layer: operators and attention over one paged cache. A call is cut into chunks of rows;
// a chunk is one plan, and every layer runs it (two plans where some layers see a window only).
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "attention/backend.h"
#include "base/check.h"
#include "decode/sequences.h"
#include "decode/weights.h"
#include "models/layers.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "weft/levels.h"
#include "weft/model.h"

namespace weft {
namespace {

using decode::LayerWeights;
using decode::Sequences;

constexpr int64_t kChunkRows = 512;  // activations of a chunk stay in the caches, weights are unpacked seldom

DType kv_dtype_of(const ForwardOptions& options) {
  const bool exact = options.precision == Precision::exact;
  const DType dtype = options.kv_dtype.value_or(exact ? DType::fp32 : DType::bf16);
  const bool wide = dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
  check(wide || dtype == DType::int8, ErrorCode::unsupported,
        "kv_dtype: required {}; supported fp32, fp16, bf16, and int8 with precision fast; missing: a precision that "
        "allows the error of {}",
        to_string(dtype), to_string(dtype));
  check(wide || options.precision == Precision::fast, ErrorCode::invalid_argument,
        "kv_dtype = {} with precision {}; only precision fast allows it", to_string(dtype),
        to_string(options.precision));
  check(!exact || dtype == DType::fp32, ErrorCode::invalid_argument,
        "kv_dtype = {} with precision exact; exact keeps fp32: leave kv_dtype out, or use precision default, which "
        "allows {}",
        to_string(dtype), to_string(dtype));
  return dtype;
}

KvScales kv_scales_of(DType kv_dtype) { return bits_of(kv_dtype) <= 8 ? KvScales::token : KvScales::none; }

AttentionSpec spec_of(const ModelConfig& config, const ForwardOptions& options, DType kv_dtype, bool slides) {
  AttentionSpec spec;
  spec.kv_dtype = kv_dtype;
  const attention::Backend& backend = attention::backend_of(Device::cpu());
  if (options.precision != Precision::exact && kv_dtype == DType::bf16)
    spec.q_dtype = backend.query_type(spec, backend.target({}, Device::cpu()));
  spec.kv_scales = kv_scales_of(kv_dtype);
  spec.o_dtype = DType::fp32;
  spec.head_dim_qk = spec.head_dim_vo = config.head_dim;
  spec.mask = Mask::causal;
  spec.sliding_window = slides;
  if (config.attention_soft_cap > 0.f) spec.variant = variants::logits_soft_cap();
  return spec;
}

TensorView vector_view(const std::vector<float>& values) {
  return TensorView(values.data(), DType::fp32, {static_cast<int64_t>(values.size())});
}

}  // namespace

struct ForwardPass::Impl {
  // Rows [begin, begin + count) of an input that go through the layers together with others.
  struct Piece {
    const Input* input;
    int64_t begin, count;
    int64_t length;        // of the sequence before the piece
    int64_t first_wanted;  // rows of the piece from here on give logits
  };

  // What the layers that see everything share, or those that see a window: a kernel, and a plan and angles of a chunk.
  struct Attention {
    AttentionKernel kernel;
    RopeParams rope_params;
    std::vector<ScalarArg> plan_scalars;
    Workspace workspace;  // holds the plan
    ops::RopeTable rope;
  };

  ModelConfig config;
  ForwardOptions options;
  WorkerTeam& team;
  Stream stream;
  DType kv_dtype;
  std::vector<Attention> attentions;  // of layers that see everything; where some slide, theirs besides
  Sequences sequences;
  decode::ModelWeights weights;

  // Of a chunk, all fp32 but query: [rows, ...]
  Workspace buffers, logits;
  int64_t buffer_rows = 0;
  float *residual = nullptr, *normed = nullptr, *qkv = nullptr, *attended = nullptr, *projected = nullptr,
        *gated = nullptr;
  char* query = nullptr;  // bf16 queries, when the kernel takes them
  gemm::Scratch scratch;
  Sequences::View view;
  std::vector<int32_t> qo_indptr, positions;
  std::vector<int64_t> wanted;  // rows of the chunk that give logits

  Impl(const ModelFile& file, const ForwardOptions& o)
      : config(file.config()),
        options(o),
        team(o.team != nullptr ? *o.team : WorkerTeam::shared()),
        stream(Stream::cpu(team)),
        kv_dtype(kv_dtype_of(o)),
        attentions(make_attentions()),
        sequences(config, o, kv_dtype),
        weights(decode::load_weights(file, o.precision, current_isa(), team, o.on_load)) {
    // Refuses plan options now, not in the first run.
    attentions[0].kernel.workspace_bytes({.max_requests = options.max_sequences,
                                          .max_rows = 1,
                                          .max_pages = 1,
                                          .max_kv_len = options.page_size,
                                          .page_size = options.page_size,
                                          .num_qo_heads = config.num_qo_heads,
                                          .num_kv_heads = config.num_kv_heads,
                                          .workers = team.num_workers(),
                                          .mode = options.plan_mode,
                                          .fixed_split_size = options.fixed_split_size});
  }

  std::vector<Attention> make_attentions() const {
    std::vector<Attention> made;
    const auto add = [&](bool slides, const RopeParams& rope, std::vector<ScalarArg> scalars) {
      made.push_back(
          {build(spec_of(config, options, kv_dtype, slides), Device::cpu()), rope, std::move(scalars), {}, {}});
    };
    add(false, config.rope, {});
    if (config.sliding_window > 0)
      add(true, config.sliding_rope, {{"window_left", static_cast<double>(config.sliding_window - 1)}});
    return made;
  }
  Attention& attention_of(int layer) { return attentions[layer_slides(config, layer) ? 1 : 0]; }

  int64_t q_cols() const { return int64_t{config.num_qo_heads} * config.head_dim; }
  int64_t kv_cols() const { return int64_t{config.num_kv_heads} * config.head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }

  void make_buffers(int64_t rows) {
    if (rows <= buffer_rows) return;
    const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
    const int64_t row = 3 * hidden + qkv_cols() + 2 * q_cols() + intermediate;
    buffers = Workspace();
    buffer_rows = 0;
    buffers = Workspace(Device::cpu(), static_cast<size_t>(rows * row) * sizeof(float));
    buffer_rows = rows;
    auto* at = static_cast<float*>(buffers.data());
    const auto take = [&](int64_t cols) { return std::exchange(at, at + rows * cols); };
    residual = take(hidden);
    normed = take(hidden);
    projected = take(hidden);
    qkv = take(qkv_cols());
    attended = take(q_cols());
    gated = take(intermediate);
    query = reinterpret_cast<char*>(take(q_cols()));
  }

  static TensorView rows_view(const float* data, int64_t rows, int64_t cols) {
    return TensorView(data, DType::fp32, {rows, cols});
  }
  // Heads [first, first + heads) of the fused projection.
  TensorView heads_view(int64_t rows, int64_t first, int64_t heads) const {
    const std::array<int64_t, 3> shape{rows, heads, config.head_dim}, strides{qkv_cols(), config.head_dim, 1};
    return TensorView(qkv + first * config.head_dim, DType::fp32, shape, strides);
  }

  void multiply(const gemm::PackedLinear& w, const float* x, int64_t rows, int64_t ldx, float* y,
                const gemm::Around& around = {}) {
    const int64_t cols = around.gate != nullptr ? w.rows() / 2 : w.rows();
    gemm::linear(w, x, rows, ldx, y, cols, scratch, team, around);
  }

  TensorView run(std::span<const Input> inputs);
  void check_inputs(std::span<const Input> inputs) const;
  void run_chunk(std::span<const Piece> pieces, float* logits_to);
  void embed(std::span<const Piece> pieces, int64_t rows);
  void plan_attention();
  void attend(const LayerWeights& layer, int index, const gemm::Around& before, int64_t rows, bool only_append);
  TensorView finish_qkv(const LayerWeights& layer, const ops::RopeTable& rope, int64_t rows);
  int64_t keep_wanted(int64_t rows);
};

void ForwardPass::Impl::check_inputs(std::span<const Input> inputs) const {
  check(!inputs.empty(), ErrorCode::invalid_argument, "run: no input is given; give at least one sequence");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    check(!input.tokens.empty(), ErrorCode::invalid_argument, "run: inputs[{}] has no tokens; give at least one", i);
    for (size_t j = 0; j < i; ++j)
      check(inputs[j].sequence != input.sequence, ErrorCode::invalid_argument,
            "run: inputs[{}] and inputs[{}] both name sequence {}; join their tokens", j, i, input.sequence);
    for (size_t t = 0; t < input.tokens.size(); ++t)
      check(input.tokens[t] >= 0 && input.tokens[t] < config.vocab_size, ErrorCode::invalid_token,
            "run: inputs[{}].tokens[{}] = {}; allowed are 0 to {}", i, t, input.tokens[t], config.vocab_size - 1);
    sequences.length(input.sequence);  // throws for one that does not exist
  }
}

TensorView ForwardPass::Impl::run(std::span<const Input> inputs) {
  check_inputs(inputs);
  int64_t logit_rows = 0;
  for (const Input& input : inputs) logit_rows += input.all_logits ? static_cast<int64_t>(input.tokens.size()) : 1;
  const size_t logit_bytes = static_cast<size_t>(logit_rows * config.vocab_size) * sizeof(float);

  // Takes the appended tokens back unless everything went well.
  struct Rollback {
    Impl& impl;
    std::vector<const Input*> appended = {};
    bool done = false;
    ~Rollback() {
      if (!done)
        for (const Input* input : appended)
          impl.sequences.take_back(input->sequence, static_cast<int64_t>(input->tokens.size()));
    }
  } rollback{*this};
  rollback.appended.reserve(inputs.size());
  for (const Input& input : inputs) {
    sequences.append(input.sequence, static_cast<int64_t>(input.tokens.size()));
    rollback.appended.push_back(&input);
  }

  if (logits.bytes() < logit_bytes) {
    logits = Workspace();
    logits = Workspace(Device::cpu(), logit_bytes);
  }
  auto* logits_to = static_cast<float*>(logits.data());
  std::vector<Piece> pieces;
  int64_t rows = 0;
  const auto flush = [&] {
    run_chunk(pieces, logits_to);
    logits_to += static_cast<int64_t>(wanted.size()) * config.vocab_size;
    pieces.clear();
    rows = 0;
  };
  for (const Input& input : inputs) {
    const auto total = static_cast<int64_t>(input.tokens.size());
    const int64_t before = sequences.length(input.sequence) - total, first_wanted = input.all_logits ? 0 : total - 1;
    for (int64_t begin = 0; begin < total;) {
      const int64_t count = std::min(total - begin, kChunkRows - rows);
      pieces.push_back({&input, begin, count, before + begin, std::max<int64_t>(0, first_wanted - begin)});
      begin += count;
      rows += count;
      if (rows == kChunkRows) flush();
    }
  }
  if (rows > 0) flush();
  rollback.done = true;
  return TensorView(logits.data(), DType::fp32, {logit_rows, config.vocab_size});
}

// Rows of the embedding, their positions, and where each request's rows are.
void ForwardPass::Impl::embed(std::span<const Piece> pieces, int64_t rows) {
  positions.clear();
  wanted.clear();
  qo_indptr.assign(1, 0);
  view.clear();
  std::vector<int32_t> tokens;
  for (const Piece& piece : pieces) {
    for (int64_t i = 0; i < piece.count; ++i) {
      if (i >= piece.first_wanted) wanted.push_back(static_cast<int64_t>(positions.size()));
      positions.push_back(static_cast<int32_t>(piece.length + i));
      tokens.push_back(piece.input->tokens[static_cast<size_t>(piece.begin + i)]);
    }
    qo_indptr.push_back(static_cast<int32_t>(positions.size()));
    view.add(sequences, piece.input->sequence, piece.length + piece.count);
  }
  const int64_t hidden = config.hidden_size;
  ops::for_rows(team, rows, 4 * hidden, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      gemm::read_row(weights.embedding, tokens[static_cast<size_t>(row)], residual + row * hidden);
      if (config.embedding_scale != 1.f)
        ops::elementwise().scale(residual + row * hidden, hidden, config.embedding_scale);
    }
  });
}

// Plans and angles for the rows that embed listed.
void ForwardPass::Impl::plan_attention() {
  PlanInput input;
  input.num_qo_heads = config.num_qo_heads;
  input.num_kv_heads = config.num_kv_heads;
  input.qo_indptr = qo_indptr;
  input.pages = view.get();
  input.num_workers = team.num_workers();
  input.mode = options.plan_mode;
  input.fixed_split_size = options.fixed_split_size;
  input.borrow_page_ids = true;
  for (Attention& attention : attentions) {
    input.scalars = attention.plan_scalars;
    // What forks share is read once for all of them. Not under fixed splits: a request alone has nothing to share, and
    // gets the same bits there.
    SharedLevels shared;
    if (qo_indptr.size() > 2 && sequences.pages_may_be_shared() && options.plan_mode != PlanMode::fixed_split)
      shared = levels_from_page_tables(attention.kernel, input);
    const Plan plan = attention.kernel.plan(shared.apply(input));
    if (attention.workspace.bytes() < plan.workspace_bytes()) {
      attention.workspace = Workspace();
      attention.workspace = Workspace(Device::cpu(), plan.workspace_bytes());
    }
    plan.upload(attention.workspace, stream);
    ops::make_rope_table(positions, attention.rope_params, config.head_dim, attention.rope);
  }
}

// From the product to queries, keys and values: bias, norms, rotation, row by row. Returns the queries.
TensorView ForwardPass::Impl::finish_qkv(const LayerWeights& layer, const ops::RopeTable& rope, int64_t rows) {
  const bool bf16 = attentions[0].kernel.spec().q_dtype == DType::bf16;
  const TensorView q = heads_view(rows, 0, config.num_qo_heads);
  const TensorView k = heads_view(rows, config.num_qo_heads, config.num_kv_heads);
  auto* rounded = reinterpret_cast<unsigned short*>(query);
  const int64_t cols = q_cols();
  ops::for_rows(team, rows, 3 * qkv_cols(), [&](int64_t begin, int64_t end) {
    const TensorView some_q = q.slice(0, begin, end), some_k = k.slice(0, begin, end);
    if (!layer.qkv_bias.empty())
      for (int64_t row = begin; row < end; ++row)
        ops::elementwise().add(layer.qkv_bias.data(), qkv_cols(), qkv + row * qkv_cols());
    if (!layer.q_norm.empty()) rms_norm(some_q, vector_view(layer.q_norm), config.norm_eps, some_q, stream);
    if (!layer.k_norm.empty()) rms_norm(some_k, vector_view(layer.k_norm), config.norm_eps, some_k, stream);
    ops::apply_rope_table(some_q, rope, begin, stream);
    ops::apply_rope_table(some_k, rope, begin, stream);
    for (int64_t row = begin; bf16 && row < end; ++row)
      ops::elementwise().to_bf16(qkv + row * qkv_cols(), cols, rounded + row * cols);
  });
  return bf16 ? TensorView(query, DType::bf16, {rows, config.num_qo_heads, config.head_dim}) : q;
}

// The rows that `before` makes in normed -> attended, new keys and values into the cache on the way; with only_append no
// more than those.
void ForwardPass::Impl::attend(const LayerWeights& layer, int index, const gemm::Around& before, int64_t rows,
                               bool only_append) {
  Attention& attention = attention_of(index);
  multiply(layer.qkv, normed, rows, config.hidden_size, qkv, before);
  AttentionTensors tensors;
  tensors.q = finish_qkv(layer, attention.rope, rows);
  tensors.kv = sequences.layer(index);
  const TensorView k = heads_view(rows, config.num_qo_heads, config.num_kv_heads);
  const TensorView v = heads_view(rows, config.num_qo_heads + config.num_kv_heads, config.num_kv_heads);
  append_paged_kv(k, v, qo_indptr, view.get(), Layout::nhd, tensors.kv, kv_scales_of(kv_dtype), stream);
  if (only_append) return;
  tensors.o = TensorView(attended, DType::fp32, {rows, config.num_qo_heads, config.head_dim});
  if (config.sm_scale > 0.f) tensors.sm_scale = config.sm_scale;
  if (config.attention_soft_cap > 0.f) tensors.scalars = {{"cap", config.attention_soft_cap}};
  attention.kernel.run(attention.workspace, tensors, stream);
}

// Moves the rows that give logits to the front of what the last layer still needs.
int64_t ForwardPass::Impl::keep_wanted(int64_t rows) {
  const auto count = static_cast<int64_t>(wanted.size());
  if (count == rows) return rows;
  const auto move = [&](float* data, int64_t cols) {
    for (int64_t i = 0; i < count; ++i)
      std::memmove(data + i * cols, data + wanted[static_cast<size_t>(i)] * cols,
                   static_cast<size_t>(cols) * sizeof(float));
  };
  move(residual, config.hidden_size);
  move(attended, q_cols());
  return count;
}

void ForwardPass::Impl::run_chunk(std::span<const Piece> pieces, float* logits_to) {
  int64_t rows = 0;
  for (const Piece& piece : pieces) rows += piece.count;
  make_buffers(rows);
  embed(pieces, rows);
  plan_attention();
  const ops::ElementwiseTable& loops = ops::elementwise();
  const auto gate = config.gate == Gate::silu ? loops.silu_and_mul : loops.gelu_tanh_and_mul;
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const TensorView sum = rows_view(residual, rows, hidden), norm = rows_view(normed, rows, hidden),
                   part = rows_view(projected, rows, hidden);
  // Rows of the residual, normed for the next product.
  const auto norm_rows = [&](const std::vector<float>& weight) -> gemm::Around {
    return {.before = [&](int64_t begin, int64_t end) {
      rms_norm(sum.slice(0, begin, end), vector_view(weight), config.norm_eps, norm.slice(0, begin, end), stream);
    }};
  };
  // The same after adding the projection, itself normed in models that do so.
  const auto add_and_norm_rows = [&](const std::vector<float>& part_weight,
                                     const std::vector<float>& weight) -> gemm::Around {
    return {.before = [&](int64_t begin, int64_t end) {
      const TensorView some = part.slice(0, begin, end);
      if (!part_weight.empty()) rms_norm(some, vector_view(part_weight), config.norm_eps, some, stream);
      add_rms_norm(some, sum.slice(0, begin, end), vector_view(weight), config.norm_eps, norm.slice(0, begin, end),
                   stream);
    }};
  };
  gemm::Around before = norm_rows(weights.layers[0].attn_norm);
  for (int index = 0; index < config.num_layers; ++index) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(index)];
    const bool last = index + 1 == config.num_layers;
    attend(layer, index, before, rows, last && wanted.empty());
    if (last) rows = keep_wanted(rows);
    if (rows == 0) return;
    multiply(layer.output, attended, rows, q_cols(), projected);
    gemm::Around feed_forward = add_and_norm_rows(layer.attn_post_norm, layer.ffn_norm);
    feed_forward.gate = gate;
    multiply(layer.gate_up, normed, rows, hidden, gated, feed_forward);
    multiply(layer.down, gated, rows, intermediate, projected);
    before = add_and_norm_rows(layer.ffn_post_norm,
                               last ? weights.output_norm : weights.layers[static_cast<size_t>(index) + 1].attn_norm);
  }
  multiply(weights.head(), normed, rows, hidden, logits_to, before);
  if (config.logits_soft_cap > 0.f)
    soft_cap(rows_view(logits_to, rows, config.vocab_size), config.logits_soft_cap, stream);
}

ForwardPass::ForwardPass(const ModelFile& file, const ForwardOptions& options)
    : impl_(std::make_unique<Impl>(file, options)) {}
ForwardPass::~ForwardPass() = default;
ForwardPass::ForwardPass(ForwardPass&&) noexcept = default;
ForwardPass& ForwardPass::operator=(ForwardPass&&) noexcept = default;

ForwardPass::Impl& ForwardPass::impl() const { return held(impl_, "forward pass", "ForwardPass(file, options)"); }

const ModelConfig& ForwardPass::config() const { return impl().config; }
ForwardPass::SequenceId ForwardPass::add_sequence() { return impl().sequences.add(); }
ForwardPass::SequenceId ForwardPass::fork(SequenceId sequence, int64_t tokens) {
  return impl().sequences.fork(sequence, tokens);
}
void ForwardPass::truncate(SequenceId sequence, int64_t tokens) { impl().sequences.truncate(sequence, tokens); }
void ForwardPass::release(SequenceId sequence) { impl().sequences.release(sequence); }
int64_t ForwardPass::length(SequenceId sequence) const { return impl().sequences.length(sequence); }
TensorView ForwardPass::run(std::span<const Input> inputs) { return impl().run(inputs); }
TensorView ForwardPass::run(std::initializer_list<Input> inputs) {
  return impl().run(std::span<const Input>(inputs.begin(), inputs.size()));
}
size_t ForwardPass::weight_bytes() const { return impl().weights.bytes_per_token(); }
size_t ForwardPass::kv_bytes_per_token() const { return impl().sequences.bytes_per_token(); }

}  // namespace weft
