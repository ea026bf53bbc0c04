// Lines of a schedule that change loops.
#include "base/names.h"
#include "sparse/schedule.h"
#include "sparse/schedule_line.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

loop::Scope scope_of(const std::string& name) {
  using loop::Scope;
  for (const Scope scope : {Scope::global, Scope::shared, Scope::registers, Scope::fragment})
    if (loop::to_string(scope) == name) return scope;
  fail(ErrorCode::invalid_argument, "'{}' is no scope; allowed are register, shared, fragment and global", name);
}

using Words = std::vector<std::string>;

// primitive(loop, word, ...), for every block that has the loop.
struct LoopPrimitive {
  const char* name;
  const char* words;  // what follows the loop
  bool with_beside;   // also for what decompose_format has made of init, and for what gathers
  void (*run)(Stage2& stage, const std::string& loop, const Words& words);
};

const LoopPrimitive kLoopPrimitives[] = {
    {"parallel", "", true, [](Stage2& s, const std::string& l, const Words&) { parallel(s, l); }},
    {"vectorize", "", true, [](Stage2& s, const std::string& l, const Words&) { vectorize(s, l); }},
    {"unroll", "", true, [](Stage2& s, const std::string& l, const Words&) { unroll(s, l); }},
    {"bind", ", thread", true, [](Stage2& s, const std::string& l, const Words& w) { bind(s, l, w[0]); }},
    {"cache_write", ", scope", false,
     [](Stage2& s, const std::string& l, const Words& w) { cache_write(s, l, scope_of(w[0])); }},
    {"cache_read", ", buffer, scope", false,
     [](Stage2& s, const std::string& l, const Words& w) { cache_read(s, l, w[0], scope_of(w[1])); }},
    {"tensorize", ", intrinsic", false, [](Stage2& s, const std::string& l, const Words& w) { tensorize(s, l, w[0]); }},
    {"rfactor", ", scope", false,
     [](Stage2& s, const std::string& l, const Words& w) { rfactor(s, l, scope_of(w[0])); }},
    {"materialise_rows", "", false, [](Stage2& s, const std::string& l, const Words&) { materialise_rows(s, l); }},
    {"decompose_reduction", "", false,
     [](Stage2& s, const std::string& l, const Words&) { decompose_reduction(s, l); }},
};

const LoopPrimitive* find_loop_primitive(const std::string& name) {
  for (const LoopPrimitive& p : kLoopPrimitives)
    if (name == p.name) return &p;
  return nullptr;
}

}  // namespace

const std::vector<std::string>& stage2_primitives() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"split",      "annotate",           "fuse",          "reorder",        "set_scope",
                                    "compute_at", "reverse_compute_at", "storage_align", "compute_inline", "atomic",
                                    "blockize"};
    for (const LoopPrimitive& p : kLoopPrimitives) all.emplace_back(p.name);
    return all;
  }();
  return names;
}

std::string ScheduleRunner::resolved(const std::string& name) const {
  const auto found = results_.find(name);
  return found == results_.end() ? name : found->second;
}

std::vector<std::vector<std::string>> ScheduleRunner::loops_of(const Stage2& stage,
                                                               const std::vector<std::string>& names,
                                                               bool with_beside) const {
  std::vector<std::string> blocks;
  std::vector<std::string> variables;
  std::string first_block;
  for (const std::string& written : names) {
    const std::string name = resolved(written);
    const size_t dot = name.find('.');
    check(dot != name.npos, ErrorCode::invalid_argument,
          "'{}': a loop is named by its iteration and its variable, as in csrmm.k, or by a result of a line before",
          name);
    const std::string block = name.substr(0, dot);
    if (first_block.empty()) first_block = block;
    check(block == first_block, ErrorCode::invalid_argument, "'{}' and '{}' are loops of different iterations",
          resolved(names[0]), name);
    variables.push_back(name.substr(dot + 1));
  }
  const auto group = groups_.find(first_block);
  if (group == groups_.end()) {
    blocks = {first_block};
  } else {
    blocks = group->second.blocks;
    const std::vector<std::string>& beside = group->second.beside;
    if (with_beside) blocks.insert(blocks.begin(), beside.begin(), beside.end());
  }
  // Of a group, those blocks that have all of the loops.
  Stage2 copy = stage;
  std::vector<std::vector<std::string>> result;
  for (const std::string& block : blocks) {
    std::vector<std::string> full;
    bool has_all = true;
    for (const std::string& variable : variables) {
      full.push_back(block + "." + variable);
      if (blocks.size() == 1) {
        find_loop(copy, full.back());  // says what is wrong
        continue;
      }
      const Nest nest = find_block(copy, block);
      has_all = has_all && nest.find(variable) < nest.path.size();
    }
    if (has_all) result.push_back(std::move(full));
  }
  check(!result.empty(), ErrorCode::invalid_argument, "none of the iterations made of '{}' has loops {}", first_block,
        joined(variables));
  return result;
}

void ScheduleRunner::define(const std::string& result, const std::string& loop) {
  const std::string name = resolved(loop);
  check(!results_.contains(result), ErrorCode::invalid_argument, "'{}' names a loop already", result);
  results_[result] = name.substr(0, name.find('.')) + "." + result;
}

// The lines whose results are loops, or that name several.
bool ScheduleRunner::run_loops_line(const ScheduleLine& line, Stage2& stage) {
  const std::string& p = line.primitive;
  if (p == "split") {
    const std::string form = "outer, inner = split(loop, factor), as in ko, ki = split(csrmm.k, 16)";
    const std::string loop = name_at(line, 0, form);
    const int64_t factor = integer_at(line, 1, form);
    require(line.operands.size() == 2 && line.results.size() == 2, line, form);
    for (const auto& l : loops_of(stage, {loop}, true)) split(stage, l[0], factor, line.results[0], line.results[1]);
    for (const std::string& result : line.results) define(result, loop);
    return true;
  }
  if (p == "fuse") {
    const std::string form = "fused = fuse(outer, inner)";
    const std::string outer = name_at(line, 0, form), inner = name_at(line, 1, form);
    require(line.operands.size() == 2 && line.results.size() == 1, line, form);
    for (const auto& l : loops_of(stage, {outer, inner}, true)) fuse(stage, l[0], l[1], line.results[0]);
    define(line.results[0], outer);
    return true;
  }
  if (p == "blockize") {
    const std::string form = "block = blockize(loop)";
    require(line.operands.size() == 1 && line.results.size() == 1, line, form);
    const auto loops = loops_of(stage, {name_at(line, 0, form)}, false);
    check(loops.size() == 1, ErrorCode::unsupported, "blockize: required: a loop of one iteration");
    blockize(stage, loops[0][0], line.results[0]);
    return true;
  }
  require(line.results.empty(), line, p + "(...) without results");
  if (p != "reorder") return false;
  std::vector<std::string> loops;
  for (size_t i = 0; i < line.operands.size(); ++i) loops.push_back(name_at(line, i, "reorder(loop, loop, ...)"));
  require(loops.size() >= 2, line, "reorder(loop, loop, ...)");
  for (const auto& l : loops_of(stage, loops, false)) reorder(stage, l);
  return true;
}

// The lines that name blocks or buffers.
bool ScheduleRunner::run_blocks_line(const ScheduleLine& line, Stage2& stage) {
  const std::string& p = line.primitive;
  const auto names = [&](const std::string& form, size_t count) {
    require(line.operands.size() == count, line, form);
    std::vector<std::string> list;
    for (size_t i = 0; i < count; ++i) list.push_back(name_at(line, i, form));
    return list;
  };
  if (p == "set_scope") {
    const auto n = names("set_scope(buffer, scope)", 2);
    set_scope(stage, n[0], scope_of(n[1]));
    return true;
  }
  if (p == "annotate") {
    const std::string form = "annotate(loop, word), or annotate(loop, word, number)";
    require(line.operands.size() == 2 || line.operands.size() == 3, line, form);
    std::optional<int64_t> number;
    if (line.operands.size() == 3) number = integer_at(line, 2, form);
    for (const auto& l : loops_of(stage, {name_at(line, 0, form)}, false))
      annotate(stage, l[0], name_at(line, 1, form), number);
    return true;
  }
  if (p == "storage_align") {
    const std::string form = "storage_align(buffer, factor, offset)";
    require(line.operands.size() == 3, line, form);
    storage_align(stage, name_at(line, 0, form), integer_at(line, 1, form), integer_at(line, 2, form));
    return true;
  }
  if (p == "compute_inline" || p == "atomic") {
    const std::string block = names(p + "(iteration)", 1)[0];
    const auto group = groups_.find(block);
    for (const std::string& b : group == groups_.end() ? std::vector{block} : group->second.blocks)
      (p == "atomic" ? atomic : compute_inline)(stage, b);
    return true;
  }
  if (p == "compute_at" || p == "reverse_compute_at") {
    const auto n = names(p + "(iteration, loop), as in " + p + "(scores, values.i)", 2);
    const auto loops = loops_of(stage, {n[1]}, false);
    check(loops.size() == 1 && !groups_.contains(n[0]), ErrorCode::unsupported,
          "{}({}, {}): required: one iteration on both sides; name those that decompose_format made", p, n[0], n[1]);
    (p == "compute_at" ? compute_at : reverse_compute_at)(stage, n[0], loops[0][0]);
    return true;
  }
  return false;
}

void ScheduleRunner::run_line(const ScheduleLine& line, Stage2& stage) {
  check_known(line, stage2_primitives(), stage1_primitives(),
              "it changes iterations, of which lower() makes loops; write it before lower()");
  if (run_loops_line(line, stage) || run_blocks_line(line, stage)) return;
  const LoopPrimitive& primitive = *find_loop_primitive(line.primitive);
  const std::string form = fmt::format("{}(loop{})", line.primitive, primitive.words);
  const auto num_words = static_cast<size_t>(std::count(form.begin(), form.end(), ','));
  require(line.operands.size() == 1 + num_words, line, form);
  Words words;
  for (size_t i = 1; i <= num_words; ++i) words.push_back(name_at(line, i, form));
  for (const auto& loops : loops_of(stage, {name_at(line, 0, form)}, primitive.with_beside))
    primitive.run(stage, loops[0], words);
}

}  // namespace weft::sparse
