#include "decode/cuda/executor.h"

#include <utility>

#include "base/check.h"
#include "decode/cuda/step_graphs.h"
#include "decode/cuda/step_upload.h"
#include "decode/cuda/weights.h"
#include "device/cuda/stream.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/draw.h"
#include "ops/cuda/greedy.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/products.h"

namespace weft::decode {
namespace {

using ops::CardMatrix;
using ops::CardProduct;

constexpr int64_t kWarps = ops::kThreads / 32;  // of a CTA, each with a row at a time

ops::CardCache cache_of(const TensorView& cache, const TensorView& scale) {
  ops::CardCache to{.data = cache.data(),
                    .page_stride = cache.stride(0),
                    .slot_stride = cache.stride(1),
                    .head_stride = cache.stride(2)};
  if (scale) {
    to.scale = scale.as<float>();
    to.scale_page_stride = scale.stride(0), to.scale_slot_stride = scale.stride(1);
    to.scale_head_stride = scale.stride(2);
  }
  return to;
}

ops::CardRows rows_of(float* data, int64_t cols) { return {data, 1, cols, 0}; }

// A norm is part of the product that reads it, sum and gate are part of their own.
class CudaExecutor : public DeviceExecutor {
 public:
  CudaExecutor(const ModelConfig& config, std::shared_ptr<const CardWeights> weights, const ForwardOptions& options,
               const Sequences& sequences, cuda::Card& card, cuda::OwnedStream stream)
      : DeviceExecutor(config, options, Stream::cuda(stream.get(), card.index()), sequences),
        card_(card),
        own_stream_(std::move(stream)),
        weights_(std::move(weights)),
        upload_(card, attention_.num_kinds(), config.head_dim / 2),
        graphs_(card, own_stream_.get()) {
    cuda::load_all(cuda::runtime(), stream_.device(), kernels(), team_of(options));
  }

  size_t weight_bytes() const override { return weights_->bytes_per_token(); }

  bool fuses(const Operation& operation, const Operation& next) const override {
    switch (next.kind) {
      case OperationKind::project: return operation.kind == OperationKind::norm;
      case OperationKind::gate: return operation.kind == OperationKind::project;
      // Of the output projection; that of q, k and v goes with their rotation.
      case OperationKind::add_bias: return next.writes[0] == Buffer::projected;
      case OperationKind::norm: return next.writes[0] == Buffer::projected;
      case OperationKind::add: return operation.writes[0] == Buffer::projected;
      case OperationKind::norm_heads: return operation.kind == OperationKind::add_bias;
      case OperationKind::rotate:
        return operation.kind == OperationKind::norm_heads || operation.kind == OperationKind::add_bias;
      case OperationKind::append: return operation.kind == OperationKind::rotate;
      default: return false;
    }
  }

  void upload(const Step& step) override {
    make_buffers(step);
    upload_.write(step, attention_, own_stream_.get());
  }

  bool has_greedy() const override { return true; }

  void enqueue(const Step& step, const StepOutput& output, const std::function<void()>& walk) override {
    const auto wanted = static_cast<int64_t>(step.wanted.size());
    graphs_.run({.rows = step.rows(), .wanted = wanted, .invariant = step.invariant, .memory = memory_of(output)}, [&] {
      rows_ = step.rows();
      is_invariant_ = step.invariant;
      walk();
      if (wanted == 0) return;
      const auto copy = [&](void* to, const void* from, int64_t of_row) {
        cuda::copy_to_host(card_, to, from, static_cast<size_t>(wanted * of_row), own_stream_.get());
      };
      const auto* const logits_there = static_cast<const float*>(logits_.data());
      if (output.greedy != nullptr)
        copy(output.greedy, greedy_.run(logits_there, wanted, stream_), sizeof(int32_t));
      else if (output.logits != nullptr)
        copy(output.logits, logits_there, config_.vocab_size * static_cast<int64_t>(sizeof(float)));
    });
    // How tokens are drawn differs from step to step: it is uploaded, and no part of a graph.
    if (output.drawn == nullptr || wanted == 0) return;
    const int* const ids = draws_.run({static_cast<float*>(logits_.data()), config_.vocab_size, config_.vocab_size}, {},
                                      {output.draws, step.wanted.size()}, stream_);
    cuda::copy_to_host(card_, output.drawn, ids, step.wanted.size() * sizeof(int32_t), own_stream_.get());
  }

  void run(std::span<const Operation> fused) override {
    const Operation& last = fused.back();
    switch (last.kind) {
      case OperationKind::embed:
        return ops::embed(weights_->embedding, upload_.tokens(), rows_, last.scale, residual_, stream_);
      case OperationKind::project: return multiply_normed(fused);
      case OperationKind::append: return append(fused);
      case OperationKind::attend: return attend(last);
      case OperationKind::add: return add_product(fused);
      case OperationKind::gate: return multiply_gated(fused);
      case OperationKind::soft_cap: return cap_logits(last);
      default: ensure(false, "{} ends what runs as one on a card", to_string(last.kind));
    }
  }

  void keep(const std::vector<int64_t>& wanted) override {
    const auto move = [&](float* data, int64_t cols) {
      for (size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] != static_cast<int64_t>(i))
          cuda::copy_on_card(card_, data + static_cast<int64_t>(i) * cols, data + wanted[i] * cols,
                             static_cast<size_t>(cols) * sizeof(float), own_stream_.get());
    };
    move(residual_, config_.hidden_size);
    move(attended_, q_cols());
    rows_ = static_cast<int64_t>(wanted.size());
  }

 private:
  // All that a step reads and writes at addresses that may change.
  std::vector<const void*> memory_of(const StepOutput& output) const {
    std::vector<const void*> memory{output.logits,  output.greedy,   logits_.data(),
                                    greedy_.data(), buffers_.data(), upload_.tokens()};
    for (const void* used : products_.memory()) memory.push_back(used);
    for (size_t kind = 0; kind < attention_.num_kinds(); ++kind) memory.push_back(attention_.workspace(kind).data());
    return memory;
  }

  // Query, key and value or logits of the residual.
  void multiply_normed(std::span<const Operation> fused) {
    const Operation &norm = fused.front(), &product = fused.back();
    float* y = product.writes[0] == Buffer::logits ? static_cast<float*>(logits_.data()) : qkv_;
    multiply(matrix_of(product), {.x = residual_, .y = y, .ldy = product.weights[0].rows, .norm = vector_of(&norm)});
  }

  // Bias, norms of heads and rotation in one kernel with what goes into the cache.
  void append(std::span<const Operation> fused) {
    const int layer = fused.back().layer;
    const Operation* norms = find(fused, OperationKind::norm_heads);
    const size_t kind = attention_.kind_of(layer);
    const StepUpload::Angles angles = upload_.angles(kind);
    const ops::RopeTable& rope = attention_.rope(kind);
    const KvCache cache = sequences_.layer(layer);
    const int heads = config_.num_qo_heads + 2 * config_.num_kv_heads;
    const ops::QkvArgs args{.qkv = qkv_,
                            .bias = vector_of(find(fused, OperationKind::add_bias)),
                            .q_norm = vector_of(norms, 0),
                            .k_norm = vector_of(norms, 1),
                            .cos = angles.cos,
                            .sin = angles.sin,
                            .places = upload_.places(),
                            .q = query_,
                            .k = cache_of(cache.k, cache.k_scale),
                            .v = cache_of(cache.v, cache.v_scale),
                            .rows = rows_,
                            .num_qo_heads = config_.num_qo_heads,
                            .num_kv_heads = config_.num_kv_heads,
                            .dim = config_.head_dim,
                            .pairs = rope.pairs,
                            .eps = config_.norm_eps,
                            .halves = rope.order == RopePairs::halves};
    ops::launch(stream_.device(), qkv_kernel(),
                {.ctas = (rows_ * heads + kWarps - 1) / kWarps,
                 .shared_bytes = static_cast<int>(2 * kWarps * config_.head_dim) * static_cast<int>(sizeof(float))},
                stream_, args);
  }

  void attend(const Operation& operation) {
    AttentionTensors tensors;
    const int64_t heads = config_.num_qo_heads, dim = config_.head_dim;
    tensors.q = TensorView(query_, attention_.q_dtype(), {rows_, heads, dim}, stream_.device());
    tensors.kv = sequences_.layer(operation.layer);
    tensors.o = TensorView(attended_, DType::fp32, {rows_, heads, dim}, stream_.device());
    attention_.run(operation.layer, std::move(tensors));
  }

  void cap_logits(const Operation& operation) {
    const int64_t vocab = config_.vocab_size;
    auto* logits = static_cast<float*>(logits_.data());
    ops::launch(stream_.device(), ops::cap_kernel(), {.ctas = ops::ctas_of_pieces(rows_, vocab)}, stream_,
                ops::CapArgs{rows_of(logits, vocab), rows_, static_cast<int>(vocab), operation.soft_cap});
  }

  ops::KernelText qkv_kernel() const {
    const DType cache = kv_dtype_of(options_);
    return ops::qkv_kernel(cache, kv_scales_of(cache), attention_.q_dtype());
  }

  // That steps of one row and of many launch: no step waits for a compiler.
  std::vector<ops::KernelText> kernels() const {
    const CardMatrix& embedding = weights_->embedding;
    std::vector<ops::KernelText> all{ops::widen_kernel(embedding, embedding.typed_rows[0]), qkv_kernel()};
    const auto add = [&](const CardMatrix& matrix, bool gated) {
      if (matrix.rows == 0) return;  // a stack of one part of layers has not all of them
      const std::vector<ops::KernelText> some = products_.kernels(matrix, gated, is_exact_);
      all.insert(all.end(), some.begin(), some.end());
    };
    add(weights_->head(), false);
    for (const CardLayerWeights& layer : weights_->layers) {
      for (const CardMatrix* matrix : {&layer.qkv, &layer.output, &layer.down}) add(*matrix, false);
      add(layer.gate_up, ops::can_gate(layer.gate_up));
    }
    all.push_back(ops::norm_kernel());
    all.push_back(ops::greedy_kernel());
    all.push_back(ops::draw_kernel());
    return all;
  }

  // Rows of x lie without gaps.
  void multiply(const CardMatrix& matrix, CardProduct product) {
    product.rows = rows_;
    product.ldx = matrix.cols;
    product.eps = config_.norm_eps;
    product.exact = is_exact_;
    product.invariant = is_invariant_;
    products_.multiply(matrix, product, stream_);
  }

  // The residual becomes larger by the product, with its bias and itself normed in models that do so.
  void add_product(std::span<const Operation> fused) {
    const Operation& product = fused.front();
    const float* bias = vector_of(find(fused, OperationKind::add_bias));
    const float* post_norm = vector_of(find(fused, OperationKind::norm));
    const int64_t hidden = config_.hidden_size;
    float* to = post_norm == nullptr ? residual_ : projected_;
    multiply(matrix_of(product), {.x = product.reads[0] == Buffer::attended ? attended_ : gated_,
                                  .y = to,
                                  .ldy = hidden,
                                  .add = post_norm == nullptr});
    if (bias != nullptr)
      ops::launch(stream_.device(), ops::add_row_kernel(), {.ctas = ops::ctas_of_pieces(rows_, hidden)}, stream_,
                  ops::AddRowArgs{rows_of(to, hidden), bias, rows_, static_cast<int>(hidden)});
    if (post_norm == nullptr) return;
    ops::launch(stream_.device(), ops::norm_kernel(), {.ctas = (rows_ + kWarps - 1) / kWarps}, stream_,
                ops::NormArgs{.x = rows_of(projected_, hidden),
                              .residual = rows_of(residual_, hidden),
                              .y = {},
                              .weight = post_norm,
                              .rows = rows_,
                              .dim = static_cast<int>(hidden),
                              .eps = config_.norm_eps,
                              .onto = true});
  }

  // gated = gate(first half of the product) * the other half.
  void multiply_gated(std::span<const Operation> fused) {
    const float* norm = vector_of(find(fused, OperationKind::norm));
    const CardMatrix& matrix = matrix_of(*find(fused, OperationKind::project));
    const Gate gate = fused.back().gate;
    const int64_t half = config_.intermediate_size;
    if (products_.gates(matrix, rows_, is_invariant_))
      return multiply(matrix, {.x = residual_, .y = gated_, .ldy = half, .norm = norm, .gate = gate});
    multiply(matrix, {.x = residual_, .y = both_, .ldy = 2 * half, .norm = norm});
    ops::launch(stream_.device(), ops::gate_kernel(), {.ctas = ops::ctas_of_pieces(rows_, half)}, stream_,
                ops::GateArgs{.gate = rows_of(both_, 2 * half),
                              .up = rows_of(both_ + half, 2 * half),
                              .y = rows_of(gated_, half),
                              .rows = rows_,
                              .dim = static_cast<int>(half),
                              .gelu = gate == Gate::gelu_tanh});
  }

  const CardMatrix& matrix_of(const Operation& product) const {
    return decode::matrix_of(*weights_, product.weights[0].role, product.layer);
  }
  // Null where there is no such operation.
  const float* vector_of(const Operation* operation, size_t index = 0) const {
    return operation == nullptr ? nullptr : weights_->vector(operation->weights[index].role, operation->layer);
  }

  void make_buffers(const Step& step) {
    const size_t logit_bytes = step.wanted.size() * static_cast<size_t>(config_.vocab_size) * sizeof(float);
    if (logits_.bytes() < logit_bytes) {
      logits_ = Workspace();
      logits_ = Workspace(stream_.device(), logit_bytes);
      greedy_ = {};
      greedy_ = {stream_.device(), static_cast<int64_t>(step.wanted.size()), config_.vocab_size};
    }
    if (step.rows() <= buffer_rows_) return;
    rows_ = step.rows();
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const int64_t cols = 2 * hidden + qkv_cols() + 2 * q_cols() + 3 * intermediate;
    constexpr int64_t kAligned = 64, kBuffers = 7;  // each begins on a line
    buffers_ = Workspace();
    buffer_rows_ = 0;
    buffers_ = Workspace(stream_.device(), static_cast<size_t>(rows_ * cols + kBuffers * kAligned) * sizeof(float));
    buffer_rows_ = rows_;
    auto* at = static_cast<float*>(buffers_.data());
    const auto take = [&](int64_t of_row) {
      return std::exchange(at, at + (rows_ * of_row + kAligned - 1) / kAligned * kAligned);
    };
    residual_ = take(hidden);
    projected_ = take(hidden);
    qkv_ = take(qkv_cols());
    query_ = take(q_cols());
    attended_ = take(q_cols());
    gated_ = take(intermediate);
    both_ = take(2 * intermediate);
  }

  cuda::Card& card_;
  cuda::OwnedStream own_stream_;
  const bool is_exact_ = options_.precision == Precision::exact;
  std::shared_ptr<const CardWeights> weights_;
  StepUpload upload_;
  StepGraphs graphs_;
  ops::CardProducts products_;
  Workspace logits_;
  ops::CardDraws draws_{stream_.device()};
  ops::GreedyRows greedy_;  // of as many rows
  int64_t rows_ = 0;        // of the step that go on
  bool is_invariant_ = false;

  // Of a step, all fp32 but the queries: [rows, ...]
  Workspace buffers_;
  int64_t buffer_rows_ = 0;
  float *residual_ = nullptr, *projected_ = nullptr, *qkv_ = nullptr, *query_ = nullptr, *attended_ = nullptr,
        *gated_ = nullptr, *both_ = nullptr;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                                             const ForwardOptions& options, const Sequences& sequences) {
  cuda::Card& card = cuda::Card::at(options.device.index);
  return std::make_unique<CudaExecutor>(config, std::move(weights), options, sequences, card, cuda::make_stream(card));
}

}  // namespace weft::decode
