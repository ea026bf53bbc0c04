// What the machine knows of products of warpgroups that are under way.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tests/simt/machine/clock.h"
#include "tests/simt/machine/device.h"

namespace weft::simt {

inline constexpr int kWarpgroup = 128;  // threads

// What each of a warpgroup's threads says of a product.
struct ProductCall {
  float* d;
  int n;
  const unsigned* a_registers;  // null: A lies in shared memory
  Matrix a, b;
  bool accumulates, bf16;
};

struct WarpgroupProduct {
  uint32_t number;  // of its warpgroup's, from 1 on
  ProductCall call;
  const void* pc;
  Clock seen;                              // by all of its threads as it began
  std::vector<float*> d;                   // of each thread
  std::vector<std::vector<float>> before;  // what they held; nothing where a product that has not landed leaves it
  std::vector<unsigned> a_registers;       // four of each thread
};

// Registers of a thread that a product takes: nobody touches them until the thread has waited for it.
struct HeldRegisters {
  const char* begin;
  size_t bytes;
  uint32_t product;
  const void* pc;                   // of the product
  bool is_accumulator;              // and not of A
  const void* waited_at = nullptr;  // a wait for the product that does not name them
};

// When local memory was accessed last: how many fences of its thread lay before.
struct Touch {
  uint32_t fences = 0;  // 0: never
  const void* pc = nullptr;
};

// Of a thread.
struct Products {
  uint32_t fences = 1, last = 0,
           committed = 0;            // fences: one more than there were; the last product, and that of a group
  std::deque<uint32_t> groups = {};  // the last product of each that was not waited for
  std::vector<HeldRegisters> held = {};
};

// Of a warpgroup.
struct ProductQueue {
  uint16_t who = 0;  // it stands for the products' reads in clocks, which count products; 0: there was none
  uint32_t issued = 0;
  std::deque<WarpgroupProduct> under_way = {};
  int arrived = 0, first_thread = 0;  // at a product
  const void* first_at = nullptr;
  std::vector<const ProductCall*> calls = {};
};

}  // namespace weft::simt
