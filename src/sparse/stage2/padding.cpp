#include "sparse/stage2/padding.h"

#include <algorithm>

#include "base/check.h"
#include "loop/linear.h"
#include "sparse/stage2/outside.h"

namespace weft::sparse {

Padding::Padding(Stage2& stage, const LoopInNest& found, const Product& product)
    : stage_(stage), found_(found), product_(product), facts_(facts_of(stage)), taken_(taken_names(stage)) {
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block) blocks_.insert(stmt.name);
  });
  for (size_t l = 0; l < found.nest.path.size(); ++l) {
    const Nest::Level& level = found.nest.path[l];
    for (size_t i = 0; i < level.index; ++i)
      if (const Stmt& let = (*level.body)[i]; let.kind == Stmt::Kind::let) facts_.push_let(let.name, let.value);
    const Stmt& stmt = level.stmt();
    if (stmt.kind == Stmt::Kind::loop) facts_.push_loop(stmt.name, stmt.value);
    // Those within are asked operand by operand.
    if (stmt.kind == Stmt::Kind::condition && l < found.place) facts_.push_condition(stmt.value);
  }
  for (const Expr& condition : product.conditions_around()) facts_.push_condition(condition);
  check_conditions();
}

Expr Padding::factor(const Expr& value, const std::string& row, const std::string& column) {
  const std::vector<Expr> conditions = product_.conditions_on({row, column});
  check_reads(value, conditions);
  if (is_in_rows(value, column == product_.n) && (conditions.empty() || fill_with_zeros(stage_, value, conditions)))
    return value;
  const std::string stem = value->op == Op::load ? value->name : product_.c->name + "_factor";
  const std::string local = own_memory(stem, row, column, real_type_of(value));
  const Expr element = loop::load(local, {loop::variable(row), loop::variable(column)}, Type::real);
  const Expr is_there = all_hold(conditions);
  before.push_back(copy(
      "fetch_" + stem, row, column,
      {loop::make_store(local, element->operands, is_there ? loop::select(is_there, value, loop::real(0)) : value)}));
  return element;
}

const Expr& Padding::factor_in_memory(const Expr& value, const std::string& row, const std::string& column) {
  // Of its other loop only sums that nobody reads are left out.
  const std::vector<Expr> conditions = product_.conditions_on({product_.k});
  check_reads(value, product_.conditions_on({row, column}));
  if (!is_in_rows(value, false) || !(conditions.empty() || fill_with_zeros(stage_, value, conditions)))
    refuse("tensorize", found_.name,
           fmt::format("{} is no element of memory in rows; use cache_read before", loop::to_words(value)));
  return value;
}

Expr Padding::read_where_left_out() const {
  const std::vector<Expr> left_out = product_.conditions_on({product_.m, product_.n});
  Names known(stage_.params.begin(), stage_.params.end());  // the same wherever the sums are
  const auto may_be_left_out = [&](const Expr& load, const Around& around) {
    Substitution of_load;
    for (size_t d = 0; d < product_.c->operands.size(); ++d)
      for (const std::string& own : {product_.m, product_.n})
        if (loop::is_variable(product_.c->operands[d], own)) of_load[own] = load->operands[d];
    const loop::Facts facts = facts_within(stage_, around);
    return std::any_of(left_out.begin(), left_out.end(), [&](const Expr& condition) {
      Names own = loop::variables_of(condition);
      std::erase_if(own, [&](const std::string& name) { return known.contains(name); });
      const bool is_told =
          std::all_of(own.begin(), own.end(), [&](const auto& name) { return of_load.contains(name); });
      bool is_stored = false;
      loop::visit(condition, [&](const Expr& node) {
        is_stored |= node->op == Op::load && loop::stores_to(stage_.body, node->name);
      });
      return !is_told || is_stored || !facts.holds(loop::substitute(condition, of_load));
    });
  };
  Expr found;
  if (left_out.empty()) return found;
  visit_within(stage_.body, [&](const Stmt& stmt, const Around& around) {
    const Stmt* const product = &found_.loop();
    if (&stmt == product || std::find(around.begin(), around.end(), product) != around.end()) return;
    if (stmt.kind == Stmt::Kind::allocate && stmt.name == product_.c->name)
      for (const Stmt* outer : around) known.insert(outer->name);
    const auto look_at = [&](const Expr& e) {
      loop::visit(e, [&](const Expr& node) {
        const bool is_read = node->op == Op::load && node->name == product_.c->name;
        if (is_read && may_be_left_out(node, around)) found = node;
      });
    };
    for (const Expr& index : stmt.indices) look_at(index);
    if (stmt.value) look_at(stmt.value);
  });
  return found;
}

Expr Padding::target() {
  const std::vector<Expr> conditions = product_.conditions_on({product_.m, product_.n});
  const Expr& c = product_.c;
  check_reads(c, conditions);
  if (conditions.empty() && is_in_rows(c, true)) return c;
  const DType dtype = dtype_of(c->name);
  if (dtype != DType::fp32 && dtype != DType::fp64)
    refuse("tensorize", found_.name,
           fmt::format("'{}' is of {}, and {}; use cache_write for sums in fp32", c->name, weft::to_string(dtype),
                       conditions.empty() ? "gathered" : "a condition leaves some of it out"));
  if (!has_own_element_each(c->operands))
    refuse("tensorize", found_.name,
           fmt::format("{} may be the same element at two places of the product", loop::to_words(c)));
  const std::string local = own_memory(c->name, product_.m, product_.n, dtype);
  const Expr element = loop::load(local, {loop::variable(product_.m), loop::variable(product_.n)}, Type::real);
  const Expr is_there = all_hold(conditions);
  before.push_back(
      copy("read", product_.m, product_.n,
           {loop::make_store(local, element->operands, is_there ? loop::select(is_there, c, loop::real(0)) : c)}));
  Body write{loop::make_store(c->name, c->operands, element)};
  after.push_back(copy("write", product_.m, product_.n, std::move(write)));
  if (!is_there) return element;
  // Around the block, as conditions of blocks stand.
  Stmt* inner = &after.back();
  while (inner->body[0].kind == Stmt::Kind::loop) inner = &inner->body[0];
  inner->body = {loop::make_condition(is_there, std::move(inner->body))};
  return element;
}

std::string Padding::own_memory(const std::string& stem, const std::string& row, const std::string& column,
                                DType dtype) {
  const std::string local = loop::fresh_name(stem + "_local", taken_);
  taken_.insert(local);
  before.push_back(
      loop::make_allocate(local, {product_.extent_of(row), product_.extent_of(column)}, dtype, loop::Scope::registers));
  return local;
}

Stmt Padding::copy(const std::string& block, const std::string& row, const std::string& column, Body body) {
  const std::string name = loop::fresh_name(product_.block.name + "_" + block, blocks_);
  blocks_.insert(name);
  Stmt inner = loop::make_loop(column, product_.extent_of(column), {loop::make_block(name, std::move(body))});
  return loop::make_loop(row, product_.extent_of(row), {std::move(inner)});
}

// Whether it is an element whose indices are sums with the loops' variables; along n, if it is asked, one behind the
// other.
bool Padding::is_in_rows(const Expr& value, bool along_n) const {
  if (value->op != Op::load) return false;
  const Names variables = product_.variables();
  for (const Expr& index : value->operands)
    for (const auto& [term, coefficient] : loop::linear_of(index).terms) {
      if (term->op != Op::variable && !used_of(term, variables).empty()) return false;
      const bool is_last = &index == &value->operands.back();
      if (along_n && loop::is_variable(term, product_.n) && (!is_last || coefficient != 1)) return false;
      if (along_n && is_last && term->op == Op::variable && term->name != product_.n && variables.contains(term->name))
        return false;
    }
  return true;
}

// What is read while only `asked` are asked has to be there all the same.
void Padding::check_reads(const Expr& value, const std::vector<Expr>& asked) const {
  loop::Facts facts = facts_;
  for (const Expr& condition : asked) facts.push_condition(condition);
  const std::vector<Expr> around = product_.conditions_around();
  for (const Expr& left_out : product_.conditions) {
    const auto is_in = [&](const std::vector<Expr>& list) {
      return std::find(list.begin(), list.end(), left_out) != list.end();
    };
    if (is_in(asked) || is_in(around)) continue;
    loop::visit(value, [&](const Expr& node) {
      if ((node->op == Op::load && !is_there(node, facts)) || loop::is_search(node->op))
        refuse("tensorize", found_.name,
               fmt::format("{} may be there only where {}, which another operand is left out by", loop::to_words(node),
                           loop::to_words(left_out)));
    });
  }
}

// A condition is asked without those before it that are of other operands.
void Padding::check_conditions() const {
  const Names all = product_.variables();
  for (size_t i = 0; i < product_.conditions.size(); ++i) {
    const Names own = used_of(product_.conditions[i], all);
    loop::Facts facts = facts_;
    const Expr* other = nullptr;
    for (size_t earlier = 0; earlier < i; ++earlier) {
      const Names used = used_of(product_.conditions[earlier], all);
      if (used == own)
        facts.push_condition(product_.conditions[earlier]);
      else if (!used.empty())
        other = &product_.conditions[earlier];
    }
    if (other == nullptr) continue;
    loop::visit(product_.conditions[i], [&](const Expr& node) {
      int64_t divisor = 0;
      const bool divides = node->op == Op::floor_div || node->op == Op::modulo;
      const bool may_fail = (node->op == Op::load && !is_there(node, facts)) || loop::is_search(node->op) ||
                            (divides && (!loop::is_integer(node->operands[1], &divisor) || divisor <= 0));
      if (may_fail)
        refuse("tensorize", found_.name,
               fmt::format("the condition {} can be asked only where {}", loop::to_words(product_.conditions[i]),
                           loop::to_words(*other)));
    });
  }
}

// Whether all positions are proven to be some of their axes, or of the memory.
bool Padding::is_there(const Expr& load, const loop::Facts& facts) const {
  const SparseBuffer* buffer = stage_.find_buffer(load->name);
  const Auxiliary* array = stage_.find_auxiliary(load->name);
  const std::vector<std::string> axes = buffer != nullptr  ? buffer->axes
                                        : array != nullptr ? axes_of(stage_, *array)
                                                           : std::vector<std::string>();
  std::vector<Expr> extents;
  for (size_t d = 0, chain = 0; d < axes.size(); ++d) {
    const Axis& axis = stage_.axis(axes[d]);
    if (axis.parent.empty()) chain = d;
    const auto first = load->operands.begin();
    const std::vector<Expr> ancestors(first + static_cast<std::ptrdiff_t>(chain),
                                      first + static_cast<std::ptrdiff_t>(d));
    extents.push_back(extent_of(stage_, axis, ancestors));
  }
  if (array != nullptr && array->kind == Auxiliary::Kind::rows) extents = {length_of(stage_, *array)};
  if (array != nullptr && array->kind == Auxiliary::Kind::indptr) extents.back() = extents.back() + 1;
  visit(stage_.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::allocate && stmt.name == load->name) extents = stmt.indices;
  });
  if (extents.size() != load->operands.size()) return false;
  for (size_t d = 0; d < extents.size(); ++d)
    if (!facts.is_nonnegative(load->operands[d]) || !facts.holds(loop::less(load->operands[d], extents[d])))
      return false;
  return true;
}

// One index tells m, and another one n.
bool Padding::has_own_element_each(const std::vector<Expr>& indices) const {
  const auto tells = [&](const std::string& own, const std::string& other) {
    return std::any_of(indices.begin(), indices.end(),
                       [&](const Expr& index) { return !loop::uses(index, other) && is_one_to_one(index, own); });
  };
  return tells(product_.m, product_.n) && tells(product_.n, product_.m);
}

// A sum with the variable, or with the coordinate that an axis stores there: those are unique.
bool Padding::is_one_to_one(const Expr& index, const std::string& variable) const {
  int num_terms = 0;
  bool is_own = false;
  for (const auto& [term, coefficient] : loop::linear_of(index).terms) {
    if (!loop::uses(term, variable)) continue;
    ++num_terms;
    const Auxiliary* array = term->op == Op::load ? stage_.find_auxiliary(term->name) : nullptr;
    is_own = loop::is_variable(term, variable);
    if (array == nullptr || array->kind != Auxiliary::Kind::indices) continue;
    const auto last = term->operands.end() - 1;
    is_own = is_one_to_one(*last, variable) && std::none_of(term->operands.begin(), last, [&](const Expr& position) {
               return loop::uses(position, variable);
             });
  }
  return num_terms == 1 && is_own;
}

DType Padding::dtype_of(const std::string& memory) const {
  if (const SparseBuffer* buffer = stage_.find_buffer(memory)) return buffer->dtype;
  DType dtype = DType::fp32;
  visit(stage_.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::allocate && stmt.name == memory) dtype = stmt.dtype;
  });
  return dtype;
}

DType Padding::real_type_of(const Expr& value) const {
  DType dtype = DType::fp32;
  loop::visit(value, [&](const Expr& node) {
    if (node->op == Op::load && node->type == Type::real && dtype_of(node->name) == DType::fp64) dtype = DType::fp64;
  });
  return dtype;
}

namespace {

bool find_store(Body& body, const std::string& memory, std::vector<Nest::Level>& path) {
  for (size_t i = 0; i < body.size(); ++i) {
    path.push_back({&body, i});
    if (body[i].kind == Stmt::Kind::store && body[i].name == memory) return true;
    if (find_store(body[i].body, memory, path)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace

bool fill_with_zeros(Stage2& stage, const Expr& element, const std::vector<Expr>& conditions) {
  int num_stores = 0;
  visit(stage.body, [&](Stmt& stmt) {
    for (const Body* body : {&stmt.init, &stmt.body})
      for (const Stmt& inner : *body) num_stores += inner.kind == Stmt::Kind::store && inner.name == element->name;
  });
  std::vector<Nest::Level> path;
  if (num_stores != 1 || !find_store(stage.body, element->name, path)) return false;
  // From the memory on: nothing but loops and conditions, and the block.
  const auto is_allocated = [&](const Nest::Level& level) {
    return std::any_of(level.body->begin(), level.body->begin() + static_cast<std::ptrdiff_t>(level.index),
                       [&](const Stmt& s) { return s.kind == Stmt::Kind::allocate && s.name == element->name; });
  };
  const auto first = std::find_if(path.begin(), path.end(), is_allocated);
  if (first == path.end() || !(path.back().stmt().indices == element->operands)) return false;
  std::vector<Stmt> shells;
  std::vector<Expr> asked;
  for (auto level = first; level + 1 != path.end(); ++level) {
    Stmt shell = level->stmt();
    if (shell.body.size() != 1) return false;
    shell.body.clear();
    if (shell.kind == Stmt::Kind::condition)
      asked.push_back(shell.value);
    else
      shells.push_back(std::move(shell));
  }
  const bool has_all = std::all_of(conditions.begin(), conditions.end(), [&](const Expr& condition) {
    return std::find(asked.begin(), asked.end(), condition) != asked.end();
  });
  if (!has_all) return false;
  Stmt inner = path.back().stmt();
  inner.value = loop::select(all_hold(asked), inner.value, loop::real(0));
  for (auto shell = shells.rbegin(); shell != shells.rend(); ++shell) {
    shell->body = {std::move(inner)};
    inner = std::move(*shell);
  }
  first->stmt() = std::move(inner);
  return true;
}

}  // namespace weft::sparse
