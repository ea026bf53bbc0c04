// The one generator of C-like code. A target says how it writes what differs: the head of a function, parallel and
// bound loops, memory scopes, vectors.
//
//   std::string text = cpp_module({split_launches(compute)});  // codegen/printers.h
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loop/codegen/integers.h"
#include "loop/codegen/intrinsics.h"
#include "loop/facts.h"
#include "loop/ir.h"
#include "loop/passes.h"
#include "loop/product.h"

namespace weft::loop {

class CFamily {
 public:
  virtual ~CFamily() = default;
  // The whole text of a module with all phases of the functions, named by phase_name().
  std::string module(const std::vector<Launches>& functions);

 protected:
  // Text that every module begins with.
  virtual std::string prelude() const = 0;
  // "extern "C" void name(...) {" and what makes locals of its arguments, but not of buffers and scalars.
  virtual std::string head(const std::string& name, const Function& function, const Phase& phase) = 0;
  virtual std::string buffer_declaration(const Buffer& buffer, size_t index, bool written) const = 0;
  // Of a parameter; reals stand behind the integers.
  virtual std::string scalar_declaration(const std::string& scalar, size_t index, bool is_real) const = 0;
  // Of weft_failures, a number for each of failures_of(function), which is an argument behind the buffers.
  virtual std::string failures_declaration(size_t index) const = 0;
  // "for (...)" of a loop that workers or threads share.
  virtual void open_shared_loop(const Stmt& loop) = 0;
  virtual Target target() const = 0;
  // Further operands of a product: which elements of the sum a thread computes.
  virtual std::vector<std::string> product_share(const Stmt&) const { return {}; }
  // A loop over lanes, or unrolled, that is written as a loop: what it reads in one piece may be read before it, and
  // what it stores in one piece by the line behind it, "" where it has none.
  virtual std::pair<Stmt, std::string> with_wide_accesses(const Stmt& loop) { return {loop, {}}; }
  // What is generated of a phase, in place of its body.
  virtual Body prepared(const Function& function, const Phase& phase) const = 0;
  // What stands above the body.
  virtual std::string note_of(const Phase&) const { return {}; }
  // Lines above the body that see to what it takes for granted, which is known when it is written.
  virtual std::vector<std::string> checks() const { return {}; }
  // Of memory of the nest, where a vector type does not take it.
  virtual std::string allocation(const Stmt& stmt);
  // What thread_body() alone makes: a barrier, a sum over threads, a copy to shared memory.
  virtual std::string of_thread(const Stmt& stmt) = 0;

  void line(const std::string& text);
  std::string expr(const Expr& e, int precedence = 0);
  std::string text_of(Intrinsic intrinsic, const std::vector<std::string>& operands) const {
    return loop::text_of(intrinsic, target(), operands);
  }
  // "buffer + place"
  std::string address(const std::string& buffer, const Expr& place);
  std::string real_type() const { return is_double_ ? "double" : "float"; }
  const Buffer* find_buffer(const std::string& name) const { return function_->find(name); }
  void declare_local(const std::string& name, DType dtype) { local_[name] = dtype; }
  Written written(const Expr& e, int precedence = 0);

  Integers integers_;  // of the place that is written

 private:
  void emit(const Body& body);
  void emit_loop(const Stmt& loop);
  void emit_store(const Stmt& store);
  Written infix(const Expr& e, const char* symbol, int own, int precedence);
  std::string wide_sum(const Expr& e);
  Written division(const Expr& e);
  Written select(const Expr& e);
  std::string call(const Expr& e);
  // Of a loop that is to prefetch: what it loads at loaded places, some iterations ahead.
  void emit_prefetch(const Stmt& loop, int64_t ahead);
  bool emit_vector_loop(const Stmt& loop);
  // Three loops that are tensorised, as one call.
  void emit_product(const Stmt& loop);
  std::vector<std::string> mma_operands(const ProductCall& call);
  bool emit_dot(const Stmt& loop);
  // The statement over all lanes at once; none where its form does not allow that.
  std::string vector_store(const Stmt& store, const Stmt& loop);
  std::string lane_sum(const Stmt& store, const Stmt& loop);
  std::string vector_expr(const Expr& e, const Stmt& loop, bool* possible);
  std::string vector_type(const Stmt& loop) const;
  std::string register_at(const std::string& name, const Expr& at, int64_t lanes);
  std::string phase(const Function& function, const Phase& phase, size_t index);
  void write_phase(const Function& function, const Phase& phase, size_t index);
  DType dtype_of(const std::string& buffer) const;
  std::string real_literal(double value) const;

  Facts facts_;  // of the place that is written
  std::string text_;
  int indent_ = 0;
  bool is_double_ = false;
  bool hides_masks_ = false;  // some condition has weft_zero in it, which the compiler does not know to be 0
  const Function* function_ = nullptr;
  std::vector<const Stmt*> loops_;  // around the place that is written
  std::map<std::string, DType> local_;
  std::map<std::string, int64_t> registers_;  // memory of the nest that is whole vectors of so many lanes
  Names spilled_;                             // what of it has to be an array after all
};

// Of elements of a buffer, in the text.
std::string element_type(DType dtype);
const char* infix_symbol(Op op);  // null: it is none
int64_t literal_of(const Expr& e);

// weft_upper_bound and weft_find, as functions of that kind; weft_any_floor_div and weft_any_modulo, behind weft_fail.
std::string search_functions(const std::string& qualifier);
std::string division_functions(const std::string& qualifier);

// Copies in place of loops to be unrolled, as far as their text stays short.
Body unrolled(Body body);
// Memory of the nest that vector loops use, with how many lanes.
std::map<std::string, int64_t> vector_locals(const Body& body, DType dtype);

// "weft_spmm_0"
std::string phase_name(const Function& function, size_t phase);

}  // namespace weft::loop
