// Clusters: CTAs that wait for each other, and shared memory of another CTA.
#include "tests/simt/machine/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {

Cluster& Machine::cluster_of(const Thread& thread) {
  return clusters_[static_cast<size_t>(thread.cta / launch_.cluster)];
}

void Machine::arrive_at_cluster(const void* pc) {
  collective("cluster_arrive", nullptr, nullptr, false, pc);
  ClusterArrival& own = current_->arrival;
  if (own.is_open)
    fault(fmt::format("arrives at its cluster's barrier again, and has not waited since it did ({})", place(own.pc)),
          pc);
  Cluster& cluster = cluster_of(*current_);
  own = {true, cluster.phase, pc};
  cluster.arriving.join_seen(current_->clock);
  current_->clock.count(static_cast<size_t>(current_->id));
  ++cluster.arrived;
  ++changes_;
  end_cluster_phase(cluster);
}

void Machine::wait_for_cluster(const void* pc) {
  collective("cluster_wait", nullptr, nullptr, false, pc);
  ClusterArrival& own = current_->arrival;
  if (!own.is_open) fault("waits at its cluster's barrier, and has not arrived", pc);
  Cluster& cluster = cluster_of(*current_);
  if (cluster.phase == own.phase) {
    cluster.waiting.push_back(current_);
    wait("cluster_wait", pc);
  }
  current_->clock.join_seen(cluster.over);
  own.is_open = false;
}

// All threads of the cluster that have not ended have arrived.
void Machine::end_cluster_phase(Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.alive) return;
  ++cluster.phase;
  cluster.over = std::move(cluster.arriving);
  cluster.arriving = Clock();
  cluster.arrived = 0;
  for (Thread* thread : cluster.waiting) release(*thread);
  cluster.waiting.clear();
  ++changes_;
}

const void* Machine::shared_of_rank(const void* own, int rank, const void* pc) {
  const auto* p = static_cast<const char*>(own);
  if (rank < 0 || rank >= launch_.cluster)
    fault(
        fmt::format("asks for shared memory of rank {} of its cluster; allowed are 0 to {}", rank, launch_.cluster - 1),
        pc);
  require_own_shared(p, 1, "asks where others have", pc);
  const int cta = current_->cta / launch_.cluster * launch_.cluster + rank;
  return p + static_cast<long>(shared_stride_) * (cta - current_->cta);
}

void Machine::require_own_shared(const void* p, size_t bytes, const char* verb, const void* pc) {
  const auto* byte = static_cast<const char*>(p);
  if (shared_.contains(byte) && owner_of(byte) == current_->cta) return;
  fault(fmt::format("{} {}: not shared memory of its own CTA", verb, place_of(byte, bytes)), pc);
}

int Machine::owner_of(const char* shared) const {
  return static_cast<int>(static_cast<size_t>(shared - shared_begin_) / shared_stride_);
}

// Whether this thread may access another CTA's shared memory: it has begun, and has not ended.
bool Machine::may_access_shared(const char* p, size_t bytes, std::string& why) const {
  why = "out of bounds";
  const int owner = owner_of(p);
  if (static_cast<size_t>(p - shared_begin_) % shared_stride_ + bytes > launch_.shared_bytes) return false;
  if (owner == current_->cta) return true;
  if (owner / launch_.cluster != current_->cta / launch_.cluster) return false;
  why = "that CTA may have ended: a cluster_sync() behind the last access keeps it";
  if (ctas_[static_cast<size_t>(owner)].threads_left == 0) return false;
  why = "that CTA may not have begun: a cluster_sync() must lie before";
  for (int i = 0; i < launch_.threads; ++i)
    if (current_->clock[static_cast<size_t>(owner * launch_.threads + i)] > 0) return true;
  return false;
}

void Machine::note_access_of_another(const char* p, const void* pc) {
  if (!shared_.contains(p) || owner_of(p) == current_->cta) return;
  ctas_[static_cast<size_t>(owner_of(p))].accesses[current_->id] = {
      current_->clock[static_cast<size_t>(current_->id)], static_cast<uint16_t>(current_->id), false, false, pc};
}

// All threads of the CTA have ended. What others did with its shared memory, some thread of it must have waited for.
void Machine::check_accesses_of_others(const Thread& last) {
  const Thread* const threads = &last - last.index;
  for (const auto& [who, access] : ctas_[static_cast<size_t>(last.cta)].accesses) {
    const bool is_known = std::any_of(threads, threads + launch_.threads,
                                      [&](const Thread& thread) { return access.is_before(thread.clock); });
    if (is_known || !fault_.empty()) continue;
    fault_ = fmt::format(
        "{} at {} accesses shared memory of cta {}, which may end before: a cluster_sync() behind the last access "
        "keeps it",
        name_of(who), place(access.pc), last.cta);
  }
}

}  // namespace weft::simt
