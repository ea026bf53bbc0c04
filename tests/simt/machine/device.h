// What the twins of tile/cuda/ptx ask of the machine, each for the thread that calls.
#pragma once

namespace weft::simt {

int thread_index();
int num_threads();
int cta_index();
int num_ctas();
unsigned char* shared_memory();

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

void cp_async_16(void* shared, const void* global, int bytes);
void cp_async_commit();
void cp_async_wait(int pending);

enum class AtomicOp { add, bit_or };
unsigned atomic(AtomicOp op, unsigned* p, unsigned x, bool acq_rel);
// Relaxed.
void atomic_min(unsigned long long* p, unsigned long long x);
void atomic_add(float* p, float x);
void atomic_add(double* p, double x);
unsigned load_acquire(const unsigned* p);
void store_release(unsigned* p, unsigned x);
void fence_gpu();

float exp2(float x);
float log2(float x);
float reciprocal(float x);
float tanh(float x);
float square_root(float x);
float from_fp16(unsigned short bits);
unsigned short to_fp16(float x);

}  // namespace weft::simt
