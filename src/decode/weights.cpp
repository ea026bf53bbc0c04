#include "decode/weights.h"

#include <string>
#include <string_view>

#include "base/check.h"
#include "models/layers.h"

namespace weft::decode {
namespace {

using gemm::PackedLinear;
using gemm::WeightSource;

WeightSource source_of(const ModelFile& file, std::string_view name) {
  const WeightInfo& info = file.weight(name);
  return {.type = info.type,
          .rows = info.rows,
          .cols = info.cols,
          .read = [&file, &info](int64_t begin, int64_t end, void* to) { file.read(info, begin, end, to); }};
}

// Matrices in the order in which they are packed, each with its place.
struct Planned {
  PackedLinear* to;
  std::vector<WeightSource> sources;
};

std::vector<Planned> plan_matrices(const ModelFile& file, ModelWeights& weights) {
  std::vector<Planned> planned;
  const auto add = [&](PackedLinear& to, std::initializer_list<std::string_view> names) {
    Planned& matrix = planned.emplace_back(Planned{&to, {}});
    for (std::string_view name : names) matrix.sources.push_back(source_of(file, name));
  };
  add(weights.embedding, {kTokenEmbedding});
  if (!file.config().tied_embeddings) add(weights.own_head, {kOutput});
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerNames names = layer_names(file.config(), static_cast<int>(i));
    LayerWeights& layer = weights.layers[i];
    add(layer.qkv, {names.attn_q, names.attn_k, names.attn_v});
    add(layer.output, {names.attn_output});
    add(layer.gate_up, {names.ffn_gate, names.ffn_up});
    add(layer.down, {names.ffn_down});
  }
  return planned;
}

// Appends a vector of the file; a name that is empty adds nothing.
void read_vector(const ModelFile& file, std::string_view name, std::vector<float>& to) {
  if (name.empty()) return;
  const WeightInfo& info = file.weight(name);
  check(info.type == WeightType::f32, ErrorCode::unsupported,
        "{}: tensor '{}': required type {}, supported F32 for vectors", file.path(), name, to_string(info.type));
  const size_t old = to.size();
  to.resize(old + static_cast<size_t>(info.rows * info.cols));
  file.read(info, 0, info.rows, to.data() + old);
}

}  // namespace

size_t ModelWeights::bytes_per_token() const {
  size_t bytes = head().bytes() + output_norm.size() * sizeof(float);
  for (const LayerWeights& layer : layers) {
    bytes += layer.qkv.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes();
    for (const std::vector<float>* vector : {&layer.attn_norm, &layer.ffn_norm, &layer.q_norm, &layer.k_norm,
                                             &layer.attn_post_norm, &layer.ffn_post_norm, &layer.qkv_bias})
      bytes += vector->size() * sizeof(float);
  }
  return bytes;
}

ModelWeights load_weights(const ModelFile& file, Precision precision, Isa isa, WorkerTeam& team,
                          const std::function<void(double)>& on_load) {
  check_weights(file);
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(file.config().num_layers));
  const std::vector<Planned> planned = plan_matrices(file, weights);
  size_t total = 0, done = 0;
  for (const Planned& matrix : planned) total += gemm::packed_bytes(matrix.sources, isa);
  weights.memory = Workspace(Device::cpu(), total);
  for (const Planned& matrix : planned) {
    *matrix.to =
        gemm::pack_linear(matrix.sources, precision, isa, team, static_cast<char*>(weights.memory.data()) + done);
    done += matrix.to->bytes();
    if (on_load) on_load(static_cast<double>(done) / static_cast<double>(total));
  }
  read_vector(file, kOutputNorm, weights.output_norm);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerNames names = layer_names(file.config(), static_cast<int>(i));
    LayerWeights& layer = weights.layers[i];
    read_vector(file, names.attn_norm, layer.attn_norm);
    read_vector(file, names.ffn_norm, layer.ffn_norm);
    read_vector(file, names.attn_q_norm, layer.q_norm);
    read_vector(file, names.attn_k_norm, layer.k_norm);
    read_vector(file, names.attn_post_norm, layer.attn_post_norm);
    read_vector(file, names.ffn_post_norm, layer.ffn_post_norm);
    for (const std::string& name : {names.attn_q_bias, names.attn_k_bias, names.attn_v_bias})
      read_vector(file, name, layer.qkv_bias);
  }
  return weights;
}

}  // namespace weft::decode
