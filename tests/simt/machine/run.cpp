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
constexpr int kMaxIdleRounds = 10'000;

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
  for (const Copy& copy : self.open) machine.fault("ends with a cp.async in flight that it never waits for", copy.pc);
  for (const auto& group : self.groups)
    for (const Copy& copy : group) machine.fault("ends with a cp.async in flight that it never waits for", copy.pc);
  self.is_done = true;
  context::jump_fcontext(machine.scheduler_, nullptr);
}

Machine::Machine(Memory& memory, const Launch& launch, const std::function<void()>& kernel)
    : memory_(memory), launch_(launch), kernel_(kernel) {
  if (launch.ctas < 1 || launch.threads < 32 || launch.threads % 32 != 0 || launch.ctas * launch.threads > 0xffff)
    throw std::invalid_argument("a launch has 1 or more CTAs of whole warps, and fewer than 65,536 threads");
  const size_t num_threads = static_cast<size_t>(launch.ctas * launch.threads);
  stacks_bytes_ = num_threads * kStack;
  stacks_ = map_memory(stacks_bytes_);
  shared_stride_ = (launch.shared_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment + kSharedRedZone;
  const size_t shared_bytes = shared_stride_ * static_cast<size_t>(launch.ctas);
  shared_begin_ = map_memory(shared_bytes);
  std::memset(shared_begin_, 0xff, shared_bytes);
  shared_ = Shadow(shared_begin_, shared_bytes);
  global_ = Shadow(memory.begin(), static_cast<size_t>(memory.end() - memory.begin()));
  ctas_.resize(static_cast<size_t>(launch.ctas));
  for (size_t i = 0; i < ctas_.size(); ++i) {
    ctas_[i].shared = shared_begin_ + i * shared_stride_;
    ctas_[i].warps.resize(static_cast<size_t>(launch.threads / 32));
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
    thread.clock.assign(num_threads, 0);
    thread.released = thread.acquired = thread.clock;
    thread.clock[i] = 1;
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
  int idle_rounds = 0;
  for (size_t left = threads_.size(); left > 0 && fault_.empty();) {
    if (launch_.order == Order::random) std::shuffle(order.begin(), order.end(), random);
    bool went = false, progressed = false;
    for (const int id : order) {
      Thread& thread = threads_[static_cast<size_t>(id)];
      if (thread.is_done || thread.waits_for != nullptr) continue;
      current_ = &thread;
      thread.fiber = context::jump_fcontext(thread.fiber, nullptr).fctx;
      current_ = nullptr;
      went = true;
      progressed = progressed || thread.is_done || thread.waits_for != nullptr;
      left -= thread.is_done;
      if (!fault_.empty()) break;
    }
    idle_rounds = progressed ? 0 : idle_rounds + 1;
    if (fault_.empty() && (left > 0 && !went)) fault_ = stuck();
    if (fault_.empty() && idle_rounds > kMaxIdleRounds)
      fault_ = "the threads that are left wait for a word that nobody writes";
  }
  the_machine = nullptr;
  if (!fault_.empty()) throw Fault(fault_);
}

void Machine::yield() { scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx; }

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

std::string Machine::stuck() const {
  std::map<std::string, std::pair<int, int>> waiting;  // what and where -> how many, the first
  int done = 0;
  for (const Thread& thread : threads_) {
    done += thread.is_done;
    if (thread.waits_for == nullptr) continue;
    ++waiting.try_emplace(fmt::format("{} at {}", thread.waits_for, place(thread.waits_at)), 0, thread.id)
          .first->second.first;
  }
  std::string text = "no thread can go on:";
  for (const auto& [where, who] : waiting)
    text += fmt::format(" {} wait in {} ({} the first),", who.first, where, name_of(who.second));
  return text + fmt::format(" {} have ended", done);
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
    barrier.clock.assign(threads_.size(), 0);
  } else if (same_call && !same_place(barrier.first_at, pc)) {
    fault(fmt::format("comes to {} while {} waits in that of {}: divergent barrier", name,
                      name_of(barrier.first_thread), place(barrier.first_at)),
          pc);
  }
  Clock& clock = current_->clock;
  join(barrier.clock, clock);
  ++clock[static_cast<size_t>(current_->id)];
  if (++barrier.arrived < threads) {
    if (!waits) return;
    barrier.waiting.push_back(current_);
    wait(name, pc);
    return;
  }
  if (waits) join(clock, barrier.clock);
  for (Thread* other : barrier.waiting) {
    join(other->clock, barrier.clock);
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
    Clock all(threads_.size());
    for (int i = 0; i < 32; ++i) join(all, lanes[i].clock);
    for (int i = 0; i < 32; ++i) {
      lanes[i].clock = all;
      ++lanes[i].clock[static_cast<size_t>(lanes[i].id)];
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
