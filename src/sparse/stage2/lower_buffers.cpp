#include "sparse/stage2/lower_buffers.h"

#include <map>
#include <utility>

#include "base/check.h"
#include "loop/facts.h"
#include "sparse/failures.h"
#include "sparse/stage2/lower_init.h"
#include "sparse/stage2/nest.h"

namespace weft::sparse {
namespace {

class BufferLowering {
 public:
  explicit BufferLowering(const Stage2& stage) : stage_(stage), taken_(taken_names(stage)) {}

  loop::Function lower() {
    loop::Function function{.name = stage_.name, .scalars = stage_.params, .reals = stage_.reals};
    for (const Auxiliary& a : stage_.auxiliaries) {
      function.buffers.push_back({.name = a.name,
                                  .dtype = stage_.axis(a.axis).index_type,
                                  .size = length_of(stage_, a),
                                  .least = 0,
                                  .most = most_of(stage_, a)});
    }
    for (const SparseBuffer& b : stage_.buffers)
      function.buffers.push_back({.name = b.name, .dtype = b.dtype, .size = size_of(b.axes), .temporary = b.temporary});
    for (const auto& axes : stage_.apart) {
      std::vector<std::string>& arrays = function.apart.emplace_back();
      for (const std::string& axis : axes) arrays.push_back(stage_.axis(axis).indices);
    }
    function.body = lowered(stage_.body);
    return function;
  }

 private:
  Expr size_of(const std::vector<std::string>& axes) const {
    Expr size = 1;
    for (size_t i = 0; i < axes.size(); ++i)
      if (i + 1 == axes.size() || stage_.axis(axes[i + 1]).parent.empty()) size = size * stage_.num_positions(axes[i]);
    return size;
  }

  // Equations 3.6 to 3.8.
  Expr flat_index(const std::vector<std::string>& axes, const std::vector<Expr>& positions) const {
    Expr index = 0, offset;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Axis& axis = stage_.axis(axes[i]);
      if (axis.parent.empty())
        offset = positions[i];
      else if (axis.is_variable)
        offset = loop::load(axis.indptr, {offset}, Type::integer) + positions[i];
      else
        offset = offset * axis.nnz + positions[i];
      const bool is_last = i + 1 == axes.size() || stage_.axis(axes[i + 1]).parent.empty();
      if (!is_last) continue;
      // A chain after others: their offsets in units of its positions.
      index = index * stage_.num_positions(axis.name) + offset;
    }
    return index;
  }

  Expr flat_access(const std::string& name, const std::vector<Expr>& positions) const {
    if (const Auxiliary* a = stage_.find_auxiliary(name)) {
      return a->kind == Auxiliary::Kind::rows ? positions[0] : flat_index(axes_of(stage_, *a), positions);
    }
    if (const SparseBuffer* buffer = stage_.find_buffer(name)) return flat_index(buffer->axes, positions);
    const std::vector<Expr>& extents = local_.at(name);
    Expr index = 0;
    for (size_t i = 0; i < extents.size(); ++i) index = index * extents[i] + positions[i];
    return index;
  }

  Expr lowered(const Expr& e) const {
    return loop::rewrite(e, [&](const Expr& node) -> Expr {
      if (node->op == Op::load) return loop::load(node->name, {flat_access(node->name, node->operands)}, node->type);
      if (node->failure != nullptr) {
        const std::vector<Expr> at(node->operands.begin() + 2, node->operands.end());
        return loop::checked_division(node->op, node->operands[0], node->operands[1], node->failure,
                                      {failure_number(stage_, *node->failure, at)});
      }
      if (!loop::is_search(node->op)) return node;
      const std::vector<Expr> start(node->operands.begin(), node->operands.end() - 2);
      return loop::search(node->op, node->name, {flat_access(node->name, start)}, *(node->operands.end() - 2),
                          node->operands.back());
    });
  }

  Body lowered(const Body& body) {
    Body result;
    for (size_t i = 0; i < body.size(); ++i) {
      Stmt stmt = body[i];
      if (stmt.kind == Stmt::Kind::block) {
        // Blocks dissolve; a let that would meet one of what follows gets another name.
        rename_lets(stmt.body, body, i + 1);
        Body inner = lowered(stmt.body);
        result.insert(result.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
        continue;
      }
      if (stmt.kind == Stmt::Kind::allocate) {
        local_[stmt.name] = stmt.indices;
        Expr size = 1;
        for (const Expr& extent : stmt.indices) size = size * extent;
        stmt.indices = {size};
      } else {
        for (Expr& index : stmt.indices) index = lowered(index);
      }
      if (stmt.value) stmt.value = lowered(stmt.value);
      if (stmt.kind == Stmt::Kind::store) stmt.indices = {flat_access_of(stmt)};
      if (stmt.kind == Stmt::Kind::fail) stmt.indices = {failure_number(stage_, stmt.name, stmt.indices)};
      stmt.body = lowered(stmt.body);
      result.push_back(std::move(stmt));
    }
    return result;
  }

  void rename_lets(Body& block, const Body& body, size_t next) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].kind != Stmt::Kind::let) continue;
      bool meets = false;
      for (size_t s = next; s < body.size(); ++s)
        visit(Body{body[s]}, [&](const Stmt& later) {
          meets |= later.name == block[i].name && (later.kind == Stmt::Kind::let || later.kind == Stmt::Kind::loop);
        });
      if (!meets) continue;
      const std::string name = loop::fresh_name(block[i].name, taken_);
      taken_.insert(name);
      Body rest(block.begin() + static_cast<std::ptrdiff_t>(i) + 1, block.end());
      substitute(rest, {{block[i].name, loop::variable(name)}});
      std::move(rest.begin(), rest.end(), block.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      block[i].name = name;
    }
  }

  Expr flat_access_of(const Stmt& store) const { return flat_access(store.name, store.indices); }

  const Stage2& stage_;
  Names taken_;
  std::map<std::string, std::vector<Expr>> local_;
};

}  // namespace

Stage3 lower_buffers(Stage2 stage) {
  lower_init(stage);
  Stage3 result{BufferLowering(stage).lower()};
  verify(result.function);
  return result;
}

}  // namespace weft::sparse
