#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/enum_names.h"
#include "models/gguf_reader.h"
#include "models/layers.h"

namespace weft {
namespace {

// The families that the forward pass computes, and what their files do not say.
struct Architecture {
  std::string_view name;
  RopePairs pairs = RopePairs::halves;
  bool qkv_bias = false, qk_norm = false;      // needed; the others have them where the file does
  bool is_gemma = false;                       // scaled embeddings, norms after attention and feed-forward, GELU
  int sliding_window = 0, sliding_period = 0;  // where the file does not say; a period of 0: no layer slides
  float sliding_theta = 0.f;                   // the same; 0: that of the other layers
  float attention_soft_cap = 0.f, logits_soft_cap = 0.f;  // the same; 0: none
  int wide_layers = 0;  // the model of so many layers scales logits by 1 / sqrt(hidden / heads)
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .pairs = RopePairs::adjacent},
    {.name = "qwen2", .qkv_bias = true},
    {.name = "qwen3", .qk_norm = true},
    {.name = "gemma2",
     .is_gemma = true,
     .sliding_window = 4096,
     .sliding_period = 2,
     .attention_soft_cap = 50.f,
     .logits_soft_cap = 30.f,
     .wide_layers = 46},
    {.name = "gemma3",
     .qk_norm = true,
     .is_gemma = true,
     .sliding_period = 6,
     .sliding_theta = 10000.f,
     .wide_layers = 62},
};

constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 576, kHeadDimStep = 8;
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden and intermediate size
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxContext = int64_t{1} << 30;

class ConfigReader {
 public:
  explicit ConfigReader(const ModelFile& file) : file_(file) {}

  ModelConfig read() {
    refuse_other_contents(file_);
    const Architecture& architecture = read_architecture();
    config_.architecture = architecture.name;
    if (file_.has("general.name")) config_.name = file_.get_string("general.name");
    config_.num_layers = integer("block_count", 1, kMaxLayers);
    config_.hidden_size = integer("embedding_length", 1, kMaxWidth);
    config_.intermediate_size = of_layers("feed_forward_length", 1, kMaxWidth);
    config_.context_length = integer("context_length", 1, kMaxContext);
    config_.norm_eps = real("attention.layer_norm_rms_epsilon", 0.0, 1.0);
    read_heads();
    read_rope(architecture.pairs);
    read_sliding(architecture);
    read_scales(architecture);
    read_vocabulary();
    refuse_experts();
    refuse_two_way_attention();
    config_.tied_embeddings = file_.find_weight(kOutput) == nullptr;
    config_.qkv_bias = architecture.qkv_bias || file_.find_weight("blk.0.attn_q.bias") != nullptr;
    config_.output_bias = file_.find_weight("blk.0.attn_output.bias") != nullptr;
    config_.qk_norm = architecture.qk_norm || file_.find_weight("blk.0.attn_q_norm.weight") != nullptr;
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
  int integer_or(int otherwise, std::string_view name, int64_t low, int64_t high) const {
    return file_.has(key(name)) ? integer(name, low, high) : otherwise;
  }
  // One number, or one for each layer: layers are alike here.
  int of_layers(std::string_view name, int64_t low, int64_t high) const {
    if (!file_.is_array(key(name))) return integer(name, low, high);
    const std::vector<int32_t> values = file_.get_ints(key(name));
    check(values.size() == static_cast<size_t>(config_.num_layers), ErrorCode::invalid_file,
          "{}: metadata '{}' has {} numbers for the {} layers of '{}'", file_.path(), key(name), values.size(),
          config_.num_layers, key("block_count"));
    for (size_t layer = 0; layer < values.size(); ++layer) {
      check(low <= values[layer] && values[layer] <= high, ErrorCode::invalid_file,
            "{}: metadata '{}' is {} in layer {}; allowed are {} to {}", file_.path(), key(name), values[layer], layer,
            low, high);
      check(values[layer] == values[0], ErrorCode::unsupported,
            "{}: metadata '{}': required {} in layer {} and {} in layer 0, supported one number for all layers",
            file_.path(), key(name), values[layer], layer, values[0]);
    }
    return values[0];
  }
  float real(std::string_view name, double low, double high) const {
    const double value = file_.get_float(key(name));
    check(value > low && value <= high, ErrorCode::invalid_file,
          "{}: metadata '{}' is {}; allowed are numbers above {} up to {}", file_.path(), key(name), value, low, high);
    return static_cast<float>(value);
  }
  float real_or(float otherwise, std::string_view name, double low, double high) const {
    return file_.has(key(name)) ? real(name, low, high) : otherwise;
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
    config_.num_qo_heads = of_layers("attention.head_count", 1, kMaxHeads);
    config_.num_kv_heads = file_.has(key("attention.head_count_kv"))
                               ? of_layers("attention.head_count_kv", 1, kMaxHeads)
                               : config_.num_qo_heads;
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
    config_.rope.rotary_dim = integer_or(config_.head_dim, "rope.dimension_count", 2, config_.head_dim);
    check(config_.rope.rotary_dim % 2 == 0, ErrorCode::invalid_file, "{}: metadata '{}' is {}; it must be even",
          file_.path(), key("rope.dimension_count"), config_.rope.rotary_dim);
    config_.rope.theta = real_or(config_.rope.theta, "rope.freq_base", 1.0, 1e12);
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
    check(type == "none" || type == "linear" || type == "yarn", ErrorCode::unsupported,
          "{}: metadata '{}': required {}, supported 'none', 'linear' and 'yarn'", file_.path(),
          key("rope.scaling.type"), quoted(type));
    if (type == "linear") config_.rope.linear_scale = real(factor, 0.0, 1e6);
    if (type == "yarn") read_yarn();
  }

  void read_yarn() {
    RopeParams& rope = config_.rope;
    rope.scaling = RopeScaling::yarn;
    rope.factor = real("rope.scaling.factor", 0.0, 1e6);
    rope.original_context = integer_or(config_.context_length, "rope.scaling.original_context_length", 1, kMaxContext);
    rope.beta_slow = real_or(rope.beta_slow, "rope.scaling.yarn_beta_slow", 0.0, 1e6);
    rope.beta_fast = real_or(rope.beta_fast, "rope.scaling.yarn_beta_fast", 0.0, 1e6);
    check(rope.factor >= 1.f && rope.beta_fast > rope.beta_slow, ErrorCode::invalid_file,
          "{}: metadata '{}' is {}, beta_fast {}, beta_slow {}; a factor of at least 1 and fast above slow are needed",
          file_.path(), key("rope.scaling.factor"), rope.factor, rope.beta_fast, rope.beta_slow);
    const float share = real_or(1.f, "rope.scaling.yarn_ext_factor", -1.0, 1e6);
    check(share == 1.f, ErrorCode::unsupported, "{}: metadata '{}': required {}, supported 1", file_.path(),
          key("rope.scaling.yarn_ext_factor"), share);
    // YaRN, section 3.4: longer contexts need sharper logits.
    rope.attention_factor = static_cast<float>(real_or(1.f, "rope.scaling.attn_factor", 0.0, 1e6) *
                                               (1 + 0.1 * std::log(static_cast<double>(rope.factor))));
  }

  void read_rope_factors(const WeightInfo& info) {
    const auto pairs = static_cast<size_t>(config_.rope.rotary_dim) / 2;
    check(info.type == WeightType::f32 && info.rows == 1 && info.cols == static_cast<int64_t>(pairs),
          ErrorCode::invalid_file, "{}: tensor '{}' is {} [{}, {}]; expected F32 [1, {}]", file_.path(), kRopeFactors,
          to_string(info.type), info.rows, info.cols, pairs);
    std::vector<float>& divisors = config_.rope.divisors;
    divisors.resize(pairs);
    file_.read(info, 0, 1, divisors.data());
    for (size_t i = 0; i < pairs; ++i)
      check(std::isfinite(divisors[i]) && divisors[i] > 0.f, ErrorCode::invalid_file,
            "{}: tensor '{}': element {} is {}; allowed are finite numbers above 0", file_.path(), kRopeFactors, i,
            divisors[i]);
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

  // Which layers see a window only, and how they rotate.
  void read_sliding(const Architecture& architecture) {
    const int window = integer_or(architecture.sliding_window, "attention.sliding_window", 0, kMaxContext);
    check(architecture.sliding_period > 0 || window == 0 || window >= config_.context_length, ErrorCode::unsupported,
          "{}: metadata '{}': required {}, supported for {} 0 or at least the context of {} tokens", file_.path(),
          key("attention.sliding_window"), window, architecture.name, config_.context_length);
    if (architecture.sliding_period == 0 || window == 0) return;
    config_.sliding_window = window;
    config_.sliding_period = integer_or(architecture.sliding_period, "attention.sliding_window_pattern", 1, kMaxLayers);
    config_.sliding_rope = config_.rope;
    if (architecture.sliding_theta == 0.f) return;
    // Scaling is for what the windows do not reach.
    config_.sliding_rope = {.pairs = config_.rope.pairs, .rotary_dim = config_.rope.rotary_dim};
    config_.sliding_rope.theta = real_or(architecture.sliding_theta, "rope.freq_base_swa", 1.0, 1e12);
  }

  void read_scales(const Architecture& architecture) {
    if (architecture.is_gemma) {
      config_.post_norms = true;
      config_.gate = Gate::gelu_tanh;
      config_.embedding_scale = std::sqrt(static_cast<float>(config_.hidden_size));
    }
    if (config_.num_layers == architecture.wide_layers)
      config_.sm_scale = std::sqrt(static_cast<float>(config_.num_qo_heads) / static_cast<float>(config_.hidden_size));
    config_.sm_scale = real_or(config_.sm_scale, "attention.scale", 0.0, 1e6);
    config_.attention_soft_cap = real_or(architecture.attention_soft_cap, "attn_logit_softcapping", 0.0, 1e6);
    config_.logits_soft_cap = real_or(architecture.logits_soft_cap, "final_logit_softcapping", 0.0, 1e6);
  }

  void refuse_two_way_attention() const {
    const std::string causal = key("attention.causal");
    check(!file_.has(causal) || file_.get_bool(causal), ErrorCode::unsupported,
          "{}: metadata '{}': required false, supported true (each token sees those before it)", file_.path(), causal);
  }

  // Experts change what the layers compute, in a way that is not there.
  void refuse_experts() const {
    const std::string experts = key("expert_count");
    if (file_.has(experts)) {
      const int64_t count = file_.get_int(experts);
      check(count == 0, ErrorCode::unsupported, "{}: metadata '{}': required {}, supported 0 (dense layers)",
            file_.path(), experts, count);
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

void refuse_other_contents(const ModelFile& file) {
  constexpr std::string_view kKey = "general.type";
  if (!file.has(kKey)) return;
  const std::string type = file.get_string(kKey);
  check(type == "model", ErrorCode::unsupported,
        "{}: metadata '{}': required {}, supported 'model'; give the file of the model itself", file.path(), kKey,
        quoted(type));
}

Precision precision_from_string(std::string_view name) {
  for (const Precision precision : {Precision::exact, Precision::standard, Precision::fast})
    if (to_string(precision) == name) return precision;
  fail(ErrorCode::invalid_argument, "precision {}; allowed are exact, default and fast", quoted(name));
}

std::string_view to_string(StepForm form) {
  static constexpr std::string_view kNames[] = {"auto", "layered", "fused"};
  return enum_name(kNames, form);
}

StepForm step_form_from_string(std::string_view name) {
  if (const std::optional<StepForm> form = enum_from_string<StepForm>(name)) return *form;
  fail(ErrorCode::invalid_argument, "step {}; allowed are auto, layered and fused", quoted(name));
}

std::string_view to_string(Gate gate) {
  static constexpr std::string_view kNames[] = {"silu", "gelu_tanh"};
  return enum_name(kNames, gate);
}

}  // namespace weft
