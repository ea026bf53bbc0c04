// The state of a launch: its threads, what each waits for, and how their accesses are ordered.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/simt/machine/atomic.h"
#include "tests/simt/machine/cluster.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"
#include "tests/simt/machine/mbarrier.h"
#include "tests/simt/machine/shadow.h"
#include "tests/simt/machine/wgmma.h"

namespace weft::simt {

// One cp.async that was issued.
struct Copy {
  char* shared;
  const char* global;
  int size, bytes;  // that are written, of which so many are read; the rest becomes zero
  const void* pc;
};

struct StorePiece {
  char* global;
  const char* shared;
  size_t bytes;
};

// One bulk copy to global memory: a run of bytes, or a box of a tensor.
struct BulkStore {
  std::vector<StorePiece> pieces;
  const void* pc;
  Clock seen;            // by its thread as it began
  bool is_read = false;  // `content` is what it will write
  std::string content = {};
};

struct Thread {
  int id = 0, cta = 0, index = 0;
  boost::context::detail::fcontext_t fiber = nullptr;
  char* stack = nullptr;
  bool is_done = false;
  const char* waits_for = nullptr;  // null: it can go on
  const void* waits_at = nullptr;
  const Mbarrier* mbarrier = nullptr;                // that it waits for
  const void *polls = nullptr, *polls_at = nullptr;  // the word, or mbarrier, that it looked at last
  Clock clock = Clock();                             // what of every thread's past this one has seen
  Clock released = Clock();     // what it had seen at its last fence: what a relaxed atomic behind it publishes
  Clock acquired = Clock();     // what relaxed atomics have told it, which counts from its next fence on
  std::vector<Copy> open = {};  // cp.async since the last commit
  std::deque<std::vector<Copy>> groups = {};  // and those committed; what counts at an mbarrier lies there
  std::vector<BulkStore> open_stores = {};    // the same of bulk stores
  std::deque<std::vector<BulkStore>> store_groups = {};
  Products products = {};
  ClusterArrival arrival = {};
};

struct Barrier {
  int arrived = 0, threads = 0;
  const void* first_at = nullptr;
  int first_thread = 0;
  Clock clock = Clock();
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

// Four warps, and the registers of each of their threads.
struct Warpgroup {
  int registers = 0, wanted = 0;  // wanted: what it waits for; 0: nothing
  int arrived = 0, coming_to = 0, first_thread = 0;
  const void* first_at = nullptr;
  Clock changed = Clock();  // what its threads were at when the last change was made
  ProductQueue products = {};
};

struct Cta {
  char* shared = nullptr;  // within a mapping of its own
  bool has_begun = false;
  int threads_left = 0;
  int free_registers = 0;
  std::vector<Barrier> barriers = std::vector<Barrier>(16);
  std::vector<Warp> warps = {};
  std::vector<Warpgroup> warpgroups = {};
  std::map<int, Event> accesses = {};  // the last one of each thread of another CTA
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
  uint64_t now_ns() const { return rounds_ * 1000; }  // a microsecond each time all threads have had their turn

  // An access of the current thread; nothing where no kernel runs.
  void access(const void* address, size_t bytes, Access access, const void* pc);
  // `aligned` to `bytes`, or a fault.
  void require_aligned(const void* address, size_t bytes, const char* what, const void* pc);
  // Ends the run: the current thread is left where it is, and never goes on.
  [[noreturn]] void fault(const std::string& what, const void* pc);

  void wait(const char* what, const void* pc);  // until some other thread calls release
  static void release(Thread& thread) { thread.waits_for = nullptr; }
  void yield();
  // The current thread looks whether others have changed a word; they go on first.
  void poll(const void* address, const void* pc);
  // change() changes the word; `is_store`: to a value that does not follow from the one before.
  void change_atomic(void* p, size_t bytes, Ordering ordering, bool is_store, const std::function<void()>& change,
                     const void* pc);
  uint64_t load_atomic(const void* p, size_t bytes, bool acquires, const void* pc);

  void barrier(int id, int threads, bool waits, bool same_call, const char* name, const void* pc);
  // Returns when all lanes have come here: the last one calls combine(operands of all lanes).
  void collective(const char* name, void* operands, void (*combine)(void* const* lanes), bool orders, const void* pc);
  void change_registers(int registers, bool more, const void* pc);

  void copy_async(void* shared, const void* global, int size, int bytes, const void* pc);
  void commit_copies();
  void wait_copies(size_t pending, const void* pc);

  void init_mbarrier(const void* address, unsigned arrivals, const void* pc);
  void inval_mbarrier(const void* address, const void* pc);
  void arrive(const void* address, unsigned bytes, const void* pc);
  void arrive_behind_copies(const void* address, const void* pc);
  bool try_wait(const void* address, unsigned parity, const void* pc);
  void wait_mbarrier(const void* address, unsigned parity, const void* pc);
  void fence_inits(const void* pc);

  void bulk_copy(void* shared, const void* global, unsigned bytes, const void* mbarrier, const void* pc);
  void bulk_store(void* global, const void* shared, unsigned bytes, const void* pc);
  void tensor_load(void* shared, const abi::TensorMap& map, std::span<const int> at, const void* mbarrier,
                   const void* pc);
  void tensor_store(const abi::TensorMap& map, std::span<const int> at, const void* shared, const void* pc);
  void commit_stores();
  void wait_stores(size_t pending, bool written, const void* pc);

  void arrive_at_cluster(const void* pc);
  void wait_for_cluster(const void* pc);
  const void* shared_of_rank(const void* own, int rank, const void* pc);
  void require_own_shared(const void* p, size_t bytes, const char* verb, const void* pc);

  void wgmma(const ProductCall& call, const void* pc);
  void fence_products(const void* pc);
  void commit_products(const void* pc);
  void wait_products(size_t pending, std::span<const Registers> named, const void* pc);

  std::string name_of(const Thread& thread) const;
  std::string name_of(int id) const { return name_of(threads_[static_cast<size_t>(id)]); }
  static Machine* active();

 private:
  friend void enter(boost::context::detail::transfer_t from);
  enum class Proxy { generic, async };

  bool is_stack(const char* p) const;
  bool is_thread(const Event& event) const { return event.who < threads_.size(); }
  size_t slot_of(size_t who) const { return who < threads_.size() ? who / 32 : who - threads_.size() * 31 / 32; }
  std::string place_of(const char* p, size_t bytes) const;
  std::string text_of(const Mbarrier& mbarrier) const;
  std::string missing_of(const Mbarrier& mbarrier) const;
  std::string in_flight(const ShadowByte& seen, const char* byte) const;
  bool may_access(const char* p, size_t bytes, Access access, std::string& why) const;
  void check(const char* p, size_t bytes, Access access, Proxy proxy, const char* verb, const void* pc);
  void check_order(const char* p, size_t bytes, Access access, Proxy proxy, const char* verb, const void* pc);

  Atomic& atomic_at(const void* p, size_t bytes);
  Mbarrier& mbarrier_at(const void* address, const char* verb, const void* pc);
  bool is_over(Mbarrier& mbarrier, unsigned parity, const void* pc);
  void check_bytes(const Mbarrier& mbarrier, const char* what, const void* pc);
  void check_arrivals(const Mbarrier& mbarrier, const char* what, const void* pc);
  void end_phase(Mbarrier& mbarrier);

  void start_copy(PhaseCopy copy, const void* mbarrier, const void* pc);
  void start_store(std::vector<StorePiece> pieces, const void* pc);
  void check_box(const abi::TensorMap& map, std::span<const int> at, const char* shared, bool is_store, const void* pc);
  void land(const Copy& copy, const void* pc);
  void land(const Mbarrier& mbarrier, const PhaseCopy& copy);  // sets fault_
  bool land_some(std::mt19937_64& random);                     // of one mbarrier that somebody waits for
  void read_source(BulkStore& store, const void* pc);
  void land(BulkStore& store, const void* pc);
  void check_end(const Thread& thread);

  Cluster& cluster_of(const Thread& thread);
  void end_cluster_phase(Cluster& cluster);
  int owner_of(const char* shared) const;
  bool may_access_shared(const char* p, size_t bytes, std::string& why) const;
  void note_access_of_another(const char* p, const void* pc);
  void check_accesses_of_others(const Thread& last);

  Warpgroup& warpgroup_of(const Thread& thread);
  std::string writer_of(const Event& write) const;
  void check_descriptor(const Matrix& matrix, const char* name, int mn, const void* pc);
  void check_operand(const Matrix& matrix, const char* name, int mn, const Clock& seen, const void* pc);
  void check_registers(const void* registers, size_t bytes, bool is_accumulator, const void* pc);
  void touch_registers(const char* p, size_t bytes, const char* verb, const void* pc);
  void begin_product(ProductQueue& queue, const void* pc);
  void read_operand(const WarpgroupProduct& product, const Matrix& matrix, const char* name, int mn, uint16_t who,
                    const void* pc);
  void land(const WarpgroupProduct& product, uint16_t who, const void* pc);

  void begin_ctas(std::mt19937_64& random);
  void begin_clusters();
  void end_thread(const Thread& thread);
  void hand_out_registers(Cta& cta);
  uint16_t new_who(const char* verb, const void* pc);
  std::string stuck() const;
  std::string who_waits() const;
  std::string who_polls() const;

  Memory& memory_;
  Launch launch_;
  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  std::vector<Cta> ctas_;
  std::vector<Cluster> clusters_;
  std::vector<int> waiting_clusters_;  // that have not begun, the next one last
  int free_ctas_ = 0;                  // that may be resident beside those that are
  std::unordered_map<const void*, Atomic> atomics_;
  std::map<const char*, Mbarrier> mbarriers_;
  size_t num_who_ = 0;  // threads, and mbarriers there have been
  Shadow global_, shared_;
  ZeroArray<Touch> touched_;  // of each word of the stacks
  char* shared_begin_ = nullptr;
  size_t shared_stride_ = 0, stacks_bytes_ = 0;
  char* stacks_ = nullptr;
  Thread* current_ = nullptr;
  uint64_t rounds_ = 0, changes_ = 0;
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  std::string fault_;
};

}  // namespace weft::simt
