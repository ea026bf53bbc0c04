#include "decode/fused/cuda/check_fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/fused/cuda/model_text.h"
#include "decode/step_attention.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/tiled_weights.h"
#include "ops/rope.h"
#include "weft/error.h"

namespace weft::decode::fused {
namespace {

constexpr int kMostHeadDim = 256, kHeadUnit = 16;

template <class Value>
void require(bool has, std::string_view name, const Value& wanted, std::string_view supported,
             std::string_view missing) {
  check(has, ErrorCode::unsupported, "the fused step: required {} {}; supported {}; missing: {}", name, wanted,
        supported, missing);
}

void check_device(const cuda::Runtime& runtime, Device device) {
  require(device.kind == DeviceKind::cuda, "device", to_string(device), "are cards", "a kernel for others");
  runtime.require(device, "device");
  const std::string architecture = runtime.architecture(device);
  require(architecture == "sm_90a", "code for", architecture, "is sm_90a", "bulk copies on barriers");
}

void check_options(const ForwardOptions& options) {
  require(options.precision != Precision::exact, "precision", to_string(options.precision), "are default and fast",
          "products in fp32: x is multiplied in bf16");
  const DType kv_dtype = kv_dtype_of(options);
  require(kv_dtype == DType::bf16, "kv_dtype", weft::to_string(kv_dtype), "is bf16", "attention over others");
  require(options.plan_mode == PlanMode::balanced, "plan_mode", to_string(options.plan_mode), "is balanced",
          "the same bits on any number of workers (--invariant), and other plans: the step cuts its own");
}

// A layer's operations but for what layers may differ in: what attention sees, and the angles that go with it.
std::vector<Operation> common_operations(const Program& program, int layer) {
  const std::span<const Operation> own = operations_of(program, layer);
  std::vector<Operation> operations(own.begin(), own.end());
  const auto attend = std::ranges::find(own, OperationKind::attend, &Operation::kind);
  const bool slides = attend != own.end() && attend->window > 0;
  for (Operation& operation : operations) {
    if (operation.kind == OperationKind::rotate && operation.rope == (slides ? 1 : 0)) operation.rope = 0;
    operation.layer = operation.window = 0;
  }
  return operations;
}

// The kernel's loop runs every layer as the first one.
void check_layers(const Program& program) {
  const std::vector<Operation> first = common_operations(program, 0);
  for (int layer = 1; layer < program.num_layers; ++layer) {
    const std::vector<Operation> own = common_operations(program, layer);
    const auto [differs, of_first] = std::ranges::mismatch(own, first);
    const auto name = [](auto at, const std::vector<Operation>& of) {
      return at == of.end() ? "no more" : to_string(at->kind);
    };
    require(own == first, fmt::format("in layer {}", layer),
            fmt::format("{} where layer 0 has {}{}", name(differs, own), name(of_first, first),
                        name(differs, own) == name(of_first, first) ? " with other numbers" : ""),
            "are layers that differ in what attention sees alone", "a loop of others");
  }
}

}  // namespace

void check_shape(const ModelConfig& config, const Program& program) {
  check_layers(program);
  const int dim = program.head_dim;
  require(dim >= kHeadUnit && dim <= kMostHeadDim && dim % kHeadUnit == 0, "head_dim", dim,
          "are multiples of 16 up to 256", "attention over other heads");
  for (const auto& [name, cols] :
       {std::pair("hidden_size", config.hidden_size), std::pair("intermediate_size", config.intermediate_size)})
    require(cols % 2 == 0, name, cols, "are even numbers", "inputs of products in pairs of columns");
  const int64_t most = Machine{}.x_bytes / 2;  // of one row
  require(config.hidden_size <= most, "hidden_size", config.hidden_size, fmt::format("are up to {}", most),
          "a head whose columns are cut");
  for (const RopeParams& rope : program.ropes) {
    const size_t pairs = ops::rope_frequencies(rope, dim).radians.size();
    require(pairs % 2 == 0, "pairs that rotate", pairs, "are even numbers of them", "units of other pairs");
    require(rope.pairs == program.ropes[0].pairs, "pairs of layers", "in two orders", "is one order for all layers",
            "a kernel of both");
  }
}

void check_weights(const Partition& partition) {
  for (const MatrixPartition& matrix : partition.matrices) ops::check_tiles(matrix.tiles, to_string(matrix.role));
  ops::check_tiles(partition.embedding, "embedding");
}

Partition check_fused(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options) {
  const cuda::Runtime& runtime = cuda::runtime();
  check_device(runtime, options.device);
  check_options(options);
  const Program program = make_program(config, parts_of(sources));
  check_shape(config, program);
  Partition partition = card_partition(options, program, sources);
  most_rows(partition);
  check_weights(partition);
  return partition;
}

void check_pages(const KvCache& layer) {
  for (const TensorView* side : {&layer.k, &layer.v}) {
    const int64_t element = bits_of(side->dtype()) / 8;
    const auto fits = [](int64_t bytes) { return bytes % kAlignment == 0; };
    require(
        fits(static_cast<int64_t>(reinterpret_cast<uintptr_t>(side->data()))) && side->stride(3) == 1 &&
            fits(side->stride(0) * element) && fits(side->stride(1) * element) && fits(side->stride(2) * element),
        "pages with strides of",
        fmt::format("{}, {}, {} and {} elements", side->stride(0), side->stride(1), side->stride(2), side->stride(3)),
        "are heads of neighbouring elements that begin at multiples of 16 bytes", "copies of others");
  }
}

}  // namespace weft::decode::fused
