#include <algorithm>

#include "base/check.h"
#include "loop/linear.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/outside.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

struct KeptAccess {
  std::vector<Expr> indices = {};
  Around around = {};
};

std::vector<KeptAccess> kept_accesses(const Body& body, const std::string& buffer) {
  std::vector<KeptAccess> found;
  visit_within(body, [&](const Stmt& stmt, const Around& around) {
    const auto add_loads = [&](const Expr& e) {
      loop::visit(e, [&](const Expr& node) {
        if (node->op == Op::load && node->name == buffer) found.push_back({node->operands, around});
      });
    };
    if (stmt.kind == Stmt::Kind::store && stmt.name == buffer) found.push_back({stmt.indices, around});
    for (const Expr& index : stmt.indices) add_loads(index);
    if (stmt.value) add_loads(stmt.value);
  });
  return found;
}

bool accesses_it(const Stmt& stmt, const std::string& buffer) { return loop::accesses({stmt}, buffer); }

// `index` = variable * factor + what is returned, of 0 to factor - 1; none where that is not so.
Expr rest_of_piece(const Stage2& stage, const KeptAccess& access, size_t dimension, const Stmt& loop, int64_t* factor) {
  Expr rest;
  if (!loop::is_linear_in(access.indices[dimension], loop.name, factor, &rest) || *factor < 2) return {};
  const loop::Facts facts = facts_within(stage, access.around);
  return facts.is_nonnegative(rest) && facts.holds(loop::less(rest, *factor)) ? rest : Expr();
}

// A temporary buffer that becomes memory within a body of loops.
class Keeping {
 public:
  Keeping(Stage2& stage, const SparseBuffer& buffer)
      : stage_(stage), buffer_(buffer), accesses_(kept_accesses(stage.body, buffer.name)), pieces_(buffer.axes.size()) {
    if (!loop::stores_to(stage.body, buffer.name))
      refuse("set_scope", buffer.name, "nothing that runs always writes it; what preprocessing fills stays in memory");
    visit(stage.body, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::block) check_written_surely("set_scope", buffer.name, stmt, buffer.name);
      if (stmt.kind == Stmt::Kind::store && stmt.atomic && stmt.name == buffer.name)
        refuse("set_scope", buffer.name, "sums in it are atomic, of several workers; keep it before that");
    });
    visit_exprs(stage.body, [&](const Expr& e) {
      loop::visit(e, [&](const Expr& node) {
        if (loop::is_search(node->op) && node->name == buffer.name)
          refuse("set_scope", buffer.name, "it is searched, which takes a buffer");
      });
    });
  }

  void keep(loop::Scope scope) {
    Body& body = innermost(stage_.body);
    std::vector<Expr> extents;
    for (size_t d = 0; d < buffer_.axes.size(); ++d) {
      if (is_fixed(d)) continue;
      kept_.push_back(d);
      extents.push_back(pieces_[d].empty() ? extent_of_axis(stage_.axis(buffer_.axes[d])) : pieces_[d].back().extent);
    }
    if (extents.empty()) extents.push_back(1);
    const std::string local = loop::fresh_name(buffer_.name + "_local", taken_names(stage_));
    redirect(body, local);
    const auto first =
        std::find_if(body.begin(), body.end(), [&](const Stmt& stmt) { return accesses_it(stmt, local); });
    // Threads of a CTA share what the buffer would hold; a thread keeps what it computes.
    const DType dtype = scope == loop::Scope::shared ? buffer_.dtype : loop::computed_in(buffer_.dtype);
    body.insert(first, loop::make_allocate(local, extents, dtype, scope));
    std::erase_if(stage_.buffers, [&](const SparseBuffer& b) { return b.name == buffer_.name; });
  }

 private:
  // The index that all accesses have in dimension `d`, within the pieces so far; none where they differ.
  Expr common(size_t d) const {
    for (const KeptAccess& access : accesses_)
      if (!(access.indices[d] == accesses_[0].indices[d])) return {};
    return accesses_[0].indices[d];
  }

  // Whether iterations of the loop access pieces of their own along dimension `d`, as split makes them. Then indices
  // are from now on those within a piece.
  bool take_pieces(size_t d, const Stmt& loop) {
    std::vector<Expr> rests;
    int64_t factor = 0;
    for (const KeptAccess& access : accesses_) {
      int64_t own = 0;
      rests.push_back(rest_of_piece(stage_, access, d, loop, &own));
      if (!rests.back() || (factor != 0 && own != factor)) return false;
      factor = own;
    }
    for (size_t a = 0; a < accesses_.size(); ++a) accesses_[a].indices[d] = rests[a];
    pieces_[d].push_back({loop.name, factor});
    return true;
  }

  // Whether one iteration of the loops around the memory accesses one place of dimension `d`.
  bool is_fixed(size_t d) const {
    const Expr index = common(d);
    if (!index) return false;
    const Names used = loop::variables_of(index);
    return std::all_of(used.begin(), used.end(), [&](const std::string& v) {
      return around_.contains(v) || std::find(stage_.params.begin(), stage_.params.end(), v) != stage_.params.end();
    });
  }

  // The body of the innermost loop around all accesses whose iterations share nothing of the buffer.
  Body& innermost(Body& body) {
    Stmt* only = nullptr;
    for (Stmt& stmt : body) {
      if (!accesses_it(stmt, buffer_.name)) continue;
      if (only != nullptr) return body;
      only = &stmt;
    }
    ensure(only != nullptr, "set_scope: no access of '{}'", buffer_.name);
    if (loads(only->value)) return body;
    if (only->kind == Stmt::Kind::condition) return innermost(only->body);
    if (only->kind != Stmt::Kind::loop) return body;
    bool is_apart = false;
    for (size_t d = 0; d < buffer_.axes.size() && !is_apart; ++d) {
      const Expr index = common(d);
      is_apart = (index && loop::is_variable(index, only->name)) || take_pieces(d, *only);
    }
    if (!is_apart) return body;
    around_.insert(only->name);
    return innermost(only->body);
  }

  bool loads(const Expr& e) const { return e && loop::loads_from(e, buffer_.name); }

  // Below one position of its parent. A variable axis has at most as many as its length.
  Expr extent_of_axis(const Axis& axis) const {
    const Expr extent = axis.parent.empty() || axis.is_variable ? axis.length : axis.nnz;
    if (!loop::is_integer(extent))
      refuse("set_scope", buffer_.name,
             fmt::format("axis '{}' has no literal {}, and the loops around all accesses do not leave one of them; "
                         "specialise it, or let the nests share its loop with compute_at",
                         axis.name, axis.is_variable ? "length" : "number of positions"));
    return extent;
  }

  std::vector<Expr> places(const std::vector<Expr>& indices) const {
    std::vector<Expr> places;
    for (const size_t d : kept_) {
      loop::Linear place = loop::linear_of(indices[d]);
      for (const Piece& piece : pieces_[d]) place.add(loop::variable(piece.loop), -piece.extent);
      places.push_back(pieces_[d].empty() ? indices[d] : loop::expr_of(place));
    }
    if (places.empty()) places.push_back(0);
    return places;
  }

  void redirect(Body& body, const std::string& local) const {
    rewrite_exprs(body, [&](const Expr& e) {
      return loop::rewrite(e, [&](const Expr& node) {
        return node->op == Op::load && node->name == buffer_.name
                   ? loop::load(local, places(node->operands), node->type)
                   : node;
      });
    });
    visit(body, [&](Stmt& stmt) {
      if (stmt.kind != Stmt::Kind::store || stmt.name != buffer_.name) return;
      stmt.name = local;
      stmt.indices = places(stmt.indices);
    });
  }

  Stage2& stage_;
  const SparseBuffer buffer_;
  std::vector<KeptAccess> accesses_ = {};
  struct Piece {
    std::string loop;
    int64_t extent = 0;
  };
  std::vector<std::vector<Piece>> pieces_;  // of each dimension, one within the other
  Names around_;                            // variables of the loops around the memory
  std::vector<size_t> kept_;                // dimensions that it has
};

}  // namespace

void set_scope(Stage2& stage, const std::string& name, loop::Scope scope) {
  if (const SparseBuffer* buffer = stage.find_buffer(name)) {
    if (!buffer->temporary)
      refuse("set_scope", name, "it is a buffer of the caller; declare it as temporary, or use cache_write");
    return Keeping(stage, *buffer).keep(scope);
  }
  int found = 0;
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::allocate || stmt.name != name) return;
    stmt.scope = scope;
    ++found;
  });
  if (found == 0)
    refuse("set_scope", name, "no memory of that name was made; cache_read, cache_write and rfactor make some");
}

}  // namespace weft::sparse
