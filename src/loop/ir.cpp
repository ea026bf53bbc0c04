#include "loop/ir.h"

#include <set>
#include <utility>

#include "base/check.h"

namespace weft::loop {

using Kind = Stmt::Kind;

Stmt make_loop(std::string variable, Expr extent, Body body) {
  return {.kind = Kind::loop, .name = std::move(variable), .value = std::move(extent), .body = std::move(body)};
}
Stmt make_store(std::string buffer, std::vector<Expr> indices, Expr value) {
  return {.kind = Kind::store, .name = std::move(buffer), .indices = std::move(indices), .value = std::move(value)};
}
Stmt make_condition(Expr condition, Body body) {
  return {.kind = Kind::condition, .value = std::move(condition), .body = std::move(body)};
}
Stmt make_let(std::string variable, Expr value) {
  return {.kind = Kind::let, .name = std::move(variable), .value = std::move(value)};
}
Stmt make_block(std::string name, Body body, Body init) {
  return {.kind = Kind::block, .name = std::move(name), .body = std::move(body), .init = std::move(init)};
}
Stmt make_fail(std::string writer, std::string buffer, std::vector<Expr> indices) {
  return {.kind = Kind::fail, .name = std::move(buffer), .indices = std::move(indices), .writer = std::move(writer)};
}
Stmt make_allocate(std::string buffer, std::vector<Expr> extents, DType dtype, Scope scope) {
  for (Expr& extent : extents)
    if (is_literal(extent, 0)) extent = 1;  // no target has arrays of no element
  return {
      .kind = Kind::allocate, .name = std::move(buffer), .indices = std::move(extents), .dtype = dtype, .scope = scope};
}

std::string_view to_string(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial: return "serial";
    case LoopKind::parallel: return "parallel";
    case LoopKind::vectorize: return "vectorize";
    case LoopKind::unroll: return "unroll";
    case LoopKind::bind: return "bind";
  }
  return "?";
}

std::string_view to_string(Scope scope) {
  switch (scope) {
    case Scope::global: return "global";
    case Scope::shared: return "shared";
    case Scope::registers: return "register";
    case Scope::fragment: return "fragment";
  }
  return "?";
}

Type type_of(DType dtype) {
  const bool integer = dtype == DType::int32 || dtype == DType::int64;
  return integer ? Type::integer : Type::real;
}

bool is_narrow(DType dtype) { return dtype == DType::fp16 || dtype == DType::bf16; }
DType computed_in(DType dtype) { return is_narrow(dtype) ? DType::fp32 : dtype; }

void visit(const Body& body, const std::function<void(const Stmt&)>& call) {
  for (const Stmt& stmt : body) {
    call(stmt);
    visit(stmt.init, call);
    visit(stmt.body, call);
  }
}

void visit(Body& body, const std::function<void(Stmt&)>& call) {
  for (Stmt& stmt : body) {
    call(stmt);
    visit(stmt.init, call);
    visit(stmt.body, call);
  }
}

void visit_exprs(const Body& body, const std::function<void(const Expr&)>& call) {
  visit(body, [&](const Stmt& stmt) {
    for (const Expr& index : stmt.indices) call(index);
    if (stmt.value) call(stmt.value);
  });
}

void rewrite_exprs(Body& body, const std::function<Expr(const Expr&)>& call) {
  visit(body, [&](Stmt& stmt) {
    for (Expr& index : stmt.indices) index = call(index);
    if (stmt.value) stmt.value = call(stmt.value);
  });
}

void substitute(Body& body, const Substitution& values) {
  Substitution here = values;
  for (Stmt& stmt : body) {
    for (Expr& index : stmt.indices) index = substitute(index, here);
    if (stmt.value) stmt.value = substitute(stmt.value, here);
    Substitution inner = here;
    if (stmt.kind == Kind::loop) inner.erase(stmt.name);
    if (stmt.kind == Kind::let) here.erase(stmt.name);
    substitute(stmt.init, inner);
    substitute(stmt.body, inner);
  }
}

bool uses(const Body& body, const std::string& variable) {
  bool found = false;
  visit_exprs(body, [&](const Expr& e) { found = found || uses(e, variable); });
  return found;
}

bool has_annotation(const Stmt& loop, std::string_view word) {
  return std::find(loop.annotations.begin(), loop.annotations.end(), word) != loop.annotations.end();
}

namespace {

// "word=16"; 0: the loop has no such annotation.
int64_t number_of(const Stmt& loop, std::string_view word, int64_t otherwise) {
  for (const std::string& annotation : loop.annotations) {
    if (annotation == word) return otherwise;
    if (annotation.starts_with(word) && annotation[word.size()] == '=')
      return std::atoll(annotation.c_str() + word.size() + 1);
  }
  return 0;
}

}  // namespace

int64_t prefetch_distance(const Stmt& loop) { return number_of(loop, "prefetch", 8); }
int64_t num_stages(const Stmt& loop) { return number_of(loop, "stages", 2); }

bool loads_from(const Body& body, const std::string& buffer) {
  bool found = false;
  visit_exprs(body, [&](const Expr& e) { found = found || loads_from(e, buffer); });
  return found;
}

bool stores_to(const Body& body, const std::string& buffer) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.kind == Kind::store && stmt.name == buffer; });
  return found;
}

bool accesses(const Body& body, const std::string& buffer) {
  return loads_from(body, buffer) || stores_to(body, buffer);
}

int num_loads(const Body& body, const std::string& buffer) {
  int count = 0;
  visit_exprs(body, [&](const Expr& e) {
    visit(e, [&](const Expr& node) { count += (node->op == Op::load || is_search(node->op)) && node->name == buffer; });
  });
  return count;
}

std::string fresh_name(const std::string& stem, const Names& taken) {
  if (!taken.contains(stem)) return stem;
  for (int i = 1;; ++i)
    if (std::string name = fmt::format("{}_{}", stem, i); !taken.contains(name)) return name;
}

const Buffer* Function::find(std::string_view buffer) const {
  for (const Buffer& b : buffers)
    if (b.name == buffer) return &b;
  return nullptr;
}

std::vector<Failure> failures_of(const Function& function) {
  std::set<Failure> failures;
  visit(function.body, [&](const Stmt& stmt) {
    if (stmt.kind == Kind::fail) failures.insert({stmt.writer, stmt.name});
  });
  visit_exprs(function.body, [&](const Expr& e) {
    if (!e->may_fail) return;
    visit(e, [&](const Expr& node) {
      if (node->failure != nullptr) failures.insert(*node->failure);
    });
  });
  return {failures.begin(), failures.end()};
}

bool may_fail(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.kind == Kind::fail; });
  visit_exprs(body, [&](const Expr& e) { found |= e->may_fail; });
  return found;
}

namespace {

class Verifier {
 public:
  explicit Verifier(const Function& function) : function_(function) {
    for (const std::string& scalar : function.scalars) declare(scalar);
    for (const std::string& real : function.reals) declare(real);
    for (const Buffer& buffer : function.buffers) buffers_.insert(buffer.name);
    for (const Buffer& buffer : function.buffers)
      if (buffer.size) check_expr(buffer.size);
  }

  void check_body(const Body& body) {
    const Names variables = variables_, buffers = buffers_;
    for (const Stmt& stmt : body) check_stmt(stmt);
    variables_ = variables;
    buffers_ = buffers;
  }

 private:
  void declare(const std::string& name) {
    ensure(variables_.insert(name).second, "{}: '{}' is declared twice", function_.name, name);
  }

  void check_access(const std::string& buffer, size_t num_indices) {
    ensure(buffers_.contains(buffer), "{}: no buffer '{}' is declared here", function_.name, buffer);
    ensure(num_indices == 1, "{}: '{}' is accessed with {} indices; flat buffers have 1", function_.name, buffer,
           num_indices);
  }

  void check_expr(const Expr& e) {
    visit(e, [&](const Expr& node) {
      if (node->op == Op::variable)
        ensure(variables_.contains(node->name), "{}: no variable '{}' is declared here", function_.name, node->name);
      if (node->op == Op::load) check_access(node->name, node->operands.size());
      if (is_search(node->op)) check_access(node->name, node->operands.size() - 2);
    });
  }

  void check_stmt(const Stmt& stmt) {
    for (const Expr& index : stmt.indices) check_expr(index);
    if (stmt.value) check_expr(stmt.value);
    switch (stmt.kind) {
      case Kind::store: return check_access(stmt.name, stmt.indices.size());
      case Kind::let: return declare(stmt.name);
      case Kind::allocate:
        ensure(buffers_.insert(stmt.name).second, "{}: buffer '{}' is declared twice", function_.name, stmt.name);
        return;
      case Kind::block: ensure(false, "{}: a block '{}' is left", function_.name, stmt.name); return;
      case Kind::condition: return check_body(stmt.body);
      case Kind::fail:
      case Kind::barrier:
      case Kind::commit_copies:
      case Kind::wait_copies: return;
      case Kind::copy_async:
      case Kind::thread_sum: return check_access(stmt.name, 1);
      case Kind::loop:
        declare(stmt.name);
        check_body(stmt.body);
        variables_.erase(stmt.name);
    }
  }

  const Function& function_;
  Names variables_, buffers_;
};

}  // namespace

void verify(const Function& function) { Verifier(function).check_body(function.body); }

}  // namespace weft::loop
