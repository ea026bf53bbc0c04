// The loops of kernels/draw.h. Compiled once per ISA (weft_isa_sources), without contraction: a fused operation would
// round otherwise than two.
#include "ops/kernels/draw.h"

#include "tile/cpu/exp.h"
#include "tile/cpu/lanes.h"
#include "tile/draw.h"

namespace weft::ops::WEFT_ISA_NAME {
namespace {

namespace vec = weft::tile::WEFT_ISA_NAME;
using vec::F32;
using vec::I32;
using vec::kLanes;
using vec::U32;

using u64 = unsigned long long;

constexpr int kSixteen = 16, kVectors = kSixteen / kLanes;  // logits of a group, whatever the width

// The operations of tile/draw.h on vectors.
struct VectorMath {
  using Real = F32;
  using Int = I32;
  using Mask = I32;
  static WEFT_INLINE F32 number(float x) { return vec::broadcast(x); }
  static WEFT_INLINE F32 add(F32 a, F32 b) { return a + b; }
  static WEFT_INLINE F32 multiply(F32 a, F32 b) { return a * b; }
  static WEFT_INLINE F32 choose(I32 mask, F32 a, F32 b) { return mask ? a : b; }
  static WEFT_INLINE I32 choose(I32 mask, I32 a, I32 b) { return mask ? a : b; }
  static WEFT_INLINE F32 from_bits(I32 bits) { return reinterpret_cast<F32>(bits); }
  static WEFT_INLINE I32 bits(F32 x) { return reinterpret_cast<I32>(x); }
  static WEFT_INLINE I32 truncated(F32 x) { return __builtin_convertvector(x, I32); }
  static WEFT_INLINE I32 equal(F32 a, F32 b) { return a == b; }
  static WEFT_INLINE I32 at_least(F32 a, F32 b) { return a >= b; }
};

// How numbers weigh: by a measure that falls nowhere as they rise.
struct Logits {
  static constexpr float kLeast = tile::kLeastExponent;  // measure with a weight
  static constexpr float kBinsOfOne = 96.f;              // bins of an exponent that is lower by 1
  static_assert(-kLeast * kBinsOfOne + 1 < DrawTable::kBins);
  static WEFT_INLINE F32 measure(F32 x, float largest, float scale) {
    return tile::draw_exponent<VectorMath>(x, largest, scale);
  }
  static WEFT_INLINE I32 weight(F32 measure) { return tile::draw_weight<VectorMath>(measure); }
  static WEFT_INLINE I32 bin(F32 measure) { return VectorMath::truncated(measure * -kBinsOfOne); }
};
struct Probabilities {
  static constexpr float kLeast = tile::kLeastShare;
  static constexpr int kStep = 17;  // 64 bins of a share that is half as large
  static_assert(30 * (1 << (23 - kStep)) < DrawTable::kBins);
  static WEFT_INLINE F32 measure(F32 x, float largest, float scale) {
    return tile::draw_share<VectorMath>(x, largest, scale);
  }
  static WEFT_INLINE I32 weight(F32 measure) { return tile::share_weight<VectorMath>(measure); }
  static WEFT_INLINE I32 bin(F32 measure) { return tile::steps_below_one<VectorMath, kStep>(measure); }
};

// A group of logits: vector v has lanes v * kLanes on. Behind the row's end there is NaN, which is nobody's equal, or
// what else is asked for.
struct Group {
  F32 logit[kVectors];
};
WEFT_INLINE Group load_group(const float* row, long long n, long long at, float behind = __builtin_nanf("")) {
  Group group;
  if (at + kSixteen <= n) {
    for (int v = 0; v < kVectors; ++v) group.logit[v] = vec::load(row + at + v * kLanes);
    return group;
  }
  float last[kSixteen];
  for (int i = 0; i < kSixteen; ++i) last[i] = at + i < n ? row[at + i] : behind;
  for (int v = 0; v < kVectors; ++v) group.logit[v] = vec::load(last + v * kLanes);
  return group;
}

WEFT_INLINE bool any(I32 mask) { return vec::max_lanes(reinterpret_cast<U32>(mask)) != 0; }

WEFT_INLINE I32 load_ints(const int* p) { return reinterpret_cast<I32>(vec::load_u32(p)); }
WEFT_INLINE void store_ints(int* p, I32 x) { vec::store_u32(p, reinterpret_cast<U32>(x)); }

// A sum of weights whose halves are summed apart, so that lanes of 32 bits hold those of 65,536 tokens.
struct Sum {
  I32 low = {}, high = {};
  WEFT_INLINE void add(I32 weights) {
    low += weights & 0xffff;
    high += weights >> 16;
  }
  WEFT_INLINE u64 total() const {
    u64 sum = 0;
    for (int lane = 0; lane < kLanes; ++lane)
      sum += static_cast<unsigned>(low[lane]) + (static_cast<u64>(static_cast<unsigned>(high[lane])) << 16);
    return sum;
  }
};

bool largest_of_blocks(const float* row, long long n, float* largest) {
  I32 is_nan = {};
  for (long long begin = 0; begin < n; begin += DrawTable::kBlock) {
    const long long end = begin + DrawTable::kBlock < n ? begin + DrawTable::kBlock : n;
    F32 most = vec::broadcast(-__builtin_inff());
    for (long long i = begin; i < end; i += kSixteen)
      for (const F32& logit : load_group(row, n, i, -__builtin_inff()).logit) {
        most = vec::max(logit, most);
        is_nan |= logit != logit;
      }
    *largest++ = vec::max_lanes(most);
  }
  return any(is_nan);
}

long long first_equal(const float* row, long long n, float value) {
  const F32 wanted = vec::broadcast(value);
  for (long long at = 0; at < n; at += kSixteen) {
    I32 found = {};
    for (const F32& logit : load_group(row, n, at).logit) found |= logit == wanted;
    if (!any(found)) continue;
    for (long long i = at; i < n; ++i)
      if (row[i] == value) return i;
  }
  return n;
}

template <class Of>
void weigh(const float* row, long long n, float largest, float scale, int* weights, u64* sums) {
  for (long long begin = 0; begin < n; begin += DrawTable::kBlock) {
    const long long end = begin + DrawTable::kBlock < n ? begin + DrawTable::kBlock : n;
    Sum sum;
    for (long long at = begin; at < end; at += kSixteen) {
      const Group group = load_group(row, n, at);
      int last[kSixteen];
      int* const to = at + kSixteen <= n ? weights + at : last;
      for (int v = 0; v < kVectors; ++v) {
        const I32 weight = Of::weight(Of::measure(group.logit[v], largest, scale));
        sum.add(weight);
        store_ints(to + v * kLanes, weight);
      }
      if (to == last)
        for (long long i = at; i < n; ++i) weights[i] = last[i - at];
    }
    *sums++ = sum.total();
  }
}

void sum_blocks(const float* row, const int* weights, long long n, float least_logit, int least_weight, u64* sums) {
  const F32 limit = vec::broadcast(least_logit);
  for (long long begin = 0; begin < n; begin += DrawTable::kBlock) {
    const long long end = begin + DrawTable::kBlock < n ? begin + DrawTable::kBlock : n;
    Sum sum;
    long long at = begin;
    for (; at + kLanes <= end; at += kLanes) {
      const I32 weight = load_ints(weights + at);
      sum.add(weight & (vec::load(row + at) >= limit) & (weight >= least_weight));
    }
    u64 rest = 0;
    for (; at < end; ++at)
      rest += row[at] >= least_logit && weights[at] >= least_weight ? static_cast<u64>(weights[at]) : 0;
    *sums++ = sum.total() + rest;
  }
}

// Of those with a weight; kBins and more for others.
template <class Of>
WEFT_INLINE I32 bin_of(F32 logit, float largest, float scale) {
  const F32 measure = Of::measure(logit, largest, scale);
  const I32 weighs = measure >= vec::broadcast(Of::kLeast);
  const I32 bin = Of::bin(weighs ? measure : vec::broadcast(Of::kLeast));
  return weighs ? bin : I32{} + DrawTable::kBins;
}

// Most groups have no token in the first bins where few tokens have the weight: they are passed over together. In the
// others it is chance which tokens are, and a branch for each would be mispredicted: the rest goes to the bin behind.
template <class Of>
void add_to_bins(const float* row, const int* weights, long long n, float largest, float scale, int num_bins,
                 bool counts, u64* bins) {
  for (long long at = 0; at < n; at += kSixteen) {
    const Group group = load_group(row, n, at);
    int bin[kSixteen];
    I32 found = {};
    for (int v = 0; v < kVectors; ++v) {
      const I32 of = bin_of<Of>(group.logit[v], largest, scale);
      const I32 counts_there = of < num_bins;
      found |= counts_there;
      store_ints(bin + v * kLanes, counts_there ? of : I32{} + num_bins);
    }
    if (!any(found)) continue;
    const int size = n - at < kSixteen ? static_cast<int>(n - at) : kSixteen;
    for (int i = 0; i < size; ++i) bins[bin[i]] += counts ? 1 : static_cast<u64>(weights[at + i]);
  }
}

// test(vector) is set where a token is wanted.
template <class Test>
WEFT_INLINE long long select_if(const float* row, long long n, int* ids, const Test& test) {
  long long count = 0;
  for (long long at = 0; at < n; at += kSixteen) {
    const Group group = load_group(row, n, at);
    int wanted[kSixteen];
    I32 found = {};
    for (int v = 0; v < kVectors; ++v) {
      const I32 is_wanted = test(group.logit[v]);
      found |= is_wanted;
      store_ints(wanted + v * kLanes, is_wanted);
    }
    if (!any(found)) continue;
    for (int i = 0; i < kSixteen; ++i)
      if (wanted[i] != 0) ids[count++] = static_cast<int>(at) + i;
  }
  return count;
}

template <class Of>
long long select_bin(const float* row, long long n, float largest, float scale, int bin, int* ids) {
  return select_if(row, n, ids, [&](F32 logit) { return bin_of<Of>(logit, largest, scale) == bin; });
}

long long select(const float* row, long long n, float least, int* ids) {
  return select_if(row, n, ids, [&](F32 logit) { return I32(logit >= vec::broadcast(least)); });
}

template <class Of>
int bins_down_to(float measure) {
  return measure < Of::kLeast ? DrawTable::kBins : Of::bin(vec::broadcast(measure))[0] + 1;
}

// Of one number, for what changes few logits.
struct ScalarMath {
  static WEFT_INLINE float add(float a, float b) { return a + b; }
  static WEFT_INLINE float multiply(float a, float b) { return a * b; }
};

void change(float* row, const tile::DrawPenalties& penalties, const tile::LogitChange* changes, long long n) {
  for (long long i = 0; i < n; ++i)
    row[changes[i].id] = tile::changed_logit<ScalarMath>(row[changes[i].id], penalties, changes[i]);
}

double sum_of_exp(const float* row, long long n, float largest) {
  constexpr long long kOfBlock = 256;
  double total = 0;
  for (long long begin = 0; begin < n; begin += kOfBlock) {
    const long long end = begin + kOfBlock < n ? begin + kOfBlock : n;
    F32 sums[kVectors] = {};
    for (long long at = begin; at < end; at += kSixteen) {
      const Group group = load_group(row, n, at);
      for (int v = 0; v < kVectors; ++v) {
        const F32 x = group.logit[v] - largest;
        sums[v] += x >= vec::broadcast(-87.f) ? vec::exp(x) : vec::broadcast(0.f);
      }
    }
    for (const F32& sum : sums)
      for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sum[lane]);
  }
  return total;
}

template <class Of>
constexpr DrawTable::Weighing kWeighing = {weigh<Of>, add_to_bins<Of>, select_bin<Of>, bins_down_to<Of>};

}  // namespace

extern const DrawTable draw_loops = {
    largest_of_blocks, first_equal, sum_blocks, select, change, sum_of_exp, kWeighing<Logits>, kWeighing<Probabilities>,
};

}  // namespace weft::ops::WEFT_ISA_NAME
