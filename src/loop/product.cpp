#include "loop/product.h"

#include "base/check.h"

namespace weft::loop {

bool is_tensorised(const Stmt& stmt) { return stmt.kind == Stmt::Kind::loop && has_annotation(stmt, "product"); }

ProductNest product_nest(const Function& function, const Stmt& outer) {
  ProductNest nest;
  const Stmt* inner = &outer;
  for (; inner->kind == Stmt::Kind::loop && inner->body.size() == 1; inner = &inner->body[0]) {
    const bool is_serial = inner->loop == LoopKind::serial;
    check(is_serial, ErrorCode::unsupported,
          "{}: loop '{}' is tensorised, and loop '{}' of its product is {}; required: serial loops within a product, "
          "threads and workers around it",
          function.name, outer.name, inner->name, to_string(inner->loop));
    nest.loops.push_back(inner);
  }
  const bool is_product = inner->kind == Stmt::Kind::store && nest.loops.size() <= 3 && !inner->atomic &&
                          inner->value->op == Op::add && inner->value->operands[1]->op == Op::multiply;
  check(is_product, ErrorCode::unsupported,
        "{}: loop '{}' is tensorised, and what stands within is no longer a product of three loops; required: "
        "tensorize after all that changes them",
        function.name, outer.name);
  nest.store = inner;
  return nest;
}

}  // namespace weft::loop
