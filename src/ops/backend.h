// What differs by device in the operators of ops.h: arguments are checked before, the same for all.
//
//   const Device device = device_of(x);
//   backend_of("rms_norm", device).norm({.x = x, .weight = weight, .y = y, .eps = eps}, stream);
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/append.h"
#include "ops/quest.h"
#include "ops/rope.h"
#include "weft/device.h"
#include "weft/ops.h"
#include "weft/tensor.h"

namespace weft::ops {

// y = rms_norm(x); with a residual, residual += x and y = rms_norm(residual).
struct NormCall {
  TensorView x, residual = {}, weight, y;
  float eps = 0.f;
};
// c [rows, cols] = a [rows, inner] b [inner, cols], or c += that. Rows of a and b have no gaps, or columns have none.
struct MatmulCall {
  TensorView a, b, c;
  bool add = false, exact = true;
  const Workspace* workspace = nullptr;  // null: none
};
// Whether columns of x [rows, cols] have no gaps, and rows have some.
bool lies_by_columns(const TensorView& x);
enum class GateKind : uint8_t { silu, gelu_tanh };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual void norm(const NormCall& call, Stream stream) const = 0;
  // y = gate(gate) * up
  virtual void gate_and_mul(GateKind kind, const TensorView& gate, const TensorView& up, const TensorView& y,
                            Stream stream) const = 0;
  virtual void soft_cap(const TensorView& x, float cap, Stream stream) const = 0;
  // Row r of x [rows, heads, dim] by row r of the table.
  virtual void rotate(const TensorView& x, const RopeTable& table, Stream stream) const = 0;
  // Row r of x by positions[r], which lie on the device. Cards alone.
  virtual void rotate_at(const TensorView&, const TensorView&, const RopeFrequencies&, Stream) const {}
  virtual void multiply(const MatmulCall& call, Stream stream) const = 0;
  virtual void append(const AppendCall& call, Stream stream) const = 0;
  virtual void summarise(const SummaryCall& call, Stream stream) const = 0;
  virtual void choose(const ChooseCall& call, Stream stream) const = 0;
  virtual void set_pages(const SetPagesCall& call, Stream stream) const = 0;
  // ids[i]: drawn from row i of logits [rows, vocab] by how[i], which changes no logit; -1: all are -inf or NaN. They
  // are there when it returns.
  virtual void draw(const TensorView& logits, std::span<const TokenDraw> how, std::span<int32_t> ids,
                    Stream stream) const = 0;
  // As draw(), into ids int32 [rows] beside the logits, which the next Stream::synchronize() waits for: on a card it
  // throws for a row that gets -1.
  virtual void draw_beside(const TensorView& logits, std::span<const TokenDraw> how, const TensorView& ids,
                           Stream stream) const = 0;
  virtual void draw_from_probabilities(const ProbabilityDraws& draws, Stream stream) const = 0;
};

// Rows of x [rows, dim] or [rows, heads, dim].
inline int64_t row_count(const TensorView& x) { return x.rank() == 3 ? x.shape(0) * x.shape(1) : x.shape(0); }

// Of a tensor: where it lies, pinned memory being the CPU's.
Device device_of(const TensorView& tensor);
// Throws Error(unsupported | invalid_device) where there is no such device.
const Backend& backend_of(std::string_view op, Device device);
// Throws Error(invalid_device) unless the stream is the default one or of that device.
void check_stream(std::string_view op, Stream stream, Device device);

const Backend& cpu_backend();   // of ops/cpu
const Backend& cuda_backend();  // of ops/cuda

}  // namespace weft::ops
