// What a launch that plans by PlanMode::even is given, by value.
#pragma once

#include "attention/even.h"

namespace weft::attention::cuda {

inline constexpr int kMostEvenRequests = 2048, kMostEvenWorkers = 1024, kEvenThreads = 512;

// even::Shared.
inline constexpr int kEvenSharedBytes =
    (static_cast<int>(sizeof(PlanHeader)) + 12 * (kMostEvenRequests + 1) + 20 * (kMostEvenWorkers + 1) +
     24 * (kEvenThreads / 32) + 4 * kMostEvenRequests + 7) /
    8 * 8;

struct EvenArgs {
  PlanHeader header;  // of an even plan of the same bounds; what follows from lengths is set here
  char* workspace;
  EvenBatch batch;
  unsigned* flag;  // becomes 1 where a length or a page id was clamped
};

}  // namespace weft::attention::cuda
