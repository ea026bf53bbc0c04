#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "models/gguf_reader.h"
#include "models/layers.h"

namespace weft {
namespace {

// The families that the forward pass computes, and how each rotates.
struct Architecture {
  std::string_view name;
  RopePairs pairs;
};
constexpr Architecture kArchitectures[] = {
    {"llama", RopePairs::adjacent},
    {"qwen2", RopePairs::halves},
    {"qwen3", RopePairs::halves},
};

constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 576, kHeadDimStep = 8;
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden and intermediate size
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxContext = int64_t{1} << 30;

class ConfigReader {
 public:
  explicit ConfigReader(const ModelFile& file) : file_(file) {}

  ModelConfig read() {
    const Architecture& architecture = read_architecture();
    config_.architecture = architecture.name;
    if (file_.has("general.name")) config_.name = file_.get_string("general.name");
    config_.num_layers = integer("block_count", 1, kMaxLayers);
    config_.hidden_size = integer("embedding_length", 1, kMaxWidth);
    config_.intermediate_size = integer("feed_forward_length", 1, kMaxWidth);
    config_.context_length = integer("context_length", 1, kMaxContext);
    config_.norm_eps = real("attention.layer_norm_rms_epsilon", 0.0, 1.0);
    read_heads();
    read_rope(architecture.pairs);
    read_vocabulary();
    refuse_features();
    config_.tied_embeddings = file_.find_weight(kOutput) == nullptr;
    config_.qkv_bias = file_.find_weight("blk.0.attn_q.bias") != nullptr;
    config_.qk_norm = file_.find_weight("blk.0.attn_q_norm.weight") != nullptr;
    return config_;
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", config_.architecture, name); }

  // Values at `low` itself are allowed for integers, not for reals.
  int integer(std::string_view name, int64_t low, int64_t high) const {
    const int64_t value = file_.get_int(key(name));
    check(low <= value && value <= high, ErrorCode::invalid_file, "{}: metadata '{}' is {}; allowed are {} to {}",
          file_.path(), key(name), value, low, high);
    return static_cast<int>(value);
  }
  float real(std::string_view name, double low, double high) const {
    const double value = file_.get_float(key(name));
    check(value > low && value <= high, ErrorCode::invalid_file,
          "{}: metadata '{}' is {}; allowed are numbers above {} up to {}", file_.path(), key(name), value, low, high);
    return static_cast<float>(value);
  }

  const Architecture& read_architecture() const {
    check(file_.has("general.architecture"), ErrorCode::invalid_file,
          "{}: metadata 'general.architecture' is missing; the file holds no model", file_.path());
    const std::string name = file_.get_string("general.architecture");
    std::string supported;
    for (const Architecture& known : kArchitectures) {
      if (known.name == name) return known;
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", known.name);
    }
    fail(ErrorCode::unsupported, "{}: general.architecture: required {}, supported {}", file_.path(), quoted(name),
         supported);
  }

  void read_heads() {
    config_.num_qo_heads = integer("attention.head_count", 1, kMaxHeads);
    config_.num_kv_heads = config_.num_qo_heads;
    if (file_.has(key("attention.head_count_kv")))
      config_.num_kv_heads = integer("attention.head_count_kv", 1, kMaxHeads);
    check(config_.num_qo_heads % config_.num_kv_heads == 0, ErrorCode::invalid_file,
          "{}: metadata '{}' is {}; it must divide the {} heads of '{}'", file_.path(), key("attention.head_count_kv"),
          config_.num_kv_heads, config_.num_qo_heads, key("attention.head_count"));
    if (file_.has(key("attention.key_length"))) {
      config_.head_dim = integer("attention.key_length", 1, kMaxWidth);
    } else {
      check(config_.hidden_size % config_.num_qo_heads == 0, ErrorCode::invalid_file,
            "{}: metadata '{}' is {}, which the {} heads of '{}' do not divide, and '{}' is missing", file_.path(),
            key("embedding_length"), config_.hidden_size, config_.num_qo_heads, key("attention.head_count"),
            key("attention.key_length"));
      config_.head_dim = config_.hidden_size / config_.num_qo_heads;
    }
    check(config_.head_dim % kHeadDimStep == 0 && config_.head_dim <= kMaxHeadDim, ErrorCode::unsupported,
          "{}: head dimension ('{}'): required {}, supported {} to {} in steps of {}", file_.path(),
          key("attention.key_length"), config_.head_dim, kHeadDimStep, kMaxHeadDim, kHeadDimStep);
    if (!file_.has(key("attention.value_length"))) return;
    const int64_t value_length = file_.get_int(key("attention.value_length"));
    check(value_length == config_.head_dim, ErrorCode::unsupported,
          "{}: metadata '{}': required {}, supported {} (the dimension of keys)", file_.path(),
          key("attention.value_length"), value_length, config_.head_dim);
  }

  void read_rope(RopePairs pairs) {
    config_.rope.pairs = pairs;
    config_.rope.rotary_dim = config_.head_dim;
    if (file_.has(key("rope.dimension_count")))
      config_.rope.rotary_dim = integer("rope.dimension_count", 2, config_.head_dim);
    check(config_.rope.rotary_dim % 2 == 0, ErrorCode::invalid_file, "{}: metadata '{}' is {}; it must be even",
          file_.path(), key("rope.dimension_count"), config_.rope.rotary_dim);
    if (file_.has(key("rope.freq_base"))) config_.rope.theta = real("rope.freq_base", 0.0, 1e12);
    read_rope_scaling();
    if (const WeightInfo* factors = file_.find_weight(kRopeFactors)) read_rope_factors(*factors);
  }

  void read_rope_scaling() {
    std::string type = file_.has(key("rope.scale_linear")) ? "linear" : "none";
    std::string_view factor = "rope.scale_linear";  // how older files say it
    if (file_.has(key("rope.scaling.type"))) {
      type = file_.get_string(key("rope.scaling.type"));
      factor = "rope.scaling.factor";
    }
    check(type == "none" || type == "linear", ErrorCode::unsupported,
          "{}: metadata '{}': required {}, supported 'none' and 'linear'", file_.path(), key("rope.scaling.type"),
          quoted(type));
    if (type == "linear") config_.rope.linear_scale = real(factor, 0.0, 1e6);
  }

  // Files keep the divisors that Llama 3 scaling gives, not the constants behind them: we find the constants and
  // check that they give these divisors.
  void read_rope_factors(const WeightInfo& info) {
    const auto pairs = static_cast<size_t>(config_.rope.rotary_dim) / 2;
    check(info.type == WeightType::f32 && info.rows == 1 && info.cols == static_cast<int64_t>(pairs),
          ErrorCode::invalid_file, "{}: tensor '{}' is {} [{}, {}]; expected F32 [1, {}]", file_.path(), kRopeFactors,
          to_string(info.type), info.rows, info.cols, pairs);
    std::vector<float> divisors(pairs);
    file_.read(info, 0, 1, divisors.data());
    RopeParams rope = config_.rope;
    rope.factor = divisors.back();
    rope.original_context = 8192;
    if (file_.has(key("rope.scaling.original_context_length")))
      rope.original_context = integer("rope.scaling.original_context_length", 1, kMaxContext);
    bool same = std::isfinite(rope.factor) && rope.factor >= 1.f && rope.factor <= 1e6f;
    for (size_t i = 0; same && i < pairs; ++i) {
      const double expected = llama3_divisor(rope, i);
      same = std::abs(divisors[i] - expected) <= 1e-3 * expected;
    }
    check(same, ErrorCode::unsupported,
          "{}: tensor '{}': required divisors that end in {}, supported those of Llama 3 scaling with low and high "
          "frequency factors {} and {} over {} tokens",
          file_.path(), kRopeFactors, divisors.back(), rope.low_freq_factor, rope.high_freq_factor,
          rope.original_context);
    config_.rope = rope;
  }

  // By what Llama 3 scaling divides the frequency of a pair.
  static double llama3_divisor(const RopeParams& rope, size_t pair) {
    const double frequency =
        std::pow(static_cast<double>(rope.theta), -2.0 * static_cast<double>(pair) / rope.rotary_dim);
    const double turns = rope.original_context * frequency / (2.0 * std::numbers::pi);  // within the first context
    const double low = rope.low_freq_factor, high = rope.high_freq_factor;
    if (turns > high) return 1.0;
    if (turns < low) return rope.factor;
    const double smooth = (turns - low) / (high - low);
    return 1.0 / ((1.0 - smooth) / rope.factor + smooth);
  }

  void read_vocabulary() {
    const WeightInfo& embedding = file_.weight(kTokenEmbedding);
    check(embedding.rows <= kMaxVocab, ErrorCode::invalid_file, "{}: tensor '{}' has {} rows; allowed are 1 to {}",
          file_.path(), kTokenEmbedding, embedding.rows, kMaxVocab);
    config_.vocab_size = static_cast<int>(embedding.rows);
    if (!file_.has("tokenizer.ggml.tokens")) return;
    const auto tokens = static_cast<int64_t>(file_.count("tokenizer.ggml.tokens"));
    check(tokens == embedding.rows, ErrorCode::invalid_file,
          "{}: metadata 'tokenizer.ggml.tokens' has {} tokens, but tensor '{}' has {} rows; they must agree",
          file_.path(), tokens, kTokenEmbedding, embedding.rows);
  }

  // Keys that change what the layers compute, in a way that is not there.
  void refuse_features() const {
    const std::string experts = key("expert_count");
    if (file_.has(experts)) {
      const int64_t count = file_.get_int(experts);
      check(count == 0, ErrorCode::unsupported, "{}: metadata '{}': required {}, supported 0 (dense layers)",
            file_.path(), experts, count);
    }
    const std::string window = key("attention.sliding_window");
    if (file_.has(window)) {
      const int64_t length = file_.get_int(window);
      check(length <= 0 || length >= config_.context_length, ErrorCode::unsupported,
            "{}: metadata '{}': required {}, supported 0 or at least the context of {} tokens", file_.path(), window,
            length, config_.context_length);
    }
  }

  const ModelFile& file_;
  ModelConfig config_;
};

}  // namespace

ModelConfig read_config(const ModelFile& file) { return ConfigReader(file).read(); }

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::exact: return "exact";
    case Precision::standard: return "default";
    case Precision::fast: return "fast";
  }
  return "unknown";
}

Precision precision_from_string(std::string_view name) {
  for (const Precision precision : {Precision::exact, Precision::standard, Precision::fast})
    if (to_string(precision) == name) return precision;
  fail(ErrorCode::invalid_argument, "precision {}; allowed are exact, default and fast", quoted(name));
}

}  // namespace weft
