// Operators on the CPU: one row after another, rows over the team.
#include "ops/cpu/backend.h"

#include "ops/draw.h"
#include "ops/elementwise.h"

namespace weft::ops {
namespace {

// Rows [rows] or [rows][heads] of a tensor, flattened.
struct RowsOf {
  float* data;
  int64_t inner, outer_stride, inner_stride;
  explicit RowsOf(const TensorView& x)
      : data(x.as<float>()),
        inner(x.rank() == 3 ? x.shape(1) : 1),
        outer_stride(x.stride(0)),
        inner_stride(x.rank() == 3 ? x.stride(1) : 0) {}
  float* row(int64_t i) const { return data + i / inner * outer_stride + i % inner * inner_stride; }
};

class CpuBackend : public Backend {
 public:
  void norm(const NormCall& call, Stream stream) const override {
    const RowsOf from(call.x), sum(call.residual ? call.residual : call.x), to(call.y);
    const int64_t dim = call.weight.shape(0);
    const float* weight = call.weight.as<float>();
    const bool adds = static_cast<bool>(call.residual);
    const ElementwiseTable& loops = elementwise();
    for_rows(stream.team(), row_count(call.x), (adds ? 2 : 1) * dim, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (adds) loops.add(from.row(i), dim, sum.row(i));
        loops.rms_norm(sum.row(i), weight, dim, call.eps, to.row(i));
      }
    });
  }

  void gate_and_mul(GateKind kind, const TensorView& gate, const TensorView& up, const TensorView& y,
                    Stream stream) const override {
    const auto loop = kind == GateKind::silu ? elementwise().silu_and_mul : elementwise().gelu_tanh_and_mul;
    const RowsOf g(gate), u(up), to(y);
    const int64_t dim = gate.shape(1);
    for_rows(stream.team(), gate.shape(0), 4 * dim, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) loop(g.row(i), u.row(i), dim, to.row(i));
    });
  }

  void soft_cap(const TensorView& x, float cap, Stream stream) const override {
    const RowsOf rows(x);
    const int64_t dim = x.shape(1);
    const ElementwiseTable& loops = elementwise();
    for_rows(stream.team(), x.shape(0), 4 * dim, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) loops.soft_cap(rows.row(i), dim, cap);
    });
  }

  void rotate(const TensorView& x, const RopeTable& table, Stream stream) const override {
    apply_rope_table(x, table, 0, stream);
  }

  void multiply(const MatmulCall& call, Stream stream) const override { multiply_on_cpu(call, stream); }

  void append(const AppendCall& call, Stream stream) const override { append_on_cpu(call, stream); }
  void summarise(const SummaryCall& call, Stream stream) const override { summarise_on_cpu(call, stream); }
  void choose(const ChooseCall& call, Stream stream) const override { choose_on_cpu(call, stream); }
  void set_pages(const SetPagesCall& call, Stream stream) const override { set_pages_on_cpu(call, stream); }

  void draw(const TensorView& logits, std::span<const TokenDraw> how, std::span<int32_t> ids,
            Stream stream) const override {
    const auto row_of = [&](size_t row) {
      const float* const first = logits.as<const float>() + static_cast<int64_t>(row) * logits.stride(0);
      return std::span(first, static_cast<size_t>(logits.shape(1)));
    };
    draw_rows(row_of, how, logits.shape(1), stream.team(), ids);
  }
  void draw_beside(const TensorView& logits, std::span<const TokenDraw> how, const TensorView& ids,
                   Stream stream) const override {
    draw(logits, how, {ids.as<int32_t>(), how.size()}, stream);
  }
  void draw_from_probabilities(const ProbabilityDraws& draws, Stream stream) const override {
    ops::draw_from_probabilities(draws, stream.team());
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace weft::ops
