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
    const Entry top{heap_[0].load + cost, heap_[0].worker};
    load_[static_cast<size_t>(top.worker)] = top.load;
    size_t hole = 0;
    for (size_t child; (child = 2 * hole + 1) < heap_.size(); hole = child) {
      if (child + 1 < heap_.size() && less(heap_[child + 1], heap_[child])) ++child;
      if (!less(heap_[child], top)) break;
      heap_[hole] = heap_[child];
    }
    heap_[hole] = top;
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
