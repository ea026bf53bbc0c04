#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/enum_names.h"
#include "base/format_tensor.h"
#include "ops/backend.h"
#include "ops/elementwise.h"

namespace weft {
namespace ops {
namespace {

// The share of a pair's plain frequency that Llama 3 scaling keeps; the rest is divided by the factor.
double llama3_kept(const RopeParams& params, double plain) {
  const double turns = params.original_context * plain / (2 * std::numbers::pi);
  return std::clamp((turns - params.low_freq_factor) / (params.high_freq_factor - params.low_freq_factor), 0.0, 1.0);
}

// The same for YaRN: all of it up to the pair that turns beta_fast times within the original context, nothing from the
// pair that turns beta_slow times, both rounded outwards.
double yarn_kept(const RopeParams& params, int rotary_dim, int i) {
  const auto pair_of = [&](double turns) {
    return rotary_dim * std::log(params.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(static_cast<double>(params.theta)));
  };
  const double first = std::max(std::floor(pair_of(params.beta_fast)), 0.0);
  const double last = std::min(std::ceil(pair_of(params.beta_slow)), rotary_dim - 1.0);
  return 1 - std::clamp((i - first) / std::max(last - first, 0.001), 0.0, 1.0);
}

// Radians a position turns pair i by (RoFormer, equation 15), scaled where params ask for it.
double frequency(const RopeParams& params, int rotary_dim, int i) {
  const double plain = std::pow(static_cast<double>(params.theta), -2.0 * i / rotary_dim);
  if (params.factor == 1.f) return plain;
  const double kept =
      params.scaling == RopeScaling::llama3 ? llama3_kept(params, plain) : yarn_kept(params, rotary_dim, i);
  return (1 - kept) * plain / params.factor + kept * plain;
}

bool is_positive(float x) { return x > 0.f && std::isfinite(x); }

void check_scaling(const RopeParams& params) {
  check(params.original_context > 0, ErrorCode::invalid_argument,
        "apply_rope: original_context = {} with factor = {}; give the number of positions that the model was trained "
        "for, or leave factor at 1 for no scaling",
        params.original_context, params.factor);
  if (params.scaling == RopeScaling::llama3) {
    check(params.low_freq_factor > 0.f && params.high_freq_factor > params.low_freq_factor &&
              std::isfinite(params.high_freq_factor),
          ErrorCode::invalid_argument,
          "apply_rope: low_freq_factor = {}, high_freq_factor = {}; finite numbers 0 < low < high are needed",
          params.low_freq_factor, params.high_freq_factor);
    return;
  }
  check(
      params.beta_slow > 0.f && params.beta_fast > params.beta_slow && std::isfinite(params.beta_fast) &&
          params.theta > 1.f,
      ErrorCode::invalid_argument,
      "apply_rope: beta_slow = {}, beta_fast = {}, theta = {}; finite numbers 0 < slow < fast and a theta above 1 are "
      "needed",
      params.beta_slow, params.beta_fast, params.theta);
}

void check_params(const RopeParams& params) {
  check(params.pairs <= RopePairs::halves, ErrorCode::invalid_argument,
        "apply_rope: pairs = {}; RopePairs::adjacent or halves is needed", static_cast<int>(params.pairs));
  check(params.scaling <= RopeScaling::yarn, ErrorCode::invalid_argument,
        "apply_rope: scaling = {}; RopeScaling::llama3 or yarn is needed", static_cast<int>(params.scaling));
  check(is_positive(params.theta) && is_positive(params.linear_scale) && is_positive(params.factor) &&
            is_positive(params.attention_factor),
        ErrorCode::invalid_argument,
        "apply_rope: theta = {}, linear_scale = {}, factor = {}, attention_factor = {}; all must be finite and above 0",
        params.theta, params.linear_scale, params.factor, params.attention_factor);
  check(params.original_context >= 0, ErrorCode::invalid_argument,
        "apply_rope: original_context = {}; 0 (no scaling) or more is needed", params.original_context);
  if (params.factor != 1.f) check_scaling(params);
}

void check_divisors(const std::vector<float>& divisors, size_t pairs) {
  check(divisors.empty() || divisors.size() == pairs, ErrorCode::invalid_argument,
        "apply_rope: divisors has {} numbers for {} pairs; one a pair is needed, or none", divisors.size(), pairs);
  for (size_t i = 0; i < divisors.size(); ++i)
    check(is_positive(divisors[i]), ErrorCode::invalid_argument,
          "apply_rope: divisors[{}] = {}; it must be finite and above 0", i, divisors[i]);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeParams& params, int64_t head_dim) {
  const int64_t rotary_dim = params.rotary_dim == 0 ? head_dim : params.rotary_dim;
  check(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0, ErrorCode::invalid_argument,
        "apply_rope: rotary_dim = {} with heads of {}; an even number up to the head's size is needed", rotary_dim,
        head_dim);
  check_params(params);
  RopeFrequencies all{params.pairs, params.attention_factor, std::vector<double>(static_cast<size_t>(rotary_dim / 2))};
  check_divisors(params.divisors, all.radians.size());
  for (size_t i = 0; i < all.radians.size(); ++i) {
    all.radians[i] = frequency(params, static_cast<int>(rotary_dim), static_cast<int>(i));
    if (!params.divisors.empty()) all.radians[i] /= static_cast<double>(params.divisors[i]);
  }
  return all;
}

void make_rope_table(std::span<const int32_t> positions, const RopeParams& params, int64_t head_dim, RopeTable& table) {
  const RopeFrequencies frequencies = rope_frequencies(params, head_dim);
  const size_t pairs = frequencies.radians.size();
  table.pairs = static_cast<int>(pairs);
  table.order = params.pairs;
  table.cos.resize(positions.size() * pairs);
  table.sin.resize(positions.size() * pairs);
  for (size_t r = 0; r < positions.size(); ++r) {
    const double position = static_cast<double>(positions[r]) / static_cast<double>(params.linear_scale);
    for (size_t i = 0; i < pairs; ++i) {
      table.cos[r * pairs + i] = static_cast<float>(frequencies.factor * std::cos(position * frequencies.radians[i]));
      table.sin[r * pairs + i] = static_cast<float>(frequencies.factor * std::sin(position * frequencies.radians[i]));
    }
  }
}

void apply_rope_table(const TensorView& x, const RopeTable& table, int64_t first, Stream stream) {
  const ElementwiseTable& loops = elementwise();
  const auto rotate = table.order == RopePairs::adjacent ? loops.rotate_adjacent : loops.rotate_halves;
  const int64_t pairs = table.pairs;
  for_rows(stream.team(), x.shape(0), 2 * x.shape(1) * pairs, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t head = 0; head < x.shape(1); ++head)
        rotate(x.as<float>() + r * x.stride(0) + head * x.stride(1), table.cos.data() + (first + r) * pairs,
               table.sin.data() + (first + r) * pairs, pairs);
  });
}

}  // namespace ops

void apply_rope(const TensorView& x, std::span<const int32_t> positions, const RopeParams& params, Stream stream) {
  const Device device = ops::device_of(x);
  ops::check_fp32("apply_rope", "x", x, 3, 3, device);
  check_written("apply_rope", "x", x);
  check(static_cast<int64_t>(positions.size()) == x.shape(0), ErrorCode::invalid_shape,
        "apply_rope: {} positions for {} rows of x; one a row is needed", positions.size(), x.shape(0));
  ops::RopeTable table;
  ops::make_rope_table(positions, params, x.shape(2), table);
  ops::check_stream("apply_rope", stream, device);
  ops::backend_of("apply_rope", device).rotate(x, table, stream);
}

void apply_rope(const TensorView& x, const TensorView& positions, const RopeParams& params, Stream stream) {
  const Device device = ops::device_of(x);
  ops::check_fp32("apply_rope", "x", x, 3, 3, device);
  check_written("apply_rope", "x", x);
  check(device.kind == DeviceKind::cuda, ErrorCode::unsupported,
        "apply_rope: required positions in a tensor on {}, supported on cards, missing on CPUs; give a span of them",
        to_string(device));
  check(!positions || positions.dtype() == DType::int32, ErrorCode::invalid_dtype,
        "apply_rope: positions has dtype {}; int32 is needed", to_string(positions.dtype()));
  ops::check_memory("apply_rope", "positions", positions, device);
  check(positions.rank() == 1 && positions.shape(0) == x.shape(0), ErrorCode::invalid_shape,
        "apply_rope: positions is {} for {} rows of x; one a row is needed", positions, x.shape(0));
  check(positions.shape(0) <= 1 || positions.stride(0) == 1, ErrorCode::invalid_stride,
        "apply_rope: positions has stride {}; 1 is needed", positions.stride(0));
  ops::RopeFrequencies frequencies = ops::rope_frequencies(params, x.shape(2));
  for (double& radians : frequencies.radians) radians /= static_cast<double>(params.linear_scale);
  ops::check_stream("apply_rope", stream, device);
  ops::backend_of("apply_rope", device).rotate_at(x, positions, frequencies, stream);
}

std::string_view to_string(RopePairs pairs) {
  static constexpr std::string_view kNames[] = {"adjacent", "halves"};
  return enum_name(kNames, pairs);
}
std::string_view to_string(RopeScaling scaling) {
  static constexpr std::string_view kNames[] = {"llama3", "yarn"};
  return enum_name(kNames, scaling);
}

}  // namespace weft
