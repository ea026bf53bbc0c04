// Where barriers stand between what the threads of a CTA run alike.
//
//   std::vector<Step> steps{{.body = {write_row}, .accesses = {{"row", true}}},
//                           {.body = {read_row}, .accesses = {{"row"}}}};
//   Body body = Barriers(kernel.shared).placed(steps);   // write_row, barrier, read_row
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "loop/ir.h"
#include "loop/threads/accesses.h"

namespace weft::loop {

// What all threads of a CTA come to together: a barrier may stand before it.
struct Step {
  Body body = {};                 // statements, through which each thread goes at its own pace
  Accesses accesses = {};         // in them, or in the condition of `nest`
  bool waits = false;             // statements that begin with a barrier, before all accesses
  std::optional<Stmt> nest = {};  // instead of statements: a condition or a loop that all run alike around `steps`
  bool runs = false;              // a nest that each thread goes through once at least
  std::vector<Step> steps = {};
};

// Places a barrier before each step that accesses what is pending: accessed since the last barrier, by another thread,
// and not only read. Nests are looked into once, inner ones first: of a loop that tells what an iteration leaves
// pending for the next one, which is all that the loops around it need to know.
class Barriers {
 public:
  explicit Barriers(Names shared) : shared_(std::move(shared)) {}
  Body placed(const std::vector<Step>& steps);
  // Steps that were gone through so far.
  int64_t num_visits() const { return num_visits_; }

 private:
  struct Nest {
    Accesses all = {};      // in it
    Names own = {};         // variables that are set in it
    Accesses carried = {};  // of a loop: what one of its iterations may leave pending for the next one
    bool waits = false;     // of a loop: there is a barrier in it, whatever stands before it
  };
  const Nest& look_into(const Step& step);
  void settle(const Step& step, Nest& nest);
  bool pass(const std::vector<Step>& steps, Accesses& pending, Body* text);
  bool has_grown(const Step& step, Nest& nest, const Accesses& before, const Accesses& after);
  // Of loops over CTAs, whose iterations access buffers of the function apart from each other.
  bool is_apart(const Step& step, const Access& access) const;

  const Names shared_;
  std::map<const Step*, Nest> nests_ = {};
  int64_t num_visits_ = 0, num_growths_ = 0;
};

}  // namespace weft::loop
