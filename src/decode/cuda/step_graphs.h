// Steps of few rows as captured graphs: one launch a step instead of one for each kernel. What differs from step to
// step lies in memory that the kernels read: a graph is good for every step of its form.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/cuda/graph.h"

namespace weft::decode {

class StepGraphs {
 public:
  StepGraphs(cuda::Card& card, cuda::api::Stream stream) : card_(card), stream_(stream) {}

  // What the kernels of a step and their arguments follow from.
  struct Form {
    int64_t rows = 0, wanted = 0;
    bool invariant = false;
    std::vector<const void*> memory = {};
    friend bool operator==(const Form&, const Form&) = default;
  };
  // Runs the work, which enqueues a step of this form. The first time as it is, so that kernels are there; from the
  // second on as a graph, where the form is one that comes again: few rows, all of which are wanted. Never where calls
  // are recorded or traced, which a capture does not allow.
  void run(const Form& form, const std::function<void()>& work);

 private:
  struct Entry {
    Form form;
    cuda::Graph graph;  // from the second time on
  };
  cuda::Card& card_;
  cuda::api::Stream stream_;
  std::vector<Entry> entries_;  // the latest one last
};

}  // namespace weft::decode
