// Memory of one's own for what is read.
#include <utility>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/outside.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// How a block reads a buffer: at one place, and, if so, where some condition within the block holds.
class BlockReads {
 public:
  BlockReads(const Stmt& block, std::string buffer, std::string loop)
      : block_(block), buffer_(std::move(buffer)), loop_(std::move(loop)) {
    look(block.body);
    if (!access) refuse("cache_read", loop_, fmt::format("block '{}' does not read '{}'", block.name, buffer_));
  }

  Expr access = {};
  Expr condition = {};  // of every read; none where one is always made
  Names declared = {};  // within the block

 private:
  void look(const Body& body) {
    for (const Stmt& stmt : body) {
      for (const Expr& index : stmt.indices) look(index);
      if (stmt.value) look(stmt.value);
      if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let) declared.insert(stmt.name);
      if (stmt.kind == Stmt::Kind::condition) conditions_.push_back(stmt.value);
      look(stmt.init);
      look(stmt.body);
      if (stmt.kind == Stmt::Kind::condition) conditions_.pop_back();
    }
  }

  void look(const Expr& e) {
    if (e->op == Op::select) {
      look(e->operands[0]);
      look_where(e->operands[0], e->operands[1]);
      return look_where(loop::operation(Op::logical_not, {e->operands[0]}), e->operands[2]);
    }
    if (e->op == Op::logical_and || e->op == Op::logical_or) {
      look(e->operands[0]);
      const bool is_and = e->op == Op::logical_and;
      return look_where(is_and ? e->operands[0] : loop::operation(Op::logical_not, {e->operands[0]}), e->operands[1]);
    }
    for (const Expr& operand : e->operands) look(operand);
    if (loop::is_search(e->op) && e->name == buffer_)
      refuse("cache_read", loop_,
             fmt::format("block '{}' searches in '{}'; one element is kept", block_.name, buffer_));
    if (e->op == Op::load && e->name == buffer_) add(e);
  }

  void look_where(const Expr& holds, const Expr& e) {
    conditions_.push_back(holds);
    look(e);
    conditions_.pop_back();
  }

  void add(const Expr& e) {
    if (access && !(access == e))
      refuse("cache_read", loop_,
             fmt::format("block '{}' reads '{}' at {} and at {}; one place is kept", block_.name, buffer_,
                         loop::to_words(access), loop::to_words(e)));
    Expr here;
    for (const Expr& outer : conditions_) here = here ? loop::operation(Op::logical_and, {here, outer}) : outer;
    if (!access)
      condition = here;
    else if (condition && here && !(condition == here))
      condition = loop::operation(Op::logical_or, {condition, here});
    else if (!here)
      condition = {};
    access = e;
  }

  const Stmt& block_;
  std::string buffer_, loop_;
  std::vector<Expr> conditions_;
};

// What is copied: the element, or, where each read is select(condition, element, 0), that.
Expr or_zero(const Stmt& block, const BlockReads& reads) {
  if (!reads.condition || reads.access->type != Type::real) return reads.access;
  const Expr whole = loop::select(reads.condition, reads.access, loop::real(0));
  int num_reads = 0, num_wholes = 0;
  visit_exprs(block.body, [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) { num_reads += node == reads.access, num_wholes += node == whole; });
  });
  return num_reads == num_wholes ? whole : reads.access;
}

}  // namespace

void cache_read(Stage2& stage, const std::string& name, const std::string& buffer_name, loop::Scope scope) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& block = found.nest.block();
  const SparseBuffer* buffer = stage.find_buffer(buffer_name);
  const Auxiliary* array = stage.find_auxiliary(buffer_name);
  if (buffer == nullptr && array == nullptr)
    refuse("cache_read", name, fmt::format("there is no buffer '{}'", buffer_name));
  if (stores_to(block.body, buffer_name))
    refuse("cache_read", name, fmt::format("block '{}' writes '{}' itself; use cache_write", block.name, buffer_name));
  if (stores_to(found.loop().body, buffer_name))
    refuse("cache_read", name, fmt::format("'{}' is written within the loop", buffer_name));
  const BlockReads reads(block, buffer_name, name);
  const Expr& access = reads.access;
  const Expr value = or_zero(block, reads);

  // The loops within that the place depends on; conditions on those hold for the copy, too.
  const Names used = loop::variables_of(access);
  std::vector<Expr> extents, places;
  Body shells;
  std::vector<const Stmt*> left_out;
  Names hidden = reads.declared;  // what the copy does not have
  const auto is_known = [&](const Expr& e) { return !have_common(loop::variables_of(e), hidden); };
  const auto check_same = [&](const Expr& e) {  // at the begin of the loop's iteration as where it is read
    if (e->may_fail)
      refuse("cache_read", name,
             fmt::format("where '{}' is read may divide by 0, also where nothing is read: {}", buffer_name,
                         loop::to_words(e)));
    loop::visit(e, [&](const Expr& node) {
      if (node->op != Op::load && !loop::is_search(node->op)) return;
      visit(found.loop().body, [&](const Stmt& stmt) {
        if (stmt.kind == Stmt::Kind::store && stmt.name == node->name)
          refuse(
              "cache_read", name,
              fmt::format("where '{}' is read depends on '{}', which is set within the loop", buffer_name, node->name));
      });
    });
  };
  check_same(access);
  const auto check_known = [&](const Expr& condition) {
    if (!is_known(condition))
      refuse("cache_read", name,
             fmt::format("whether '{}' may be read depends on {}", buffer_name, loop::to_words(condition)));
    check_same(condition);
  };
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i) {
    const Nest::Level& level = found.nest.path[i];
    for (size_t s = 0; s < level.index; ++s)
      if ((*level.body)[s].kind == Stmt::Kind::let) hidden.insert((*level.body)[s].name);
    Stmt shell = level.stmt();
    shell.body.clear();
    if (shell.kind == Stmt::Kind::block) continue;
    if (shell.kind == Stmt::Kind::loop && !used.contains(shell.name)) {
      hidden.insert(shell.name);
      left_out.push_back(&level.stmt());
      continue;
    }
    if (shell.kind == Stmt::Kind::loop) {
      if (!loop::is_integer(shell.value))
        refuse("cache_read", name,
               fmt::format("the extent {} of '{}' is no literal; split it first", loop::to_words(shell.value),
                           shell.name));
      extents.push_back(shell.value);
      places.push_back(loop::variable(shell.name));
      shell.reduction = false;
      shell.loop = loop::LoopKind::serial;
      shell.thread.clear();
      shell.annotations.clear();
    } else if (is_known(shell.value)) {
      check_same(shell.value);
    } else {
      left_out.push_back(&level.stmt());
      continue;
    }
    shells.push_back(std::move(shell));
  }
  for (const std::string& v : used)
    if (hidden.contains(v))
      refuse("cache_read", name, fmt::format("'{}' is read at '{}', which is set further inside", buffer_name, v));
  if (reads.condition) {
    check_known(reads.condition);
    if (value == access) shells.push_back(loop::make_condition(reads.condition, {}));
  }
  Around outer = found.nest.around(found.place);
  outer.push_back(&found.loop());
  if (extents.empty()) extents.push_back(1), places.push_back(0);

  const std::string local = loop::fresh_name(buffer_name + "_local", taken_names(stage));
  const Expr cached = loop::load(local, places, access->type);
  rewrite_exprs(block.body, [&](const Expr& e) {
    return loop::rewrite(e, [&](const Expr& node) { return node == value ? cached : node; });
  });
  Body copy{loop::make_block(found.block + "_fetch", {loop::make_store(local, places, value)})};
  copy = where_they_run(stage, found.nest, found.place, outer, shells, left_out, std::move(copy));
  for (auto shell = shells.rbegin(); shell != shells.rend(); ++shell) {
    Stmt stmt = *shell;
    stmt.body = std::move(copy);
    copy = {std::move(stmt)};
  }
  const DType dtype = loop::computed_in(array != nullptr ? stage.axis(array->axis).index_type : buffer->dtype);
  Body& body = found.loop().body;
  copy.insert(copy.begin(), loop::make_allocate(local, extents, dtype, scope));
  body.insert(body.begin(), copy.begin(), copy.end());
}

}  // namespace weft::sparse
