#include "decode/fused/cuda/model_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "decode/executor.h"
#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/stuck_text.h"
#include "weft/error.h"

namespace weft::decode::fused {
namespace {

constexpr int64_t kAligned = 16;  // of what a step brings
// In flight, until and once a phase has begun (tile/cuda/ring.h): few keep memory busy, and what a worker loads of
// others queues behind them.
constexpr int kAheadBytes = 36 << 10, kBesideBytes = 64 << 10;

size_t variant_index(int64_t rows) {
  return static_cast<size_t>(std::countr_zero(static_cast<unsigned>(kernel_rows(rows))));
}

}  // namespace

Machine card_machine(int workers, const Program& program) {
  Machine machine{.workers = workers, .edge = EdgeForm::tagged};
  machine.entry_bytes = 16 << 10;
  machine.max_entries = 4 * kConsumerWarps;
  machine.kv_chunk = program.head_dim <= 128 ? 64 : 32;
  return machine;
}

Partition card_partition(const ForwardOptions& options, const Program& program, const ModelSources& sources) {
  const int most = cuda::runtime().num_multiprocessors(options.device);
  check(options.step_ctas <= most, ErrorCode::invalid_argument,
        "step_ctas = {}; allowed are 1 to {}, the multiprocessors of {}, and 0 for one on each", options.step_ctas,
        most, to_string(options.device));
  return make_partition(program, form_of(program, sources),
                        card_machine(options.step_ctas > 0 ? options.step_ctas : most, program));
}

ModelKernel::ModelKernel(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                         const ModelSources& sources, Partition partition, const ForwardOptions& options,
                         const Sequences& sequences, Stream stream)
    : config_(config),
      options_(options),
      runtime_(cuda::runtime()),
      device_(options.device),
      stream_(stream),
      partition_(std::move(partition)) {
  const Program program = make_program(config, parts_of(sources));
  most_rows_ = fused::most_rows(partition_);
  const Variant& one = variant_of(1);
  weights_.emplace(runtime_, device_, std::move(weights), one.shape, sources, stream_);
  weights_->tell(args_);
  make_tables();
  const KvCache first = sequences.layer(0);
  check_pages(first);
  const int64_t layers = program.num_layers;
  const auto cache_of = [](const TensorView& side) {
    return ops::CardCache{side.data(), side.stride(0), side.stride(1), side.stride(2)};
  };
  const int64_t bytes = bits_of(first.k.dtype()) / 8;
  const auto of_layer = [&](const TensorView& from, const TensorView& to) {
    return (static_cast<const char*>(to.data()) - static_cast<const char*>(from.data())) / bytes;
  };
  args_.keys = cache_of(first.k), args_.values = cache_of(first.v);
  if (layers > 1) {
    const KvCache second = sequences.layer(1), last = sequences.layer(static_cast<int>(layers) - 1);
    args_.keys_of_layer = of_layer(first.k, second.k), args_.values_of_layer = of_layer(first.v, second.v);
    ensure(of_layer(first.k, last.k) == (layers - 1) * args_.keys_of_layer &&
               of_layer(first.v, last.v) == (layers - 1) * args_.values_of_layer,
           "caches of layers lie at uneven strides");
  }
  args_.limit_ns = uint64_t{1'000'000} * static_cast<uint64_t>(env::step_limit_ms());
  args_.ahead_bytes = kAheadBytes, args_.beside_bytes = kBesideBytes;
}

ModelKernel::Variant& ModelKernel::variant_of(int64_t rows) {
  std::optional<Variant>& found = variants_[variant_index(rows)];
  if (found) return *found;
  const int most = kernel_rows(rows);
  const ModelShape shape = shape_of(partition_, most, kv_dtype_of(options_));
  Variant made{.shape = shape, .text = model_text(partition_, shape)};
  made.kernel = &runtime_.load(device_, made.text);
  const int workers = partition_.machine.workers;
  const int at_once =
      runtime_.ctas_per_multiprocessor(*made.kernel, made.text.grid(workers)) * runtime_.num_multiprocessors(device_);
  check(at_once >= workers, ErrorCode::unsupported,
        "the fused step: required {} CTAs at once, supported by {} are {}, missing {}", workers, to_string(device_),
        at_once, workers - at_once);
  return found.emplace(std::move(made));
}

const cuda::LoadedKernel& ModelKernel::kernel_of(Variant& variant) {
  if (args_.trace == nullptr) return *variant.kernel;
  if (variant.timed == nullptr) {
    ModelShape shape = variant.shape;
    shape.leaves_times = true;
    variant.timed = &runtime_.load(device_, model_text(partition_, shape));
  }
  return *variant.timed;
}

void ModelKernel::load_all() {
  std::vector<cuda::KernelText> texts;
  for (int rows = 1; rows <= most_rows_; rows *= 2)
    texts.push_back(model_text(partition_, shape_of(partition_, rows, kv_dtype_of(options_))));
  cuda::load_all(runtime_, device_, texts, team_of(options_));
  for (int rows = 1; rows <= most_rows_; rows *= 2) variant_of(rows);
}

// What launches share: the partition's tables, one behind the other.
void ModelKernel::make_tables() {
  std::vector<int32_t> all;
  std::vector<size_t> begins;
  const auto add = [&](const auto& from) {
    begins.push_back(all.size());
    for (const auto value : from) {
      ensure(value <= std::numeric_limits<int32_t>::max(), "a table of the partition has {}", value);
      all.push_back(static_cast<int32_t>(value));
    }
  };
  const std::vector<const MatrixPartition*> matrices = kernel_matrices(partition_);
  for (const MatrixPartition* matrix : matrices) add(matrix->first_slot);
  for (const MatrixPartition* matrix : matrices) add(matrix->borders), add(matrix->worker_slot);
  tables_ = Workspace(device_, all.size() * sizeof(int32_t));
  const Bytes piece{all.data(), static_cast<int64_t>(tables_.bytes())};
  runtime_.write(device_, tables_.data(), {&piece, 1}, stream_);
  size_t next = 0;
  const auto take = [&] { return static_cast<const int*>(tables_.data()) + begins[next++]; };
  for (size_t i = 0; i < matrices.size(); ++i) args_.matrices[i].first_slot = take();
  for (size_t i = 0; i < matrices.size(); ++i) {
    args_.matrices[i].borders = take();
    args_.matrices[i].worker_slot = take();
  }
  // Cards with one address space for all memory, as all of sm_90a have, write to pinned memory by its own address.
  stuck_ = Workspace(Device::cuda_host(device_.index), static_cast<size_t>(num_workers()) * sizeof(uint64_t));
  args_.stuck = static_cast<unsigned long long*>(stuck_.data());
  ids_ = Workspace(device_, static_cast<size_t>(most_rows_) * sizeof(int32_t));
}

// Room for what workers hand on.
void ModelKernel::make_cells(Variant& variant, int64_t num_states) {
  const int64_t cells = variant.shape.cells_of(Shared::states) + num_states * (partition_.program.head_dim + 2);
  variant.cells.reserve(device_, static_cast<size_t>(cells) * sizeof(uint64_t),
                        static_cast<uint32_t>(phase_numbers(partition_)));
}

void ModelKernel::plan(const Step& step) {
  check(step.rows() <= most_rows_, ErrorCode::unsupported,
        "the fused step: required {} rows; supported are 1 to {}, whose kernels fit in a CTA's shared memory; missing: "
        "kernels for more; run them by layers",
        step.rows(), most_rows_);
  const Program& program = partition_.program;
  const int group = program.num_qo_heads / program.num_kv_heads;
  kinds_.resize(program.ropes.size());
  for (size_t i = 0; i < kinds_.size(); ++i) {
    Kind& kind = kinds_[i];
    const int window = i == 0 ? 0 : config_.sliding_window;
    update_items(partition_, step, window, kind.plan, kind.items);
    update_tables(kind.items, step,
                  {.num_kv_heads = program.num_kv_heads,
                   .group = group,
                   .window = window,
                   .most_heads = most_heads(kernel_rows(step.rows()), group)},
                  kind.tables);
    ops::make_rope_table(step.positions, program.ropes[i], program.head_dim, kind.rope);
  }
}

// Ids, tables and angles, one behind the other, in one copy.
void ModelKernel::upload(const Step& step) {
  std::vector<Bytes> pieces;
  std::vector<size_t> begins;
  size_t bytes = 0;
  static constexpr char kZeros[kAligned] = {};
  const auto add = [&](const auto& from) {
    const Bytes piece{from.data(), static_cast<int64_t>(from.size() * sizeof from[0])};
    const int64_t behind = (kAligned - piece.size % kAligned) % kAligned;
    pieces.push_back(piece);
    pieces.push_back({kZeros, behind});
    begins.push_back(bytes);
    bytes += static_cast<size_t>(piece.size + behind);
  };
  add(step.tokens);
  add(kinds_[0].tables.pages);
  for (const auto& [plan, items, tables, rope] : kinds_) {
    add(tables.items), add(tables.worker_indptr), add(tables.heads), add(tables.rounds), add(tables.round_indptr);
    add(tables.state_indptr), add(tables.states);
    add(rope.cos), add(rope.sin);
  }
  if (uploaded_.bytes() < bytes) {
    uploaded_ = Workspace();
    uploaded_ = Workspace(device_, 2 * bytes);
  }
  runtime_.write(device_, uploaded_.data(), pieces, stream_);

  size_t next = 0;
  const auto take = [&]<class T>(const T*& to) {
    to = reinterpret_cast<const T*>(static_cast<const char*>(uploaded_.data()) + begins[next++]);
  };
  take(args_.tokens);
  take(args_.pages);
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    KindTables& to = args_.kinds[kind];
    take(to.items), take(to.worker_indptr), take(to.heads), take(to.rounds), take(to.round_indptr);
    take(to.state_indptr), take(to.states);
    take(to.cos), take(to.sin);
    to.window = kind == 0 ? 0 : config_.sliding_window;
    to.pairs = kinds_[kind].rope.pairs;
  }
  args_.page_size = kinds_[0].tables.page_size;
  args_.rows = static_cast<int>(step.rows());
  args_.wants_logits = !step.wanted.empty();

  Variant& variant = variant_of(step.rows());
  int num_states = 0;
  for (const Kind& kind : kinds_) num_states = std::max(num_states, kind.tables.num_states);
  make_cells(variant, num_states);
  const size_t logit_bytes = static_cast<size_t>(step.rows() * config_.vocab_size) * sizeof(float);
  if (logits_.bytes() < logit_bytes) {
    logits_ = Workspace();
    logits_ = Workspace(device_, logit_bytes);
  }
}

void ModelKernel::launch(const Step& step, bool greedy) {
  Variant& variant = variant_of(step.rows());
  ModelArgs args = args_;
  args.cells = variant.cells.data();
  args.logits = logits();
  args.ids = greedy ? ids() : nullptr;
  args.first_phase = variant.cells.take(static_cast<uint32_t>(phase_numbers(partition_)));
  cuda::Grid grid = variant.text.grid(partition_.machine.workers);
  grid.cooperative = true;
  runtime_.launch(kernel_of(variant), grid, args, stream_);
}

void ModelKernel::start_trace() {
  const size_t stamps = static_cast<size_t>(num_workers()) * partition_.phases.all.size() * kNumStamps;
  trace_ = Workspace(device_, stamps * sizeof(uint64_t));
  args_.trace = static_cast<unsigned long long*>(trace_.data());
}

std::vector<uint64_t> ModelKernel::read_trace() {
  args_.trace = nullptr;
  std::vector<uint64_t> stamps(trace_.bytes() / sizeof(uint64_t));
  runtime_.read(device_, trace_.data(), stamps.data(), static_cast<int64_t>(trace_.bytes()), stream_);
  const size_t workers = static_cast<size_t>(num_workers()), phases = partition_.phases.all.size();
  std::vector<uint64_t> by_phase(stamps.size());
  for (size_t w = 0; w < workers; ++w)
    for (size_t p = 0; p < phases; ++p)
      std::copy_n(stamps.begin() + static_cast<int64_t>((w * phases + p) * kNumStamps), kNumStamps,
                  by_phase.begin() + static_cast<int64_t>((p * workers + w) * kNumStamps));
  return by_phase;
}

void ModelKernel::check_stuck() {
  const std::span words(static_cast<uint64_t*>(stuck_.data()), static_cast<size_t>(num_workers()));
  const std::vector<Phase>& phases = partition_.phases.all;
  const auto name = [&](uint32_t phase) {
    return phase < phases.size() ? name_of(phases[phase]) : std::string("the choice of ids");
  };
  const std::string text = stuck_text(words, name);
  if (text.empty()) return;
  // The next step is a new begin.
  std::ranges::fill(words, uint64_t{0});
  for (std::optional<Variant>& variant : variants_)
    if (variant) variant->cells.forget();
  throw Error(ErrorCode::device_failed, "the fused step on " + to_string(device_) + ": " + text);
}

}  // namespace weft::decode::fused
