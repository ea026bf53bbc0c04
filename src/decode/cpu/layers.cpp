#include "decode/cpu/layers.h"

#include <array>
#include <cstring>
#include <utility>

#include "decode/cpu/weights.h"
#include "ops/elementwise.h"

namespace weft::decode {
namespace {

TensorView vector_view(const std::vector<float>& values) {
  return TensorView(values.data(), DType::fp32, {static_cast<int64_t>(values.size())});
}
TensorView rows_view(const float* data, int64_t rows, int64_t cols) {
  return TensorView(data, DType::fp32, {rows, cols});
}

class CpuLayers : public Layers {
 public:
  CpuLayers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options, const Sequences& sequences)
      : Layers(config, options, Stream::cpu(team_of(options)), sequences),
        team_(team_of(options)),
        weights_(pack_weights(std::move(sources), options.precision, team_, options.on_load)),
        gate_(config.gate == Gate::silu ? ops::elementwise().silu_and_mul : ops::elementwise().gelu_tanh_and_mul) {}

  size_t weight_bytes() const override { return weights_.bytes_per_token(); }

 private:
  void upload(const Step& step) override {
    step_ = &step;
    rows_ = step.rows();
    make_buffers();
  }

  void embed(const Step& step) override {
    const int64_t hidden = config_.hidden_size;
    ops::for_rows(team_, rows_, 4 * hidden, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        gemm::read_row(weights_.embedding, step.tokens[static_cast<size_t>(row)], residual_ + row * hidden);
        if (config_.embedding_scale != 1.f)
          ops::elementwise().scale(residual_ + row * hidden, hidden, config_.embedding_scale);
      }
    });
    next_ = norm_rows(weights_.layers[0].vectors.attn_norm);
  }

  void append(int layer) override {
    const CpuLayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    multiply(weights.qkv, normed_, config_.hidden_size, qkv_, next_);
    finish_qkv(weights.vectors, attention_.rope(attention_.kind_of(layer)));
    const KvCache cache = sequences_.layer(layer);
    append_paged_kv(heads_view(config_.num_qo_heads, config_.num_kv_heads),
                    heads_view(config_.num_qo_heads + config_.num_kv_heads, config_.num_kv_heads), step_->qo_indptr,
                    step_->pages.get(), Layout::nhd, cache, kv_scales_of(cache.k.dtype()), stream_);
  }

  void attend(int layer) override {
    AttentionTensors tensors;
    const int64_t heads = config_.num_qo_heads, dim = config_.head_dim;
    tensors.q = attention_.q_dtype() == DType::bf16 ? TensorView(query_, DType::bf16, {rows_, heads, dim})
                                                    : heads_view(0, heads);
    tensors.kv = sequences_.layer(layer);
    tensors.o = TensorView(attended_, DType::fp32, {rows_, heads, dim});
    attention_.run(layer, std::move(tensors));
  }

  void keep(const std::vector<int64_t>& wanted) override {
    const auto count = static_cast<int64_t>(wanted.size());
    if (count == rows_) return;
    const auto move = [&](float* data, int64_t cols) {
      for (int64_t i = 0; i < count; ++i)
        std::memmove(data + i * cols, data + wanted[static_cast<size_t>(i)] * cols,
                     static_cast<size_t>(cols) * sizeof(float));
    };
    move(residual_, config_.hidden_size);
    move(attended_, q_cols());
    rows_ = count;
  }

  void feed_forward(int layer) override {
    const CpuLayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const bool is_last = layer + 1 == config_.num_layers;
    const LayerVectors& vectors = weights.vectors;
    multiply(weights.output, attended_, q_cols(), projected_);
    gemm::Fusion fusion = add_and_norm_rows(vectors.attn_post_norm, vectors.ffn_norm, &vectors.output_bias);
    fusion.gate_epilogue = gate_;
    multiply(weights.gate_up, normed_, config_.hidden_size, gated_, fusion);
    multiply(weights.down, gated_, config_.intermediate_size, projected_);
    next_ = add_and_norm_rows(
        vectors.ffn_post_norm,
        is_last ? weights_.output_norm : weights_.layers[static_cast<size_t>(layer) + 1].vectors.attn_norm);
  }

  void finish(float* logits) override {
    multiply(weights_.head(), normed_, config_.hidden_size, logits, next_);
    if (config_.logits_soft_cap > 0.f)
      soft_cap(rows_view(logits, rows_, config_.vocab_size), config_.logits_soft_cap, stream_);
  }

  void make_buffers() {
    if (rows_ <= buffer_rows_) return;
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const int64_t row = 3 * hidden + qkv_cols() + 2 * q_cols() + intermediate;
    buffers_ = Workspace();
    buffer_rows_ = 0;
    buffers_ = Workspace(Device::cpu(), static_cast<size_t>(rows_ * row) * sizeof(float));
    buffer_rows_ = rows_;
    auto* at = static_cast<float*>(buffers_.data());
    const auto take = [&](int64_t cols) { return std::exchange(at, at + rows_ * cols); };
    residual_ = take(hidden);
    normed_ = take(hidden);
    projected_ = take(hidden);
    qkv_ = take(qkv_cols());
    attended_ = take(q_cols());
    gated_ = take(intermediate);
    query_ = reinterpret_cast<unsigned short*>(take(q_cols()));
  }

  // Heads [first, first + heads) of the fused projection.
  TensorView heads_view(int64_t first, int64_t heads) const {
    const std::array<int64_t, 3> shape{rows_, heads, config_.head_dim}, strides{qkv_cols(), config_.head_dim, 1};
    return TensorView(qkv_ + first * config_.head_dim, DType::fp32, shape, strides);
  }

  void multiply(const gemm::PackedLinear& w, const float* x, int64_t ldx, float* y, const gemm::Fusion& fusion = {}) {
    const int64_t cols = fusion.gate_epilogue != nullptr ? w.rows() / 2 : w.rows();
    gemm::linear(w, x, rows_, ldx, y, cols, scratch_, team_, fusion);
  }

  // Rows of the residual, normed for the next product.
  gemm::Fusion norm_rows(const std::vector<float>& weight) {
    return {.prologue = [this, &weight](int64_t begin, int64_t end) {
      const TensorView sum = rows_view(residual_, rows_, config_.hidden_size),
                       norm = rows_view(normed_, rows_, config_.hidden_size);
      rms_norm(sum.slice(0, begin, end), vector_view(weight), config_.norm_eps, norm.slice(0, begin, end), stream_);
    }};
  }
  // The same after adding the projection, with its bias and itself normed in models that do so.
  gemm::Fusion add_and_norm_rows(const std::vector<float>& part_weight, const std::vector<float>& weight,
                                 const std::vector<float>* bias = nullptr) {
    return {.prologue = [this, &part_weight, &weight, bias](int64_t begin, int64_t end) {
      const int64_t hidden = config_.hidden_size;
      if (bias != nullptr && !bias->empty())
        for (int64_t row = begin; row < end; ++row)
          ops::elementwise().add(bias->data(), hidden, projected_ + row * hidden);
      const TensorView part = rows_view(projected_, rows_, hidden).slice(0, begin, end),
                       sum = rows_view(residual_, rows_, hidden).slice(0, begin, end),
                       norm = rows_view(normed_, rows_, hidden).slice(0, begin, end);
      if (!part_weight.empty()) rms_norm(part, vector_view(part_weight), config_.norm_eps, part, stream_);
      add_rms_norm(part, sum, vector_view(weight), config_.norm_eps, norm, stream_);
    }};
  }

  // From the product to queries, keys and values: bias, norms, rotation, row by row.
  void finish_qkv(const LayerVectors& vectors, const ops::RopeTable& rope) {
    const bool bf16 = attention_.q_dtype() == DType::bf16;
    const TensorView q = heads_view(0, config_.num_qo_heads),
                     k = heads_view(config_.num_qo_heads, config_.num_kv_heads);
    const int64_t row_cols = qkv_cols(), cols = q_cols();
    ops::for_rows(team_, rows_, 3 * row_cols, [&](int64_t begin, int64_t end) {
      const TensorView some_q = q.slice(0, begin, end), some_k = k.slice(0, begin, end);
      if (!vectors.qkv_bias.empty())
        for (int64_t row = begin; row < end; ++row)
          ops::elementwise().add(vectors.qkv_bias.data(), row_cols, qkv_ + row * row_cols);
      if (!vectors.q_norm.empty()) rms_norm(some_q, vector_view(vectors.q_norm), config_.norm_eps, some_q, stream_);
      if (!vectors.k_norm.empty()) rms_norm(some_k, vector_view(vectors.k_norm), config_.norm_eps, some_k, stream_);
      ops::apply_rope_table(some_q, rope, begin, stream_);
      ops::apply_rope_table(some_k, rope, begin, stream_);
      for (int64_t row = begin; bf16 && row < end; ++row)
        ops::elementwise().to_bf16(qkv_ + row * row_cols, cols, query_ + row * cols);
    });
  }

  WorkerTeam& team_;
  CpuWeights weights_;
  void (*gate_)(const float* gate, const float* up, long long n, float* y);
  gemm::Scratch scratch_;
  gemm::Fusion next_;  // of the next product: makes its rows
  const Step* step_ = nullptr;
  int64_t rows_ = 0;  // of the step that go on

  // Of a step, all fp32 but the queries: [rows, ...]
  Workspace buffers_;
  int64_t buffer_rows_ = 0;
  float *residual_ = nullptr, *normed_ = nullptr, *qkv_ = nullptr, *attended_ = nullptr, *projected_ = nullptr,
        *gated_ = nullptr;
  unsigned short* query_ = nullptr;  // bf16, when the kernel takes them so
};

}  // namespace

std::unique_ptr<Layers> make_cpu_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                        const Sequences& sequences) {
  return std::make_unique<CpuLayers>(config, std::move(sources), options, sequences);
}

}  // namespace weft::decode
