#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "device/cpu/cpuid.h"
#include "weft/device.h"

namespace weft {

struct WorkerTeam::Impl {
  int num_workers = 1;
  std::mutex callers;
};


WorkerTeam::WorkerTeam(int num_workers) : impl_(std::make_unique<Impl>()) {
  check(num_workers >= 0 && num_workers <= 1024, ErrorCode::invalid_argument, "num_workers = {}; allowed are 0 to 1024",
        num_workers);
  impl_->num_workers = num_workers > 0 ? num_workers : cpu_info().num_cpus;
}

WorkerTeam::~WorkerTeam() = default;

int WorkerTeam::num_workers() const { return impl_->num_workers; }

void WorkerTeam::run_erased(void (*call)(const void*, int), const void* job) {
  std::scoped_lock lock(impl_->callers);
  std::exception_ptr error;
  std::mutex error_mutex;
  auto work = [&](int worker) {
    try {
      call(job, worker);
    } catch (...) {
      std::scoped_lock error_lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int worker = 1; worker < impl_->num_workers; ++worker) threads.emplace_back(work, worker);
  work(0);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

void WorkerTeam::barrier() { fail(ErrorCode::unsupported, "barrier"); }

WorkerTeam& WorkerTeam::shared() {
  static WorkerTeam team(env::num_threads().value_or(0));
  return team;
}

}  // namespace weft
