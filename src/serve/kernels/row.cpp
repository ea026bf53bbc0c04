// The loops of kernels/row.h. Compiled once per ISA (weft_isa_sources), without contraction: a fused operation would
// round otherwise than two. Whatever the width, sums and maxima have sixteen lanes.
#include "serve/kernels/row.h"

#include "tile/cpu/exp.h"
#include "tile/cpu/lanes.h"

namespace weft::serve::WEFT_ISA_NAME {
namespace {

namespace vec = weft::tile::WEFT_ISA_NAME;
using vec::F32;
using vec::kLanes;

constexpr int kSums = 16, kVectors = kSums / kLanes;

float largest(const float* row, long long n) {
  F32 most[kVectors];
  for (F32& v : most) v = vec::broadcast(-__builtin_inff());
  long long i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int v = 0; v < kVectors; ++v) most[v] = vec::max(vec::load(row + i + v * kLanes), most[v]);
  float all = -__builtin_inff();
  for (const F32& v : most) {
    const float lanes = vec::max_lanes(v);
    all = lanes > all ? lanes : all;
  }
  for (; i < n; ++i) all = row[i] > all ? row[i] : all;
  return all;
}

// Whether one of sixteen has test(vector) set.
template <class Test>
inline bool any(const float* x, const Test& test) {
  vec::U32 found = {};
  for (int v = 0; v < kVectors; ++v) found |= reinterpret_cast<vec::U32>(test(vec::load(x + v * kLanes)));
  return vec::max_lanes(found) != 0;
}

long long first_equal(const float* row, long long n, float value) {
  const F32 wanted = vec::broadcast(value);
  long long i = 0;
  while (i + kSums <= n && !any(row + i, [&](F32 x) { return x == wanted; })) i += kSums;
  while (i < n && row[i] != value) ++i;
  return i;
}

inline F32 weight_of(F32 logit, float largest, float scale) {
  const F32 x = (logit - largest) * scale, nothing = vec::broadcast(0.f), weight = vec::exp(x);
  return ((logit >= vec::broadcast(-3.4e38f)) & (x >= vec::broadcast(-87.f))) ? weight : nothing;
}

void weigh(const float* row, long long n, float largest, float scale, float* weights) {
  long long i = 0;
  for (; i + kLanes <= n; i += kLanes) vec::store(weights + i, weight_of(vec::load(row + i), largest, scale));
  if (i == n) return;
  float last[kLanes];
  vec::store(last, vec::broadcast(largest));
  for (long long j = i; j < n; ++j) last[j - i] = row[j];
  vec::store(last, weight_of(vec::load(last), largest, scale));
  for (long long j = i; j < n; ++j) weights[j] = last[j - i];
}

double sum_block(const float* weights, long long n, float least) {
  const F32 limit = vec::broadcast(least), nothing = vec::broadcast(0.f);
  F32 sums[kVectors] = {};
  long long i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int v = 0; v < kVectors; ++v) {
      const F32 weight = vec::load(weights + i + v * kLanes);
      sums[v] += weight >= limit ? weight : nothing;
    }
  }
  float lanes[kSums];
  for (int v = 0; v < kVectors; ++v) vec::store(lanes + v * kLanes, sums[v]);
  for (; i < n; ++i) lanes[0] += weights[i] >= least ? weights[i] : 0.f;
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

void sum_blocks(const float* weights, long long n, float least, double* sums, float* most) {
  for (long long begin = 0; begin < n; begin += RowTable::kBlock) {
    const long long size = n - begin < RowTable::kBlock ? n - begin : RowTable::kBlock;
    *sums++ = sum_block(weights + begin, size, least);
    *most++ = largest(weights + begin, size);
  }
}

void sum_from(const float* weights, long long n, const float* limits, double* sums) {
  constexpr int kLimits = RowTable::kLimits;
  const F32 nothing = vec::broadcast(0.f);
  double totals[kLimits][kSums] = {};
  long long begin = 0;
  for (long long end; begin + kSums <= n; begin = end) {
    end = begin + RowTable::kBlock < n ? begin + RowTable::kBlock : n - n % kSums;
    for (int v = 0; v < kVectors; ++v) {
      F32 some[kLimits] = {};
      for (long long i = begin + v * kLanes; i < end; i += kSums) {
        const F32 weight = vec::load(weights + i);
#pragma GCC unroll 8
        for (int k = 0; k < kLimits; ++k) some[k] += weight >= vec::broadcast(limits[k]) ? weight : nothing;
      }
      for (int k = 0; k < kLimits; ++k)
        for (int lane = 0; lane < kLanes; ++lane) totals[k][v * kLanes + lane] += static_cast<double>(some[k][lane]);
    }
  }
  for (int k = 0; k < kLimits; ++k) {
    sums[k] = 0;
    for (const double total : totals[k]) sums[k] += total;
    for (long long i = begin; i < n; ++i) sums[k] += weights[i] >= limits[k] ? static_cast<double>(weights[i]) : 0.;
  }
}

// Most sixteens have none: they are passed over together.
long long select(const float* weights, long long n, float above, float most, int* numbers) {
  long long count = 0;
  const auto take = [&](long long i) {
    if (weights[i] > above && weights[i] <= most) numbers[count++] = static_cast<int>(i);
  };
  const F32 low = vec::broadcast(above), high = vec::broadcast(most);
  long long i = 0;
  for (; i + kSums <= n; i += kSums) {
    if (!any(weights + i, [&](F32 w) { return (w > low) & (w <= high); })) continue;
    for (int lane = 0; lane < kSums; ++lane) take(i + lane);
  }
  for (; i < n; ++i) take(i);
  return count;
}

}  // namespace

extern const RowTable row_loops = {largest, first_equal, weigh, sum_blocks, sum_from, select};

}  // namespace weft::serve::WEFT_ISA_NAME
