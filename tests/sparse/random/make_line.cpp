#include "tests/sparse/random/make_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace weft::sparse::random {
namespace {

using loop::LoopKind;

struct LoopName {
  std::string block = {}, variable = {}, extent_text = {};
  int64_t extent = -1;  // -1: no literal
  bool reduction = false, outermost = false, innermost = false;
  bool holds_loop = false;  // and nothing else
  bool searches = false;    // rows, as fused axes do
  LoopKind kind = LoopKind::serial;
  bool tensorized = false;
  bool depends = false;  // its extent, on what is loaded
  std::string text() const { return block + "." + variable; }
};

struct BlockName {
  std::string name = {};
  std::vector<LoopName> loops = {};  // outermost first
  std::set<std::string> reads = {}, writes = {};
  std::map<std::string, std::set<std::string>> used = {};  // of each buffer, the variables in its indices
  std::vector<std::set<std::string>> product = {};         // variables of its sum, and of the two factors
  bool has_init = false, is_sum = false;
  bool is_element = false;  // one expression, stored at variables
  size_t nest = 0;          // which of the outermost statements it stands in
  bool reduces() const {
    return std::any_of(loops.begin(), loops.end(), [](const LoopName& l) { return l.reduction; });
  }
};

// All that lines can name.
struct Names {
  std::vector<BlockName> blocks = {};
  std::vector<std::string> memory = {}, wide_memory = {};  // that a line has made; of two dimensions or more
  std::vector<std::string> temporaries = {}, buffers = {};
};

void collect(const Body& body, std::vector<LoopName>& around, Names& names) {
  for (const Stmt& stmt : body) {
    if (stmt.kind == Stmt::Kind::allocate) {
      names.memory.push_back(stmt.name);
      if (stmt.indices.size() > 1) names.wide_memory.push_back(stmt.name);
    }
    if (stmt.kind == Stmt::Kind::loop) {
      LoopName loop{.variable = stmt.name,
                    .reduction = stmt.reduction,
                    .outermost = around.empty(),
                    .holds_loop = stmt.body.size() == 1 && stmt.body[0].kind == Stmt::Kind::loop,
                    .kind = stmt.loop,
                    .tensorized = std::count(stmt.annotations.begin(), stmt.annotations.end(), "product") > 0};
      if (!loop::is_integer(stmt.value, &loop.extent)) loop.extent = -1;
      loop.extent_text = loop::to_text(stmt.value);
      loop::visit(stmt.value, [&](const Expr& node) { loop.depends |= node->op == Op::load; });
      for (const Stmt& inner : stmt.body)
        loop.searches |= inner.kind == Stmt::Kind::let && loop::to_text(inner.value).starts_with("upper_bound");
      around.push_back(loop);
      collect(stmt.body, around, names);
      around.pop_back();
    } else if (stmt.kind == Stmt::Kind::block) {
      BlockName block{.name = stmt.name, .loops = around, .has_init = !stmt.init.empty()};
      for (LoopName& loop : block.loops) loop.block = stmt.name;
      if (!block.loops.empty()) block.loops.back().innermost = true;
      visit(stmt.body, [&](const Stmt& inner) {
        if (inner.kind != Stmt::Kind::store) return;
        block.writes.insert(inner.name);
        const Expr& value = inner.value;
        const bool is_sum =
            value->op == Op::add && value->operands[0]->op == Op::load && value->operands[0]->name == inner.name;
        block.is_sum |= is_sum;
        block.is_element = stmt.body.size() == 1 && stmt.init.empty() &&
                           std::all_of(inner.indices.begin(), inner.indices.end(),
                                       [](const Expr& index) { return index->op == Op::variable; });
        if (is_sum && value->operands[1]->op == Op::multiply && value->type == loop::Type::real)
          for (const Expr& part :
               {value->operands[0], value->operands[1]->operands[0], value->operands[1]->operands[1]})
            block.product.push_back(loop::variables_of(part));
      });
      visit_exprs(stmt.body, [&](const Expr& e) {
        loop::visit(e, [&](const Expr& node) {
          if (node->op != Op::load) return;
          block.reads.insert(node->name);
          for (const Expr& index : node->operands) block.used[node->name].merge(loop::variables_of(index));
        });
      });
      names.blocks.push_back(std::move(block));
      collect(stmt.body, around, names);  // what blockize put in there
    } else {
      collect(stmt.body, around, names);
    }
  }
}

Names names_of(const Stage2& stage) {
  Names names;
  std::vector<LoopName> around;
  for (size_t nest = 0; nest < stage.body.size(); ++nest) {
    const size_t first = names.blocks.size();
    collect({stage.body[nest]}, around, names);
    for (size_t b = first; b < names.blocks.size(); ++b) names.blocks[b].nest = nest;
  }
  for (const SparseBuffer& buffer : stage.buffers)
    (buffer.temporary ? names.temporaries : names.buffers).push_back(buffer.name);
  return names;
}

// A line to be: what draws take their names from.
struct Draw {
  Random& random;
  const Names& names;
  const Stage1* program;  // of stage I
  int& num_results;

  std::string result() { return fmt::format("x{}", num_results++); }
  std::string scope() { return random.pick({"register", "register", "shared", "global"}); }

  // A loop that `fits`, or now and then any.
  std::optional<LoopName> loop(const std::function<bool(const LoopName&)>& fits) {
    const bool any = random.chance(12);
    std::vector<LoopName> list;
    for (const BlockName& block : names.blocks)
      for (const LoopName& loop : block.loops)
        if (any || fits(loop)) list.push_back(loop);
    if (list.empty()) return std::nullopt;
    return random.pick(list);
  }
  std::optional<BlockName> block(const std::function<bool(const BlockName&)>& fits, int percent_of_any = 12) {
    const bool any = random.chance(percent_of_any);
    std::vector<BlockName> list;
    for (const BlockName& block : names.blocks)
      if (any || fits(block)) list.push_back(block);
    if (list.empty()) return std::nullopt;
    return random.pick(list);
  }
};
using Text = std::optional<std::string>;

bool is_serial(const LoopName& loop) { return loop.kind == LoopKind::serial; }
bool is_literal(const LoopName& loop) { return loop.extent >= 0; }
bool is_power_of_two(int64_t x) { return x >= 2 && x <= 64 && (x & (x - 1)) == 0; }

// primitive(loop), of a loop that fits.
Text of_loop(Draw& d, const char* form, const std::function<bool(const LoopName&)>& fits) {
  const auto loop = d.loop(fits);
  return loop ? Text(fmt::format(fmt::runtime(form), loop->text())) : Text();
}

Text split(Draw& d) {
  const auto loop = d.loop([](const LoopName& l) { return is_serial(l) && l.extent != 1; });
  if (!loop) return {};
  int64_t factor = d.random.pick({2, 2, 3, 4, 4, 8});
  if (loop->extent > 3 && d.random.chance(30)) factor = loop->extent / 2;
  if (d.random.chance(3)) factor = d.random.pick({1, 64, 300});
  const std::string outer = d.result(), inner = d.result();
  return fmt::format("{}, {} = split({}, {})", outer, inner, loop->text(), factor);
}

Text fuse(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return b.loops.size() >= 2; });
  if (!block || block->loops.size() < 2) return {};
  std::vector<size_t> places;
  for (size_t i = 0; i + 1 < block->loops.size(); ++i)
    if (const LoopName& a = block->loops[i], &b = block->loops[i + 1];
        a.holds_loop && a.reduction == b.reduction && is_serial(a) && is_serial(b))
      places.push_back(i);
  if (places.empty() && d.random.chance(85)) return {};
  const size_t at = places.empty() ? 0 : d.random.pick(places);
  return fmt::format("{} = fuse({}, {})", d.result(), block->loops[at].text(), block->loops[at + 1].text());
}

Text reorder(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return b.loops.size() >= 2; });
  if (!block || block->loops.size() < 2) return {};
  std::vector<LoopName> loops = block->loops;
  if (loops.size() > 2 && d.random.chance(70)) {  // two neighbours
    const auto at = d.random.below(static_cast<int64_t>(loops.size()) - 1);
    loops = {loops[static_cast<size_t>(at)], loops[static_cast<size_t>(at) + 1]};
  }
  std::reverse(loops.begin(), loops.end());
  if (loops.size() > 2) d.random.shuffle(loops);
  std::string text;
  for (const LoopName& loop : loops) text += (text.empty() ? "" : ", ") + loop.text();
  return fmt::format("reorder({})", text);
}

Text parallel(Draw& d) {
  return of_loop(d, "parallel({})", [](const auto& l) { return l.outermost && !l.reduction && is_serial(l); });
}
Text vectorize(Draw& d) {
  return of_loop(d, "vectorize({})", [](const auto& l) {
    return l.innermost && !l.reduction && is_serial(l) && is_power_of_two(l.extent);
  });
}
Text unroll(Draw& d) {
  return of_loop(d, "unroll({})", [](const auto& l) { return is_serial(l) && is_literal(l) && l.extent <= 64; });
}

Text bind(Draw& d) {
  const auto loop = d.loop(is_serial);
  if (!loop) return {};
  const bool is_sum = loop->reduction && d.random.chance(90);
  const char* axis = is_sum ? "threadIdx.x"
                            : d.random.pick({"blockIdx.x", "blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.x",
                                             "threadIdx.y", "threadIdx.z"});
  return fmt::format("bind({}, {})", loop->text(), axis);
}

Text annotate(Draw& d) {
  const auto loop = d.loop([](const LoopName&) { return true; });
  if (!loop) return {};
  if (d.random.chance(10)) return fmt::format("annotate({}, {})", loop->text(), d.random.pick({"dot", "fast"}));
  return fmt::format("annotate({}, prefetch, {})", loop->text(), d.random.pick({1, 2, 8, 16}));
}

Text cache_read(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return !b.loops.empty() && !b.reads.empty(); });
  if (!block || block->loops.empty()) return {};
  std::vector<std::string> read;
  for (const std::string& buffer : block->reads)
    if (!block->writes.contains(buffer) || d.random.chance(10)) read.push_back(buffer);
  if (read.empty()) return {};
  return fmt::format("cache_read({}, {}, {})", d.random.pick(block->loops).text(), d.random.pick(read), d.scope());
}

// Around all loops whose extents are no literals, and all reductions.
Text cache_write(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return !b.loops.empty(); });
  if (!block || block->loops.empty()) return {};
  size_t most = block->loops.size() - 1, first_reduction = block->loops.size();
  for (size_t i = block->loops.size(); i-- > 0;)
    if (block->loops[i].reduction) first_reduction = i;
  if (first_reduction < block->loops.size() && first_reduction > 0) most = first_reduction - 1;
  if (first_reduction == 0 && d.random.chance(85)) return {};
  const size_t at = d.random.chance(75) ? most : static_cast<size_t>(d.random.below(int64_t(block->loops.size())));
  return fmt::format("cache_write({}, {})", block->loops[at].text(), d.scope());
}

Text set_scope(Draw& d) {
  std::vector<std::string> all = d.names.memory;
  all.insert(all.end(), d.names.temporaries.begin(), d.names.temporaries.end());
  if (d.random.chance(5)) all.insert(all.end(), d.names.buffers.begin(), d.names.buffers.end());
  if (all.empty()) return {};
  return fmt::format("set_scope({}, {})", d.random.pick(all), d.scope());
}

// A copy of what two loops or more within one go over: memory of two dimensions.
Text wide_copy(Draw& d) {
  std::vector<std::string> lines;
  for (const BlockName& block : d.names.blocks)
    for (size_t at = 0; at + 2 < block.loops.size(); ++at)
      for (const auto& [buffer, variables] : block.used) {
        bool fits = true, reduces_around = block.loops[at].reduction;
        int dimensions = 0;
        for (size_t l = at + 1; l < block.loops.size(); ++l) {
          if (!variables.contains(block.loops[l].variable)) continue;
          fits = fits && is_literal(block.loops[l]);
          ++dimensions;
        }
        for (size_t l = 0; l < at; ++l) reduces_around |= block.loops[l].reduction;
        if (!fits || dimensions < 2) continue;
        if (!block.writes.contains(buffer))
          lines.push_back(fmt::format("cache_read({}, {}, {})", block.loops[at].text(), buffer, d.scope()));
        else if (!reduces_around)
          lines.push_back(fmt::format("cache_write({}, {})", block.loops[at].text(), d.scope()));
      }
  return lines.empty() ? Text() : Text(d.random.pick(lines));
}

Text storage_align(Draw& d) {
  if (d.names.wide_memory.empty() && d.random.chance(95)) return wide_copy(d);
  const auto& list = d.names.wide_memory.empty() ? d.names.memory : d.names.wide_memory;
  if (list.empty()) return {};
  return fmt::format("storage_align({}, {}, {})", d.random.pick(list), d.random.pick({2, 4, 8, 32}),
                     d.random.pick({0, 1, 3}));
}

// Of loops that run as often as those of the block that is moved.
Text compute_at(Draw& d, const char* primitive, bool before) {
  if (d.names.blocks.size() < 2) return {};
  const BlockName& block = d.random.pick(d.names.blocks);
  const bool any = d.random.chance(12);
  std::vector<std::string> loops;
  for (const BlockName& other : d.names.blocks) {
    if (!any && (other.nest == block.nest || (other.nest > block.nest) != before)) continue;
    for (size_t l = 0; l < other.loops.size(); ++l) {
      const bool same = l < block.loops.size() && other.loops[l].extent_text == block.loops[l].extent_text;
      if (same || any) loops.push_back(other.loops[l].text());
      if (!same) break;
    }
  }
  if (loops.empty()) return {};
  return fmt::format("{}({}, {})", primitive, block.name, d.random.pick(loops));
}

// Blocks that fill temporary memory; first, now and then, what stands beside them: init, or a nest in the same loops.
Text compute_inline(Draw& d) {
  const auto is_temporary = [&](const BlockName& b) {
    const auto& all = d.names.temporaries;
    return !b.writes.empty() && std::count(all.begin(), all.end(), *b.writes.begin()) > 0;
  };
  const auto is_one = [&](const BlockName& b) {
    return b.is_element && !b.reduces() && is_temporary(b) && !b.reads.contains(*b.writes.begin());
  };
  const auto begins = [&](const BlockName& b) { return b.has_init && is_temporary(b) && !b.loops.empty(); };
  if (const auto sum = d.block(begins, 0); sum && d.random.chance(40)) {
    const auto reduction =
        std::find_if(sum->loops.begin(), sum->loops.end() - 1, [](const LoopName& l) { return l.reduction; });
    return fmt::format("decompose_reduction({})", reduction->text());
  }
  if (d.random.chance(25))
    return d.random.chance(50) ? compute_at(d, "compute_at", true) : compute_at(d, "reverse_compute_at", false);
  const auto block = d.block(is_one, 2);
  return block ? Text(fmt::format("compute_inline({})", block->name)) : Text();
}

Text decompose_reduction(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return b.has_init && !b.loops.empty(); });
  if (!block || block->loops.empty()) return {};
  size_t most = 0;  // the first reduction
  while (most + 1 < block->loops.size() && !block->loops[most].reduction) ++most;
  if (d.random.chance(10)) most = block->loops.size() - 1;
  return fmt::format("decompose_reduction({})",
                     block->loops[static_cast<size_t>(d.random.below(static_cast<int64_t>(most) + 1))].text());
}

Text blockize(Draw& d) {
  const auto loop = d.loop([](const LoopName&) { return true; });
  return loop ? Text(fmt::format("{} = blockize({})", d.result(), loop->text())) : Text();
}

// A reduction of a literal extent, with no spatial loop within it.
Text rfactor(Draw& d) {
  const auto loop = d.loop([&](const LoopName& l) {
    const auto block = std::find_if(d.names.blocks.begin(), d.names.blocks.end(),
                                    [&](const BlockName& b) { return b.name == l.block; });
    bool spatial_within = false, inside = false;
    for (const LoopName& other : block->loops) {
      inside |= other.reduction;
      spatial_within |= inside && !other.reduction;
    }
    return l.reduction && is_literal(l) && block->is_sum && !spatial_within;
  });
  return loop ? Text(fmt::format("rfactor({}, {})", loop->text(), d.scope())) : Text();
}

Text atomic(Draw& d) {
  const auto block = d.block([](const BlockName& b) { return b.is_sum; });
  return block ? Text(fmt::format("atomic({})", block->name)) : Text();
}

Text materialise_rows(Draw& d) {
  return of_loop(d, "materialise_rows({})", [](const LoopName& l) { return l.searches; });
}

// Three loops of literals around a sum of products, innermost; init has to be outside. Until it is so, the next line
// that leads there.
Text tensorize(Draw& d) {
  const auto fits = [](const BlockName& b) {
    const bool is_done = std::any_of(b.loops.begin(), b.loops.end(), [](const LoopName& l) { return l.tensorized; });
    return b.product.size() == 3 && b.loops.size() >= 3 && !is_done;
  };
  const auto block = d.block(fits, 3);
  if (!block || block->loops.empty()) return {};
  if (!fits(*block)) return fmt::format("tensorize({}, product)", block->loops[0].text());
  const std::vector<LoopName>& loops = block->loops;
  // Of each pair of sum and factors, the innermost loop that both go over.
  std::vector<size_t> chosen;
  for (const auto& [without, a, b] : {std::tuple{0, 1, 2}, std::tuple{1, 0, 2}, std::tuple{2, 0, 1}}) {
    const LoopName* long_loop = nullptr;
    const size_t before = chosen.size();
    for (size_t l = loops.size(); l-- > 0 && chosen.size() == before;) {
      const auto has = [&](int part) { return block->product[static_cast<size_t>(part)].contains(loops[l].variable); };
      if (!is_serial(loops[l]) || !has(a) || !has(b) || has(without)) continue;
      if (is_literal(loops[l]))
        chosen.push_back(l);
      else if (!loops[l].depends && long_loop == nullptr)
        long_loop = &loops[l];
    }
    if (chosen.size() > before) continue;
    if (long_loop == nullptr) return {};
    const std::string outer = d.result(), inner = d.result();
    return fmt::format("{}, {} = split({}, {})", outer, inner, long_loop->text(), d.random.pick({2, 4}));
  }
  std::sort(chosen.begin(), chosen.end());
  if (chosen[0] + 3 != loops.size()) {
    std::string before, behind;
    for (size_t l = chosen[0]; l < loops.size(); ++l) {
      const bool is_chosen = std::count(chosen.begin(), chosen.end(), l) > 0;
      (is_chosen ? behind : before) += ", " + loops[l].text();
    }
    return fmt::format("reorder({}{})", before.substr(2), behind);
  }
  if (block->has_init && d.random.chance(95)) {
    size_t at = chosen[0];
    for (size_t l = at; l-- > 0;)
      if (loops[l].reduction) at = l;
    return fmt::format("decompose_reduction({})", loops[at].text());
  }
  return fmt::format("tensorize({}, product)", loops[chosen[0]].text());
}

// ---------------------------------------------------------------- stage I

Text sparse_reorder(Draw& d) {
  const Iteration& it = d.random.pick(d.program->iterations);
  std::vector<std::string> axes = it.flat_axes();
  const bool fits = it.around.empty() && it.axes.size() == axes.size();
  if (axes.size() < 2 || (!fits && d.random.chance(85))) return {};
  for (int tries = 0; tries < 5; ++tries) {
    d.random.shuffle(axes);
    const bool keeps_parents = std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      const std::string& parent = d.program->axis(axis).parent;
      return parent.empty() || std::find(axes.begin(), axes.end(), parent) < std::find(axes.begin(), axes.end(), axis);
    });
    if (keeps_parents || d.random.chance(5)) break;
  }
  return fmt::format("sparse_reorder({}, {})", it.name, fmt::join(axes, ", "));
}

Text sparse_fuse(Draw& d) {
  const Iteration& it = d.random.pick(d.program->iterations);
  const std::vector<std::string> axes = it.flat_axes();
  std::vector<std::string> fused;
  for (const std::string& axis : axes) {
    const std::string& parent = d.program->axis(axis).parent;
    if (parent.empty() && fused.size() < 2) fused = {axis};
    if (!parent.empty() && !fused.empty() && fused.back() == parent) fused.push_back(axis);
  }
  const bool fits = fused.size() >= 2 && it.around.empty() && it.axes.size() == axes.size();
  if (!fits && d.random.chance(90)) return {};
  if (fused.size() > 2 && d.random.chance(40)) fused.pop_back();
  return fmt::format("sparse_fuse({}, {})", it.name, fmt::join(fused, ", "));
}

// Of a matrix in CSR that is read at the iterators of a sum.
Text decompose_format(Draw& d) {
  const Iteration& it = d.random.pick(d.program->iterations);
  const std::vector<std::string> axes = it.flat_axes();
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  bool sums = true, products = true;
  for (const Stmt& stmt : it.body) {
    const Op op = stmt.value->op;
    sums = sums && (op == Op::add || op == Op::maximum || op == Op::minimum);
    products = products && op == Op::add && stmt.value->operands[1]->op == Op::multiply;
  }
  const bool any = d.random.chance(1);
  std::vector<std::string> matrices;
  for (const SparseBuffer& buffer : d.program->buffers) {
    const Axis& last = d.program->axis(buffer.axes.back());
    const bool is_csr = buffer.axes.size() == 2 && last.is_sparse && last.is_variable && !last.parent.empty();
    bool fits = is_csr && sums && it.around.empty() && it.axes.size() == axes.size() && has(axes, last.name);
    for (const std::string& axis : axes)
      fits = fits && (has(buffer.axes, axis) || d.program->axis(axis).parent.empty());
    if (loads_from(it.body, buffer.name) && (fits || any)) matrices.push_back(buffer.name);
  }
  if (matrices.empty()) return {};
  const char* of_rows = d.random.pick({"csr()", "csc()", "coo()", "dcsr()", "ell(2), csr()", "ell(1), coo()", "ell(9)",
                                       "hyb(1, 1)", "hyb(2, 1)", "hyb(1, 2)"});
  const char* of_blocks = d.random.pick({"bsr(2)", "bsr(2), coo()", "dbsr(2)", "sr_bcrs(2, 2)", "dia()"});
  return fmt::format("decompose_format({}, {}, {})", it.name, d.random.pick(matrices),
                     d.random.chance(products ? 50 : 10) ? of_blocks : of_rows);
}

struct Primitive {
  const char* name;
  int weight;
  Text (*draw)(Draw& d);
};
const Primitive kStage1[] = {
    {"sparse_reorder", 3, sparse_reorder}, {"sparse_fuse", 3, sparse_fuse}, {"decompose_format", 3, decompose_format}};
const Primitive kStage2[] = {
    {"split", 12, split},
    {"fuse", 6, fuse},
    {"reorder", 9, reorder},
    {"parallel", 6, parallel},
    {"vectorize", 6, vectorize},
    {"unroll", 4, unroll},
    {"bind", 9, bind},
    {"annotate", 4, annotate},
    {"cache_read", 7, cache_read},
    {"cache_write", 7, cache_write},
    {"set_scope", 5, set_scope},
    {"storage_align", 12, storage_align},
    {"compute_inline", 16, compute_inline},
    {"compute_at", 6, [](Draw& d) { return compute_at(d, "compute_at", true); }},
    {"reverse_compute_at", 6, [](Draw& d) { return compute_at(d, "reverse_compute_at", false); }},
    {"decompose_reduction", 6, decompose_reduction},
    {"blockize", 4, blockize},
    {"rfactor", 9, rfactor},
    {"atomic", 4, atomic},
    {"materialise_rows", 8, materialise_rows},
    {"tensorize", 20, tensorize},
};

// "split" of "x1, x2 = split(f0.k, 4)"
std::string primitive_of(const std::string& text) {
  const size_t results = text.find(" = "), first = results == text.npos ? 0 : results + 3;
  return text.substr(first, text.find('(') - first);
}

Line drawn(const Primitive& primitive, Draw d) {
  const Text text = primitive.draw(d);
  if (!text) return {};
  const std::string name = primitive_of(*text);
  return {name, *text, name != primitive.name};
}

template <class List>
const Primitive& any_of(const List& list, Random& random) {
  return list[random.pick_weighted(list, [](const Primitive& p) { return p.weight; })];
}

}  // namespace

Line LineMaker::stage1_line(const Stage1& program) {
  const Names none;
  return drawn(any_of(kStage1, random_), Draw{random_, none, &program, num_results_});
}

Line LineMaker::stage2_line(const Stage2& stage) {
  const Names names = names_of(stage);
  const Primitive* primitive = &any_of(kStage2, random_);
  if (!wanted_.empty() && random_.chance(85))
    primitive = std::find_if(std::begin(kStage2), std::end(kStage2), [&](const auto& p) { return p.name == wanted_; });
  const Line line = drawn(*primitive, Draw{random_, names, nullptr, num_results_});
  wanted_ = line.prepares ? primitive->name : "";
  return line;
}

const std::vector<std::string>& LineMaker::primitives() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Primitive& p : kStage1) all.emplace_back(p.name);
    for (const Primitive& p : kStage2) all.emplace_back(p.name);
    return all;
  }();
  return names;
}

}  // namespace weft::sparse::random
