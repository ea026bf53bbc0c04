// What the machine knows of an mbarrier, and of the copies that complete on it.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simt/machine/clock.h"

namespace weft::simt {

struct Thread;

// Bytes that a copy moves as one; null for `global`: zeros.
struct CopyPiece {
  char* shared;
  const char* global;
  size_t bytes;
};

// What has not landed and counts at an mbarrier: a bulk copy, which is a run of bytes or a box of a tensor, or the
// cp.async of a thread.
struct PhaseCopy {
  std::vector<CopyPiece> pieces;
  size_t bytes;  // that the phase expects of it: none of cp.async
  int swizzle;   // abi::Swizzle of a box; -1: a run
  int thread;
  const void* pc;
  Clock seen;  // by its thread as it began, of cp.async as it arrived
  bool is_bulk = true;
  const char* name() const { return is_bulk ? "a bulk copy" : "a cp.async"; }
  bool covers(const char* byte) const {
    for (const CopyPiece& piece : pieces)
      if (byte >= piece.shared && byte < piece.shared + piece.bytes) return true;
    return false;
  }
};

struct Mbarrier {
  const char* place;
  int cta;
  uint16_t who;  // it stands for the copies that complete on it in clocks
  Event init, fence = {};
  uint32_t arrivals, pending;  // of a phase; that are missing in this one
  uint64_t expected = 0;       // bytes that have not come
  const void *expected_at = nullptr, *last_arrival_at = nullptr;
  int last_arrival = 0;                      // its thread
  uint32_t phase = 0;                        // that is under way
  Clock arriving = Clock(), over = Clock();  // what arrivals of this phase released; of all phases that are over
  std::vector<PhaseCopy> copies = {};        // of this phase
  std::vector<Event> behind_copies = {};     // arrivals of cp.async in this phase
  std::vector<Thread*> waiting = {};
  bool is_polled = false;          // somebody has asked whether the phase is over
  std::vector<int32_t> next = {};  // for each thread of the CTA, the least phase that it may wait for; -1 at first

  uint64_t bytes_in_flight() const {
    uint64_t bytes = 0;
    for (const PhaseCopy& copy : copies) bytes += copy.bytes;
    return bytes;
  }
  // The phase will be over once its copies have landed.
  bool can_land() const { return pending == 0 && !copies.empty() && bytes_in_flight() == expected; }
};

}  // namespace weft::simt
