#include "tests/simt/machine/device.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/simt/machine/thread.h"

// The line of the kernel that a twin is called from.
#define WEFT_CALLER __builtin_return_address(0)

namespace weft::simt {
namespace {

Machine& machine() { return *Machine::active(); }

struct Exchange {
  unsigned x = 0, y = 0;
  int from = 0;
};

void exchange(void* const* lanes) {
  for (int i = 0; i < 32; ++i) {
    auto& self = *static_cast<Exchange*>(lanes[i]);
    self.y = static_cast<Exchange*>(lanes[self.from & 31])->x;
  }
}

struct Matrices {
  unsigned* r;
  const unsigned char* row;
};

template <bool transposed>
void load_matrices(void* const* lanes) {
  unsigned loaded[32][4];
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m) {
      unsigned short pair[2];
      for (int e = 0; e < 2; ++e) {
        const int row = transposed ? lane % 4 * 2 + e : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + e;
        std::memcpy(&pair[e], static_cast<Matrices*>(lanes[8 * m + row])->row + 2 * column, 2);
      }
      loaded[lane][m] = static_cast<unsigned>(pair[1]) << 16 | pair[0];
    }
  for (int lane = 0; lane < 32; ++lane) std::memcpy(static_cast<Matrices*>(lanes[lane])->r, loaded[lane], 16);
}

struct Product {
  float* d;
  const unsigned *a, *b;
  int k;
  bool bf16;
};

float element(unsigned word, int half, bool bf16) {
  const unsigned bits = word >> (16 * half) & 0xffff;
  return bf16 ? std::bit_cast<float>(bits << 16) : from_fp16(static_cast<unsigned short>(bits));
}

// Products are exact and their sum is rounded once; the card's sums are a little less exact.
void multiply(void* const* lanes) {
  const auto at = [&](int lane) -> const Product& { return *static_cast<Product*>(lanes[lane]); };
  const int k = at(0).k;
  const bool bf16 = at(0).bf16;
  float sums[32][4];
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
      double sum = at(lane).d[e];
      for (int i = 0; i < k; ++i) {
        const int quad = i % 8 / 2, high = i / 8;
        sum += double{element(at(row % 8 * 4 + quad).a[row / 8 + 2 * high], i % 2, bf16)} *
               double{element(at(column * 4 + quad).b[high], i % 2, bf16)};
      }
      sums[lane][e] = static_cast<float>(sum);
    }
  for (int lane = 0; lane < 32; ++lane) std::memcpy(at(lane).d, sums[lane], sizeof sums[lane]);
}

float of_tf32(unsigned word) { return std::bit_cast<float>(word & ~0x1fffu); }

void multiply_tf32(void* const* lanes) {
  const auto at = [&](int lane) -> const Product& { return *static_cast<Product*>(lanes[lane]); };
  float sums[32][4];
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
      double sum = at(lane).d[e];
      for (int i = 0; i < 8; ++i)
        sum += double{of_tf32(at(row % 8 * 4 + i % 4).a[row / 8 + i / 4 * 2])} *
               double{of_tf32(at(column * 4 + i % 4).b[i / 4])};
      sums[lane][e] = static_cast<float>(sum);
    }
  for (int lane = 0; lane < 32; ++lane) std::memcpy(at(lane).d, sums[lane], sizeof sums[lane]);
}

}  // namespace

std::function<void()> previous_kernel;

int thread_index() { return machine().current().index; }
int num_threads() { return machine().launch().threads; }
int cta_index() { return machine().current().cta; }
int num_ctas() { return machine().launch().ctas; }
unsigned char* shared_memory() { return reinterpret_cast<unsigned char*>(machine().cta().shared); }

int cluster_rank() { return machine().current().cta % machine().launch().cluster; }
int cluster_size() { return machine().launch().cluster; }
void cluster_arrive() { machine().arrive_at_cluster(WEFT_CALLER); }
void cluster_wait() { machine().wait_for_cluster(WEFT_CALLER); }
const void* cluster_shared(const void* own, int rank) { return machine().shared_of_rank(own, rank, WEFT_CALLER); }

void wait_for_previous_kernel() {
  if (previous_kernel) std::exchange(previous_kernel, nullptr)();
}

void cta_sync() { machine().barrier(0, num_threads(), true, true, "cta_sync", WEFT_CALLER); }
void trap() { machine().fault("traps", WEFT_CALLER); }
void named_sync(int id, int threads) { machine().barrier(id, threads, true, false, "named_sync", WEFT_CALLER); }
void named_arrive(int id, int threads) { machine().barrier(id, threads, false, false, "named_arrive", WEFT_CALLER); }
void warp_sync() { machine().collective("warp_sync", nullptr, nullptr, true, WEFT_CALLER); }

unsigned shuffle_xor(unsigned x, int mask) {
  Exchange own{x, 0, machine().current().index % 32 ^ mask};
  machine().collective("shuffle_xor", &own, exchange, false, WEFT_CALLER);
  return own.y;
}
unsigned shuffle(unsigned x, int from) {
  Exchange own{x, 0, from};
  machine().collective("shuffle", &own, exchange, false, WEFT_CALLER);
  return own.y;
}
unsigned ballot(bool condition) {
  unsigned own = condition;
  machine().collective(
      "ballot", &own,
      [](void* const* lanes) {
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i) bits |= *static_cast<unsigned*>(lanes[i]) << i;
        for (int i = 0; i < 32; ++i) *static_cast<unsigned*>(lanes[i]) = bits;
      },
      false, WEFT_CALLER);
  return own;
}

void ldmatrix_x4(unsigned* r, const void* row, bool transposed) {
  machine().require_aligned(row, 16, "loads a matrix's row from", WEFT_CALLER);
  machine().require_own_shared(row, 16, "loads a matrix's row from", WEFT_CALLER);
  machine().access(row, 16, Access::read, WEFT_CALLER);
  machine().access(r, 16, Access::write, WEFT_CALLER);
  Matrices own{r, static_cast<const unsigned char*>(row)};
  machine().collective("ldmatrix", &own, transposed ? load_matrices<true> : load_matrices<false>, false, WEFT_CALLER);
}
void mma_m16n8(float* d, const unsigned* a, const unsigned* b, int k, bool bf16) {
  machine().access(d, 16, Access::write, WEFT_CALLER);
  Product own{d, a, b, k, bf16};
  machine().collective("mma", &own, multiply, false, WEFT_CALLER);
}
void mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b) {
  machine().access(d, 16, Access::write, WEFT_CALLER);
  Product own{d, a, b, 8, false};
  machine().collective("mma", &own, multiply_tf32, false, WEFT_CALLER);
}

void wgmma(float* d, int n, const Matrix& a, const Matrix& b, bool accumulates, bool bf16) {
  machine().wgmma({d, n, nullptr, a, b, accumulates, bf16}, WEFT_CALLER);
}
void wgmma(float* d, int n, const unsigned* a, const Matrix& b, bool accumulates, bool bf16) {
  machine().wgmma({d, n, a, {}, b, accumulates, bf16}, WEFT_CALLER);
}
void wgmma_fence() { machine().fence_products(WEFT_CALLER); }
void wgmma_commit() { machine().commit_products(WEFT_CALLER); }
void wgmma_wait(int pending, const Registers* named, unsigned long count) {
  machine().wait_products(static_cast<size_t>(pending), {named, count}, WEFT_CALLER);
}

void cp_async_16(void* shared, const void* global, int bytes) {
  machine().copy_async(shared, global, 16, bytes, WEFT_CALLER);
}
void cp_async_4(void* shared, const void* global) { machine().copy_async(shared, global, 4, 4, WEFT_CALLER); }
void cp_async_commit() { machine().commit_copies(); }
void cp_async_wait(int pending) { machine().wait_copies(static_cast<size_t>(pending), WEFT_CALLER); }
void cp_async_arrive(const unsigned long long* barrier) { machine().arrive_behind_copies(barrier, WEFT_CALLER); }

unsigned atomic(AtomicOp op, unsigned* p, unsigned x, Ordering ordering) {
  unsigned old = 0;
  const auto change = [&] {
    old = *p;
    *p = op == AtomicOp::add ? old + x : old | x;
  };
  machine().change_atomic(p, 4, ordering, false, change, WEFT_CALLER);
  return old;
}
void atomic_min(unsigned long long* p, unsigned long long x) {
  machine().change_atomic(
      p, 8, Ordering::relaxed, false, [&] { *p = std::min(*p, x); }, WEFT_CALLER);
}
void atomic_add(float* p, float x) {
  machine().change_atomic(
      p, 4, Ordering::relaxed, false, [&] { *p += x; }, WEFT_CALLER);
}
void atomic_add(double* p, double x) {
  machine().change_atomic(
      p, 8, Ordering::relaxed, false, [&] { *p += x; }, WEFT_CALLER);
}
unsigned load_acquire(const unsigned* p) {
  return static_cast<unsigned>(machine().load_atomic(p, 4, true, WEFT_CALLER));
}
void store_release(unsigned* p, unsigned x) {
  machine().change_atomic(
      p, 4, Ordering::release, true, [&] { *p = x; }, WEFT_CALLER);
}
unsigned load_relaxed(const unsigned* p) {
  return static_cast<unsigned>(machine().load_atomic(p, 4, false, WEFT_CALLER));
}
void store_relaxed(unsigned* p, unsigned x) {
  machine().change_atomic(
      p, 4, Ordering::relaxed, true, [&] { *p = x; }, WEFT_CALLER);
}
void require_aligned_16(const void* p) { machine().require_aligned(p, 16, "reads", WEFT_CALLER); }
unsigned long long load_relaxed(const unsigned long long* p) { return machine().load_atomic(p, 8, false, WEFT_CALLER); }
void store_relaxed(unsigned long long* p, unsigned long long x) {
  machine().change_atomic(
      p, 8, Ordering::relaxed, true, [&] { *p = x; }, WEFT_CALLER);
}
void fence_gpu() {
  Thread& self = machine().current();
  self.clock.join_seen(self.acquired);
  self.released = self.clock;
  self.clock.count(static_cast<size_t>(self.id));
}

void mbarrier_init(unsigned long long* barrier, unsigned arrivals) {
  machine().init_mbarrier(barrier, arrivals, WEFT_CALLER);
}
void mbarrier_inval(unsigned long long* barrier) { machine().inval_mbarrier(barrier, WEFT_CALLER); }
void mbarrier_arrive(unsigned long long* barrier, unsigned bytes) { machine().arrive(barrier, bytes, WEFT_CALLER); }
bool mbarrier_try_wait(unsigned long long* barrier, unsigned parity) {
  return machine().try_wait(barrier, parity, WEFT_CALLER);
}
void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  machine().wait_mbarrier(barrier, parity, WEFT_CALLER);
}

void fence_async_shared() {
  machine().current().clock.fence(Space::shared);
  machine().fence_inits(WEFT_CALLER);
}
void fence_async_global() { machine().current().clock.fence(Space::global); }
void fence_mbarrier_init() { machine().fence_inits(WEFT_CALLER); }

void bulk_copy(void* shared, const void* global, unsigned bytes, const unsigned long long* barrier) {
  machine().bulk_copy(shared, global, bytes, barrier, WEFT_CALLER);
}
void tensor_load(void* shared, const abi::TensorMap& map, const int* at, int dims, const unsigned long long* barrier) {
  machine().tensor_load(shared, map, {at, static_cast<size_t>(dims)}, barrier, WEFT_CALLER);
}
void tensor_store(const abi::TensorMap& map, const int* at, int dims, const void* shared) {
  machine().tensor_store(map, {at, static_cast<size_t>(dims)}, shared, WEFT_CALLER);
}
void bulk_store(void* global, const void* shared, unsigned bytes) {
  machine().bulk_store(global, shared, bytes, WEFT_CALLER);
}
void bulk_commit() { machine().commit_stores(); }
void bulk_wait_read(int pending) { machine().wait_stores(static_cast<size_t>(pending), false, WEFT_CALLER); }
void bulk_wait(int pending) { machine().wait_stores(static_cast<size_t>(pending), true, WEFT_CALLER); }

void change_registers(int registers, bool more) { machine().change_registers(registers, more, WEFT_CALLER); }

unsigned long long global_ns() {
  machine().yield();
  return machine().now_ns();
}
void sleep() { machine().yield(); }

namespace {
// What a card may give in place of y: `share` off, up or down by the last bit of y as a float; powers of 2, infinities
// and NaN as they are.
float off(double y, double share) {
  const auto rounded = static_cast<float>(y);
  const unsigned bits = __builtin_bit_cast(unsigned, rounded);
  if ((bits & 0x7fffff) == 0 || !std::isfinite(rounded)) return rounded;
  share -= 0x1p-24;  // the rounding of what is returned
  return static_cast<float>(y + ((bits & 1) != 0 ? share : -share) * y);
}
}  // namespace

float exp2(float x) { return off(std::exp2(static_cast<double>(x)), 0x1p-22); }
float log2(float x) { return std::log2(x); }
float reciprocal(float x) { return off(1. / static_cast<double>(x), 0x1p-23); }
float tanh(float x) {
  const float y = off(std::tanh(static_cast<double>(x)), 0x1p-11);
  return y > 1.f ? 1.f : y < -1.f ? -1.f : y;
}
float square_root(float x) { return std::sqrt(x); }

float from_fp16(unsigned short bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  const float size = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                     : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}
float rounded_to_odd(double exact) {
  const auto near = static_cast<float>(exact);
  auto bits = std::bit_cast<uint32_t>(near);
  if (static_cast<double>(near) != exact && near != 0.f && (bits & 1) == 0)
    bits += (static_cast<double>(near) < exact) == (near > 0.f) ? 1 : -1;
  return std::bit_cast<float>(bits);
}
unsigned short to_fp16(float x) {
  const auto sign = static_cast<unsigned short>(std::signbit(x) ? 0x8000 : 0);
  const float size = std::fabs(x);
  if (std::isnan(x)) return 0x7fff;
  if (size == 0.f || size >= 65520.f) return sign | (size == 0.f ? 0 : 0x7c00);
  int exponent = 0;
  std::frexp(size, &exponent);
  const int step = exponent < -13 ? -24 : exponent - 11;  // 2^step: what the last bit is worth
  const auto steps = static_cast<unsigned short>(std::nearbyint(std::ldexp(size, -step)));
  // 1,024 steps begin the next exponent by themselves.
  return static_cast<unsigned short>(sign + (exponent < -13 ? steps : ((exponent + 13) << 10) + steps));
}

}  // namespace weft::simt
