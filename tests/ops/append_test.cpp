#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/ops/narrow.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr uint8_t kPoison = 0xc5;

// Nearest fp16 or bf16 of x by search over all of them, the even one of two equally near.
double as_double(uint16_t bits, DType dtype) {
  if (dtype == DType::bf16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
bool is_nearest(uint16_t bits, float x, DType dtype) {
  if (std::isnan(x)) return std::isnan(as_double(bits, dtype));
  if (std::signbit(x) != ((bits & 0x8000) != 0)) return false;
  const double value = as_double(bits, dtype), limit = dtype == DType::fp16 ? 65520. : std::ldexp(511. / 256, 127);
  if (std::isinf(value)) return std::abs(x) >= limit;
  const double error = std::abs(value - x);
  for (int step : {-1, 1}) {
    const int neighbour = (bits & 0x7fff) + step;
    if (neighbour < 0) continue;
    const double other = as_double(static_cast<uint16_t>(neighbour | (bits & 0x8000)), dtype),
                 other_error = std::abs(other - x);
    if (other_error < error || (other_error == error && (bits & 1) != 0)) return false;
  }
  return true;
}

struct Case {
  int page_size, heads, dim_k, dim_v, batch;
  Layout layout;
  DType dtype;
  std::vector<int32_t> append_indptr{0}, page_indptr{0}, page_indices{}, last_page_len{};
  int64_t num_pages = 0;
  std::vector<float> k{}, v{};
  std::vector<uint8_t> cache_k{}, cache_v{};

  PageTableView table() const {
    return {.page_size = page_size,
            .num_pages = num_pages,
            .kv_page_indptr = page_indptr,
            .kv_page_indices = page_indices,
            .kv_last_page_len = last_page_len};
  }
  TensorView cache(std::vector<uint8_t>& bytes, int dim) const {
    if (layout == Layout::nhd) return TensorView(bytes.data(), dtype, {num_pages, page_size, heads, dim});
    return TensorView(bytes.data(), dtype, {num_pages, heads, page_size, dim});
  }
  TensorView rows(const std::vector<float>& x, int dim) const {
    return TensorView(x.data(), DType::fp32, {append_indptr.back(), heads, dim});
  }
  void run(WorkerTeam& team) {
    append_paged_kv(rows(k, dim_k), rows(v, dim_v), append_indptr, table(), layout,
                    {cache(cache_k, dim_k), cache(cache_v, dim_v)}, Stream::cpu(team));
  }
};

Case make_case(int page_size, int heads, int dim_k, int dim_v, const std::vector<std::pair<int, int>>& lengths,
               Layout layout, DType dtype, uint64_t seed) {
  Case c{.page_size = page_size,
         .heads = heads,
         .dim_k = dim_k,
         .dim_v = dim_v,
         .batch = static_cast<int>(lengths.size()),
         .layout = layout,
         .dtype = dtype};
  std::mt19937_64 random(seed);
  int pages = 0;
  for (auto [before, added] : lengths) {
    const int total = before + added, count = (total + page_size - 1) / page_size;
    c.append_indptr.push_back(c.append_indptr.back() + added);
    c.page_indptr.push_back(pages += count);
    c.last_page_len.push_back(total == 0 ? 0 : total - (count - 1) * page_size);
  }
  c.num_pages = pages + 3;
  c.page_indices.resize(static_cast<size_t>(c.num_pages));
  std::iota(c.page_indices.begin(), c.page_indices.end(), 0);
  std::shuffle(c.page_indices.begin(), c.page_indices.end(), random);
  c.page_indices.resize(static_cast<size_t>(pages));
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& x, int dim) {
    x.resize(static_cast<size_t>(c.append_indptr.back() * heads * dim));
    for (float& value : x)
      value = random() % 50 == 0 ? std::ldexp(normal(random), static_cast<int>(random() % 60) - 30) : normal(random);
  };
  fill(c.k, dim_k);
  fill(c.v, dim_v);
  const size_t slots = static_cast<size_t>(c.num_pages * page_size * heads * bits_of(dtype) / 8);
  c.cache_k.assign(slots * static_cast<size_t>(dim_k), kPoison);
  c.cache_v.assign(slots * static_cast<size_t>(dim_v), kPoison);
  return c;
}

// Every appended element stands at its place, and every other byte is as it was.
bool holds(const Case& c, const std::vector<uint8_t>& cache, const std::vector<float>& rows, int dim) {
  std::vector<bool> written(cache.size());
  const auto size = static_cast<size_t>(bits_of(c.dtype) / 8);
  for (int r = 0; r < c.batch; ++r) {
    const int begin = c.append_indptr[static_cast<size_t>(r)], end = c.append_indptr[static_cast<size_t>(r) + 1];
    const int first = c.page_indptr[static_cast<size_t>(r)], count = c.page_indptr[static_cast<size_t>(r) + 1] - first;
    const int length = count == 0 ? 0 : (count - 1) * c.page_size + c.last_page_len[static_cast<size_t>(r)];
    for (int row = begin; row < end; ++row) {
      const int token = length - (end - row), page = c.page_indices[static_cast<size_t>(first + token / c.page_size)],
                slot = token % c.page_size;
      for (int h = 0; h < c.heads; ++h)
        for (int i = 0; i < dim; ++i) {
          const int64_t line = c.layout == Layout::nhd ? (int64_t{page} * c.page_size + slot) * c.heads + h
                                                       : (int64_t{page} * c.heads + h) * c.page_size + slot;
          const size_t at = static_cast<size_t>(line * dim + i) * size;
          const float x = rows[static_cast<size_t>((row * c.heads + h) * dim + i)];
          uint16_t half;
          std::memcpy(&half, &cache[at], 2);
          if (size == 4 ? std::memcmp(&cache[at], &x, 4) != 0 : !is_nearest(half, x, c.dtype)) return false;
          std::fill_n(written.begin() + static_cast<int64_t>(at), size, true);
        }
    }
  }
  for (size_t i = 0; i < cache.size(); ++i)
    if (!written[i] && cache[i] != kPoison) return false;
  return true;
}

TEST(Append, PutsEveryTokenInItsSlotAndTouchesNothingElse) {
  WorkerTeam team(3);
  EXPECT_TRUE(rc::check("append_paged_kv", [&](uint64_t seed) {
    const int page_size = *rc::gen::inRange(1, 20), heads = *rc::gen::inRange(1, 5), batch = *rc::gen::inRange(0, 6);
    std::vector<std::pair<int, int>> lengths;
    for (int i = 0; i < batch; ++i) lengths.emplace_back(*rc::gen::inRange(0, 50), *rc::gen::inRange(0, 60));
    const auto layout = *rc::gen::element(Layout::nhd, Layout::hnd);
    const auto dtype = *rc::gen::element(DType::fp32, DType::fp16, DType::bf16);
    Case c = make_case(page_size, heads, *rc::gen::element(8, 24, 65), *rc::gen::element(8, 40), lengths, layout, dtype,
                       seed);
    c.run(team);
    RC_ASSERT(holds(c, c.cache_k, c.k, c.dim_k));
    RC_ASSERT(holds(c, c.cache_v, c.v, c.dim_v));
  }));
}

TEST(Append, RoundsToNearestEvenOverTheWholeRangeOfFloats) {
  WorkerTeam team(1);
  for (DType dtype : {DType::fp16, DType::bf16}) {
    Case c = make_case(64, 1, 512, 8, {{0, 64}}, Layout::nhd, dtype, 1);
    std::mt19937_64 random(2);
    for (size_t i = 0; i < c.k.size(); ++i) {
      auto bits = static_cast<uint32_t>(random());
      if (i % 3 == 0)
        bits = (bits & 0x80000000u) | (0x33000000u + static_cast<uint32_t>(random() % 0x14900000u));  // fp16's range
      if (i % 7 == 0) bits = (bits & ~0x1fffu) | 0x1000u;                                             // ties of fp16
      if (i % 11 == 0) bits = (bits & ~0xffffu) | 0x8000u;                                            // ties of bf16
      c.k[i] = std::bit_cast<float>(bits);
    }
    const float special[] = {0.f,     -0.f,    INFINITY, -INFINITY, NAN,      65504.f, 65519.9f,
                             65520.f, 3.4e38f, 5.96e-8f, 2.98e-8f,  2.99e-8f, 6.1e-5f};
    std::copy(std::begin(special), std::end(special), c.k.begin());
    c.run(team);
    EXPECT_TRUE(holds(c, c.cache_k, c.k, c.dim_k)) << to_string(dtype);
  }
}

ErrorCode code_of(Case& c) {
  WorkerTeam team(1);
  try {
    c.run(team);
  } catch (const Error& error) {
    EXPECT_EQ(std::count(c.cache_k.begin(), c.cache_k.end(), kPoison), static_cast<int64_t>(c.cache_k.size()))
        << "written before it refused";
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

TEST(Append, RefusesBrokenTablesBeforeItWrites) {
  const auto fresh = [] { return make_case(4, 2, 8, 8, {{3, 6}, {0, 5}}, Layout::nhd, DType::fp32, 3); };
  Case c = fresh();
  c.page_indices.back() = static_cast<int32_t>(c.num_pages);
  EXPECT_EQ(code_of(c), ErrorCode::invalid_page);
  c = fresh();
  c.page_indices[2] = -1;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_page);
  c = fresh();
  c.last_page_len[1] = 5;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_page);
  c = fresh();
  c.last_page_len[1] = 0;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_page);
  c = fresh();
  c.append_indptr[1] = 10;  // more than its pages hold
  EXPECT_EQ(code_of(c), ErrorCode::invalid_indptr);
  c = fresh();
  c.append_indptr[0] = 1;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_indptr);
  c = fresh();
  c.page_indptr[1] = 20;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_indptr);
  c = fresh();
  c.last_page_len.pop_back();
  EXPECT_EQ(code_of(c), ErrorCode::invalid_indptr);
  c = fresh();
  c.page_size = 0;
  EXPECT_EQ(code_of(c), ErrorCode::invalid_argument);
  c = fresh();
  try {
    append_paged_kv(c.rows(c.k, 8), c.rows(c.v, 8), c.append_indptr, c.table(), static_cast<Layout>(2),
                    {c.cache(c.cache_k, 8), c.cache(c.cache_v, 8)});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layout = 2"), std::string::npos) << error.what();
  }
  c = fresh();
  c.num_pages +=
      1;  // the cache is smaller than the table says; built from the same bytes, so only the shape is looked at
  c.cache_k.resize(c.cache_k.size() * 2, kPoison);
  const TensorView small(c.cache_k.data(), DType::fp32, {c.num_pages - 1, 4, 2, 8});
  EXPECT_THROW(append_paged_kv(c.rows(c.k, 8), c.rows(c.v, 8), c.append_indptr, c.table(), Layout::nhd, {small, small}),
               Error);
}

TEST(Append, RefusesTensorsWithoutDataAndBetweenElements) {
  const Case c = make_case(4, 2, 8, 8, {{3, 6}}, Layout::nhd, DType::fp32, 3);
  std::vector<float> memory(4096);
  const auto refused = [&](const void* rows, const void* cache) {
    const TensorView k(rows, DType::fp32, {c.append_indptr.back(), 2, 8}),
        side(cache, DType::fp32, {c.num_pages, 4, 2, 8});
    try {
      append_paged_kv(k, k, c.append_indptr, c.table(), Layout::nhd, {side, side});
    } catch (const Error& error) {
      return to_string(error.code());
    }
    return std::string_view("nothing");
  };
  EXPECT_EQ(refused(memory.data(), nullptr), "invalid_argument");
  EXPECT_EQ(refused(nullptr, memory.data()), "invalid_argument");
  const char* between = reinterpret_cast<const char*>(memory.data()) + 2;
  EXPECT_EQ(refused(memory.data(), between), "invalid_stride");
  EXPECT_EQ(refused(between, memory.data()), "invalid_stride");
}

// ---------------------------------------------------------------- caches of 8 and 4 bits

TEST(AppendNarrow, ScalesEveryTokenAndHeadByItsLargestMagnitude) {
  WorkerTeam team(2);
  for (const Narrow& narrow : kNarrow)
    for (const Layout layout : {Layout::nhd, Layout::hnd}) {
      Case c = make_case(5, 3, 24, 16, {{7, 9}, {0, 4}}, layout, narrow.dtype, 11);
      std::fill_n(c.k.begin(), 24, 0.f);                                                    // row 0, head 0
      c.k[24] = NAN;                                                                        // row 0, head 1
      std::fill_n(c.k.begin() + 48, 24, 1e-31f);                                            // row 0, head 2
      for (int i = 0; i < 24; ++i) c.k[static_cast<size_t>(72 + i)] = std::ldexp(1.f, -i);  // row 1, head 0
      const int64_t lines = c.num_pages * c.page_size * c.heads;
      std::vector<float> k_scale(static_cast<size_t>(lines), -1.f), v_scale(k_scale);
      const auto scale_view = [&](std::vector<float>& scales) {
        return layout == Layout::nhd ? TensorView(scales.data(), DType::fp32, {c.num_pages, c.page_size, c.heads, 1})
                                     : TensorView(scales.data(), DType::fp32, {c.num_pages, c.heads, c.page_size, 1});
      };
      KvCache cache(c.cache(c.cache_k, c.dim_k), c.cache(c.cache_v, c.dim_v), scale_view(k_scale), scale_view(v_scale));
      append_paged_kv(c.rows(c.k, c.dim_k), c.rows(c.v, c.dim_v), c.append_indptr, c.table(), layout, cache,
                      KvScales::token, Stream::cpu(team));
      int64_t written = 0;
      for (int r = 0; r < c.batch; ++r)
        for (int row = c.append_indptr[static_cast<size_t>(r)]; row < c.append_indptr[static_cast<size_t>(r) + 1];
             ++row)
          for (int h = 0; h < c.heads; ++h) {
            const int first = c.page_indptr[static_cast<size_t>(r)];
            const int length = (c.page_indptr[static_cast<size_t>(r) + 1] - first - 1) * c.page_size +
                               c.last_page_len[static_cast<size_t>(r)];
            const int token = length - (c.append_indptr[static_cast<size_t>(r) + 1] - row), slot = token % c.page_size;
            const int64_t page = c.page_indices[static_cast<size_t>(first + token / c.page_size)];
            const int64_t line = layout == Layout::nhd ? (page * c.page_size + slot) * c.heads + h
                                                       : (page * c.heads + h) * c.page_size + slot;
            ++written;
            const float* from = &c.k[static_cast<size_t>((row * c.heads + h) * c.dim_k)];
            const float scale = k_scale[static_cast<size_t>(line)];
            if (row == 0 && h == 1) {
              ASSERT_TRUE(std::isnan(scale));
              continue;
            }
            float most = 0;
            for (int i = 0; i < c.dim_k; ++i) most = std::max(most, std::abs(from[i]));
            const bool zero = most < 1e-30f;
            ASSERT_EQ(scale, zero ? 0.f : most / static_cast<float>(narrow.most)) << to_string(narrow.dtype);
            for (int i = 0; i < c.dim_k; ++i) {
              const double code = stored(c.cache_k, narrow.dtype, line * c.dim_k + i);
              const double exact = zero ? 0 : static_cast<double>(from[i]) / scale;
              ASSERT_LE(std::abs(code - exact), zero ? 0 : half_step(narrow.dtype, exact))
                  << to_string(narrow.dtype) << " " << from[i] << " by " << scale;
            }
          }
      EXPECT_EQ(std::count(k_scale.begin(), k_scale.end(), -1.f), lines - written) << "dead scales were written";
      EXPECT_EQ(std::count(v_scale.begin(), v_scale.end(), -1.f), lines - written);
    }
}

// Tokens of a group share a scale that grows with them: each growth rounds those before once more.
TEST(AppendNarrow, GrowsTheScaleOfAGroupWithItsTokens) {
  constexpr int page_size = 6, heads = 2, dim = 16, tokens = 11;
  std::mt19937_64 random(5);
  for (const Narrow& narrow : kNarrow)
    for (const int group : {1, 2, 3, 6})
      for (const int workers : {1, 3}) {
        WorkerTeam team(workers);
        Case all = make_case(page_size, heads, dim, dim, {{0, tokens}}, Layout::nhd, narrow.dtype, 7);
        std::vector<float> scales(static_cast<size_t>(all.num_pages * page_size / group * heads), -1.f), other(scales);
        const auto view = [&](std::vector<float>& x) {
          return TensorView(x.data(), DType::fp32, {all.num_pages, page_size / group, heads, 1});
        };
        for (int begin = 0; begin < tokens;) {
          const int end = std::min<int>(tokens, begin + 1 + static_cast<int>(random() % 4));
          const std::vector<int32_t> indptr{0, end - begin}, pages{0, (end + page_size - 1) / page_size},
              last{(end - 1) % page_size + 1};
          const PageTableView table{
              .page_size = page_size,
              .num_pages = all.num_pages,
              .kv_page_indptr = pages,
              .kv_page_indices = std::span<const int32_t>(all.page_indices).first(static_cast<size_t>(pages[1])),
              .kv_last_page_len = last};
          const TensorView rows(&all.k[static_cast<size_t>(begin * heads * dim)], DType::fp32,
                                {end - begin, heads, dim});
          append_paged_kv(rows, rows, indptr, table, Layout::nhd,
                          {all.cache(all.cache_k, dim), all.cache(all.cache_v, dim), view(scales), view(other)},
                          KvScales::token_group, Stream::cpu(team));
          begin = end;
        }
        EXPECT_EQ(all.cache_k, all.cache_v);
        EXPECT_EQ(scales, other);
        for (int first = 0; first < tokens;) {
          const int slot = first % page_size, count = std::min({group, page_size - slot, tokens - first});
          const int64_t page = all.page_indices[static_cast<size_t>(first / page_size)];
          for (int h = 0; h < heads; ++h) {
            float most = 0;
            for (int i = 0; i < count * dim; ++i)
              most =
                  std::max(most, std::abs(all.k[static_cast<size_t>(((first + i / dim) * heads + h) * dim + i % dim)]));
            const float scale = scales[static_cast<size_t>((page * (page_size / group) + slot / group) * heads + h)];
            ASSERT_EQ(scale, most / static_cast<float>(narrow.most)) << to_string(narrow.dtype) << " " << group;
            for (int i = 0; i < count * dim; ++i) {
              const int64_t line = (page * page_size + slot + i / dim) * heads + h;
              const double exact =
                  static_cast<double>(all.k[static_cast<size_t>(((first + i / dim) * heads + h) * dim + i % dim)]) /
                  scale;
              const double code = stored(all.cache_k, narrow.dtype, line * dim + i % dim);
              // The steps of floating-point numbers double where a scale moves them over a power of two.
              const double step = half_step(narrow.dtype, std::max(std::abs(exact), std::abs(code)));
              ASSERT_LE(std::abs(code - exact),
                        count * step * (bits_of(narrow.dtype) == 8 && narrow.most > 127 ? 2 : 1))
                  << to_string(narrow.dtype) << " group " << group << " token " << first + i / dim;
            }
          }
          first += count;
        }
      }
}

TEST(AppendNarrow, WritesAGroupOnceHoweverManyWorkersShareTheRows) {
  std::vector<std::vector<uint8_t>> caches;
  std::vector<std::vector<float>> all_scales;
  for (const int workers : {1, 2, 3, 7}) {
    WorkerTeam team(workers);
    Case c = make_case(12, 2, 128, 64, {{5, 61}, {0, 3}, {11, 40}}, Layout::hnd, DType::int8, 3);
    std::vector<float> k_scale(static_cast<size_t>(c.num_pages * 2 * 3), 0.01f), v_scale(k_scale);
    const auto view = [&](std::vector<float>& x) { return TensorView(x.data(), DType::fp32, {c.num_pages, 2, 3, 1}); };
    append_paged_kv(c.rows(c.k, 128), c.rows(c.v, 64), c.append_indptr, c.table(), Layout::hnd,
                    {c.cache(c.cache_k, 128), c.cache(c.cache_v, 64), view(k_scale), view(v_scale)},
                    KvScales::token_group, Stream::cpu(team));
    caches.push_back(c.cache_k);
    all_scales.push_back(k_scale);
    EXPECT_EQ(caches.front(), caches.back()) << workers;
    EXPECT_EQ(all_scales.front(), all_scales.back()) << workers;
  }
}

TEST(AppendNarrow, KeepsAGroupThatHoldsNoNumber) {
  WorkerTeam team(1);
  Case c = make_case(4, 1, 8, 8, {{0, 4}}, Layout::nhd, DType::int8, 1);
  std::vector<float> scales(static_cast<size_t>(c.num_pages), -1.f);
  const TensorView view(scales.data(), DType::fp32, {c.num_pages, 1, 1, 1});
  const auto append = [&](int begin, int end) {
    const std::vector<int32_t> indptr{0, end - begin}, pages{0, 1}, last{end};
    const PageTableView table{.page_size = 4,
                              .num_pages = c.num_pages,
                              .kv_page_indptr = pages,
                              .kv_page_indices = std::span<const int32_t>(c.page_indices).first(1),
                              .kv_last_page_len = last};
    const TensorView rows(&c.k[static_cast<size_t>(begin * 8)], DType::fp32, {end - begin, 1, 8});
    append_paged_kv(rows, rows, indptr, table, Layout::nhd, {c.cache(c.cache_k, 8), c.cache(c.cache_v, 8), view, view},
                    KvScales::token_group, Stream::cpu(team));
    return scales[static_cast<size_t>(c.page_indices[0])];
  };
  std::fill_n(c.k.begin(), 32, 1.f);
  c.k[9] = NAN;
  EXPECT_EQ(append(0, 1), 1.f / 127);
  EXPECT_TRUE(std::isnan(append(1, 2)));
  EXPECT_TRUE(std::isnan(append(2, 4)));
}

TEST(AppendNarrow, HoldsWhatIsTooLargeForAGivenScale) {
  WorkerTeam team(1);
  for (const Narrow& narrow : kNarrow) {
    Case c = make_case(4, 2, 8, 8, {{0, 1}}, Layout::nhd, narrow.dtype, 1);
    c.k = {1e9f, -1e9f, 0.5f, -0.5f, 1.f, INFINITY, -INFINITY, 0.f, 2e9f, -2e9f, 1.f, -1.f, 2.f, 1e38f, -1e38f, 0.f};
    std::vector<float> scales{0.5f, 1.f};
    const TensorView by_head(scales.data(), DType::fp32, {1, 1, 2, 1});
    append_paged_kv(c.rows(c.k, 8), c.rows(c.v, 8), c.append_indptr, c.table(), Layout::nhd,
                    {c.cache(c.cache_k, 8), c.cache(c.cache_v, 8), by_head, by_head}, KvScales::head,
                    Stream::cpu(team));
    const int64_t line = int64_t{c.page_indices[0]} * 4 * 2 * 8;
    for (int i = 0; i < 16; ++i) {
      const double x = c.k[static_cast<size_t>(i)] / scales[static_cast<size_t>(i / 8)];
      EXPECT_EQ(stored(c.cache_k, narrow.dtype, line + i), std::clamp(x, -narrow.most, narrow.most))
          << to_string(narrow.dtype) << " " << i;
    }
    // fp8 goes without scales too.
    if (narrow.dtype == DType::int8 || narrow.dtype == DType::int4) continue;
    append_paged_kv(c.rows(c.k, 8), c.rows(c.v, 8), c.append_indptr, c.table(), Layout::nhd,
                    {c.cache(c.cache_k, 8), c.cache(c.cache_v, 8)}, Stream::cpu(team));
    EXPECT_EQ(stored(c.cache_k, narrow.dtype, line + 2), 0.5);
  }
}

TEST(AppendNarrow, RefusesScalesThatDoNotFit) {
  Case c = make_case(4, 2, 8, 8, {{0, 3}}, Layout::nhd, DType::int8, 1);
  std::vector<float> scales(static_cast<size_t>(c.num_pages * 8), 1.f);
  const TensorView by_token(scales.data(), DType::fp32, {c.num_pages, 4, 2, 1}),
      by_head(scales.data(), DType::fp32, {1, 1, 2, 1});
  const auto refused = [&](KvScales kind, const TensorView& scale, DType dtype = DType::int8) -> std::string {
    c.dtype = dtype;
    try {
      append_paged_kv(c.rows(c.k, 8), c.rows(c.v, 8), c.append_indptr, c.table(), Layout::nhd,
                      {c.cache(c.cache_k, 8), c.cache(c.cache_v, 8), scale, scale}, kind);
    } catch (const Error& error) {
      EXPECT_EQ(std::count(c.cache_k.begin(), c.cache_k.end(), kPoison), static_cast<int64_t>(c.cache_k.size()));
      return std::string(to_string(error.code()));
    }
    return "nothing";
  };
  EXPECT_EQ(refused(KvScales::none, {}), "invalid_argument");
  EXPECT_EQ(refused(KvScales::token, {}), "invalid_argument");
  EXPECT_EQ(refused(KvScales::token, by_head), "invalid_shape");
  EXPECT_EQ(refused(KvScales::head, by_token), "invalid_shape");
  EXPECT_EQ(refused(KvScales::token_group, by_head), "invalid_shape");
  EXPECT_EQ(refused(KvScales::token_group, TensorView(scales.data(), DType::fp32, {c.num_pages, 3, 2, 1})),
            "invalid_shape");
  EXPECT_EQ(refused(KvScales::none, by_token, DType::fp8_e4m3), "invalid_argument");
  for (const float bad : {0.f, -1.f, INFINITY, std::nanf("")}) {
    scales[1] = bad;
    EXPECT_EQ(refused(KvScales::head, by_head), "invalid_argument") << bad;
  }
  EXPECT_EQ(refused(KvScales::head, by_head, DType::uint8), "invalid_dtype");
}

}  // namespace
}  // namespace weft
