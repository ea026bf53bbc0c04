#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// Which of the loops an access is indexed by.
Names used_by(const Expr& access, const Names& loops) {
  Names used;
  for (const std::string& v : loop::variables_of(access))
    if (loops.contains(v)) used.insert(v);
  return used;
}

}  // namespace

void tensorize(Stage2& stage, const std::string& name, const std::string& intrinsic) {
  LoopInNest found = find_loop(stage, name);
  const auto stop = [&](const std::string& why) { refuse("tensorize", name, why); };
  if (intrinsic != "product")
    stop(fmt::format("'{}' is no intrinsic; allowed is product: c[m, n] = c[m, n] + a[m, k] * b[k, n]", intrinsic));
  // Three loops, alone in each other, and the block.
  Names loops, reductions = found.nest.reductions(), reduced;
  for (size_t l = found.place; l + 1 < found.nest.path.size(); ++l) {
    const Stmt& loop = found.nest.path[l].stmt();
    if (loop.kind == Stmt::Kind::block) continue;  // blockize
    int64_t extent = 0;
    if (loop.kind != Stmt::Kind::loop || !loop::is_integer(loop.value, &extent) || extent > 256 ||
        loop.loop != loop::LoopKind::serial || loop.body.size() != 1)
      stop("it takes three serial loops of literal extents up to 256, one directly within the other");
    (reductions.contains(loop.name) ? reduced : loops).insert(loop.name);
  }
  if (loops.size() != 2 || reduced.size() != 1)
    stop(fmt::format("there are {} spatial loops and {} reductions; two and one are a product", loops.size(),
                     reduced.size()));
  const Stmt& block = found.nest.block();
  if (!block.init.empty()) stop("init of the block stands within; use decompose_reduction, or keep the sums outside");
  if (block.body.size() != 1 || block.body[0].kind != Stmt::Kind::store) stop("the block is more than one sum");
  const Stmt& store = block.body[0];
  const Expr target = loop::load(store.name, store.indices, store.value->type);
  const bool is_sum =
      store.value->op == Op::add && store.value->operands[0] == target && store.value->operands[1]->op == Op::multiply;
  if (!is_sum || store.atomic) stop("the block is no sum of products");
  Names all = loops;
  all.merge(Names(reduced));
  const auto& factors = store.value->operands[1]->operands;
  const Names a = used_by(factors[0], all), b = used_by(factors[1], all);
  const auto is_operand = [&](const Expr& e, const Names& used) {
    return e->op == Op::load && used.size() == 2 && used.contains(*reduced.begin());
  };
  if (!is_operand(factors[0], a) || !is_operand(factors[1], b) || a == b || used_by(target, all) != loops)
    stop("its operands are not indexed as c[m, n], a[m, k] and b[k, n] are");
  found.loop().annotations.push_back(intrinsic);
}

}  // namespace weft::sparse
