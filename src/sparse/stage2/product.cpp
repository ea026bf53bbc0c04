#include "sparse/stage2/product.h"

#include <algorithm>

#include "base/check.h"

namespace weft::sparse {
namespace {

[[noreturn]] void no_product(const LoopInNest& found, const std::string& why) { refuse("tensorize", found.name, why); }

void add_conjuncts(const Expr& condition, std::vector<Expr>& list) {
  if (condition->op != Op::logical_and) return list.push_back(condition);
  for (const Expr& part : condition->operands) add_conjuncts(part, list);
}

// Loops and blocks on the way to the sum, each alone in the other, and the conditions among them.
void take_way(const LoopInNest& found, Product& product) {
  for (size_t l = found.place; l + 1 < found.nest.path.size(); ++l) {
    const Stmt& stmt = found.nest.path[l].stmt();
    int64_t extent = 0;
    const bool is_alone = l == found.place || found.nest.path[l].body->size() == 1;
    const bool is_loop = stmt.kind == Stmt::Kind::loop && stmt.loop == loop::LoopKind::serial &&
                         loop::is_integer(stmt.value, &extent) && extent <= 256;
    if (!is_alone || (stmt.kind == Stmt::Kind::loop && !is_loop))
      no_product(found, "it takes three serial loops of literal extents up to 256, one directly within the other");
    if (stmt.kind == Stmt::Kind::condition) {
      add_conjuncts(stmt.value, product.conditions);
      continue;
    }
    product.shells.push_back(stmt);
    product.shells.back().body.clear();
    product.shells.back().annotations.clear();
  }
  if (found.nest.path.back().body->size() != 1) no_product(found, "other statements stand beside the block");
  product.block = found.nest.block();
}

void take_loops(const LoopInNest& found, const Names& written, Product& product) {
  const Names reductions = found.nest.reductions();
  Names spatial, reduced;
  for (const Stmt& shell : product.shells)
    if (shell.kind == Stmt::Kind::loop) (reductions.contains(shell.name) ? reduced : spatial).insert(shell.name);
  if (spatial.size() != 2 || reduced.size() != 1)
    no_product(found, fmt::format("there are {} spatial loops and {} reductions; two and one are a product",
                                  spatial.size(), reduced.size()));
  product.k = *reduced.begin();
  const std::string &first = *spatial.begin(), &second = *spatial.rbegin();
  const bool is_first = written.contains(first) && !written.contains(second);
  product.n = is_first ? first : second;
  product.m = is_first ? second : first;
}

}  // namespace

Names used_of(const Expr& e, const Names& some) {
  Names used;
  for (const std::string& v : loop::variables_of(e))
    if (some.contains(v)) used.insert(v);
  return used;
}

Expr all_hold(const std::vector<Expr>& conditions) {
  Expr all;
  for (const Expr& condition : conditions) all = all ? loop::operation(Op::logical_and, {all, condition}) : condition;
  return all;
}

Expr Product::extent_of(const std::string& variable) const {
  return std::find_if(shells.begin(), shells.end(),
                      [&](const Stmt& shell) { return shell.kind == Stmt::Kind::loop && shell.name == variable; })
      ->value;
}

std::vector<Expr> Product::conditions_on(const Names& some) const {
  std::vector<Expr> list;
  for (const Expr& condition : conditions) {
    const Names used = used_of(condition, variables());
    if (!used.empty() && std::includes(some.begin(), some.end(), used.begin(), used.end())) list.push_back(condition);
  }
  return list;
}

std::vector<Expr> Product::conditions_around() const {
  std::vector<Expr> list;
  for (const Expr& condition : conditions)
    if (used_of(condition, variables()).empty()) list.push_back(condition);
  return list;
}

Stmt Product::nest_of(const Expr& c_, const Expr& a_, const Expr& b_) const {
  Stmt nest = block;
  const Expr both = loop::operation(Op::multiply, is_b_first ? std::vector{b_, a_} : std::vector{a_, b_});
  nest.body = {loop::make_store(c_->name, c_->operands, loop::operation(Op::add, {c_, both}))};
  for (auto shell = shells.rbegin(); shell != shells.rend(); ++shell) {
    Stmt outer = *shell;
    outer.body = {std::move(nest)};
    nest = std::move(outer);
  }
  return nest;
}

Product product_at(const LoopInNest& found) {
  Product product;
  take_way(found, product);
  const Stmt& block = product.block;
  Names written;
  if (!block.body.empty() && block.body[0].kind == Stmt::Kind::store)
    written = loop::variables_of(block.body[0].indices.back());
  take_loops(found, written, product);
  if (!block.init.empty())
    no_product(found, "init of the block stands within; use decompose_reduction, or keep the sums outside");
  if (block.body.size() != 1 || block.body[0].kind != Stmt::Kind::store)
    no_product(found, "the block is more than one sum");
  const Stmt& store = block.body[0];
  product.c = loop::load(store.name, store.indices, store.value->type);
  const bool is_sum = store.value->op == Op::add && store.value->operands[0] == product.c &&
                      store.value->operands[1]->op == Op::multiply && store.value->type == Type::real;
  if (!is_sum || store.atomic) no_product(found, "the block is no sum of products of reals");
  const auto& factors = store.value->operands[1]->operands;
  const Names all = product.variables(), of_a{product.m, product.k}, of_b{product.k, product.n};
  product.is_b_first = used_of(factors[0], all) == of_b;
  product.a = factors[product.is_b_first ? 1 : 0];
  product.b = factors[product.is_b_first ? 0 : 1];
  if (used_of(product.a, all) != of_a || used_of(product.b, all) != of_b ||
      used_of(product.c, all) != Names{product.m, product.n})
    no_product(found, "its operands are not indexed as c[m, n], a[m, k] and b[k, n] are");
  if (loop::loads_from(product.a, store.name) || loop::loads_from(product.b, store.name))
    no_product(found, fmt::format("'{}' is added to and multiplied", store.name));
  for (const Expr& condition : product.conditions) {
    if (loop::loads_from(condition, store.name))
      no_product(found, fmt::format("the condition {} asks for what is added up", loop::to_words(condition)));
    if (used_of(condition, all).size() > 1)
      no_product(found, fmt::format("the condition {} leaves single products out; allowed are conditions of whole rows "
                                    "or columns, which depend on one of the loops",
                                    loop::to_words(condition)));
  }
  return product;
}

}  // namespace weft::sparse
