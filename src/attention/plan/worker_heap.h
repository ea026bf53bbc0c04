// The least loaded worker, the lowest index among equals: a binary heap over loads.
//
//   WorkerHeap heap(load);            // load[w] = 0 for every worker
//   int worker = heap.give(cost);     // load[worker] += cost
#pragma once

#include <cstddef>
#include <vector>

namespace weft::planner {

class WorkerHeap {
 public:
  // `load` stays current; all entries are equal at the start.
  explicit WorkerHeap(std::vector<double>& load) : load_(load), heap_(load.size()) {
    for (size_t i = 0; i < heap_.size(); ++i) heap_[i] = {load[i], static_cast<int>(i)};
  }
  double least_load() const { return heap_[0].load; }
  int give(double cost) {
    Entry* const heap = heap_.data();
    const size_t size = heap_.size();
    const Entry top{heap[0].load + cost, heap[0].worker};
    load_[static_cast<size_t>(top.worker)] = top.load;
    // A load that has grown goes far down, mostly: the hole sinks to the end, and the entry rises from there.
    size_t hole = 0, right = 2;
    for (; right < size; right = 2 * hole + 2) {
      const size_t child = less(heap[right - 1], heap[right]) ? right - 1 : right;
      heap[hole] = heap[child];
      hole = child;
    }
    if (right == size) {
      heap[hole] = heap[right - 1];
      hole = right - 1;
    }
    for (size_t parent; hole > 0 && less(top, heap[parent = (hole - 1) / 2]); hole = parent) heap[hole] = heap[parent];
    heap[hole] = top;
    return top.worker;
  }

 private:
  struct Entry {
    double load;
    int worker;
  };
  static bool less(const Entry& a, const Entry& b) {
    return a.load < b.load || (a.load == b.load && a.worker < b.worker);
  }
  std::vector<double>& load_;
  std::vector<Entry> heap_;
};

}  // namespace weft::planner
