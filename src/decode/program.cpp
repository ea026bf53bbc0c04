#include "decode/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/enum_names.h"
#include "models/layers.h"

namespace weft::decode {
namespace {

class ProgramWriter {
 public:
  ProgramWriter(const ModelConfig& config, LayerParts parts) : config_(config), parts_(parts) {}

  Program write() {
    const int64_t q_cols = int64_t{config_.num_qo_heads} * config_.head_dim;
    const int64_t kv_cols = int64_t{config_.num_kv_heads} * config_.head_dim;
    program_ = {.num_layers = config_.num_layers,
                .num_qo_heads = config_.num_qo_heads,
                .num_kv_heads = config_.num_kv_heads,
                .head_dim = config_.head_dim,
                .norm_eps = config_.norm_eps};
    const std::pair<Buffer, int64_t> cols[] = {{Buffer::tokens, 1},
                                               {Buffer::residual, config_.hidden_size},
                                               {Buffer::normed, config_.hidden_size},
                                               {Buffer::query, q_cols},
                                               {Buffer::key, kv_cols},
                                               {Buffer::value, kv_cols},
                                               {Buffer::attended, q_cols},
                                               {Buffer::projected, config_.hidden_size},
                                               {Buffer::gate, config_.intermediate_size},
                                               {Buffer::up, config_.intermediate_size},
                                               {Buffer::gated, config_.intermediate_size},
                                               {Buffer::logits, config_.vocab_size},
                                               {Buffer::cache, 2 * kv_cols}};
    for (const auto& [buffer, count] : cols) program_.cols[static_cast<size_t>(buffer)] = count;
    program_.ropes.push_back(config_.rope);
    if (config_.sliding_window > 0) program_.ropes.push_back(config_.sliding_rope);

    add({.kind = OperationKind::embed,
         .reads = {Buffer::tokens},
         .writes = {Buffer::residual},
         .weights = {{WeightRole::embedding, config_.vocab_size, config_.hidden_size}},
         .scale = config_.embedding_scale});
    for (layer_ = 0; layer_ < config_.num_layers; ++layer_) {
      if (parts_ != LayerParts::feed_forward) attention();
      if (parts_ != LayerParts::attention) feed_forward();
    }
    layer_ = -1;
    norm(Buffer::residual, WeightRole::output_norm, Buffer::normed);
    project(Buffer::normed, config_.tied_embeddings ? WeightRole::embedding : WeightRole::head, {Buffer::logits});
    if (config_.logits_soft_cap > 0.f)
      add({.kind = OperationKind::soft_cap,
           .reads = {Buffer::logits},
           .writes = {Buffer::logits},
           .soft_cap = config_.logits_soft_cap});
    if (parts_ == LayerParts::feed_forward) program_.last_attend = program_.operations.size();
    return std::move(program_);
  }

 private:
  void attention() {
    const bool slides = layer_slides(config_, layer_);
    norm(Buffer::residual, WeightRole::attn_norm, Buffer::normed);
    project(Buffer::normed, WeightRole::qkv, {Buffer::query, Buffer::key, Buffer::value});
    if (config_.qkv_bias) add_bias(WeightRole::qkv_bias, {Buffer::query, Buffer::key, Buffer::value});
    if (config_.qk_norm)
      add({.kind = OperationKind::norm_heads,
           .reads = {Buffer::query, Buffer::key},
           .writes = {Buffer::query, Buffer::key},
           .weights = {{WeightRole::q_norm, 1, config_.head_dim}, {WeightRole::k_norm, 1, config_.head_dim}}});
    add({.kind = OperationKind::rotate,
         .reads = {Buffer::query, Buffer::key},
         .writes = {Buffer::query, Buffer::key},
         .rope = slides ? 1 : 0});
    add({.kind = OperationKind::append, .reads = {Buffer::key, Buffer::value}, .writes = {Buffer::cache}});
    program_.last_attend = program_.operations.size();
    add({.kind = OperationKind::attend,
         .reads = {Buffer::query, Buffer::cache},
         .writes = {Buffer::attended},
         .scale = config_.sm_scale > 0.f ? config_.sm_scale : 1.f / std::sqrt(static_cast<float>(config_.head_dim)),
         .soft_cap = config_.attention_soft_cap,
         .window = slides ? config_.sliding_window : 0});
    project(Buffer::attended, WeightRole::output, {Buffer::projected});
    if (config_.output_bias) add_bias(WeightRole::output_bias, {Buffer::projected});
    add_projected(WeightRole::attn_post_norm);
  }

  void feed_forward() {
    norm(Buffer::residual, WeightRole::ffn_norm, Buffer::normed);
    project(Buffer::normed, WeightRole::gate_up, {Buffer::gate, Buffer::up});
    add({.kind = OperationKind::gate,
         .reads = {Buffer::gate, Buffer::up},
         .writes = {Buffer::gated},
         .gate = config_.gate});
    project(Buffer::gated, WeightRole::down, {Buffer::projected});
    add_projected(WeightRole::ffn_post_norm);
  }

  void add_projected(WeightRole post_norm) {
    if (config_.post_norms) norm(Buffer::projected, post_norm, Buffer::projected);
    add({.kind = OperationKind::add, .reads = {Buffer::residual, Buffer::projected}, .writes = {Buffer::residual}});
  }

  void norm(Buffer from, WeightRole weight, Buffer to) {
    add({.kind = OperationKind::norm,
         .reads = {from},
         .writes = {to},
         .weights = {{weight, 1, program_.cols_of(from)}}});
  }
  void project(Buffer from, WeightRole matrix, std::vector<Buffer> to) {
    const Weight weight{matrix, cols_of(to), program_.cols_of(from)};
    add({.kind = OperationKind::project, .reads = {from}, .writes = std::move(to), .weights = {weight}});
  }
  void add_bias(WeightRole bias, std::vector<Buffer> to) {
    const Weight weight{bias, 1, cols_of(to)};
    add({.kind = OperationKind::add_bias, .reads = to, .writes = to, .weights = {weight}});
  }
  int64_t cols_of(const std::vector<Buffer>& buffers) const {
    int64_t cols = 0;
    for (const Buffer buffer : buffers) cols += program_.cols_of(buffer);
    return cols;
  }
  void add(Operation operation) {
    operation.layer = layer_;
    program_.operations.push_back(std::move(operation));
  }

  const ModelConfig& config_;
  const LayerParts parts_;
  Program program_;
  int layer_ = -1;  // of what is added
};

bool are_alike(std::span<const Operation> a, std::span<const Operation> b) {
  return std::ranges::equal(a, b, [](Operation one, const Operation& other) {
    one.layer = other.layer;
    return one == other;
  });
}

template <class Range>
std::string names_of(const Range& values) {
  std::string names;
  for (const auto& value : values) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(value));
  return names;
}

std::string weight_text(const Weight& weight) {
  return is_matrix(weight.role) ? fmt::format("{} [{} x {}]", to_string(weight.role), weight.rows, weight.cols)
                                : fmt::format("{} [{}]", to_string(weight.role), weight.cols);
}

std::string rope_text(const RopeParams& rope, int head_dim) {
  const int dim = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
  std::string text = fmt::format("{} pairs, theta {}", weft::to_string(rope.pairs), rope.theta);
  if (dim != head_dim) text += fmt::format(", {} of {} columns", dim, head_dim);
  if (rope.linear_scale != 1.f) text += fmt::format(", linear {}", rope.linear_scale);
  if (rope.factor != 1.f) text += fmt::format(", {} {}", weft::to_string(rope.scaling), rope.factor);
  if (!rope.divisors.empty()) text += ", divisors";
  return text;
}

// What its kind needs beside buffers and weights.
std::string constants_of(const Operation& operation, const Program& program) {
  switch (operation.kind) {
    case OperationKind::embed: return operation.scale == 1.f ? "" : fmt::format("scale {}", operation.scale);
    case OperationKind::rotate: return rope_text(program.ropes[static_cast<size_t>(operation.rope)], program.head_dim);
    case OperationKind::attend: {
      std::string text = fmt::format("scale {}", operation.scale);
      if (operation.soft_cap > 0.f) text += fmt::format(", soft cap {}", operation.soft_cap);
      if (operation.window > 0) text += fmt::format(", window {}", operation.window);
      return text;
    }
    case OperationKind::gate: return std::string(weft::to_string(operation.gate));
    case OperationKind::soft_cap: return fmt::format("cap {}", operation.soft_cap);
    default: return "";
  }
}

// "layers 0 to 4": of [first, first + count).
std::string layers_text(int first, int count) {
  return count == 1 ? fmt::format("layer {}", first) : fmt::format("layers {} to {}", first, first + count - 1);
}

}  // namespace

std::string_view to_string(OperationKind kind) {
  static constexpr std::string_view kNames[] = {"embed",  "norm",   "project", "add_bias", "norm_heads", "rotate",
                                                "append", "attend", "add",     "gate",     "soft_cap"};
  return enum_name(kNames, kind);
}

std::string_view to_string(Buffer buffer) {
  static constexpr std::string_view kNames[] = {"tokens", "residual", "normed",    "query", "key",
                                                "value",  "attended", "projected", "gate",  "up",
                                                "gated",  "logits",   "cache"};
  return enum_name(kNames, buffer);
}

std::string_view to_string(WeightRole role) {
  static constexpr std::string_view kNames[] = {
      "embedding", "qkv",    "output",      "gate_up",        "down",     "head",          "attn_norm",  "qkv_bias",
      "q_norm",    "k_norm", "output_bias", "attn_post_norm", "ffn_norm", "ffn_post_norm", "output_norm"};
  return enum_name(kNames, role);
}

Program make_program(const ModelConfig& config, LayerParts parts) { return ProgramWriter(config, parts).write(); }

std::span<const Operation> operations_of(const Program& program, int layer) {
  const std::vector<Operation>& all = program.operations;
  const auto is_of_layer = [](const Operation& operation) { return operation.layer >= 0; };
  const auto first = std::ranges::find_if(all, is_of_layer);
  const auto behind = std::find_if_not(first, all.end(), is_of_layer);
  if (layer < 0) return {all.begin(), first};
  if (layer >= program.num_layers) return {behind, all.end()};
  const auto begin = std::ranges::lower_bound(first, behind, layer, {}, &Operation::layer);
  return {begin, std::ranges::upper_bound(begin, behind, layer, {}, &Operation::layer)};
}

int layer_period(const Program& program) {
  for (int period = 1; period < program.num_layers; ++period) {
    int layer = period;
    while (layer < program.num_layers &&
           are_alike(operations_of(program, layer), operations_of(program, layer - period)))
      ++layer;
    if (layer == program.num_layers) return period;
  }
  return program.num_layers;
}

std::string to_string(const Operation& operation, const Program& program) {
  std::string last;
  for (const Weight& weight : operation.weights)
    last += fmt::format("{}{}", last.empty() ? "" : ", ", weight_text(weight));
  const std::string constants = constants_of(operation, program);
  if (!constants.empty()) last += (last.empty() ? "" : ", ") + constants;
  std::string line = fmt::format("{:<10}  {:<17} <- {:<19}  {}", to_string(operation.kind), names_of(operation.writes),
                                 names_of(operation.reads), last);
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

std::string to_string(const Program& program) {
  std::string text =
      fmt::format("{} layer{}, {} query and {} KV heads of {}, norm eps {}\ncolumns of a row:", program.num_layers,
                  program.num_layers == 1 ? "" : "s", program.num_qo_heads, program.num_kv_heads, program.head_dim,
                  program.norm_eps);
  for (size_t i = 0; i < kNumBuffers; ++i) {
    const std::string_view separator = i == 0 ? "" : i == kNumBuffers / 2 + 1 ? ",\n " : ",";
    text += fmt::format("{} {} {}", separator, to_string(static_cast<Buffer>(i)), program.cols[i]);
  }
  text += "\n";
  const auto add_lines = [&](int layer) {
    for (const Operation& operation : operations_of(program, layer))
      text += fmt::format("  {}\n", to_string(operation, program));
  };
  text += "before the layers\n";
  add_lines(-1);
  const int period = layer_period(program);
  for (int first = 0, behind = 0; first < period; first = behind) {
    do ++behind;
    while (behind < period && are_alike(operations_of(program, behind), operations_of(program, first)));
    if (period == 1)
      text += layers_text(0, program.num_layers);
    else if (period == program.num_layers)
      text += layers_text(first, behind - first);
    else
      text += fmt::format("{}, {} of every {}", layers_text(0, program.num_layers),
                          behind - first == 1 ? fmt::format("{}", first) : fmt::format("{} to {}", first, behind - 1),
                          period);
    text += "\n";
    add_lines(first);
  }
  text += "behind the layers\n";
  add_lines(program.num_layers);
  if (program.last_attend == program.operations.size()) return text;
  return text + fmt::format(
                    "a step without logits ends before attend of layer {}; behind it only rows that give logits "
                    "go on\n",
                    program.operations[program.last_attend].layer);
}

}  // namespace weft::decode
