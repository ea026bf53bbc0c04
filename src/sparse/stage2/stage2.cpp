#include "sparse/stage2/stage2.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "loop/regions.h"
#include "sparse/stage1/parse.h"

namespace weft::sparse {

const Auxiliary* Stage2::find_auxiliary(std::string_view auxiliary) const {
  for (const Auxiliary& a : auxiliaries)
    if (a.name == auxiliary) return &a;
  return nullptr;
}

namespace {

std::vector<Auxiliary> auxiliaries_of(const Declarations& declared) {
  std::vector<Auxiliary> auxiliaries;
  for (const Axis& axis : declared.axes)
    for (const auto& [array, kind] :
         {std::pair(axis.indptr, Auxiliary::Kind::indptr), std::pair(axis.indices, Auxiliary::Kind::indices),
          std::pair(axis.rows, Auxiliary::Kind::rows)})
      if (!array.empty()) auxiliaries.push_back({array, axis.name, kind});
  return auxiliaries;
}

}  // namespace

Stage2 materialise_auxiliaries(const Declarations& declared) { return {{declared}, auxiliaries_of(declared), {}}; }

Expr length_of(const Declarations& declared, const Auxiliary& array) {
  const Axis& axis = declared.axis(array.axis);
  if (array.kind == Auxiliary::Kind::indptr) return declared.num_positions(axis.parent) + 1;
  return declared.num_positions(axis.name);
}

Expr most_of(const Declarations& declared, const Auxiliary& array) {
  const Axis& axis = declared.axis(array.axis);
  switch (array.kind) {
    case Auxiliary::Kind::indptr: return axis.nnz;
    case Auxiliary::Kind::rows: return declared.num_positions(axis.parent) - 1;
    case Auxiliary::Kind::indices: break;
  }
  return axis.is_variable ? axis.length - 1 : axis.length;
}

std::vector<std::string> axes_of(const Declarations& declared, const Auxiliary& array) {
  if (array.kind == Auxiliary::Kind::rows) return {};
  std::vector<std::string> axes = declared.ancestors(array.axis);
  if (array.kind == Auxiliary::Kind::indices) axes.push_back(array.axis);
  return axes;
}

Expr extent_of(const Declarations& declared, const Axis& axis, const std::vector<Expr>& ancestors) {
  (void)declared;
  if (axis.parent.empty()) return axis.length;
  if (!axis.is_variable) return axis.nnz;
  std::vector<Expr> next = ancestors;
  next.back() = next.back() + 1;
  return loop::load(axis.indptr, next, Type::integer) - loop::load(axis.indptr, ancestors, Type::integer);
}

namespace {

loop::Facts facts_where(const Declarations& declared, const std::function<bool(const std::string&)>& is_wanted) {
  loop::Function arrays{.name = declared.name, .scalars = declared.params};
  for (const Auxiliary& array : auxiliaries_of(declared))
    if (is_wanted(array.name))
      arrays.buffers.push_back({.name = array.name, .least = 0, .most = most_of(declared, array)});
  return loop::Facts(arrays);
}

}  // namespace

loop::Facts facts_of(const Declarations& declared) {
  return facts_where(declared, [](const std::string&) { return true; });
}

loop::Facts facts_of(const Declarations& declared, const Names& arrays) {
  return facts_where(declared, [&](const std::string& name) { return arrays.contains(name); });
}

namespace {

loop::Symbols symbols_of(const Stage2& stage) {
  loop::Symbols symbols = symbols_of(static_cast<const Declarations&>(stage));
  for (const Auxiliary& a : stage.auxiliaries)
    symbols.buffers[a.name] = {Type::integer, std::max<size_t>(1, axes_of(stage, a).size())};
  return symbols;
}

// Names are declared before they are used, and accesses have as many indices as their buffers.
class Verifier {
 public:
  explicit Verifier(const Stage2& stage) : name_(stage.name), symbols_(symbols_of(stage)) {}

  void check_body(const Body& body) {
    std::vector<std::string> variables, buffers;  // declared here: they end with the body
    for (const Stmt& stmt : body) {
      for (const Expr& index : stmt.indices) check_expr(index);
      if (stmt.value) check_expr(stmt.value);
      if (stmt.kind == Stmt::Kind::store || stmt.kind == Stmt::Kind::fail) check_access(stmt.name, stmt.indices.size());
      if (stmt.kind == Stmt::Kind::allocate) {
        const loop::Symbols::BufferSymbol memory{loop::type_of(stmt.dtype), stmt.indices.size()};
        ensure(symbols_.buffers.emplace(stmt.name, memory).second, "stage II of {}: buffer '{}' is declared twice",
               name_, stmt.name);
        buffers.push_back(stmt.name);
      }
      const bool declares = stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let;
      if (declares)
        ensure(symbols_.variables.insert(stmt.name).second, "stage II of {}: '{}' is declared twice", name_, stmt.name);
      check_body(stmt.init);
      check_body(stmt.body);
      if (stmt.kind == Stmt::Kind::loop) symbols_.variables.erase(stmt.name);
      if (stmt.kind == Stmt::Kind::let) variables.push_back(stmt.name);
    }
    for (const std::string& variable : variables) symbols_.variables.erase(variable);
    for (const std::string& buffer : buffers) symbols_.buffers.erase(buffer);
  }

 private:
  void check_access(const std::string& buffer, size_t num_indices) const {
    const auto found = symbols_.buffers.find(buffer);
    ensure(found != symbols_.buffers.end(), "stage II of {}: no buffer '{}' is declared here", name_, buffer);
    ensure(found->second.num_indices == num_indices, "stage II of {}: '{}' has {} dimensions, not {}", name_, buffer,
           found->second.num_indices, num_indices);
  }

  void check_expr(const Expr& e) const {
    loop::visit(e, [&](const Expr& node) {
      if (node->op == Op::variable)
        ensure(symbols_.variables.contains(node->name), "stage II of {}: no variable '{}' is declared here", name_,
               node->name);
      if (node->op == Op::load) check_access(node->name, node->operands.size());
      if (loop::is_search(node->op)) check_access(node->name, node->operands.size() - 2);
    });
  }

  std::string name_;
  loop::Symbols symbols_;
};

// What primitives change after "find regions" must not leave a block with regions of what it was.
void check_regions(const Stage2& stage) {
  visit(stage.body, [&](const Stmt& stmt) {
    if (stmt.reads.empty() && stmt.writes.empty()) return;
    const loop::Regions found = loop::regions_of_block(stmt);
    ensure(found.reads == stmt.reads && found.writes == stmt.writes,
           "stage II of {}: block '{}' has other regions than its accesses", stage.name, stmt.name);
  });
}

}  // namespace

void verify(const Stage2& stage) {
  Verifier(stage).check_body(stage.body);
  check_regions(stage);
}

std::string to_text(const Stage2& stage) {
  std::string text = fmt::format("stage2 {}({}):\n", stage.name, loop::text_of_parameters(stage.params, stage.reals));
  for (const Axis& axis : stage.axes) text += "  " + to_text(axis) + "\n";
  for (const SparseBuffer& buffer : stage.buffers) text += "  " + to_text(buffer) + "\n";
  for (const Auxiliary& a : stage.auxiliaries) {
    const std::string places =
        a.kind == Auxiliary::Kind::rows ? loop::to_text(length_of(stage, a)) : joined(axes_of(stage, a));
    text += fmt::format("  # {}[{}]: {} in 0 to {}\n", a.name, places, weft::to_string(stage.axis(a.axis).index_type),
                        loop::to_text(most_of(stage, a)));
  }
  return text + text_of_apart(stage) + loop::to_text(stage.body, 2);
}

namespace {

// What a text says of a division that may fail has to be what a failure is made of.
void check_failures(const Stage2& stage) {
  visit_exprs(stage.body, [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) {
      if (node->failure == nullptr) return;
      const auto& iterators = node->failure->iterators;
      check(node->operands.size() == iterators.size() + 2, ErrorCode::invalid_argument,
            "stage II of {}: {} has {} iterators and {} coordinates", stage.name, loop::to_words(node),
            iterators.size(), node->operands.size() - 2);
      for (const auto& [iterator, axis] : iterators)
        check(stage.find_axis(axis) != nullptr, ErrorCode::invalid_argument,
              "stage II of {}: {}: there is no axis '{}'", stage.name, loop::to_words(node), axis);
    });
  });
}

}  // namespace

Stage2 parse_stage2(std::string_view text) {
  loop::Source source(text);
  if (source.at_end()) source.fail_after("a program of stage II is expected, as in stage2 NAME(n):");
  loop::Cursor head = source.next();
  head.expect("stage2");
  Stage2 stage;
  stage.name = head.new_name("program");
  loop::parse_parameters(head, stage.params, stage.reals);
  head.expect(":");
  head.expect_end();
  parse_declarations(source, stage, /*has_rows=*/true);
  stage.auxiliaries = auxiliaries_of(stage);
  stage.body = loop::parse_body(source, 2, symbols_of(stage));
  if (!source.at_end()) source.peek().fail("nothing may follow the program");
  verify(stage);
  check_failures(stage);
  return stage;
}

}  // namespace weft::sparse
