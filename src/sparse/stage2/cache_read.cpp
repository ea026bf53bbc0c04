// Memory of one's own for what is read.
#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

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
  Expr access;
  visit_exprs(block.body, [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) {
      if (node->op != Op::load || node->name != buffer_name) return;
      if (access && !(access == node))
        refuse("cache_read", name,
               fmt::format("block '{}' reads '{}' at {} and at {}; one place is kept", block.name, buffer_name,
                           loop::to_text(access), loop::to_text(node)));
      access = node;
    });
  });
  if (!access) refuse("cache_read", name, fmt::format("block '{}' does not read '{}'", block.name, buffer_name));

  // The loops within that the place depends on; conditions on the way hold for the copy, too.
  const Names used = loop::variables_of(access);
  std::vector<Expr> extents, places;
  Body shells;
  Names hidden;  // what the copy does not have
  const auto hide_lets = [&](const Body& body, size_t end) {
    for (size_t s = 0; s < end; ++s)
      if (body[s].kind == Stmt::Kind::let) hidden.insert(body[s].name);
  };
  for (size_t i = found.place + 1; i + 1 < found.nest.path.size(); ++i) {
    Stmt shell = found.nest.path[i].stmt();
    shell.body.clear();
    hide_lets(*found.nest.path[i].body, found.nest.path[i].index);
    if (shell.kind == Stmt::Kind::loop && !used.contains(shell.name)) {
      hidden.insert(shell.name);
      continue;
    }
    const Names needed = loop::variables_of(shell.value);
    const bool is_known =
        std::none_of(needed.begin(), needed.end(), [&](const std::string& v) { return hidden.contains(v); });
    if (shell.kind == Stmt::Kind::loop) {
      if (!loop::is_integer(shell.value))
        refuse(
            "cache_read", name,
            fmt::format("the extent {} of '{}' is no literal; split it first", loop::to_text(shell.value), shell.name));
      extents.push_back(shell.value);
      places.push_back(loop::variable(shell.name));
      shell.reduction = false;
      shell.loop = loop::LoopKind::serial;
      shell.thread.clear();
    } else if (!is_known) {
      refuse("cache_read", name,
             fmt::format("whether '{}' may be read depends on {}", buffer_name, loop::to_text(shell.value)));
    }
    shells.push_back(std::move(shell));
  }
  hide_lets(*found.nest.path.back().body, found.nest.path.back().index);
  hide_lets(block.body, block.body.size());
  for (const std::string& v : used)
    if (hidden.contains(v))
      refuse("cache_read", name, fmt::format("'{}' is read at '{}', which is set further inside", buffer_name, v));
  if (extents.empty()) extents.push_back(1), places.push_back(0);

  const std::string local = loop::fresh_name(buffer_name + "_local", taken_names(stage));
  const Expr cached = loop::load(local, places, access->type);
  rewrite_exprs(block.body, [&](const Expr& e) {
    return loop::rewrite(e, [&](const Expr& node) { return node == access ? cached : node; });
  });
  Body copy{loop::make_block(found.block + "_fetch", {loop::make_store(local, places, access)})};
  for (auto shell = shells.rbegin(); shell != shells.rend(); ++shell) {
    Stmt stmt = *shell;
    stmt.body = std::move(copy);
    copy = {std::move(stmt)};
  }
  DType dtype = array != nullptr ? DType::int64 : buffer->dtype;
  if (dtype == DType::bf16) dtype = DType::fp32;
  Body& body = found.loop().body;
  copy.insert(copy.begin(), loop::make_allocate(local, extents, dtype, scope));
  body.insert(body.begin(), copy.begin(), copy.end());
}

}  // namespace weft::sparse
