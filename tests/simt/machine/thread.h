// The state of a launch: its threads, what each waits for, and how their accesses are ordered.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/simt/machine/machine.h"
#include "tests/simt/machine/shadow.h"

namespace weft::simt {

// One cp.async that was issued.
struct Copy {
  char* shared;
  const char* global;
  int bytes;  // that are read; the rest of 16 becomes zero
  const void* pc;
};

struct Thread {
  int id = 0, cta = 0, index = 0;
  boost::context::detail::fcontext_t fiber = nullptr;
  char* stack = nullptr;
  bool is_done = false;
  const char* waits_for = nullptr;  // null: it can go on
  const void* waits_at = nullptr;
  Clock clock = {};             // what of every thread's past this one has seen
  Clock released = {};          // what it had seen at its last fence: what a relaxed atomic behind it publishes
  Clock acquired = {};          // what relaxed atomics have told it, which counts from its next fence on
  std::vector<Copy> open = {};  // cp.async since the last commit
  std::deque<std::vector<Copy>> groups = {};  // and those committed
};

struct Barrier {
  int arrived = 0;
  const void* first_at = nullptr;
  int first_thread = 0;
  Clock clock = {};
  std::vector<Thread*> waiting = {};
};

// A warp's lanes that have come to a collective.
struct Warp {
  int arrived = 0;
  const char* name = nullptr;
  const void* at = nullptr;
  int first_lane = 0;
  void* operands[32] = {};
};

struct Cta {
  char* shared = nullptr;  // within a mapping of its own
  std::vector<Barrier> barriers = std::vector<Barrier>(16);
  std::vector<Warp> warps = {};
};

class Machine {
 public:
  Machine(Memory& memory, const Launch& launch, const std::function<void()>& kernel);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  void run();

  const Launch& launch() const { return launch_; }
  Thread& current() { return *current_; }
  Cta& cta() { return ctas_[static_cast<size_t>(current_->cta)]; }

  // An access of the current thread; nothing where no kernel runs.
  void access(const void* address, size_t bytes, Access access, const void* pc);
  // `aligned` to `bytes`, or a fault.
  void require_aligned(const void* address, size_t bytes, const char* what, const void* pc);
  // Ends the run: the current thread is left where it is, and never goes on.
  [[noreturn]] void fault(const std::string& what, const void* pc);

  void wait(const char* what, const void* pc);  // until some other thread calls release
  static void release(Thread& thread) { thread.waits_for = nullptr; }
  void yield();

  void barrier(int id, int threads, bool waits, bool same_call, const char* name, const void* pc);
  // Returns when all lanes have come here: the last one calls combine(operands of all lanes).
  void collective(const char* name, void* operands, void (*combine)(void* const* lanes), bool orders, const void* pc);
  void copy_async(void* shared, const void* global, int bytes, const void* pc);
  void commit_copies();
  void wait_copies(size_t pending, const void* pc);

  Clock& clock_of(const void* atomic);
  std::string name_of(const Thread& thread) const;
  std::string name_of(int id) const { return name_of(threads_[static_cast<size_t>(id)]); }
  static Machine* active();

 private:
  friend void enter(boost::context::detail::transfer_t from);
  bool is_stack(const char* p) const;
  std::string place_of(const char* p, size_t bytes) const;
  bool may_access(const char* p, size_t bytes, Access access, std::string& why) const;
  void check_order(const char* p, size_t bytes, Access access, const void* pc);
  std::string stuck() const;
  void land(const Copy& copy, const void* pc);

  Memory& memory_;
  Launch launch_;
  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  std::vector<Cta> ctas_;
  std::vector<Clock> atomics_clocks_;
  std::vector<const void*> atomics_;
  Shadow global_, shared_;
  char* shared_begin_ = nullptr;
  size_t shared_stride_ = 0, stacks_bytes_ = 0;
  char* stacks_ = nullptr;
  Thread* current_ = nullptr;
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  std::string fault_;
};

}  // namespace weft::simt
