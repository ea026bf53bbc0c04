// The statements of stages II and III, and a function of flat loops, which is what code is made of.
//
//   Stmt loop = make_loop("i", variable("n"), {make_store("C", {variable("i")}, real(0))});
//   loop.kind_of_loop = LoopKind::parallel;
//   to_text(loop);            // for i in range(n) [parallel]:
//                             //   C[i] = 0.0
#pragma once

#include <string>
#include <vector>

#include "loop/expr.h"
#include "weft/tensor.h"

namespace weft::loop {

enum class LoopKind : uint8_t { serial, parallel, vectorize, unroll, bind };
// fragment: in registers of all warps of a CTA together, as tensor cores add to it; elsewhere like registers.
enum class Scope : uint8_t { global, shared, registers, fragment };

struct Stmt;
using Body = std::vector<Stmt>;

// The line of a schedule that made a statement what it is; 0: none. Statements of different lines are equal.
struct ScheduledAt {
  int line = 0;
  friend bool operator==(const ScheduledAt&, const ScheduledAt&) { return true; }
};

// Of one dimension of a buffer: a place, from `begin` to before `end`, or all of it.
struct Range {
  Expr begin = {}, end = {};
  bool is_place() const { return begin && !end; }
  bool is_whole() const { return !begin; }
  friend bool operator==(const Range& a, const Range& b) { return is_same(a.begin, b.begin) && is_same(a.end, b.end); }

 private:
  static bool is_same(const Expr& a, const Expr& b) { return a && b ? a == b : !a && !b; }
};

struct Region {
  std::string buffer = {};
  std::vector<Range> ranges = {};
  friend bool operator==(const Region&, const Region&) = default;
};

// A value: copied whole, compared by structure.
struct Stmt {
  enum class Kind : uint8_t {
    loop,       // for name in range(value): body
    store,      // name[indices] = value
    condition,  // if value: body
    let,        // let name = value, for the statements after it in its body
    allocate,   // name[indices], for the statements after it in its body
    block,      // what an iteration computes at one point; `init` runs before the reduction loops around it
    fail,       // the run fails: `writer` would write name[indices], which is not there
    // Only in what thread_body() makes:
    barrier,        // all threads of the CTA come here before any goes on
    copy_async,     // the 16 bytes from name[indices] on = those from `value` on, a load or a select of one and 0
    commit_copies,  // copies since the last one are a group
    wait_copies,    // until all groups but the last `value` are there
    thread_sum,     // name[indices] = its sum (`combine`) over the threads of `thread`, "warp" or "cta", in each
  };
  Kind kind = Kind::block;
  std::string name = {};
  std::vector<Expr> indices = {};
  Expr value = {};
  Body body = {};
  Body init = {};
  // Of a loop:
  LoopKind loop = LoopKind::serial;
  bool reduction = false;    // its iterations add to the same elements
  std::string thread = {};   // of LoopKind::bind: blockIdx.x, ...
  std::string balance = {};  // of LoopKind::parallel: the indptr that says how much work an iteration is
  std::vector<std::string> annotations = {};  // "prefetch=16"
  bool joined = false;  // of LoopKind::parallel: nobody waits between the parallel loop before and this one
  // Of a store:
  bool atomic = false;  // adds to the element, which other iterations of shared loops may add to at once
  // Of a thread_sum: add, minimum or maximum.
  Op combine = Op::add;
  std::string writer = {};  // of a failure: the iteration
  // Of an allocation:
  DType dtype = DType::fp32;
  Scope scope = Scope::registers;
  // Of a block: what it accesses, once find_regions() was here (loop/regions.h).
  std::vector<Region> reads = {}, writes = {};
  // Of a loop that threads share, and of an allocation:
  ScheduledAt scheduled = {};

  friend bool operator==(const Stmt&, const Stmt&) = default;
};

Stmt make_loop(std::string variable, Expr extent, Body body);
Stmt make_store(std::string buffer, std::vector<Expr> indices, Expr value);
Stmt make_condition(Expr condition, Body body);
Stmt make_let(std::string variable, Expr value);
Stmt make_block(std::string name, Body body, Body init = {});
Stmt make_fail(std::string writer, std::string buffer, std::vector<Expr> indices);
Stmt make_allocate(std::string buffer, std::vector<Expr> extents, DType dtype, Scope scope);

std::string_view to_string(LoopKind kind);
std::string_view to_string(Scope scope);
Type type_of(DType dtype);
// What a value of a buffer is computed in: fp32 for those that only memory has, of 16 bits.
DType computed_in(DType dtype);
bool is_narrow(DType dtype);  // one of these: fp16, bf16

// Calls on every statement, outer ones first, and on statements of `init` too.
void visit(const Body& body, const std::function<void(const Stmt&)>& call);
void visit(Body& body, const std::function<void(Stmt&)>& call);
// Calls on every expression that stands in a statement, not on its operands.
void visit_exprs(const Body& body, const std::function<void(const Expr&)>& call);
void rewrite_exprs(Body& body, const std::function<Expr(const Expr&)>& call);
// Substitutes variables, but not within the loops that bind them anew.
void substitute(Body& body, const Substitution& values);
bool has_annotation(const Stmt& loop, std::string_view word);
// How many iterations ahead a loop is to fetch what it gathers; 0: not at all.
int64_t prefetch_distance(const Stmt& loop);
// How many copies of the shared memory in a loop's body there are, which are filled ahead; 0: one, filled in its turn.
int64_t num_stages(const Stmt& loop);
bool uses(const Body& body, const std::string& variable);
bool loads_from(const Body& body, const std::string& buffer);
bool stores_to(const Body& body, const std::string& buffer);
bool accesses(const Body& body, const std::string& buffer);  // either
// How often; searches count.
int num_loads(const Body& body, const std::string& buffer);
// The first name of `stem`, `stem_1`, `stem_2`, ... that is not taken.
std::string fresh_name(const std::string& stem, const Names& taken);

// A buffer of one dimension: a parameter of the function, or memory that is there while it runs.
struct Buffer {
  std::string name;
  DType dtype = DType::fp32;
  Expr size = {};
  Expr least = {}, most = {};  // of an integer buffer: what its values are known to lie between
  bool temporary = false;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Function {
  std::string name;
  std::vector<std::string> scalars = {};  // integers, 0 or more
  std::vector<std::string> reals = {};    // given in fp64
  std::vector<Buffer> buffers = {};
  std::vector<std::vector<std::string>> apart = {};  // of integer buffers: no value stands in two of a list
  Body body = {};
  const Buffer* find(std::string_view buffer) const;
  friend bool operator==(const Function&, const Function&) = default;
};

// What may fail in a function, sorted: what code counts failures by.
std::vector<Failure> failures_of(const Function& function);
bool may_fail(const Body& body);

std::string to_text(const Body& body, int indent = 0);
std::string to_text(const Function& function);
// "n, m, alpha: real"
std::string text_of_parameters(const std::vector<std::string>& integers, const std::vector<std::string>& reals);

// Throws InternalError where a rule of the IR is broken: names that are not declared, stores into what is no buffer,
// indices of a flat buffer other than one. A pass may leave nothing behind that does not pass.
void verify(const Function& function);

}  // namespace weft::loop
