// Operators on a card: their kernels on the call's tensors. Indices of the host go along with each call.
#include "ops/backend.h"

#include <array>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/draw.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/args.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/quest.h"
#include "ops/paged.h"

namespace weft::ops {
namespace {

constexpr int64_t kWarps = kThreads / 32;  // of a CTA, each with a row at a time

CardRows rows_of(const TensorView& x) {
  if (!x) return {};
  const bool heads = x.rank() == 3;
  return {x.as<float>(), heads ? x.shape(1) : 1, x.stride(0), heads ? x.stride(1) : 0};
}
int dim_of(const TensorView& x) { return static_cast<int>(x.shape(x.rank() - 1)); }

template <class Args>
void launch_rows(const TensorView& x, const KernelText& kernel, Stream stream, const Args& args) {
  launch(x.device(), kernel, {.ctas = (row_count(x) + kWarps - 1) / kWarps}, stream, args);
}

template <class Args>
void launch_pieces(const TensorView& x, const KernelText& kernel, Stream stream, const Args& args) {
  launch(x.device(), kernel, {.ctas = ctas_of_pieces(row_count(x), dim_of(x))}, stream, args);
}

// Numbers of the host on the card, until the call's kernels have read them: freeing waits for those.
template <class T>
Workspace placed(Device device, const std::vector<T>& values, Stream stream) {
  Workspace memory(device, values.size() * sizeof(T));
  if (!values.empty())
    cuda::copy_to_card(cuda::Card::at(device.index), memory.data(), values.data(), memory.bytes(),
                       static_cast<cuda::api::Stream>(stream.handle()));
  return memory;
}

CardCache cache_of(const AppendSide& side) {
  const CacheRows &to = side.cache, &scales = side.scales;
  return {to.data,
          to.page_stride,
          to.slot_stride,
          to.head_stride,
          reinterpret_cast<float*>(scales.data),
          scales.page_stride,
          scales.slot_stride,
          scales.head_stride};
}

class CudaBackend : public Backend {
 public:
  void norm(const NormCall& call, Stream stream) const override {
    launch_rows(call.x, norm_kernel(), stream,
                NormArgs{.x = rows_of(call.x),
                         .residual = rows_of(call.residual),
                         .y = rows_of(call.y),
                         .weight = call.weight.as<float>(),
                         .rows = row_count(call.x),
                         .dim = dim_of(call.x),
                         .eps = call.eps,
                         .onto = false});
  }

  void gate_and_mul(GateKind kind, const TensorView& gate, const TensorView& up, const TensorView& y,
                    Stream stream) const override {
    launch_pieces(
        gate, gate_kernel(), stream,
        GateArgs{rows_of(gate), rows_of(up), rows_of(y), gate.shape(0), dim_of(gate), kind == GateKind::gelu_tanh});
  }

  void soft_cap(const TensorView& x, float cap, Stream stream) const override {
    launch_pieces(x, cap_kernel(), stream, CapArgs{rows_of(x), x.shape(0), dim_of(x), cap});
  }

  void rotate(const TensorView& x, const RopeTable& table, Stream stream) const override {
    const Workspace cos = placed(x.device(), table.cos, stream), sin = placed(x.device(), table.sin, stream);
    launch_rows(x, rotate_kernel(), stream,
                RotateArgs{rows_of(x), static_cast<const float*>(cos.data()), static_cast<const float*>(sin.data()),
                           row_count(x), static_cast<int>(x.shape(1)), table.pairs, table.order == RopePairs::halves});
  }

  void rotate_at(const TensorView& x, const TensorView& positions, const RopeFrequencies& frequencies,
                 Stream stream) const override {
    RotateAtArgs args{.x = rows_of(x),
                      .positions = positions.as<int>(),
                      .rows = row_count(x),
                      .heads = static_cast<int>(x.shape(1)),
                      .pairs = static_cast<int>(frequencies.radians.size()),
                      .halves = frequencies.order == RopePairs::halves,
                      .factor = static_cast<float>(frequencies.factor),
                      .turns = {}};
    check(args.pairs <= kMostPairs, ErrorCode::unsupported,
          "apply_rope: required {} pairs a head, supported {} on cards, missing room for more", args.pairs, kMostPairs);
    for (int i = 0; i < args.pairs; ++i)
      args.turns[i] = frequencies.radians[static_cast<size_t>(i)] / (2 * std::numbers::pi);
    launch_rows(x, rotate_at_kernel(), stream, args);
  }

  void multiply(const MatmulCall& call, Stream stream) const override {
    const BlasSearch& found = find_blas();
    check(found.blas != nullptr, ErrorCode::unsupported,
          "matmul: required cuBLASLt on {}, supported are its versions 12 and 13, missing: {}; {}",
          to_string(call.c.device()), found.tried, found.remedy);
    const auto matrix_of = [](const TensorView& x) {
      const bool by_columns = lies_by_columns(x);
      return BlasMatrix{x.data(), x.stride(by_columns ? 1 : 0), by_columns};
    };
    const Device device = call.c.device();
    // Without memory of its own, so that it may be captured.
    const Workspace none;
    found.blas->multiply(cuda::Card::at(device.index),
                         {.a = matrix_of(call.a),
                          .b = matrix_of(call.b),
                          .c = call.c.data(),
                          .ldc = call.c.stride(0),
                          .rows = call.c.shape(0),
                          .inner = call.a.shape(1),
                          .cols = call.c.shape(1),
                          .add = call.add,
                          .exact = call.exact,
                          .dtype = call.c.dtype()},
                         call.workspace != nullptr ? *call.workspace : none, stream);
  }

  void draw(const TensorView& logits, std::span<const TokenDraw> how, std::span<int32_t> ids,
            Stream stream) const override {
    const Device device = logits.device();
    CardDraws draws(device);
    const int* const there = draws.run(card_logits(logits), {}, how, stream);
    if (!how.empty()) cuda::runtime().read(device, there, ids.data(), static_cast<int64_t>(ids.size_bytes()), stream);
  }
  void draw_beside(const TensorView& logits, std::span<const TokenDraw> how, const TensorView& ids,
                   Stream stream) const override {
    CardDraws(logits.device()).run(card_logits(logits), {}, how, stream, ids.as<int32_t>());
  }
  void draw_from_probabilities(const ProbabilityDraws& draws, Stream stream) const override {
    ops::draw_from_probabilities(draws, stream);
  }

  void append(const AppendCall& call, Stream stream) const override {
    std::array<KernelText, 2> kernels;  // refused before anything is written
    for (size_t i = 0; i < 2; ++i) kernels[i] = append_kernel(call.sides[i].dtype, call.kv_scales);
    if (call.places) {
      unsigned* const clamped = cuda::runtime().clamped_flag(call.places.device());
      return write(call, kernels, call.places.as<CachePlace>(), clamped, stream);
    }
    std::vector<CachePlace> places(static_cast<size_t>(call.sides[0].rows.shape(0)));
    for (size_t r = 0; r + 1 < call.append_indptr.size(); ++r) {
      const PagedRequest own = request_of(call.pages, r);
      for (int64_t row = call.append_indptr[r]; row < call.append_indptr[r + 1]; ++row) {
        const int64_t token = own.tokens - (call.append_indptr[r + 1] - row);
        places[static_cast<size_t>(row)] = {own.pages[static_cast<size_t>(token / call.pages.page_size)],
                                            static_cast<int>(token % call.pages.page_size)};
      }
    }
    const Workspace on_card = placed(call.sides[0].rows.device(), places, stream);
    write(call, kernels, static_cast<const CachePlace*>(on_card.data()), nullptr, stream);
  }

  void summarise(const SummaryCall& call, Stream stream) const override { summarise_on_card(call, stream); }
  void choose(const ChooseCall& call, Stream stream) const override { choose_on_card(call, stream); }
  void set_pages(const SetPagesCall& call, Stream stream) const override { set_pages_on_card(call, stream); }

 private:
  static CardLogits card_logits(const TensorView& logits) {
    return {logits.as<float>(), logits.shape(1), logits.stride(0)};
  }
  static void write(const AppendCall& call, const std::array<KernelText, 2>& kernels, const CachePlace* places,
                    unsigned* clamped, Stream stream) {
    for (size_t i = 0; i < 2; ++i) {
      const AppendSide& side = call.sides[i];
      launch_rows(
          side.rows, kernels[i], stream,
          AppendArgs{rows_of(side.rows), places, cache_of(side), row_count(side.rows),
                     static_cast<int>(side.rows.shape(1)), dim_of(side.rows), clamped,
                     static_cast<int>(call.pages.num_pages), call.pages.page_size, static_cast<int>(side.group)});
    }
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace weft::ops
