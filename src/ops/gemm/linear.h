// y = x W^T with weights packed once: one family from one row (GEMV) to hundreds, in three precisions.
//
//   PackedLinear w = pack_linear(sources, Precision::standard, current_isa(), team);
//   linear(w, x, rows, w.cols(), y, w.rows(), scratch, team);
//
// Weights keep their bits: quantised blocks stay integers with their scales, F32 and BF16 stay floats.
// Activations: exact fp32; standard int16 a row against quantised weights, bf16 or fp32 against float ones; fast int8 a
// block of 32 (docs/precision.md).
// A row of y does not depend on how many rows are computed with it, nor on the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ops/weight_source.h"
#include "weft/device.h"
#include "weft/model.h"

namespace weft::gemm {

using ops::WeightSource;

class PackedLinear {
 public:
  PackedLinear();
  ~PackedLinear();
  PackedLinear(PackedLinear&&) noexcept;
  PackedLinear& operator=(PackedLinear&&) noexcept;
  int64_t rows() const;
  int64_t cols() const;
  size_t bytes() const;
  struct Impl;
  Impl& impl() const;  // throws for an empty one

 private:
  friend PackedLinear pack_linear(std::span<const WeightSource>, Precision, Isa, WorkerTeam&, void*);
  std::unique_ptr<Impl> impl_;
};

// Several sources with the same cols become one matrix, their rows one after another (fused q, k, v; gate and up).
// The weights go to `memory` (packed_bytes, 64-byte aligned, outlives the result), or else to memory of their own.
// Throws Error(invalid_shape), and what `read` throws.
PackedLinear pack_linear(std::span<const WeightSource> sources, Precision precision, Isa isa, WorkerTeam& team,
                         void* memory = nullptr);
size_t packed_bytes(std::span<const WeightSource> sources, Isa isa);  // a multiple of 64

// Memory that linear works in; it grows to what the largest call needs. One call at a time may use it.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;
  struct Impl;
  Impl& impl();  // throws for an empty one

 private:
  std::unique_ptr<Impl> impl_;
};

// What is fused with a product, while its rows are in the caches.
struct Fusion {
  // Makes rows [begin, end) of x. Each row is made once, by the worker that reads it next where rows are many.
  std::function<void(int64_t begin, int64_t end)> prologue = {};
  // The weights are two sources of as many rows, the gate's first: y [m, rows / 2] = gate(y of the first, of the
  // second).
  void (*gate_epilogue)(const float* gate, const float* up, long long n, float* y) = nullptr;
};

// x [m, cols] fp32 with row stride ldx, y [m, rows] fp32 with row stride ldy.
void linear(const PackedLinear& weights, const float* x, int64_t m, int64_t ldx, float* y, int64_t ldy,
            Scratch& scratch, WorkerTeam& team, const Fusion& fusion = {});
// Copies row `row` as fp32: embedding look-up from a matrix that is also the output head.
void read_row(const PackedLinear& weights, int64_t row, float* to);

}  // namespace weft::gemm
