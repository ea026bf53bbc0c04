#include "tests/support/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>

#include "tests/support/reference_matmul.h"

namespace weft::testing {
namespace {

enum : uint32_t { kF32 = 0, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBF16 = 30 };

struct Tensor {
  uint32_t type = 0;
  int64_t rows = 1, cols = 1;
  const unsigned char* data = nullptr;
};

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

double half(const unsigned char* from) {
  const auto bits = load<uint16_t>(from);
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

// Row `row` as numbers: what the formats say, exactly.
void dequantise(const Tensor& tensor, int64_t row, double* to) {
  constexpr int64_t kBlock = 32;
  const int64_t cols = tensor.cols, blocks = cols / kBlock;
  switch (tensor.type) {
    case kF32:
      for (int64_t i = 0; i < cols; ++i) to[i] = static_cast<double>(load<float>(tensor.data + 4 * (row * cols + i)));
      return;
    case kBF16:
      for (int64_t i = 0; i < cols; ++i) {
        const uint32_t bits = uint32_t{load<uint16_t>(tensor.data + 2 * (row * cols + i))} << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        to[i] = static_cast<double>(value);
      }
      return;
    case kQ8_0:
      for (int64_t b = 0; b < blocks; ++b) {
        const unsigned char* block = tensor.data + 34 * (row * blocks + b);
        for (int64_t i = 0; i < kBlock; ++i) to[b * kBlock + i] = half(block) * static_cast<signed char>(block[2 + i]);
      }
      return;
    case kQ4_0:
    case kQ4_1:
      for (int64_t b = 0; b < blocks; ++b) {
        const bool has_min = tensor.type == kQ4_1;
        const unsigned char* block = tensor.data + (has_min ? 20 : 18) * (row * blocks + b);
        const double scale = half(block), least = has_min ? half(block + 2) : -8.0 * scale;
        const unsigned char* nibbles = block + (has_min ? 4 : 2);
        for (int64_t i = 0; i < kBlock / 2; ++i) {  // low nibbles are the first half, high ones the second
          to[b * kBlock + i] = scale * (nibbles[i] & 15) + least;
          to[b * kBlock + i + kBlock / 2] = scale * (nibbles[i] >> 4) + least;
        }
      }
      return;
    default: throw std::runtime_error("reference: tensor type " + std::to_string(tensor.type));
  }
}

}  // namespace

struct ReferenceModel::Impl {
  explicit Impl(const std::string& path) : file(path), architecture(file.text("general.architecture")) {
    num_layers = integer("block_count");
    num_heads = integer("attention.head_count");
    num_kv_heads = integer("attention.head_count_kv");
    const int64_t hidden = integer("embedding_length");
    head_dim = static_cast<int64_t>(file.number(key("attention.key_length"), static_cast<double>(hidden / num_heads)));
    rotary_dim = static_cast<int64_t>(file.number(key("rope.dimension_count"), static_cast<double>(head_dim)));
    theta = file.number(key("rope.freq_base"), 10000.0);
    eps = file.number(key("attention.layer_norm_rms_epsilon"));
    if (file.text(key("rope.scaling.type")) == "linear") position_scale = 1.0 / file.number(key("rope.scaling.factor"));
    adjacent_pairs = architecture == "llama";
    if (has("rope_freqs.weight")) rope_divisors = vector("rope_freqs.weight");
  }

  std::string key(const std::string& name) const { return architecture + "." + name; }
  int64_t integer(const std::string& name) const { return static_cast<int64_t>(file.number(key(name))); }
  bool has(const std::string& name) const { return file.tensors.count(name) > 0; }
  const Tensor& tensor(const std::string& name) const { return file.tensors.at(name); }
  std::vector<double> vector(const std::string& name) const {
    std::vector<double> result(static_cast<size_t>(tensor(name).cols));
    dequantise(tensor(name), 0, result.data());
    return result;
  }
  Matrix matrix(const Tensor& from, int threads) const {
    Matrix result(from.rows, from.cols);
    parallel_for(threads, from.rows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) dequantise(from, row, result.row(row));
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

  void rotate(Matrix& x) const {
    const int64_t half_dim = rotary_dim / 2;
    for (int64_t pair = 0; pair < half_dim; ++pair) {
      double frequency = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
      if (!rope_divisors.empty()) frequency /= rope_divisors[static_cast<size_t>(pair)];
      const int64_t first = adjacent_pairs ? 2 * pair : pair;
      const int64_t second = adjacent_pairs ? 2 * pair + 1 : pair + half_dim;
      for (int64_t row = 0; row < x.rows(); ++row) {
        const double angle = static_cast<double>(row) * position_scale * frequency;
        const double c = std::cos(angle), s = std::sin(angle);
        for (double* head = x.row(row); head < x.row(row) + x.cols(); head += head_dim) {
          const double a = head[first], b = head[second];
          head[first] = a * c - b * s;
          head[second] = a * s + b * c;
        }
      }
    }
  }

  // Causal attention with the full matrix of scores, head by head.
  Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v, int threads) const {
    const int64_t n = q.rows(), group = num_heads / num_kv_heads;
    Matrix out(n, num_heads * head_dim);
    parallel_for(threads, num_heads, [&](int64_t begin, int64_t end) {
      Matrix qh(n, head_dim), kh(n, head_dim), vt(head_dim, n), scores(n, n), oh(n, head_dim);
      for (int64_t head = begin; head < end; ++head) {
        const int64_t kv_head = head / group;
        for (int64_t row = 0; row < n; ++row)
          for (int64_t i = 0; i < head_dim; ++i) {
            qh.row(row)[i] = q.row(row)[head * head_dim + i] / std::sqrt(static_cast<double>(head_dim));
            kh.row(row)[i] = k.row(row)[kv_head * head_dim + i];
            vt.row(i)[row] = v.row(row)[kv_head * head_dim + i];
          }
        multiply(qh, 0, n, kh, scores);
        for (int64_t row = 0; row < n; ++row) {
          double* s = scores.row(row);
          const double most = *std::max_element(s, s + row + 1);
          double sum = 0;
          for (int64_t j = 0; j <= row; ++j) sum += s[j] = std::exp(s[j] - most);
          for (int64_t j = 0; j <= row; ++j) s[j] /= sum;
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

  void layer(Matrix& x, const std::string& prefix, int threads) const {
    const Matrix a = normalised(x, prefix + "attn_norm.weight");
    Matrix q = linear(a, prefix + "attn_q", threads);
    Matrix k = linear(a, prefix + "attn_k", threads);
    const Matrix v = linear(a, prefix + "attn_v", threads);
    if (has(prefix + "attn_q_norm.weight")) {
      normalise(q, prefix + "attn_q_norm.weight", head_dim);
      normalise(k, prefix + "attn_k_norm.weight", head_dim);
    }
    rotate(q);
    rotate(k);
    add(x, linear(attend(q, k, v, threads), prefix + "attn_output", threads));

    const Matrix b = normalised(x, prefix + "ffn_norm.weight");
    Matrix gate = linear(b, prefix + "ffn_gate", threads);
    const Matrix up = linear(b, prefix + "ffn_up", threads);
    for (int64_t row = 0; row < gate.rows(); ++row)
      for (int64_t i = 0; i < gate.cols(); ++i) {
        const double g = gate.row(row)[i];
        gate.row(row)[i] = g / (1.0 + std::exp(-g)) * up.row(row)[i];
      }
    add(x, linear(gate, prefix + "ffn_down", threads));
  }

  FileImage file;
  std::string architecture;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, rotary_dim = 0;
  double theta = 0, eps = 0, position_scale = 1.0;
  bool adjacent_pairs = true;
  std::vector<double> rope_divisors;
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
    dequantise(embedding, id, x.row(row));
  }
  for (int64_t layer = 0; layer < impl_->num_layers; ++layer)
    impl_->layer(x, "blk." + std::to_string(layer) + ".", num_threads);
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
