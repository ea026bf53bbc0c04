// Where work runs: a team of worker threads (CPU), a stream (CPU or CUDA), a workspace.
//
//   weft::WorkerTeam team(4);
//   weft::Stream stream = weft::Stream::cpu(team);              // or Stream::cuda(torch's stream.cuda_stream, 0)
//   weft::Workspace ws(weft::Device::cpu(), plan.workspace_bytes());
//   stream.synchronize();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "weft/tensor.h"

namespace weft {

// Instruction sets that the CPU core is built for, lowest first.
//   plain        baseline of the architecture, portable C++
//   avx2         AVX2 + FMA + F16C
//   avx512       AVX-512 F/BW/DQ/VL + VNNI
//   avx512_bf16  the above + BF16 dot products
enum class Isa : uint8_t { plain, avx2, avx512, avx512_bf16 };
std::string_view to_string(Isa isa);
// The best one that this machine runs, or the lower one that WEFT_ISA names.
// Throws Error(unsupported) when WEFT_ISA names one that the machine lacks.
Isa current_isa();

// A fixed set of threads that run one job at a time together with the calling thread.
// A worker that waits spins briefly and then sleeps, so an idle team costs nothing and a busy
// neighbour is given way to. The team keeps to the process's CPU affinity and cgroup quota, and
// is made anew in a forked child on first use. Thread-safe: jobs of several callers queue.
class WorkerTeam {
 public:
  // num_workers = 0: as many as affinity and quota allow. Throws Error(invalid_argument) outside [0, 1024].
  explicit WorkerTeam(int num_workers = 0);
  // Calls body(data) on so many threads, of which the caller is one, and returns when all have returned; fewer threads
  // than asked for will do. `flags` is 0. libgomp's GOMP_parallel is one, which other OpenMP libraries have, too.
  using Fork = void (*)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);
  // A team that has no threads: each job runs on those that `fork` lends, such as the ones of a library that computes
  // in turns with Weft, so that two teams do not spin for the same CPUs. Jobs of several callers do not queue. In a
  // forked child, where such threads are missing, workers take turns on the caller. Throws Error(invalid_argument) for
  // num_workers outside [1, 1024] and without fork.
  WorkerTeam(int num_workers, Fork fork);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int num_workers() const;

  // Calls job(worker) once for every worker in [0, num_workers()), the caller being worker 0, and
  // returns when all are done. The first exception thrown by a job is rethrown here, after all ended.
  // A call from inside a job runs the inner job's workers one after another on this thread.
  template <class Job>
  void run(const Job& job) {
    run_erased([](const void* j, int worker) { (*static_cast<const Job*>(j))(worker); }, &job);
  }

  // All workers of the running job wait here for each other. Valid only inside run, by every worker. Throws
  // Error(unsupported) in a team with a fork.
  void barrier();

  // The team that calls without a stream use: WEFT_NUM_THREADS workers, or what affinity and quota allow.
  static WorkerTeam& shared();

 private:
  void run_erased(void (*call)(const void*, int), const void* job);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Work of one stream runs in order. A CPU stream is a worker team, and calls on it return when done. A CUDA stream is
// one of the driver's, which others may have made (cudaStream_t and CUstream are the same), and calls on it return at
// once.
class Stream {
 public:
  Stream() = default;  // the shared team; of a call for a card, its legacy default stream
  static Stream cpu(WorkerTeam& team) { return Stream(Device::cpu(), &team, nullptr); }
  // `handle` null: the card's legacy default stream. Nothing is asked of the card yet.
  static Stream cuda(void* handle, int index = 0) { return Stream(Device::cuda(index), nullptr, handle); }
  Device device() const { return device_; }
  // Then it is that of whatever device a call is for.
  bool is_default() const { return team_ == nullptr && device_ == Device::cpu(); }
  // Throws Error(invalid_device) for a CUDA stream.
  WorkerTeam& team() const;
  void* handle() const { return handle_; }  // of a CUDA stream
  // Until all of its work has ended; a CPU stream's has. Throws Error(device_failed) for what went wrong on the card
  // since the last time, Error(invalid_page) where a plan was made there from numbers out of range (plan_on_device),
  // Error(invalid_argument) where a sparse program failed there (sparse.h) or a row of logits had nothing to draw
  // (sample_rows), and what every call for a card that is not there throws.
  void synchronize() const;

 private:
  Stream(Device device, WorkerTeam* team, void* handle) : device_(device), team_(team), handle_(handle) {}
  Device device_;
  WorkerTeam* team_ = nullptr;
  void* handle_ = nullptr;
};

// Memory of a device, 64-byte aligned; on the CPU in huge pages where it is large enough and the system has them. A
// workspace of Device::cuda_host() is pinned. Fresh memory is zero. Throws Error(out_of_memory), and Error(unsupported)
// or Error(invalid_device) where there is no such device.
class Workspace {
 public:
  Workspace() = default;
  Workspace(Device device, size_t bytes);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // Weft's own: what it remembers of a plan in memory that the host does not read. It ends with the workspace.
  std::shared_ptr<void>& host_copy() const { return host_copy_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  mutable std::shared_ptr<void> host_copy_;
};

}  // namespace weft
