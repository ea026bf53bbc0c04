// A phase that threads of a GPU are to run: which axes its loops are bound to, and what several threads may access.
//
//   const Kernel kernel(function, phase.body);
//   kernel.shared.contains("row");   // an allocation in shared memory
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "loop/ir.h"
#include "loop/threads/fragments.h"

namespace weft::loop {

// A loop that is bound to an axis: of CTAs, or of their threads.
bool is_bound_loop(const Stmt& stmt);
bool is_thread_loop(const Stmt& stmt);
bool is_cta_loop(const Stmt& stmt);

struct Kernel {
  Kernel(const Function& function_, const Body& body);

  const Function& function;
  Names threads;                              // threadIdx.x, and the other axes that loops over threads are bound to
  std::map<std::string, ScheduledAt> ctas;    // axes that loops over CTAs are bound to, and where the first was bound
  Names shared;                               // memory of the CTA
  std::map<std::string, DType> shared_types;  // of each
  // Sums of all warps of the CTA.
  struct FragmentMemory {
    Fragment fragment;
    ScheduledAt scheduled;
  };
  std::map<std::string, FragmentMemory> fragments;
  Names tracked;  // what threads may exchange: memory of the CTA, and buffers of the function that the phase stores to

  DType real_type() const;  // of sums

  // Throws Error(unsupported) that names the schedule's line and the function.
  template <class... Arguments>
  [[noreturn]] void refuse(const ScheduledAt& at, fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    fail(ErrorCode::unsupported, "{}{}: {}", at.line == 0 ? "" : fmt::format("line {}: ", at.line), function.name,
         fmt::format(format, std::forward<Arguments>(arguments)...));
  }

 private:
  void add_fragments(const Body& body);
};

}  // namespace weft::loop
