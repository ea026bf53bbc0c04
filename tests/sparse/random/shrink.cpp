// The smallest case that has the same kind of problem.
#include <algorithm>
#include <set>

#include "tests/sparse/random/case.h"

namespace weft::sparse::random {
namespace {

class Shrinking {
 public:
  Shrinking(const Case& c, const Check& check, int tries) : best_(c), check_(check), left_(tries) {
    kind_ = check(c).kind;
  }

  Case run() {
    if (kind_.empty()) return best_;  // not the same twice
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = false;
      smaller |= drop(&Case::stage2);
      smaller |= drop(&Case::stage1);
      smaller |= drop_iterations();
      smaller |= simplify_iterations();
    }
    drop_declarations();
    return best_;
  }

 private:
  bool keep(const Case& candidate) {
    if (left_ <= 0) return false;
    --left_;
    if (check_(candidate).kind != kind_) return false;
    best_ = candidate;
    return true;
  }

  bool drop(std::vector<Line> Case::*lines) {
    bool smaller = false;
    for (size_t i = (best_.*lines).size(); i-- > 0;) {
      Case candidate = best_;
      (candidate.*lines).erase((candidate.*lines).begin() + static_cast<std::ptrdiff_t>(i));
      smaller |= keep(candidate);
    }
    return smaller;
  }

  bool drop_iterations() {
    bool smaller = false;
    for (size_t i = best_.program.iterations.size(); i-- > 0 && best_.program.iterations.size() > 1;) {
      Case candidate = best_;
      auto& iterations = candidate.program.iterations;
      iterations.erase(iterations.begin() + static_cast<std::ptrdiff_t>(i));
      smaller |= keep(candidate);
    }
    return smaller;
  }

  bool simplify_iterations() {
    bool smaller = false;
    for (size_t i = 0; i < best_.program.iterations.size(); ++i) {
      const auto change = [&](const auto& how) {
        Case candidate = best_;
        if (how(candidate.program.iterations[i])) smaller |= keep(candidate);
      };
      change([](IterationDef& it) { return !it.where.empty() && (it.where.clear(), true); });
      change([](IterationDef& it) { return !it.init.empty() && (it.init.clear(), true); });
      change([](IterationDef& it) { return it.body.size() > 1 && (it.body.pop_back(), true); });
      change([](IterationDef& it) { return it.body.size() > 1 && (it.body.erase(it.body.begin()), true); });
      for (size_t s = 0; s < best_.program.iterations[i].body.size(); ++s)
        for (size_t o = 0; s < best_.program.iterations[i].body.size(); ++o) {
          const Term value = best_.program.iterations[i].body[s].value;
          if (o >= value.operands.size() || value.kind != Term::Kind::operation) break;
          if (value.operands[o].type == value.type)
            change([&](IterationDef& it) { return it.body[s].value = value.operands[o], true; });
          for (size_t p = 0; p < value.operands[o].operands.size(); ++p) {
            const Term inner = value.operands[o].operands[p];
            if (value.operands[o].kind == Term::Kind::operation && inner.type == value.operands[o].type)
              change([&](IterationDef& it) {
                Term& operands = it.body[s].value;
                return o < operands.operands.size() && (operands.operands[o] = inner, true);
              });
          }
        }
    }
    return smaller;
  }

  // What nothing names any more.
  void drop_declarations() {
    Case candidate = best_;
    ProgramDef& program = candidate.program;
    std::string used = candidate.schedule() + " ";
    std::set<std::string> buffers, axes;
    const auto add = [&](const Term& term) { buffers.merge(buffers_in(term)); };
    for (const IterationDef& it : program.iterations) {
      axes.insert(it.axes.begin(), it.axes.end());
      for (const auto* body : {&it.init, &it.body})
        for (const StoreDef& store : *body) {
          buffers.insert(store.buffer);
          add(store.value);
          for (const Term& index : store.indices) add(index);
        }
      for (const Term& condition : it.where) add(condition);
    }
    std::erase_if(program.buffers, [&](const BufferDef& buffer) { return !buffers.contains(buffer.name); });
    for (const BufferDef& buffer : program.buffers) axes.insert(buffer.axes.begin(), buffer.axes.end());
    for (auto axis = program.axes.rbegin(); axis != program.axes.rend(); ++axis)
      if (axes.contains(axis->name) && !axis->parent.empty()) axes.insert(axis->parent);
    std::erase_if(program.axes, [&](const AxisDef& axis) { return !axes.contains(axis.name); });
    left_ = std::max(left_, 1);
    keep(candidate);
    // Parameters by their names in the text, behind the head.
    candidate = best_;
    std::string text = to_text(candidate.program);
    text.erase(0, text.find('\n'));
    const auto is_unnamed = [&](const auto& param) { return text.find(param.first) == text.npos; };
    std::erase_if(candidate.program.params, is_unnamed);
    std::erase_if(candidate.program.reals, is_unnamed);
    left_ = std::max(left_, 1);
    keep(candidate);
  }

  Case best_;
  const Check& check_;
  int left_;
  std::string kind_;
};

}  // namespace

Case shrunk(const Case& c, const Check& check, int tries) { return Shrinking(c, check, tries).run(); }

}  // namespace weft::sparse::random
