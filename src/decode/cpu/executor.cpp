#include "decode/cpu/executor.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "decode/cpu/weights.h"
#include "ops/elementwise.h"

namespace weft::decode {
namespace {

auto epilogue_of(Gate gate) {
  return gate == Gate::silu ? ops::elementwise().silu_and_mul : ops::elementwise().gelu_tanh_and_mul;
}

// Norms, biases and sums of a row are the prologue of the product that reads it, the gate the epilogue of its own.
class CpuExecutor : public DeviceExecutor {
 public:
  CpuExecutor(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
              const Sequences& sequences)
      : DeviceExecutor(config, options, Stream::cpu(team_of(options)), sequences),
        team_(team_of(options)),
        weights_(pack_weights(std::move(sources), options.precision, team_, options.on_load)) {}

  size_t weight_bytes() const override { return weights_.bytes_per_token(); }

  bool fuses(const Operation& operation, const Operation& next) const override {
    switch (next.kind) {
      case OperationKind::project: return operation.kind == OperationKind::norm;
      case OperationKind::gate: return operation.kind == OperationKind::project;
      case OperationKind::norm:
        return operation.kind == OperationKind::add || operation.kind == OperationKind::add_bias;
      case OperationKind::add:
        return operation.kind == OperationKind::norm || operation.kind == OperationKind::add_bias;
      case OperationKind::norm_heads: return operation.kind == OperationKind::add_bias;
      case OperationKind::rotate:
        return operation.kind == OperationKind::norm_heads || operation.kind == OperationKind::add_bias;
      default: return false;
    }
  }

  void upload(const Step& step) override { make_buffers(step.rows()); }

  void enqueue(const Step& step, const StepOutput& output, const std::function<void()>& walk) override {
    step_ = &step;
    rows_ = step.rows();
    at(Buffer::logits) = output.logits;
    walk();
  }

  void run(std::span<const Operation> fused) override {
    const Operation& last = fused.back();
    switch (last.kind) {
      case OperationKind::embed: return embed(last);
      case OperationKind::project:
      case OperationKind::gate: return multiply(fused);
      case OperationKind::rotate: return finish_qkv(fused);
      case OperationKind::append: return append(last);
      case OperationKind::attend: return attend(last);
      case OperationKind::soft_cap:
        return soft_cap(rows_of(Buffer::logits, config_.vocab_size), last.soft_cap, stream_);
      default: ensure(false, "{} ends what runs as one on the CPU", to_string(last.kind));
    }
  }

  void keep(const std::vector<int64_t>& wanted) override {
    const auto count = static_cast<int64_t>(wanted.size());
    if (count == rows_) return;
    const auto move = [&](float* data, int64_t cols) {
      for (int64_t i = 0; i < count; ++i)
        std::memmove(data + i * cols, data + wanted[static_cast<size_t>(i)] * cols,
                     static_cast<size_t>(cols) * sizeof(float));
    };
    move(at(Buffer::residual), config_.hidden_size);
    move(at(Buffer::attended), q_cols());
    rows_ = count;
  }

 private:
  void embed(const Operation& operation) {
    const int64_t hidden = config_.hidden_size;
    float* to = at(Buffer::residual);
    ops::for_rows(team_, rows_, 4 * hidden, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        gemm::read_row(weights_.embedding, step_->tokens[static_cast<size_t>(row)], to + row * hidden);
        if (operation.scale != 1.f) ops::elementwise().scale(to + row * hidden, hidden, operation.scale);
      }
    });
  }

  // Rows of x are made by what stands before the product.
  void multiply(std::span<const Operation> fused) {
    const Operation& product = *find(fused, OperationKind::project);
    const std::span before = fused.first(static_cast<size_t>(&product - fused.data()));
    gemm::Fusion fusion;
    if (!before.empty())
      fusion.prologue = [this, before](int64_t begin, int64_t end) { make_rows(before, begin, end); };
    const Operation& last = fused.back();
    if (last.kind == OperationKind::gate) fusion.gate_epilogue = epilogue_of(last.gate);
    const gemm::PackedLinear& w = matrix_of(weights_, product.weights[0].role, product.layer);
    const int64_t cols = fusion.gate_epilogue != nullptr ? w.rows() / 2 : w.rows();
    gemm::linear(w, at(product.reads[0]), rows_, w.cols(), at(last.writes[0]), cols, scratch_, team_, fusion);
  }

  // Rows [begin, end) of biases, norms and sums of the residual's width.
  void make_rows(std::span<const Operation> fused, int64_t begin, int64_t end) {
    for (size_t i = 0; i < fused.size(); ++i) {
      const Operation& operation = fused[i];
      switch (operation.kind) {
        case OperationKind::add_bias: add_bias(operation, begin, end); break;
        case OperationKind::norm: {
          const TensorView x = residual_like(operation.reads[0]).slice(0, begin, end);
          const TensorView y = residual_like(operation.writes[0]).slice(0, begin, end);
          rms_norm(x, vector_of(operation), config_.norm_eps, y, stream_);
          break;
        }
        case OperationKind::add: {
          // The norm of the sum stands behind it.
          const Operation& norm = fused[++i];
          const TensorView part = residual_like(operation.reads[1]).slice(0, begin, end);
          const TensorView sum = residual_like(operation.writes[0]).slice(0, begin, end);
          const TensorView y = residual_like(norm.writes[0]).slice(0, begin, end);
          add_rms_norm(part, sum, vector_of(norm), config_.norm_eps, y, stream_);
          break;
        }
        default: ensure(false, "{} is no prologue of a product on the CPU", to_string(operation.kind));
      }
    }
  }
  void add_bias(const Operation& operation, int64_t begin, int64_t end) {
    const TensorView bias = vector_of(operation);
    const int64_t cols = bias.shape(0);
    for (int64_t row = begin; row < end; ++row)
      ops::elementwise().add(bias.as<float>(), cols, at(operation.writes[0]) + row * cols);
  }

  // From the product to queries, keys and values: bias, norms, rotation, row by row.
  void finish_qkv(std::span<const Operation> fused) {
    const bool bf16 = attention_.q_dtype() == DType::bf16;
    const ops::RopeTable& rope = attention_.rope(attention_.kind_of(fused.back().layer));
    const TensorView q = heads_of(Buffer::query), k = heads_of(Buffer::key);
    const int64_t row_cols = qkv_cols(), cols = q_cols();
    const float* qkv = at(Buffer::query);
    ops::for_rows(team_, rows_, 3 * row_cols, [&](int64_t begin, int64_t end) {
      const TensorView some_q = q.slice(0, begin, end), some_k = k.slice(0, begin, end);
      for (const Operation& operation : fused) {
        if (operation.kind == OperationKind::add_bias) add_bias(operation, begin, end);
        if (operation.kind == OperationKind::norm_heads) {
          rms_norm(some_q, vector_of(operation, 0), config_.norm_eps, some_q, stream_);
          rms_norm(some_k, vector_of(operation, 1), config_.norm_eps, some_k, stream_);
        }
      }
      ops::apply_rope_table(some_q, rope, begin, stream_);
      ops::apply_rope_table(some_k, rope, begin, stream_);
      for (int64_t row = begin; bf16 && row < end; ++row)
        ops::elementwise().to_bf16(qkv + row * row_cols, cols, query_ + row * cols);
    });
  }

  void append(const Operation& operation) {
    const KvCache cache = sequences_.layer(operation.layer);
    append_paged_kv(heads_of(Buffer::key), heads_of(Buffer::value), step_->qo_indptr, step_->pages.get(), Layout::nhd,
                    cache, kv_scales_of(cache.k.dtype()), stream_);
  }

  void attend(const Operation& operation) {
    AttentionTensors tensors;
    const int64_t heads = config_.num_qo_heads, dim = config_.head_dim;
    tensors.q = attention_.q_dtype() == DType::bf16 ? TensorView(query_, DType::bf16, {rows_, heads, dim})
                                                    : heads_of(Buffer::query);
    tensors.kv = sequences_.layer(operation.layer);
    tensors.o = TensorView(at(Buffer::attended), DType::fp32, {rows_, heads, dim});
    attention_.run(operation.layer, std::move(tensors));
  }

  void make_buffers(int64_t rows) {
    if (rows <= buffer_rows_) return;
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const int64_t row = 3 * hidden + qkv_cols() + 2 * q_cols() + intermediate;
    buffers_ = Workspace();
    buffer_rows_ = 0;
    buffers_ = Workspace(Device::cpu(), static_cast<size_t>(rows * row) * sizeof(float));
    buffer_rows_ = rows;
    auto* next = static_cast<float*>(buffers_.data());
    const auto take = [&](int64_t cols) { return std::exchange(next, next + rows * cols); };
    at(Buffer::residual) = take(hidden);
    at(Buffer::normed) = take(hidden);
    at(Buffer::projected) = take(hidden);
    at(Buffer::query) = take(qkv_cols());
    at(Buffer::key) = at(Buffer::query) + q_cols();
    at(Buffer::value) = at(Buffer::key) + kv_cols();
    at(Buffer::attended) = take(q_cols());
    at(Buffer::gated) = take(intermediate);
    query_ = reinterpret_cast<unsigned short*>(take(q_cols()));
  }

  float*& at(Buffer buffer) { return at_[static_cast<size_t>(buffer)]; }
  TensorView rows_of(Buffer buffer, int64_t cols) { return TensorView(at(buffer), DType::fp32, {rows_, cols}); }
  TensorView residual_like(Buffer buffer) { return rows_of(buffer, config_.hidden_size); }
  // Of the query, the key or the value, which lie beside each other in a row.
  TensorView heads_of(Buffer buffer) {
    const int64_t heads = buffer == Buffer::query ? config_.num_qo_heads : config_.num_kv_heads;
    const std::array<int64_t, 3> shape{rows_, heads, config_.head_dim}, strides{qkv_cols(), config_.head_dim, 1};
    return TensorView(at(buffer), DType::fp32, shape, strides);
  }
  TensorView vector_of(const Operation& operation, size_t index = 0) const {
    const std::vector<float>& values = weights_.vector(operation.weights[index].role, operation.layer);
    return TensorView(values.data(), DType::fp32, {static_cast<int64_t>(values.size())});
  }

  WorkerTeam& team_;
  CpuWeights weights_;
  gemm::Scratch scratch_;
  const Step* step_ = nullptr;
  int64_t rows_ = 0;  // of the step that go on

  // Of a step, all fp32: [rows, ...]. Query, key and value are one row behind the other; gate and up never leave their
  // product.
  Workspace buffers_;
  int64_t buffer_rows_ = 0;
  std::array<float*, kNumBuffers> at_ = {};
  unsigned short* query_ = nullptr;  // bf16, when the kernel takes them so
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, ModelSources sources,
                                            const ForwardOptions& options, const Sequences& sequences) {
  return std::make_unique<CpuExecutor>(config, std::move(sources), options, sequences);
}

}  // namespace weft::decode
