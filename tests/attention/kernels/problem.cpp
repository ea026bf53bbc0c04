#include "problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attention/backend.h"
#include "attention/variant/tokens.h"

namespace weft::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t bytes_of(DType dtype, int64_t n = 1) { return n * bits_of(dtype) / 8; }

uint16_t fp16_bits(double value) {
  if (std::isnan(value)) return 0x7e00;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double x = std::abs(value);
  if (x >= 65520) return sign | 0x7c00;
  if (x == 0) return sign;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int shift = std::max(exponent - 11, -24);  // ulp is 2^shift
  const double units = std::nearbyint(std::ldexp(x, -shift));
  if (shift == -24) return static_cast<uint16_t>(sign | static_cast<int>(units));
  return static_cast<uint16_t>(sign | (((shift + 24) << 10) + static_cast<int>(units)));
}

uint16_t bf16_bits(double value) {
  const auto x = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A tensor of `shape` in `storage`, with gaps after each step of the axes before the last when `strided`.
TensorView make_tensor(std::vector<char>& storage, DType dtype, const std::vector<int64_t>& shape, bool strided) {
  std::vector<int64_t> strides(shape.size(), 1);
  int64_t extent = shape.back();
  for (size_t a = shape.size() - 1; a-- > 0;) {
    if (strided) extent += 8 * static_cast<int64_t>(a + 1);
    strides[a] = extent;
    extent *= shape[a];
  }
  storage.assign(static_cast<size_t>(bytes_of(dtype, std::max<int64_t>(extent, 2))), '\xff');  // NaN in every type
  return {storage.data(), dtype, shape, strides};
}

int64_t offset(const TensorView& t, std::initializer_list<int64_t> index) {
  int64_t at = 0;
  int axis = 0;
  for (int64_t i : index) at += i * t.stride(axis++);
  return at;
}

}  // namespace

attention::Rounding rounding(const AttentionSpec& spec, DType compute, const Target& target) {
  return attention::backend_of(target.device()).rounding(spec, compute);
}

MeasuredReference measured_reference(const AttentionSpec& spec, const PlanInput& input,
                                     const AttentionTensors& tensors) {
  const bool integers = spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4;
  return weft::measured_reference(spec, input, tensors, rounding(spec, integers ? DType::int8 : DType::fp32));
}

void put(void* to, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::fp16: static_cast<uint16_t*>(to)[index] = fp16_bits(value); break;
    case DType::bf16: static_cast<uint16_t*>(to)[index] = bf16_bits(value); break;
    case DType::int4: {
      uint8_t& byte = static_cast<uint8_t*>(to)[index / 2];
      const int code = static_cast<int>(value) & 15;
      byte = static_cast<uint8_t>(index % 2 == 0 ? (byte & 0xf0) | code : (byte & 0x0f) | code << 4);
      break;
    }
    case DType::int8:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: static_cast<uint8_t*>(to)[index] = static_cast<uint8_t>(static_cast<int>(value)); break;
    default: static_cast<float*>(to)[index] = static_cast<float>(value); break;
  }
}

double get(const void* from, DType dtype, int64_t index) {
  if (dtype == DType::fp32) return static_cast<const float*>(from)[index];
  const uint16_t bits = static_cast<const uint16_t*>(from)[index];
  if (dtype == DType::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
  }
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double x = exponent == 31  ? (mantissa ? kNan : std::numeric_limits<double>::infinity())
                   : exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -x : x;
}

std::string to_string(const Case& c) {
  std::string lengths;
  for (const auto& [qo, kv] : c.lengths) lengths += fmt::format("({},{})", qo, kv);
  return fmt::format(
      "q {} kv {} scales {} {} o {} form {} {} page {} group {} kv_heads {} dims {}/{} mask {} window {} sinks {} "
      "strided {} 5d {} "
      "{}",
      weft::to_string(c.q_dtype), weft::to_string(c.kv_dtype), weft::to_string(c.kv_scales), c.kv_scale_group,
      weft::to_string(c.o_dtype), weft::to_string(c.form), weft::to_string(c.layout), c.page_size, c.group, c.kv_heads,
      c.head_dim_qk, c.head_dim_vo, weft::to_string(c.mask), c.window, c.sinks, c.strided, c.five_d, lengths);
}

Problem::Problem(const Case& c) : case_(c), random_(c.seed) {
  spec_.q_dtype = c.q_dtype;
  spec_.kv_dtype = c.kv_dtype;
  spec_.kv_scales = c.kv_scales;
  spec_.kv_scale_group = c.kv_scale_group;
  spec_.o_dtype = c.o_dtype;
  spec_.head_dim_qk = c.head_dim_qk;
  spec_.head_dim_vo = c.head_dim_vo;
  spec_.kv_form = c.form;
  spec_.layout = c.layout;
  spec_.mask = c.mask;
  spec_.sliding_window = c.window >= -1;
  spec_.variant = c.variant;
  if (c.sinks > 0)
    spec_.variant.intervals = {
        {.upper = {{.constant = c.sinks}, {.q_pos = true, .constant = 1}}},
        {.lower = {{.q_pos = true, .constant = -10}}, .upper = {{.q_pos = true, .constant = 1}}}};
  for (const auto& [qo, kv] : c.lengths) {
    qo_indptr_.push_back(qo_indptr_.back() + qo);
    kv_indptr_.push_back(kv_indptr_.back() + kv);
    kv_len_.push_back(kv);
    max_kv_len_ = std::max(max_kv_len_, kv);
  }
  max_kv_len_ += 3;
  const int64_t rows = qo_indptr_.back(), heads = c.group * c.kv_heads;
  q_view_ = make_tensor(q_, c.q_dtype, {rows, heads, c.head_dim_qk}, c.strided);
  std::normal_distribution<double> normal;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < c.head_dim_qk; ++d)
        put(q_.data(), c.q_dtype, offset(q_view_, {r, h, d}), normal(random_) * c.query_scale);
  o_view_ = make_tensor(o_, c.o_dtype, {rows, heads, c.head_dim_vo}, c.strided);
  const int64_t lse_stride = heads + (c.strided ? 3 : 0);
  lse_.resize(static_cast<size_t>(std::max<int64_t>(rows * lse_stride, 1)));
  lse_view_ =
      TensorView(lse_.data(), DType::fp32, std::vector<int64_t>{rows, heads}, std::vector<int64_t>{lse_stride, 1});
  poison_outputs();
  if (c.form == KvForm::paged || c.form == KvForm::latent) make_pages();
  make_cache();
  make_masks();
}

void Problem::make_pages() {
  const int page_size = case_.page_size;
  for (const int32_t len : kv_len_) {
    const int pages = (len + page_size - 1) / page_size;
    page_indptr_.push_back(page_indptr_.back() + pages);
    last_page_len_.push_back(pages == 0 ? 0 : len - (pages - 1) * page_size);
  }
  num_pages_ = page_indptr_.back() + 4;  // the rest is dead
  std::vector<int32_t> ids(static_cast<size_t>(num_pages_));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random_);
  page_indices_.assign(ids.begin(), ids.begin() + page_indptr_.back());
}

bool Problem::sees(size_t request, int query, int token) const {
  const auto [qo_len, kv_len] = case_.lengths[request];
  const int pos = kv_len - qo_len + query;
  const bool causal = case_.mask == Mask::causal || case_.sinks > 0;
  return (!causal || token <= pos) && (case_.window < 0 || token >= pos - case_.window) &&
         (case_.sinks == 0 || token < case_.sinks || token >= pos - 10);
}

bool Problem::hidden(size_t request, int token) const {
  for (int i = 0; i < case_.lengths[request].first; ++i)
    if (sees(request, i, token)) return false;
  return true;
}

void Problem::make_cache() {
  const Case& c = case_;
  const bool nhd = c.layout == Layout::nhd;
  const auto batch = static_cast<int64_t>(c.lengths.size());
  const auto shape = [&](int64_t dim) -> std::vector<int64_t> {
    const int64_t tokens = c.form == KvForm::paged    ? c.page_size
                           : c.form == KvForm::padded ? max_kv_len_
                                                      : kv_indptr_.back() + 3;
    std::vector<int64_t> s =
        nhd ? std::vector<int64_t>{tokens, c.kv_heads, dim} : std::vector<int64_t>{c.kv_heads, tokens, dim};
    if (c.form != KvForm::ragged) s.insert(s.begin(), c.form == KvForm::paged ? num_pages_ : batch);
    return s;
  };
  const auto latent = [&](std::vector<char>& storage, int64_t dim) {
    return make_tensor(storage, c.kv_dtype, {num_pages_, c.page_size, dim}, c.strided);
  };
  if (c.form == KvForm::latent) {
    cache_ = c.five_d ? KvCache::latent(latent(k_, c.head_dim_qk))
                      : KvCache::latent(latent(k_, c.head_dim_vo), latent(v_, c.head_dim_qk - c.head_dim_vo));
  } else if (c.five_d && c.form == KvForm::paged && c.head_dim_qk == c.head_dim_vo) {
    std::vector<int64_t> s = shape(c.head_dim_qk);
    s.insert(s.begin() + 1, 2);
    cache_ = KvCache(make_tensor(k_, c.kv_dtype, s, c.strided));
  } else {
    cache_ = KvCache(make_tensor(k_, c.kv_dtype, shape(c.head_dim_qk), c.strided),
                     make_tensor(v_, c.kv_dtype, shape(c.head_dim_vo), c.strided));
  }
  if (c.kv_scales != KvScales::none)
    for (const auto& [side, scale, storage] :
         {std::tuple{&cache_.k, &cache_.k_scale, &k_scale_}, {&cache_.v, &cache_.v_scale, &v_scale_}}) {
      std::vector<int64_t> s(side->shape().begin(), side->shape().end());
      const size_t first = s.size() - 3, token_axis = nhd ? first : first + 1, head_axis = nhd ? first + 1 : first;
      const int64_t tokens = s[token_axis], group = std::max(c.kv_scale_group, 1), outer = s[0];
      std::fill(s.begin(), s.end(), 1);
      if (c.kv_scales != KvScales::tensor) s[head_axis] = c.kv_heads;
      if (c.kv_scales >= KvScales::token) {
        if (first == 1) s[0] = outer;
        s[token_axis] = (tokens + group - 1) / group;
      }
      *scale = make_tensor(*storage, DType::fp32, s, c.strided);
    }
  for (size_t r = 0; r < c.lengths.size(); ++r)
    for (int t = 0; t < kv_len_[r]; ++t) {
      if (hidden(r, t)) continue;
      fill_token(cache_.k, cache_.k_scale, r, t);
      if (cache_.v) fill_token(cache_.v, cache_.v_scale, r, t);
    }
}

std::pair<TensorView, int64_t> Problem::place_of(const TensorView& tensor, size_t request, int token) const {
  if (case_.form == KvForm::ragged) return {tensor, kv_indptr_[request] + token};
  if (case_.form == KvForm::padded) return {tensor.select(0, static_cast<int64_t>(request)), token};
  const int page = page_indices_[static_cast<size_t>(page_indptr_[request] + token / case_.page_size)];
  return {tensor.select(0, page), token % case_.page_size};
}

void Problem::put_element(const TensorView& tensor, size_t request, int token, double value, int element) {
  const auto [view, at] = place_of(tensor, request, token);
  if (case_.form == KvForm::latent) return put(view.data(), view.dtype(), offset(view, {at, element}), value);
  const size_t heads = case_.layout == Layout::nhd ? 1 : 0;
  for (int64_t h = 0; h < view.shape(static_cast<int>(heads)); ++h)
    put(view.data(), view.dtype(), heads == 1 ? offset(view, {at, h, element}) : offset(view, {h, at, element}), value);
}

void Problem::put_key(size_t request, int token, double value, int element) {
  put_element(cache_.k, request, token, value, element);
}

void Problem::put_value(size_t request, int token, double value, int element) {
  put_element(case_.form == KvForm::latent ? cache_.k : cache_.v, request, token, value, element);
}

void Problem::put_value_scale(size_t request, int token, double value) {
  put_element(cache_.v_scale, request, token, value, 0);
}

std::vector<char> Problem::cache_bytes() const {
  std::vector<char> bytes;
  for (const std::vector<char>* part : {&k_, &v_, &k_scale_, &v_scale_})
    bytes.insert(bytes.end(), part->begin(), part->end());
  return bytes;
}

void Problem::put_cache_bytes(const std::vector<char>& bytes) {
  auto from = bytes.begin();
  for (std::vector<char>* part : {&k_, &v_, &k_scale_, &v_scale_}) {
    const auto end = from + static_cast<std::ptrdiff_t>(part->size());
    std::copy(from, end, part->begin());
    from = end;
  }
}

// Random numbers for one token and, where it has them, its scales.
void Problem::fill_token(TensorView view, TensorView scale, size_t request, int t) {
  const Case& c = case_;
  const bool nhd = c.layout == Layout::nhd, by_token = c.kv_scales >= KvScales::token;
  int64_t token;
  if (scale)
    scale = by_token ? place_of(scale, request, t).first : scale.shape().size() > 3 ? scale.select(0, 0) : scale;
  std::tie(view, token) = place_of(view, request, t);
  const auto at = [&](const TensorView& x, int64_t i, int64_t h, int64_t d) {
    return nhd ? offset(x, {i, h, d}) : offset(x, {h, i, d});
  };
  std::normal_distribution<double> normal;
  const auto code = [&]() -> double {
    switch (c.kv_dtype) {
      case DType::int8:
      case DType::int4: return static_cast<int>(random_() & 255);
      case DType::fp8_e4m3: return static_cast<int>(random_() % 0x48 + (random_() & 128));  // |x| < 4
      case DType::fp8_e5m2: return static_cast<int>(random_() % 0x44 + (random_() & 128));
      default: return normal(random_);
    }
  };
  const double unit = c.kv_dtype == DType::int8 ? 1. / 64 : c.kv_dtype == DType::int4 ? 1. / 4 : 1;
  if (c.form == KvForm::latent) {
    for (int64_t d = 0; d < view.shape(1); ++d) put(view.data(), c.kv_dtype, offset(view, {token, d}), normal(random_));
    return;
  }
  for (int64_t h = 0; h < c.kv_heads; ++h) {
    for (int64_t d = 0; d < view.shape(2); ++d) put(view.data(), c.kv_dtype, at(view, token, h, d), code());
    if (!scale) continue;
    const int64_t row = by_token ? token / std::max(c.kv_scale_group, 1) : 0;
    put(scale.data(), DType::fp32, at(scale, row, c.kv_scales == KvScales::tensor ? 0 : h, 0),
        unit * std::ldexp(0.5 + static_cast<double>(random_() % 1000) / 1000, static_cast<int>(random_() % 4) - 2));
  }
}

void Problem::make_masks() {
  if (case_.mask != Mask::custom && case_.mask != Mask::custom_packed) return;
  for (const auto& [qo, kv] : case_.lengths) {
    for (int64_t i = 0; i < int64_t{qo} * kv; ++i) mask_.push_back(random_() % 3 != 0);
    mask_indptr_.push_back(static_cast<int64_t>(mask_.size()));
  }
  packed_mask_ = pack_mask(mask_, mask_indptr_, packed_mask_indptr_);
}

PlanInput Problem::input(int workers, PlanMode mode, int split) const {
  PlanInput in;
  in.num_qo_heads = case_.group * case_.kv_heads;
  in.num_kv_heads = case_.kv_heads;
  in.qo_indptr = qo_indptr_;
  if (case_.form == KvForm::paged || case_.form == KvForm::latent) {
    in.pages.page_size = case_.page_size;
    in.pages.num_pages = num_pages_;
    in.pages.kv_page_indptr = page_indptr_;
    in.pages.kv_page_indices = page_indices_;
    in.pages.kv_last_page_len = last_page_len_;
  } else if (case_.form == KvForm::ragged) {
    in.kv_indptr = kv_indptr_;
  } else {
    in.kv_len = kv_len_;
    in.max_kv_len = max_kv_len_;
  }
  in.num_workers = workers;
  in.mode = mode;
  in.fixed_split_size = split;
  if (case_.mask == Mask::custom) in.mask_indptr = mask_indptr_;
  if (case_.mask == Mask::custom_packed) in.mask_indptr = packed_mask_indptr_;
  if (case_.window >= -1) in.scalars = {{"window_left", static_cast<double>(case_.window)}};
  return in;
}

AttentionTensors Problem::tensors() {
  AttentionTensors t;
  t.q = q_view_;
  t.kv = cache_;
  t.o = o_view_;
  if (case_.variant.use_softmax) t.lse = lse_view_;
  t.scalars = case_.scalars;
  t.tensors = case_.tensors;
  const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  if (case_.mask == Mask::custom) t.tensors.push_back({"mask", TensorView(mask_.data(), DType::uint8, {size(mask_)})});
  if (case_.mask == Mask::custom_packed)
    t.tensors.push_back({"mask", TensorView(packed_mask_.data(), DType::uint8, {size(packed_mask_)})});
  return t;
}

void Problem::poison_outputs() {
  std::fill(o_.begin(), o_.end(), '\xff');
  std::memset(lse_.data(), 0xff, lse_.size() * sizeof(float));
}

const MeasuredReference& Problem::reference() {
  if (!has_reference_) reference_ = measured_reference(spec_, input(1), tensors());
  has_reference_ = true;
  return reference_;
}

std::string Problem::compare(DType compute, const Target& target) const {
  std::string report;
  int wrong = 0;
  const auto complain = [&](const std::string& line) {
    if (++wrong <= 4) report += line + "\n";
  };
  const int64_t rows = o_view_.shape(0), heads = o_view_.shape(1), dim = o_view_.shape(2);
  const ErrorBound error_bound(spec_, rounding(spec_, compute, target));
  std::vector<char> owned(o_.size() / static_cast<size_t>(bytes_of(case_.o_dtype)), 0);
  for (size_t r = 0; r + 1 < qo_indptr_.size(); ++r)
    for (int64_t row = qo_indptr_[r]; row < qo_indptr_[r + 1]; ++row)
      for (int64_t h = 0; h < heads; ++h) {
        const auto state = static_cast<size_t>(row * heads + h);
        for (int64_t d = 0; d < dim; ++d) {
          const size_t i = state * static_cast<size_t>(dim) + static_cast<size_t>(d);
          const int64_t at = offset(o_view_, {row, h, d});
          owned[static_cast<size_t>(at)] = 1;
          const double value = get(o_.data(), case_.o_dtype, at), expected = reference_.o[i];
          const double bound = error_bound(kv_len_[r], reference_, i);
          if (!(std::abs(value - expected) <= bound))
            complain(fmt::format("o[{}, {}, {}] = {}, reference {}, bound {}", row, h, d, value, expected, bound));
        }
        if (!case_.variant.use_softmax) continue;
        const double lse = lse_[static_cast<size_t>(row * lse_view_.stride(0) + h)], expected = reference_.lse[state];
        if (!(lse == expected || std::abs(lse - expected) <= error_bound.of_lse(reference_, state)))
          complain(fmt::format("lse[{}, {}] = {}, reference {}", row, h, lse, expected));
      }
  for (size_t i = 0; i < owned.size(); ++i)
    if (!owned[i] && !std::isnan(get(o_.data(), case_.o_dtype, static_cast<int64_t>(i))))
      complain(fmt::format("element {} between the rows of o was written", i));
  for (int64_t i = 0; i < static_cast<int64_t>(lse_.size()); ++i) {
    const bool inside = rows > 0 && i % lse_view_.stride(0) < heads;
    if (!inside && !std::isnan(lse_[static_cast<size_t>(i)]))
      complain(fmt::format("element {} between the rows of lse was written", i));
  }
  if (wrong > 4) report += fmt::format("and {} more\n", wrong - 4);
  return report;
}

std::vector<std::vector<int>> pairwise(const std::vector<int>& levels, unsigned seed) {
  const size_t n = levels.size();
  std::mt19937 random(seed);
  // open[a][b]: level pairs of factors a < b that have not met, at level_a * levels[b] + level_b.
  std::vector<std::vector<std::vector<char>>> open(n, std::vector<std::vector<char>>(n));
  size_t left = 0;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b) {
      open[a][b].assign(static_cast<size_t>(levels[a] * levels[b]), 1);
      left += open[a][b].size();
    }
  const auto at = [&](size_t a, size_t b, int la, int lb) -> char& {
    return a < b ? open[a][b][static_cast<size_t>(la * levels[b] + lb)]
                 : open[b][a][static_cast<size_t>(lb * levels[a] + la)];
  };
  std::vector<std::vector<int>> rows;
  while (left > 0) {
    // Starts from a pair that is still open, then gives each factor the level that closes most pairs.
    std::vector<int> row(n, -1);
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (size_t a = 0; a < n && row[order[0]] < 0; ++a)
      for (size_t b = a + 1; b < n && row[order[0]] < 0; ++b)
        for (size_t i = 0; i < open[a][b].size(); ++i)
          if (open[a][b][i]) {
            row[a] = static_cast<int>(i) / levels[b];
            row[b] = static_cast<int>(i) % levels[b];
            std::erase(order, a);
            std::erase(order, b);
            order.insert(order.begin(), {a, b});
            break;
          }
    for (const size_t f : order) {
      if (row[f] >= 0) continue;
      int best = 0, best_gain = -1;
      const int first = static_cast<int>(random() % static_cast<unsigned>(levels[f]));
      for (int k = 0; k < levels[f]; ++k) {
        const int level = (first + k) % levels[f];
        int gain = 0;
        for (size_t g = 0; g < n; ++g)
          if (g != f && row[g] >= 0) gain += at(f, g, level, row[g]);
        if (gain > best_gain) {
          best = level;
          best_gain = gain;
        }
      }
      row[f] = best;
    }
    for (size_t a = 0; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b) {
        char& pair = at(a, b, row[a], row[b]);
        left -= static_cast<size_t>(pair);
        pair = 0;
      }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace weft::testing
