#include "tests/support/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>

#include "tests/support/reference_matmul.h"
#include "tests/support/reference_weights.h"

namespace weft::testing {
namespace {

struct Tensor {
  uint32_t type = 0;
  int64_t rows = 1, cols = 1;
  const unsigned char* data = nullptr;
};

// Row `row` as numbers.
void read_row(const Tensor& tensor, int64_t row, double* to) {
  dequantise(tensor.type, tensor.data + row * file_bytes(tensor.type, tensor.cols), tensor.cols, to);
}

template <class T>
T load(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Metadata numbers and strings (arrays are passed over) and tensors of a file that lies in memory.
class FileImage {
 public:
  explicit FileImage(const std::string& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) throw std::runtime_error("reference: cannot open " + path);
    bytes_.resize(static_cast<size_t>(in.tellg()));
    in.seekg(0).read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    if (!in) throw std::runtime_error("reference: cannot read " + path);
    at_ = reinterpret_cast<const unsigned char*>(bytes_.data());
    const unsigned char* begin = at_;
    at_ += 8;  // magic and version
    const auto num_tensors = take<uint64_t>(), num_values = take<uint64_t>();
    for (uint64_t i = 0; i < num_values; ++i) {
      const std::string key = take_string();
      take_value(key, take<uint32_t>());
    }
    std::vector<std::pair<std::string, uint64_t>> offsets;
    for (uint64_t i = 0; i < num_tensors; ++i) {
      const std::string name = take_string();
      const auto rank = take<uint32_t>();
      Tensor tensor;
      tensor.cols = take<int64_t>();
      for (uint32_t axis = 1; axis < rank; ++axis) tensor.rows *= take<int64_t>();
      tensor.type = take<uint32_t>();
      offsets.emplace_back(name, take<uint64_t>());
      tensors[name] = tensor;
    }
    const auto alignment = static_cast<int64_t>(number("general.alignment", 32));
    const unsigned char* data = begin + (at_ - begin + alignment - 1) / alignment * alignment;
    for (const auto& [name, offset] : offsets) tensors[name].data = data + offset;
  }

  double number(const std::string& key, double otherwise = std::numeric_limits<double>::quiet_NaN()) const {
    const auto found = numbers_.find(key);
    return found == numbers_.end() ? otherwise : found->second;
  }
  std::string text(const std::string& key) const {
    const auto found = texts_.find(key);
    return found == texts_.end() ? "" : found->second;
  }

  std::map<std::string, Tensor> tensors;

 private:
  template <class T>
  T take() {
    const T value = load<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  std::string take_string() {
    const auto size = take<uint64_t>();
    std::string result(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return result;
  }
  void take_value(const std::string& key, uint32_t type) {
    switch (type) {
      case 0: numbers_[key] = take<uint8_t>(); return;
      case 1: numbers_[key] = take<int8_t>(); return;
      case 2: numbers_[key] = take<uint16_t>(); return;
      case 3: numbers_[key] = take<int16_t>(); return;
      case 4: numbers_[key] = take<uint32_t>(); return;
      case 5: numbers_[key] = take<int32_t>(); return;
      case 6: numbers_[key] = static_cast<double>(take<float>()); return;
      case 7: numbers_[key] = take<uint8_t>(); return;
      case 8: texts_[key] = take_string(); return;
      case 9: {
        const auto element = take<uint32_t>();
        const auto count = take<uint64_t>();
        for (uint64_t i = 0; i < count; ++i) take_value("(element of an array)", element);
        return;
      }
      case 10: numbers_[key] = static_cast<double>(take<uint64_t>()); return;
      case 11: numbers_[key] = static_cast<double>(take<int64_t>()); return;
      case 12: numbers_[key] = take<double>(); return;
      default: throw std::runtime_error("reference: metadata type " + std::to_string(type));
    }
  }

  std::vector<char> bytes_;
  const unsigned char* at_ = nullptr;
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> texts_;
};

}  // namespace

struct ReferenceModel::Impl {
  explicit Impl(const std::string& path) : file(path), architecture(file.text("general.architecture")) {
    num_layers = integer("block_count");
    num_heads = integer("attention.head_count");
    num_kv_heads = integer("attention.head_count_kv");
    const int64_t hidden = integer("embedding_length");
    head_dim = static_cast<int64_t>(file.number(key("attention.key_length"), static_cast<double>(hidden / num_heads)));
    rotary_dim = static_cast<int64_t>(file.number(key("rope.dimension_count"), static_cast<double>(head_dim)));
    eps = file.number(key("attention.layer_norm_rms_epsilon"));
    adjacent_pairs = architecture == "llama";
    theta = file.number(key("rope.freq_base"), 10000.0);
    rope = scaled_rope();
    if (architecture == "gemma2" || architecture == "gemma3") read_gemma();
    logits_scale = file.number(key("attention.scale"), logits_scale);
  }

  // By the text of the models' reports (Gemma 2: section 2, Gemma 3: section 2).
  void read_gemma() {
    is_gemma = true;
    const bool third = architecture == "gemma3";
    window = static_cast<int64_t>(file.number(key("attention.sliding_window"), third ? 0 : 4096));
    period = static_cast<int64_t>(file.number(key("attention.sliding_window_pattern"), third ? 6 : 2));
    sliding_rope = third ? plain_rope(file.number(key("rope.freq_base_swa"), 10000.0)) : rope;
    attention_cap = file.number(key("attn_logit_softcapping"), 0);
    logits_cap = file.number(key("final_logit_softcapping"), 0);
    if (num_layers == (third ? 62 : 46))
      logits_scale = std::sqrt(static_cast<double>(num_heads) / static_cast<double>(integer("embedding_length")));
  }

  // Radians a position turns each pair by, and what cos and sin are multiplied by.
  struct Rope {
    std::vector<double> turns;
    double scale = 1;
  };
  Rope plain_rope(double base) const {
    Rope result;
    for (int64_t pair = 0; pair < rotary_dim / 2; ++pair)
      result.turns.push_back(std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim)));
    return result;
  }
  Rope scaled_rope() const {
    Rope result = plain_rope(theta);
    const std::string type = file.text(key("rope.scaling.type"));
    const double factor = file.number(key("rope.scaling.factor"), 1.0);
    if (has("rope_freqs.weight")) {
      const std::vector<double> divisors = vector("rope_freqs.weight");
      for (size_t pair = 0; pair < result.turns.size(); ++pair) result.turns[pair] /= divisors[pair];
    }
    if (type == "linear")
      for (double& turn : result.turns) turn /= factor;
    if (type == "yarn") scale_by_yarn(result, factor);
    return result;
  }
  // A pair that turns r times within the original context is interpolated where r is small and left alone where r is
  // large; between, by its index, a linear ramp whose ends are rounded outwards.
  void scale_by_yarn(Rope& result, double factor) const {
    const double context =
        file.number(key("rope.scaling.original_context_length"), static_cast<double>(integer("context_length")));
    const double fast = file.number(key("rope.scaling.yarn_beta_fast"), 32.0);
    const double slow = file.number(key("rope.scaling.yarn_beta_slow"), 1.0);
    const auto pair_with_turns = [&](double r) {
      return 0.5 * static_cast<double>(rotary_dim) * std::log(context / (2.0 * std::acos(-1.0) * r)) / std::log(theta);
    };
    const double low = std::max(0.0, std::floor(pair_with_turns(fast)));
    const double high = std::min(static_cast<double>(rotary_dim - 1), std::ceil(pair_with_turns(slow)));
    for (size_t pair = 0; pair < result.turns.size(); ++pair) {
      const double at = static_cast<double>(pair);
      const double interpolated = at <= low ? 0.0 : at >= high ? 1.0 : (at - low) / (high - low);
      result.turns[pair] *= interpolated / factor + (1.0 - interpolated);
    }
    result.scale = (0.1 * std::log(factor) + 1.0) * file.number(key("rope.scaling.attn_factor"), 1.0);
  }

  std::string key(const std::string& name) const { return architecture + "." + name; }
  int64_t integer(const std::string& name) const { return static_cast<int64_t>(file.number(key(name))); }
  bool has(const std::string& name) const { return file.tensors.count(name) > 0; }
  const Tensor& tensor(const std::string& name) const { return file.tensors.at(name); }
  std::vector<double> vector(const std::string& name) const {
    std::vector<double> result(static_cast<size_t>(tensor(name).cols));
    read_row(tensor(name), 0, result.data());
    return result;
  }
  Matrix matrix(const Tensor& from, int threads) const {
    Matrix result(from.rows, from.cols);
    parallel_for(threads, from.rows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) read_row(from, row, result.row(row));
    });
    return result;
  }

  // x W^T (+ bias).
  Matrix linear(const Matrix& x, const std::string& name, int threads) const {
    const Matrix weight = matrix(tensor(name + ".weight"), threads);
    Matrix y(x.rows(), weight.rows());
    parallel_for(threads, x.rows(), [&](int64_t begin, int64_t end) { multiply(x, begin, end, weight, y); });
    if (has(name + ".bias")) {
      const std::vector<double> bias = vector(name + ".bias");
      for (int64_t row = 0; row < y.rows(); ++row)
        for (int64_t i = 0; i < y.cols(); ++i) y.row(row)[i] += bias[static_cast<size_t>(i)];
    }
    return y;
  }

  // x / sqrt(mean(x^2) + eps) * weight, for each `width` elements of a row.
  void normalise(Matrix& x, const std::string& name, int64_t width) const {
    const std::vector<double> weight = vector(name);
    for (int64_t row = 0; row < x.rows(); ++row)
      for (double* part = x.row(row); part < x.row(row) + x.cols(); part += width) {
        double squares = 0;
        for (int64_t i = 0; i < width; ++i) squares += part[i] * part[i];
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
        for (int64_t i = 0; i < width; ++i) part[i] *= scale * weight[static_cast<size_t>(i)];
      }
  }
  Matrix normalised(const Matrix& x, const std::string& name) const {
    Matrix result(x.rows(), x.cols());
    for (int64_t row = 0; row < x.rows(); ++row) std::copy_n(x.row(row), x.cols(), result.row(row));
    normalise(result, name, x.cols());
    return result;
  }

  void rotate(Matrix& x, const Rope& by) const {
    const int64_t half_dim = rotary_dim / 2;
    for (int64_t pair = 0; pair < half_dim; ++pair) {
      const int64_t first = adjacent_pairs ? 2 * pair : pair;
      const int64_t second = adjacent_pairs ? 2 * pair + 1 : pair + half_dim;
      for (int64_t row = 0; row < x.rows(); ++row) {
        const double angle = static_cast<double>(row) * by.turns[static_cast<size_t>(pair)];
        const double c = by.scale * std::cos(angle), s = by.scale * std::sin(angle);
        for (double* head = x.row(row); head < x.row(row) + x.cols(); head += head_dim) {
          const double a = head[first], b = head[second];
          head[first] = a * c - b * s;
          head[second] = a * s + b * c;
        }
      }
    }
  }

  // Causal attention with the full matrix of scores, head by head. A query sees `reach` tokens, itself included.
  Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v, int64_t reach, int threads) const {
    const int64_t n = q.rows(), group = num_heads / num_kv_heads;
    const double scale = logits_scale > 0 ? logits_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
    Matrix out(n, num_heads * head_dim);
    parallel_for(threads, num_heads, [&](int64_t begin, int64_t end) {
      Matrix qh(n, head_dim), kh(n, head_dim), vt(head_dim, n), scores(n, n), oh(n, head_dim);
      for (int64_t head = begin; head < end; ++head) {
        const int64_t kv_head = head / group;
        for (int64_t row = 0; row < n; ++row)
          for (int64_t i = 0; i < head_dim; ++i) {
            qh.row(row)[i] = q.row(row)[head * head_dim + i] * scale;
            kh.row(row)[i] = k.row(row)[kv_head * head_dim + i];
            vt.row(i)[row] = v.row(row)[kv_head * head_dim + i];
          }
        multiply(qh, 0, n, kh, scores);
        for (int64_t row = 0; row < n; ++row) {
          double* s = scores.row(row);
          const int64_t begin_seen = std::max<int64_t>(0, row + 1 - reach);
          if (attention_cap > 0)
            for (int64_t j = begin_seen; j <= row; ++j) s[j] = attention_cap * std::tanh(s[j] / attention_cap);
          const double most = *std::max_element(s + begin_seen, s + row + 1);
          double sum = 0;
          for (int64_t j = begin_seen; j <= row; ++j) sum += s[j] = std::exp(s[j] - most);
          for (int64_t j = begin_seen; j <= row; ++j) s[j] /= sum;
          std::fill(s, s + begin_seen, 0.0);
          std::fill(s + row + 1, s + n, 0.0);
        }
        multiply(scores, 0, n, vt, oh);
        for (int64_t row = 0; row < n; ++row) std::copy_n(oh.row(row), head_dim, out.row(row) + head * head_dim);
      }
    });
    return out;
  }

  static void add(Matrix& x, const Matrix& y) {
    for (int64_t row = 0; row < x.rows(); ++row)
      for (int64_t i = 0; i < x.cols(); ++i) x.row(row)[i] += y.row(row)[i];
  }

  double gate(double g) const {
    if (!is_gemma) return g / (1.0 + std::exp(-g));
    return 0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (g + 0.044715 * g * g * g)));
  }

  // x += y, which Gemma norms first.
  void add_part(Matrix& x, Matrix y, const std::string& norm) const {
    if (is_gemma) normalise(y, norm, y.cols());
    add(x, y);
  }

  void layer(Matrix& x, int64_t index, int threads) const {
    const std::string prefix = "blk." + std::to_string(index) + ".";
    const bool slides = window > 0 && index % period != period - 1;
    const Rope& turn = slides ? sliding_rope : rope;
    const Matrix a = normalised(x, prefix + "attn_norm.weight");
    Matrix q = linear(a, prefix + "attn_q", threads);
    Matrix k = linear(a, prefix + "attn_k", threads);
    const Matrix v = linear(a, prefix + "attn_v", threads);
    if (has(prefix + "attn_q_norm.weight")) {
      normalise(q, prefix + "attn_q_norm.weight", head_dim);
      normalise(k, prefix + "attn_k_norm.weight", head_dim);
    }
    rotate(q, turn);
    rotate(k, turn);
    add_part(x, linear(attend(q, k, v, slides ? window : x.rows(), threads), prefix + "attn_output", threads),
             prefix + "post_attention_norm.weight");

    const Matrix b = normalised(x, prefix + "ffn_norm.weight");
    Matrix wide = linear(b, prefix + "ffn_gate", threads);
    const Matrix up = linear(b, prefix + "ffn_up", threads);
    for (int64_t row = 0; row < wide.rows(); ++row)
      for (int64_t i = 0; i < wide.cols(); ++i) wide.row(row)[i] = gate(wide.row(row)[i]) * up.row(row)[i];
    add_part(x, linear(wide, prefix + "ffn_down", threads), prefix + "post_ffw_norm.weight");
  }

  FileImage file;
  std::string architecture;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, rotary_dim = 0;
  double theta = 0, eps = 0;
  double logits_scale = 0, attention_cap = 0, logits_cap = 0;  // 0: 1 / sqrt(head_dim), none, none
  int64_t window = 0, period = 1;                              // layers slide but the last of each period
  bool adjacent_pairs = true, is_gemma = false;
  Rope rope, sliding_rope;
};

ReferenceModel::ReferenceModel(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
ReferenceModel::~ReferenceModel() = default;

int ReferenceModel::vocab_size() const { return static_cast<int>(impl_->tensor("token_embd.weight").rows); }

void ReferenceModel::log_probabilities(std::span<const int32_t> ids, int num_threads, const Visit& visit,
                                       int64_t first) const {
  const auto n = static_cast<int64_t>(ids.size());
  const Tensor& embedding = impl_->tensor("token_embd.weight");
  Matrix x(n, embedding.cols);
  for (int64_t row = 0; row < n; ++row) {
    const int32_t id = ids[static_cast<size_t>(row)];
    if (id < 0 || id >= embedding.rows) throw std::runtime_error("reference: id " + std::to_string(id));
    read_row(embedding, id, x.row(row));
    if (impl_->is_gemma)
      for (int64_t i = 0; i < x.cols(); ++i) x.row(row)[i] *= std::sqrt(static_cast<double>(x.cols()));
  }
  for (int64_t layer = 0; layer < impl_->num_layers; ++layer) impl_->layer(x, layer, num_threads);
  x = impl_->normalised(x, "output_norm.weight");

  const Matrix head =
      impl_->matrix(impl_->has("output.weight") ? impl_->tensor("output.weight") : embedding, num_threads);
  constexpr int64_t kBlock = 64;
  for (int64_t block = first; block < n; block += kBlock) {
    Matrix rows(std::min(kBlock, n - block), x.cols()), logits(rows.rows(), head.rows());
    parallel_for(num_threads, rows.rows(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(x.row(block + i), x.cols(), rows.row(i));
      multiply(rows, begin, end, head, logits);
      for (int64_t i = begin; i < end; ++i) {
        double* row = logits.row(i);
        if (const double cap = impl_->logits_cap; cap > 0)
          for (int64_t j = 0; j < logits.cols(); ++j) row[j] = cap * std::tanh(row[j] / cap);
        const double most = *std::max_element(row, row + logits.cols());
        double sum = 0;
        for (int64_t j = 0; j < logits.cols(); ++j) sum += std::exp(row[j] - most);
        for (int64_t j = 0; j < logits.cols(); ++j) row[j] -= most + std::log(sum);
      }
    });
    for (int64_t i = 0; i < rows.rows(); ++i) visit(block + i, {logits.row(i), static_cast<size_t>(logits.cols())});
  }
}

std::vector<double> reference_log_probabilities(const std::string& path, std::span<const int32_t> ids,
                                                int num_threads) {
  std::vector<double> result;
  ReferenceModel(path).log_probabilities(ids, num_threads, [&](int64_t, std::span<const double> row) {
    result.insert(result.end(), row.begin(), row.end());
  });
  return result;
}

}  // namespace weft::testing
