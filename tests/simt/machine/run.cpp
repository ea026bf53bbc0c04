// Threads as fibers: who runs, who waits for whom, and what is said when nobody can go on.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <random>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {
namespace {

namespace context = boost::context::detail;

constexpr size_t kStack = 256 << 10, kPage = 4096, kSharedAlignment = 1024, kSharedRedZone = 64 << 10;
// Rounds of all threads in which nothing changes until no more is expected of them; and those in which something does,
// and yet no thread ends or waits.
constexpr int kMaxIdleRounds = 10'000, kMaxStalledRounds = 1'000'000;
constexpr int kRegisters = 65'536;  // of a multiprocessor

Machine* the_machine = nullptr;

char* map_memory(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(data);
}

}  // namespace

Machine* Machine::active() { return the_machine; }

void enter(context::transfer_t from) {
  Machine& machine = *the_machine;
  machine.scheduler_ = from.fctx;
  machine.kernel_();
  Thread& self = *machine.current_;
  machine.check_end(self);
  self.is_done = true;
  context::jump_fcontext(machine.scheduler_, nullptr);
}

Machine::Machine(Memory& memory, const Launch& launch, const std::function<void()>& kernel)
    : memory_(memory), launch_(launch), kernel_(kernel) {
  if (launch.ctas < 1 || launch.threads < 32 || launch.threads % 32 != 0 || launch.ctas * launch.threads > 0xffff)
    throw std::invalid_argument("a launch has 1 or more CTAs of whole warps, and fewer than 65,536 threads");
  if (launch.cooperative && launch.resident_ctas > 0 && launch.ctas > launch.resident_ctas)
    throw std::invalid_argument(fmt::format("a cooperative launch of {} CTAs, of which {} are resident at once",
                                            launch.ctas, launch.resident_ctas));
  if (launch.cluster < 1 || launch.cluster > 8 || launch.ctas % launch.cluster != 0)
    throw std::invalid_argument(fmt::format(
        "a launch of {} CTAs in clusters of {}; allowed are 1 to 8 that divide them", launch.ctas, launch.cluster));
  const size_t num_threads = static_cast<size_t>(launch.ctas * launch.threads);
  clusters_.resize(static_cast<size_t>(launch.ctas / launch.cluster), {.alive = launch.cluster * launch.threads});
  num_who_ = num_threads;
  const int registers = launch.registers > 0 ? launch.registers : std::min(kRegisters / launch.threads / 8 * 8, 256);
  stacks_bytes_ = num_threads * kStack;
  stacks_ = map_memory(stacks_bytes_);
  touched_ = ZeroArray<Touch>(stacks_bytes_ / 4);
  shared_stride_ = (launch.shared_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment + kSharedRedZone;
  const size_t shared_bytes = shared_stride_ * static_cast<size_t>(launch.ctas);
  shared_begin_ = map_memory(shared_bytes);
  std::memset(shared_begin_, 0xff, shared_bytes);
  shared_ = Shadow(shared_begin_, shared_bytes);
  global_ = Shadow(memory.begin(), static_cast<size_t>(memory.end() - memory.begin()));
  ctas_.resize(static_cast<size_t>(launch.ctas));
  for (size_t i = 0; i < ctas_.size(); ++i) {
    ctas_[i].shared = shared_begin_ + i * shared_stride_;
    ctas_[i].threads_left = launch.threads;
    ctas_[i].warps.resize(static_cast<size_t>(launch.threads / 32));
    ctas_[i].warpgroups.resize(static_cast<size_t>((launch.threads + 127) / 128), {.registers = registers});
  }
  threads_.resize(num_threads);
  for (size_t i = 0; i < num_threads; ++i) {
    Thread& thread = threads_[i];
    thread.id = static_cast<int>(i);
    thread.cta = thread.id / launch.threads;
    thread.index = thread.id % launch.threads;
    thread.stack = stacks_ + i * kStack;
    mprotect(thread.stack, kPage, PROT_NONE);  // a stack that is too small is a crash, and no odd result
    thread.fiber = context::make_fcontext(thread.stack + kStack, kStack - kPage, enter);
    thread.clock = Clock(num_threads);
    thread.clock.set(i, 1);
  }
}

Machine::~Machine() {
  munmap(stacks_, stacks_bytes_);
  munmap(shared_begin_, shared_stride_ * ctas_.size());
}

// Fibers of the low-level kind: one that a fault leaves behind is dropped with its stack, and not unwound through the
// compiler's calls, which must not throw.
void Machine::run() {
  the_machine = this;
  std::vector<int> order(threads_.size());
  std::iota(order.begin(), order.end(), 0);
  if (launch_.order == Order::down) std::reverse(order.begin(), order.end());
  std::mt19937_64 random(launch_.seed);
  begin_ctas(random);
  int idle_rounds = 0, stalled_rounds = 0;
  for (size_t left = threads_.size(); left > 0 && fault_.empty();) {
    if (launch_.order == Order::random) std::shuffle(order.begin(), order.end(), random);
    const uint64_t changes = changes_;
    bool went = false, progressed = false;
    for (const int id : order) {
      Thread& thread = threads_[static_cast<size_t>(id)];
      if (thread.is_done || thread.waits_for != nullptr || !ctas_[static_cast<size_t>(thread.cta)].has_begun) continue;
      current_ = &thread;
      thread.fiber = context::jump_fcontext(thread.fiber, nullptr).fctx;
      current_ = nullptr;
      went = true;
      progressed = progressed || thread.is_done || thread.waits_for != nullptr;
      left -= thread.is_done;
      if (thread.is_done && fault_.empty()) end_thread(thread);
      if (!fault_.empty()) break;
    }
    ++rounds_;
    if (left == 0 || !fault_.empty()) break;
    const bool is_idle = !progressed && changes == changes_;
    idle_rounds = is_idle ? idle_rounds + 1 : 0;
    stalled_rounds = progressed ? 0 : stalled_rounds + 1;
    // Copies land when nobody can do without them: none can go on, or those that do only look.
    if ((!went || is_idle || stalled_rounds % 100 == 99) && land_some(random)) {
      idle_rounds = 0;
    } else if (!went) {
      fault_ = stuck();
    } else if (idle_rounds > kMaxIdleRounds || stalled_rounds > kMaxStalledRounds) {
      fault_ = "the threads that are left wait for a word that nobody writes:" + who_polls();
    }
  }
  the_machine = nullptr;
  if (!fault_.empty()) throw Fault(fault_);
}

// A cooperative launch has all its CTAs resident; of another one those of the card, and the next cluster, which is a
// CTA or several, begins where as many have ended.
void Machine::begin_ctas(std::mt19937_64& random) {
  waiting_clusters_.resize(clusters_.size());
  std::iota(waiting_clusters_.begin(), waiting_clusters_.end(), 0);
  if (launch_.order == Order::up) std::reverse(waiting_clusters_.begin(), waiting_clusters_.end());
  if (launch_.order == Order::random) std::shuffle(waiting_clusters_.begin(), waiting_clusters_.end(), random);
  free_ctas_ = launch_.resident_ctas > 0 ? launch_.resident_ctas : launch_.ctas;
  begin_clusters();
}

void Machine::begin_clusters() {
  for (; free_ctas_ >= launch_.cluster && !waiting_clusters_.empty(); free_ctas_ -= launch_.cluster) {
    for (int rank = 0; rank < launch_.cluster; ++rank)
      ctas_[static_cast<size_t>(waiting_clusters_.back() * launch_.cluster + rank)].has_begun = true;
    waiting_clusters_.pop_back();
  }
}

void Machine::end_thread(const Thread& thread) {
  Cluster& cluster = cluster_of(thread);
  --cluster.alive;
  if (thread.arrival.is_open && thread.arrival.phase == cluster.phase) --cluster.arrived;
  end_cluster_phase(cluster);
  if (--ctas_[static_cast<size_t>(thread.cta)].threads_left > 0) return;
  check_accesses_of_others(thread);
  for (const auto& [place_of_mbarrier, mbarrier] : mbarriers_)
    if (mbarrier.cta == thread.cta && !mbarrier.copies.empty()) {
      const PhaseCopy& copy = mbarrier.copies.front();
      fault_ = fmt::format("{} at {} starts {} that is in flight when its CTA ends: nobody waits for phase {} of {}",
                           name_of(copy.thread), place(copy.pc), copy.name(), mbarrier.phase, text_of(mbarrier));
      return;
    }
  ++free_ctas_;
  begin_clusters();
}

void Machine::yield() { scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx; }

void Machine::poll(const void* address, const void* pc) {
  current_->polls = address;
  current_->polls_at = pc;
  yield();
}

void Machine::wait(const char* what, const void* pc) {
  current_->waits_for = what;
  current_->waits_at = pc;
  yield();
}

void Machine::fault(const std::string& what, const void* pc) {
  fault_ = fmt::format("{} at {} {}", name_of(*current_), place(pc), what);
  context::jump_fcontext(scheduler_, nullptr);
  std::abort();  // nobody resumes it
}

std::string Machine::name_of(const Thread& thread) const {
  return launch_.ctas == 1 ? fmt::format("thread {}", thread.index)
                           : fmt::format("cta {} thread {}", thread.cta, thread.index);
}

namespace {

// Threads that wait for one thing, in one place.
class Waiting {
 public:
  void add(const std::string& where, const std::string& what, const std::string& who) {
    ++by_place_.try_emplace({where, what}, 0, who).first->second.first;
  }
  std::string text() const {
    std::string text;
    for (const auto& [place, who] : by_place_)
      text += fmt::format(" {} {} ({} the first){},", who.first, place.first, who.second, place.second);
    return text;
  }

 private:
  std::map<std::pair<std::string, std::string>, std::pair<int, std::string>> by_place_;  // how many, the first
};

}  // namespace

std::string Machine::stuck() const { return "no thread can go on:" + who_waits(); }

std::string Machine::who_waits() const {
  Waiting waiting;
  int done = 0;
  for (const Thread& thread : threads_) {
    done += thread.is_done;
    if (thread.waits_for == nullptr) continue;
    std::string what;
    if (thread.mbarrier != nullptr)
      what = fmt::format(" for phase {} of {}: {}", thread.mbarrier->phase, text_of(*thread.mbarrier),
                         missing_of(*thread.mbarrier));
    if (thread.arrival.is_open && std::strcmp(thread.waits_for, "cluster_wait") == 0) {
      const Cluster& cluster = clusters_[static_cast<size_t>(thread.cta / launch_.cluster)];
      what = fmt::format(" for {} threads of its cluster to arrive", cluster.alive - cluster.arrived);
    }
    const Cta& cta = ctas_[static_cast<size_t>(thread.cta)];
    if (const Warpgroup& group = cta.warpgroups[static_cast<size_t>(thread.index / 128)]; group.wanted != 0)
      what = fmt::format(" for {} registers a thread more, of which {} are free", group.wanted - group.registers,
                         cta.free_registers / 128);
    waiting.add(fmt::format("wait in {} at {}", thread.waits_for, place(thread.waits_at)), what, name_of(thread));
  }
  std::string text = waiting.text() + fmt::format(" {} have ended", done);
  if (!waiting_clusters_.empty())
    text += fmt::format("; {} CTAs have not begun, as no more than {} are resident and none of them ends",
                        waiting_clusters_.size() * static_cast<size_t>(launch_.cluster), launch_.resident_ctas);
  return text;
}

std::string Machine::who_polls() const {
  Waiting polling;
  for (const Thread& thread : threads_) {
    if (thread.is_done || thread.waits_for != nullptr || thread.polls == nullptr) continue;
    const auto found = mbarriers_.find(static_cast<const char*>(thread.polls));
    const std::string what = found == mbarriers_.end()
                                 ? fmt::format(" for {}", place_of(static_cast<const char*>(thread.polls), 4))
                                 : fmt::format(" for phase {} of {}: {}", found->second.phase, text_of(found->second),
                                               missing_of(found->second));
    polling.add("poll at " + place(thread.polls_at), what, name_of(thread));
  }
  return polling.text() + who_waits();
}

void Machine::barrier(int id, int threads, bool waits, bool same_call, const char* name, const void* pc) {
  if (id < 0 || id > 15 || threads < 32 || threads > launch_.threads || threads % 32 != 0)
    fault(fmt::format(
              "comes to barrier {} of {} threads; allowed are barriers 0 to 15 and whole warps of the CTA's {} threads",
              id, threads, launch_.threads),
          pc);
  Barrier& barrier = cta().barriers[static_cast<size_t>(id)];
  if (barrier.arrived == 0) {
    barrier.first_at = pc;
    barrier.first_thread = current_->id;
    barrier.threads = threads;
    barrier.clock = Clock();
  } else if (barrier.threads != threads) {
    fault(fmt::format("comes to barrier {} of {} threads, and {} has come to it as one of {} ({})", id, threads,
                      name_of(barrier.first_thread), barrier.threads, place(barrier.first_at)),
          pc);
  } else if (same_call && !same_place(barrier.first_at, pc)) {
    fault(fmt::format("comes to {} while {} waits in that of {}: divergent barrier", name,
                      name_of(barrier.first_thread), place(barrier.first_at)),
          pc);
  }
  Clock& clock = current_->clock;
  barrier.clock.join(clock);
  clock.count(static_cast<size_t>(current_->id));
  ++changes_;
  if (++barrier.arrived < threads) {
    if (!waits) return;
    barrier.waiting.push_back(current_);
    wait(name, pc);
    return;
  }
  if (waits) clock.join(barrier.clock);
  for (Thread* other : barrier.waiting) {
    other->clock.join(barrier.clock);
    release(*other);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
}

void Machine::collective(const char* name, void* operands, void (*combine)(void* const*), bool orders, const void* pc) {
  const int lane = current_->index % 32;
  Thread* lanes = current_ - lane;
  Warp& warp = cta().warps[static_cast<size_t>(current_->index / 32)];
  if (warp.arrived == 0) {
    warp.name = name;
    warp.at = pc;
    warp.first_lane = lane;
  } else if (std::strcmp(warp.name, name) != 0 || !same_place(warp.at, pc)) {
    fault(fmt::format("comes to {} while {} of its warp waits in {} at {}: divergent warp", name,
                      name_of(lanes[warp.first_lane]), warp.name, place(warp.at)),
          pc);
  }
  warp.operands[lane] = operands;
  if (++warp.arrived < 32) {
    wait(name, pc);
    return;
  }
  if (combine != nullptr) combine(warp.operands);
  if (orders) {
    Clock all;
    for (int i = 0; i < 32; ++i) all.join(lanes[i].clock);
    for (int i = 0; i < 32; ++i) {
      lanes[i].clock = all;
      lanes[i].clock.count(static_cast<size_t>(lanes[i].id));
    }
  }
  for (int i = 0; i < 32; ++i) release(lanes[i]);
  warp.arrived = 0;
}

void run(Memory& memory, const Launch& launch, const std::function<void()>& kernel) {
  Machine(memory, launch, kernel).run();
}

void run_in_all_orders(Memory& memory, Launch launch, const std::function<void()>& kernel) {
  const std::string before = memory.content();
  std::string first;
  for (const Order order : {Order::up, Order::down, Order::random}) {
    memory.restore(before);
    launch.order = order;
    run(memory, launch, kernel);
    const std::string after = memory.content();
    if (order == Order::up) first = after;
    size_t at = static_cast<size_t>(std::mismatch(first.begin(), first.end(), after.begin()).first - first.begin());
    if (at == first.size()) continue;
    for (const Memory::Buffer& buffer : memory.buffers()) {
      if (at < buffer.bytes)
        throw Fault(fmt::format("byte {} of '{}' depends on the order of threads: {} {} gives another than going up",
                                at, buffer.name, order == Order::down ? "going" : "seed",
                                order == Order::down ? "down" : std::to_string(launch.seed)));
      at -= buffer.bytes;
    }
  }
}

}  // namespace weft::simt
