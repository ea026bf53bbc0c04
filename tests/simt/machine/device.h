// What the twins of tile/cuda/ptx ask of the machine, each for the thread that calls.
#pragma once

namespace weft::abi {
struct TensorMap;
}

namespace weft::simt {

int thread_index();
int num_threads();
int cta_index();
int num_ctas();
unsigned char* shared_memory();

int cluster_rank();
int cluster_size();
void cluster_arrive();
void cluster_wait();
const void* cluster_shared(const void* own, int rank);

void wait_for_previous_kernel();

void cta_sync();
void trap();  // a fault
void named_sync(int id, int threads);
void named_arrive(int id, int threads);
void warp_sync();

unsigned shuffle_xor(unsigned x, int mask);
unsigned shuffle(unsigned x, int from);
unsigned ballot(bool condition);

void ldmatrix_x4(unsigned* r, const void* row, bool transposed);
// `bf16` or fp16; a and b hold k / 2 and k / 4 registers.
void mma_m16n8(float* d, const unsigned* a, const unsigned* b, int k, bool bf16);
void mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b);

// What a descriptor of wgmma says, and which tile it was made for.
struct Matrix {
  const unsigned char* tile;
  int tile_bytes;
  const unsigned char* start;
  int leading, stride;  // bytes
  int swizzle;          // abi::Swizzle
  bool along_k;         // rows of the tile run along k
};
void wgmma(float* d, int n, const Matrix& a, const Matrix& b, bool accumulates, bool bf16);
void wgmma(float* d, int n, const unsigned* a, const Matrix& b, bool accumulates, bool bf16);
void wgmma_fence();
void wgmma_commit();
struct Registers {
  const void* begin;
  unsigned long bytes;
};
void wgmma_wait(int pending, const Registers* named, unsigned long count);

void cp_async_16(void* shared, const void* global, int bytes);
void cp_async_4(void* shared, const void* global);
void cp_async_commit();
void cp_async_wait(int pending);
void cp_async_arrive(const unsigned long long* barrier);

enum class AtomicOp { add, bit_or };
enum class Ordering { relaxed, release, acq_rel };
unsigned atomic(AtomicOp op, unsigned* p, unsigned x, Ordering ordering);
// Relaxed.
void atomic_min(unsigned long long* p, unsigned long long x);
void atomic_add(float* p, float x);
void atomic_add(double* p, double x);
unsigned load_acquire(const unsigned* p);
void store_release(unsigned* p, unsigned x);
unsigned load_relaxed(const unsigned* p);  // of shared memory
void store_relaxed(unsigned* p, unsigned x);
void require_aligned_16(const void* p);  // of what one access reads, and the machine word by word
unsigned long long load_relaxed(const unsigned long long* p);
void store_relaxed(unsigned long long* p, unsigned long long x);
void fence_gpu();

void mbarrier_init(unsigned long long* barrier, unsigned arrivals);
void mbarrier_inval(unsigned long long* barrier);
void mbarrier_arrive(unsigned long long* barrier, unsigned bytes);  // of which so many more are expected
bool mbarrier_try_wait(unsigned long long* barrier, unsigned parity);
void mbarrier_wait(unsigned long long* barrier, unsigned parity);

void fence_async_shared();
void fence_async_global();
void fence_mbarrier_init();

void bulk_copy(void* shared, const void* global, unsigned bytes, const unsigned long long* barrier);
void tensor_load(void* shared, const abi::TensorMap& map, const int* at, int dims, const unsigned long long* barrier);
void tensor_store(const abi::TensorMap& map, const int* at, int dims, const void* shared);
void bulk_store(void* global, const void* shared, unsigned bytes);
void bulk_commit();
void bulk_wait_read(int pending);
void bulk_wait(int pending);

void change_registers(int registers, bool more);

// A microsecond more each time all threads have had their turn; others go on first.
unsigned long long global_ns();
void sleep();

float exp2(float x);
float log2(float x);
float reciprocal(float x);
float tanh(float x);
float square_root(float x);
float from_fp16(unsigned short bits);
unsigned short to_fp16(float x);
float rounded_to_odd(double exact);  // so that rounding it to fewer bits rounds once

}  // namespace weft::simt
