#include "tests/decode/fused/attention_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/fp16.h"

namespace weft::testing {
namespace {

constexpr double kFloat = 0x1p-24;  // what a float is rounded by

double halved(Half type) { return type == Half::bf16 ? 0x1p-8 : 0x1p-11; }

// A head as the cache or a product has it: any number that the card's may be rounded to lies within the error.
std::vector<Near> rounded(Half type, const std::vector<Near>& head) {
  std::vector<Near> to;
  for (const Near& of : head) {
    const double x = widened(type, narrowed(type, of.x));
    const double low = widened(type, narrowed(type, of.x - of.error)),
                 high = widened(type, narrowed(type, of.x + of.error));
    to.push_back({x, std::max(high - x, x - low)});
  }
  return to;
}

void norm_head(const std::vector<float>& weight, double eps, std::vector<Near>& head) {
  double squares = 0, error = 0;
  for (const Near& of : head) squares += of.x * of.x, error += 2 * std::fabs(of.x) * of.error;
  const double mean = squares / static_cast<double>(head.size()) + eps, factor = 1 / std::sqrt(mean);
  const double relative = error / squares + 40 * kFloat;
  for (size_t i = 0; i < head.size(); ++i) {
    const double by = factor * std::fabs(double{weight[i]});
    head[i] = {head[i].x * factor * double{weight[i]}, by * (head[i].error + std::fabs(head[i].x) * relative)};
  }
}

void rotate_head(const AttentionData& data, int row, std::vector<Near>& head) {
  const int pairs = data.shape.pairs;
  for (int i = 0; i < pairs; ++i) {
    Near& a = head[static_cast<size_t>(data.shape.halves ? i : 2 * i)];
    Near& b = head[static_cast<size_t>(data.shape.halves ? i + pairs : 2 * i + 1)];
    const double c = double{data.cos[static_cast<size_t>(row * pairs + i)]},
                 s = double{data.sin[static_cast<size_t>(row * pairs + i)]};
    const double error = (a.error + b.error) + 3 * kFloat * (std::fabs(a.x) + std::fabs(b.x));
    const Near x = a, y = b;
    a = {x.x * c - y.x * s, error};
    b = {y.x * c + x.x * s, error};
  }
}

// A key or a value of one token.
using Vector = std::vector<Near>;

std::vector<Near> attend(const AttentionData& data, const Vector& query, const std::vector<Vector>& keys,
                         const std::vector<Vector>& values) {
  const size_t dim = query.size(), n = keys.size();
  std::vector<double> logits(n), errors(n), weights(n);
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (size_t j = 0; j < n; ++j) {
    double dot = 0, sizes = 0, error = 0;
    for (size_t i = 0; i < dim; ++i) {
      dot += query[i].x * keys[j][i].x;
      sizes += std::fabs(query[i].x * keys[j][i].x);
      error += query[i].error * (std::fabs(keys[j][i].x) + keys[j][i].error) + std::fabs(query[i].x) * keys[j][i].error;
    }
    logits[j] = dot * double{data.scale};
    errors[j] = double{data.scale} * (error + static_cast<double>(dim) * kFloat * sizes);
    if (const double cap = double{data.shape.soft_cap}; cap > 0) {
      logits[j] = cap * std::tanh(logits[j] / cap);
      errors[j] += 6e-7 * cap;
    }
    largest = std::max(largest, logits[j]);
  }
  for (size_t j = 0; j < n; ++j) {
    errors[j] += 4 * kFloat * (largest - logits[j]) + 8 * kFloat;
    total += weights[j] = std::exp(logits[j] - largest);
  }
  std::vector<Near> to(dim);
  for (size_t j = 0; j < n; ++j) {
    const double weight = weights[j] / total;
    // What a logit errs by changes its weight in so far as the others have some, and theirs change it.
    double others = 0, moved = 0;
    for (size_t k = 0; k < n; ++k)
      if (k != j) others += weights[k] / total, moved += weights[k] / total * errors[k];
    moved = weight == 0 ? 0 : moved + errors[j] * others;
    const double relative = std::expm1(moved) + halved(data.shape.type) + static_cast<double>(n) * kFloat;
    // Probabilities below 2^-14 lose digits in fp16.
    const double lost = data.shape.type == Half::fp16 ? 0x1p-25 : 0;
    for (size_t i = 0; i < dim; ++i) {
      const Near& value = values[j][i];
      to[i].x += weight * value.x;
      to[i].error += weight * (value.error + relative * std::fabs(value.x)) + lost * std::fabs(value.x);
    }
  }
  for (Near& of : to) of.error += 4 * kFloat * std::fabs(of.x);
  return to;
}

}  // namespace

uint16_t narrowed(Half type, double x) {
  if (type == Half::fp16) return to_fp16(x);
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
double widened(Half type, uint16_t bits) {
  return type == Half::fp16 ? from_fp16(bits) : double{std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)};
}

int AttentionShape::num_rows() const {
  int rows = 0;
  for (const auto& [of_request, tokens] : requests) rows += of_request;
  return rows;
}

AttentionData::AttentionData(const AttentionShape& of) : shape(of) {
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](std::vector<float>& to, int count, float size, float around) {
    for (int i = 0; i < count; ++i) to.push_back(around + size * normal(random));
  };
  const int bands = shape.columns() / 16;
  first_slot = {0};
  for (int i = 0; i < shape.panels * bands; ++i)
    first_slot.push_back(first_slot.back() + 1 + static_cast<int>(random() % static_cast<uint64_t>(shape.most_pieces)));
  for (int i = 0; i < shape.panels * bands; ++i)
    for (int slot = first_slot[static_cast<size_t>(i)]; slot < first_slot[static_cast<size_t>(i) + 1]; ++slot)
      for (int row = 0; row < shape.cell_rows; ++row) {
        const bool is_query = i % bands < shape.num_qo_heads * shape.head_dim / 16;
        for (int column = 0; column < 16; ++column)
          sums.push_back(row >= shape.num_rows() ? std::numeric_limits<float>::quiet_NaN()
                                                 : (is_query ? shape.query_size : 1.f) * normal(random));
      }
  draw(bias, shape.columns(), 1.f, 0.f);
  draw(q_norm, shape.head_dim, 0.2f, 1.f);
  draw(k_norm, shape.head_dim, 0.2f, 1.f);
  for (int i = 0; i < shape.num_rows() * shape.pairs; ++i) {
    const float angle = 3 * normal(random);
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  for (const auto& [rows, tokens] : shape.requests)
    for (std::vector<std::vector<uint16_t>>* side : {&keys, &values}) {
      std::vector<uint16_t>& to = side->emplace_back();
      for (int i = 0; i < (tokens - rows) * shape.num_kv_heads * shape.head_dim; ++i)
        to.push_back(narrowed(shape.type, double{normal(random)}));
    }
}

std::vector<Near> head_of(const AttentionData& data, int row, int head) {
  const AttentionShape& shape = data.shape;
  const int bands = shape.columns() / 16;
  std::vector<Near> values;
  for (int i = 0; i < shape.head_dim; ++i) {
    const int column = head * shape.head_dim + i;
    Near sum;
    int terms = 0;
    const auto add = [&](float x) {
      sum.x += double{x};
      sum.error += std::fabs(double{x});
      ++terms;
    };
    for (int panel = 0; panel < shape.panels; ++panel) {
      const auto band = static_cast<size_t>(panel * bands + column / 16);
      for (int slot = data.first_slot[band]; slot < data.first_slot[band + 1]; ++slot)
        add(data.sums[static_cast<size_t>((slot * shape.cell_rows + row) * 16 + column % 16)]);
    }
    if (shape.bias) add(data.bias[static_cast<size_t>(column)]);
    sum.error *= terms * kFloat;
    values.push_back(sum);
  }
  const bool is_query = head < shape.num_qo_heads, is_value = head >= shape.num_qo_heads + shape.num_kv_heads;
  if (is_value) return values;
  if (is_query ? shape.q_norm : shape.k_norm) norm_head(is_query ? data.q_norm : data.k_norm, double{data.eps}, values);
  rotate_head(data, row, values);
  return values;
}

std::vector<Near> attended_by(const AttentionData& data) {
  const AttentionShape& shape = data.shape;
  std::vector<Near> all;
  int first_row = 0;
  for (size_t r = 0; r < shape.requests.size(); ++r) {
    const auto [rows, tokens] = shape.requests[r];
    const int cached = tokens - rows;
    const auto vector_of = [&](int token, int kv_head, bool is_key) {
      if (token >= cached) {
        const int head = shape.num_qo_heads + (is_key ? 0 : shape.num_kv_heads) + kv_head;
        return rounded(shape.type, head_of(data, first_row + token - cached, head));
      }
      Vector vector;
      const std::vector<uint16_t>& from = (is_key ? data.keys : data.values)[r];
      for (int i = 0; i < shape.head_dim; ++i) {
        const auto at = static_cast<size_t>((token * shape.num_kv_heads + kv_head) * shape.head_dim + i);
        vector.push_back({widened(shape.type, from[at]), 0});
      }
      return vector;
    };
    for (int row = 0; row < rows; ++row)
      for (int head = 0; head < shape.num_qo_heads; ++head) {
        const int position = cached + row, first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
        std::vector<Vector> keys, values;
        for (int token = first; token <= position; ++token) {
          keys.push_back(vector_of(token, head / shape.group(), true));
          values.push_back(vector_of(token, head / shape.group(), false));
        }
        const Vector query = rounded(shape.type, head_of(data, first_row + row, head));
        const std::vector<Near> of_head = attend(data, query, keys, values);
        all.insert(all.end(), of_head.begin(), of_head.end());
      }
    first_row += rows;
  }
  return all;
}

}  // namespace weft::testing
