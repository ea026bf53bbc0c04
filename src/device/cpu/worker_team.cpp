// Fork and join over two cache lines: the caller writes the job and a new generation into one, workers count
// themselves out in the other.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "device/cpu/cpuid.h"
#include "device/cpu/futex.h"
#include "weft/device.h"

namespace weft {
namespace {

using Call = void (*)(const void*, int);
using Fork = WorkerTeam::Fork;

// Words that are waited on count above bit 0 (kSleepers).
constexpr uint32_t kOne = 2;
// The barrier's word: arrivals in bits 1 to 11, barriers passed above.
constexpr uint32_t kPhase = 1u << 12;
constexpr uint32_t phase_of(uint32_t word) { return word & ~(kPhase - 1); }
constexpr int kMaxWorkers = 1024;
constexpr size_t kLinePair = 128;  // some CPUs fetch cache lines in pairs

// Thrown out of barrier() where it would wait for a worker whose job has failed. Never the error that run reports:
// that one was recorded before.
class BarrierBroken : public InternalError {
 public:
  BarrierBroken() : InternalError("the job of another worker failed before this barrier") {}
};

class Team;
struct Current {
  const Team* team = nullptr;  // whose job this thread runs
  int worker = 0;
  bool nested = false;  // inside a run inside that job
};
thread_local Current t_current;

class Team {
 public:
  Team(int num_workers, Fork fork);
  ~Team();
  int num_workers() const { return num_workers_; }
  void run(Call call, const void* job);
  void barrier();

 private:
  struct alignas(kLinePair) Post {
    std::atomic<uint32_t> generation{0};
    Call call = nullptr;  // null: the team ends
    const void* job = nullptr;
    uint32_t finish_at = 0;
  };
  struct alignas(kLinePair) Line {
    std::atomic<uint32_t> word{0};
  };
  // What a fork may catch in the middle of something; made anew in the child.
  struct State {
    std::mutex callers;  // held for a whole run
    std::mutex error_mutex;
    std::exception_ptr error;
    std::atomic<bool> failed{false};
    Post post;
    Line finished;  // kOne for every job that a worker other than 0 has ended
    Line barrier;
  };
  struct Worker {
    Team* team = nullptr;
    int index = 0;
    uint32_t seen = 0;  // the generation when it started
  };

  void start_threads();
  void forget_threads();
  static void* thread_main(void* worker);
  void work(Call call, const void* job, int worker);
  static void run_nested(int num_workers, Call call, const void* job);
  void run_forked(Call call, const void* job);
  void job_failed(std::exception_ptr error);
  void post(Call call, const void* job);

  // The process's teams, for the child of a fork: it has none of their threads.
  struct Registry {
    std::mutex mutex;
    std::vector<Team*> teams;
    std::atomic<uint64_t> forks{0};  // how many forks deep this process is
    Registry();
  };
  static Registry& registry();

  const int num_workers_;
  const Fork fork_;              // null: threads of its own
  const uint64_t forks_before_;  // forks of the process before the team was made
  alignas(kLinePair) SpinPolicy spin_policy_;
  State state_;
  uint32_t finish_at_ = 0;
  std::vector<Worker> workers_;
  std::vector<pthread_t> threads_;  // of workers 1, 2, ...; started by the first run
};

Team::Registry& Team::registry() {
  static Registry& registry = *new Registry;  // outlives every team, static ones too
  return registry;
}

Team::Registry::Registry() {
  pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                 [] {
                   Registry& r = registry();
                   r.forks.fetch_add(1, std::memory_order_relaxed);
                   for (Team* team : r.teams) team->forget_threads();
                   r.mutex.unlock();
                 });
}

Team::Team(int num_workers, Fork fork)
    : num_workers_(num_workers),
      fork_(fork),
      forks_before_(registry().forks.load(std::memory_order_relaxed)),
      spin_policy_(num_workers, num_workers > cpu_info().num_cpus),
      workers_(static_cast<size_t>(num_workers)) {
  for (int i = 0; i < num_workers; ++i) {
    workers_[static_cast<size_t>(i)].team = this;
    workers_[static_cast<size_t>(i)].index = i;
  }
  threads_.reserve(workers_.size());
  std::scoped_lock lock(registry().mutex);
  registry().teams.push_back(this);
}

Team::~Team() {
  {
    std::scoped_lock lock(registry().mutex);
    std::erase(registry().teams, this);
  }
  std::scoped_lock lock(state_.callers);
  post(nullptr, nullptr);
  for (pthread_t thread : threads_) pthread_join(thread, nullptr);
}

// In the child of a fork, before anything else runs there. Locks may have been held by threads that are gone.
void Team::forget_threads() {
  threads_.clear();
  finish_at_ = 0;
  new (&state_) State;
}

void Team::start_threads() {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  while (error == 0 && threads_.size() + 1 < workers_.size()) {
    Worker& worker = workers_[threads_.size() + 1];
    worker.seen = state_.post.generation.load(std::memory_order_relaxed) & ~kSleepers;
    pthread_t thread;
    error = pthread_create(&thread, nullptr, &Team::thread_main, &worker);
    if (error == 0) threads_.push_back(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  check(error == 0, ErrorCode::out_of_memory,
        "worker {} of {} cannot be started: {}; ask for fewer workers (WEFT_NUM_THREADS) or raise the limit on threads",
        threads_.size() + 1, num_workers_, std::strerror(error));
}

void* Team::thread_main(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  Team& team = *worker.team;
  pthread_setname_np(pthread_self(), "weft-worker");
  const uint64_t forks = registry().forks.load(std::memory_order_relaxed);
  Post& post = team.state_.post;
  uint32_t seen = worker.seen;
  for (;;) {
    wait_until(post.generation, team.spin_policy_, [&](uint32_t value) { return (value & ~kSleepers) != seen; });
    seen += kOne;
    if (post.call == nullptr) return nullptr;
    const uint32_t finish_at = post.finish_at;
    team.work(post.call, post.job, worker.index);
    if (registry().forks.load(std::memory_order_relaxed) != forks) return nullptr;  // the job has forked: its child
    const uint32_t old = team.state_.finished.word.fetch_add(kOne, std::memory_order_acq_rel);
    if ((old & ~kSleepers) + kOne == finish_at) wake_sleepers(team.state_.finished.word, old);
  }
}

void Team::post(Call call, const void* job) {
  Post& post = state_.post;
  post.call = call;
  post.job = job;
  post.finish_at = finish_at_ += kOne * static_cast<uint32_t>(num_workers_ - 1);
  // Only callers change the generation, one at a time; workers add kSleepers.
  const uint32_t next = (post.generation.load(std::memory_order_relaxed) & ~kSleepers) + kOne;
  wake_sleepers(post.generation, post.generation.exchange(next, std::memory_order_acq_rel));
}

void Team::run(Call call, const void* job) {
  if (t_current.team != nullptr) return run_nested(num_workers_, call, job);
  if (fork_ != nullptr) return run_forked(call, job);
  const uint64_t forks = registry().forks.load(std::memory_order_relaxed);
  state_.callers.lock();
  struct Unlock {
    ~Unlock() {
      if (registry().forks.load(std::memory_order_relaxed) == forks) mutex.unlock();
    }
    std::mutex& mutex;
    uint64_t forks;
  } unlock{state_.callers, forks};
  if (threads_.size() + 1 < workers_.size()) start_threads();
  if (num_workers_ > 1) post(call, job);
  work(call, job, 0);
  ensure(registry().forks.load(std::memory_order_relaxed) == forks,
         "a job forked and returned in the child, where the team's other workers are not");
  std::atomic<uint32_t>& finished = state_.finished.word;
  const uint32_t finish_at = finish_at_;
  wait_until(finished, spin_policy_, [&](uint32_t value) { return (value & ~kSleepers) == finish_at; });
  if (finished.load(std::memory_order_relaxed) & kSleepers) finished.fetch_and(~kSleepers, std::memory_order_relaxed);
  if (state_.failed.load(std::memory_order_relaxed)) {
    state_.failed.store(false, std::memory_order_relaxed);
    state_.barrier.word.store(0, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(state_.error, nullptr));
  }
}

void Team::work(Call call, const void* job, int worker) {
  t_current = {this, worker, false};
  try {
    call(job, worker);
  } catch (...) {
    job_failed(std::current_exception());
  }
  t_current = {};
}

void Team::run_nested(int num_workers, Call call, const void* job) {
  const Current outer = std::exchange(t_current, {t_current.team, t_current.worker, true});
  std::exception_ptr error;
  for (int worker = 0; worker < num_workers; ++worker) {
    try {
      call(job, worker);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  t_current = outer;
  if (error) std::rethrow_exception(error);
}

// A job on threads that are lent: each takes the next worker, the caller worker 0 first.
void Team::run_forked(Call call, const void* job) {
  struct Shared {
    Team& team;
    Call call;
    const void* job;
    pthread_t caller;
    std::atomic<int> next;  // worker that nobody has taken
    std::mutex error_mutex;
    std::exception_ptr error;

    void work(int worker) {
      t_current = {&team, worker, false};
      try {
        call(job, worker);
      } catch (...) {
        std::scoped_lock lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      t_current = {};
    }
  } shared{*this, call, job, pthread_self(), 1, {}, {}};
  const auto body = [](void* data) {
    Shared& s = *static_cast<Shared*>(data);
    if (pthread_equal(pthread_self(), s.caller)) s.work(0);
    for (int worker; (worker = s.next.fetch_add(1, std::memory_order_relaxed)) < s.team.num_workers_;) s.work(worker);
  };
  if (num_workers_ == 1 || registry().forks.load(std::memory_order_relaxed) != forks_before_)
    body(&shared);
  else
    fork_(body, &shared, static_cast<unsigned>(num_workers_), 0);
  if (shared.error) std::rethrow_exception(shared.error);
}

void Team::job_failed(std::exception_ptr error) {
  std::scoped_lock lock(state_.error_mutex);
  if (!state_.error) state_.error = std::move(error);
  state_.failed.store(true, std::memory_order_release);
  // Nobody completes this barrier any more: release those who wait at it.
  std::atomic<uint32_t>& word = state_.barrier.word;
  uint32_t old = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(old, phase_of(old) + kPhase, std::memory_order_acq_rel)) {
  }
  wake_sleepers(word, old);
}

void Team::barrier() {
  ensure(t_current.team == this, "barrier() outside of a job of this team");
  ensure(!t_current.nested, "barrier() inside a nested run, whose workers take turns on one thread");
  check(
      fork_ == nullptr, ErrorCode::unsupported,
      "barrier(): the team has a fork, which may lend fewer threads than there are workers; use a team of own threads");
  if (num_workers_ == 1) return;
  std::atomic<uint32_t>& word = state_.barrier.word;
  const uint32_t phase = phase_of(word.load(std::memory_order_acquire));
  if (state_.failed.load(std::memory_order_acquire)) throw BarrierBroken();
  const uint32_t old = word.fetch_add(kOne, std::memory_order_acq_rel);
  if (phase_of(old) != phase) throw BarrierBroken();
  if ((old & (kPhase - 1)) / kOne + 1 == static_cast<uint32_t>(num_workers_)) {
    wake_sleepers(word, word.exchange(phase + kPhase, std::memory_order_acq_rel));
    return;
  }
  wait_until(word, spin_policy_, [&](uint32_t value) { return phase_of(value) != phase; });
  if (state_.failed.load(std::memory_order_acquire)) throw BarrierBroken();
}

int default_workers() {
  const CpuInfo& info = cpu_info();
  int workers = info.num_cpus;
  if (info.quota > 0) workers = std::min(workers, static_cast<int>(info.quota));
  return std::clamp(workers, 1, kMaxWorkers);
}

}  // namespace

struct WorkerTeam::Impl : Team {
  using Team::Team;
};

WorkerTeam::WorkerTeam(int num_workers) {
  check(num_workers >= 0 && num_workers <= kMaxWorkers, ErrorCode::invalid_argument,
        "num_workers = {}; allowed are 1 to {}, or 0 for as many as affinity and quota allow", num_workers,
        kMaxWorkers);
  impl_ = std::make_unique<Impl>(num_workers > 0 ? num_workers : default_workers(), nullptr);
}

WorkerTeam::WorkerTeam(int num_workers, Fork fork) {
  check(num_workers > 0 && num_workers <= kMaxWorkers, ErrorCode::invalid_argument,
        "num_workers = {}; allowed beside fork are 1 to {}", num_workers, kMaxWorkers);
  check(fork != nullptr, ErrorCode::invalid_argument, "fork = null; required is a function that lends threads");
  impl_ = std::make_unique<Impl>(num_workers, fork);
}

WorkerTeam::~WorkerTeam() = default;

int WorkerTeam::num_workers() const { return impl_->num_workers(); }

void WorkerTeam::run_erased(void (*call)(const void*, int), const void* job) { impl_->run(call, job); }

void WorkerTeam::barrier() { impl_->barrier(); }

WorkerTeam& WorkerTeam::shared() {
  // Never destroyed: a job that calls exit() would otherwise be waited for by itself.
  static WorkerTeam& team = *new WorkerTeam(env::num_threads().value_or(0));
  return team;
}

}  // namespace weft
