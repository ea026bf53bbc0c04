#include "sparse/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

const std::vector<std::string> kStage1 = {"decompose_format", "sparse_reorder", "sparse_fuse"};
const std::vector<std::string> kStage2 = {
    "split",       "fuse",       "reorder",   "parallel", "vectorize",          "unroll", "bind", "annotate",
    "cache_write", "cache_read", "set_scope", "rfactor",  "decompose_reduction"};

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// The message of an error without its code.
std::string message_of(const Error& error) {
  const std::string_view what = error.what();
  return std::string(what.substr(to_string(error.code()).size() + 2));
}

template <class Work>
void at_line(const ScheduleLine& line, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (line.line == 0) throw;
    throw Error(error.code(), fmt::format("line {}, column {}: {}", line.line, line.column, message_of(error)));
  }
}

void bad_operands(const ScheduleLine& line, const std::string& form) {
  fail(ErrorCode::invalid_argument, "{}: the operands are written as {}", line.primitive, form);
}

void require(bool ok, const ScheduleLine& line, const std::string& form) {
  if (!ok) bad_operands(line, form);
}

std::string name_at(const ScheduleLine& line, size_t index, const std::string& form) {
  require(index < line.operands.size() && line.operands[index].kind == Operand::Kind::name, line, form);
  return line.operands[index].text;
}

int64_t integer_at(const ScheduleLine& line, size_t index, const std::string& form) {
  require(index < line.operands.size() && line.operands[index].kind == Operand::Kind::integer, line, form);
  return line.operands[index].integer;
}

loop::Scope scope_of(const std::string& name) {
  for (const loop::Scope scope : {loop::Scope::global, loop::Scope::shared, loop::Scope::registers})
    if (loop::to_string(scope) == name) return scope;
  fail(ErrorCode::invalid_argument, "'{}' is no scope; allowed are register, shared and global", name);
}

void check_known(const ScheduleLine& line, const std::vector<std::string>& own, const std::vector<std::string>& other,
                 const char* advice) {
  if (contains(own, line.primitive)) return;
  if (contains(other, line.primitive)) fail(ErrorCode::invalid_argument, "{}: {}", line.primitive, advice);
  check(line.primitive != "lower", ErrorCode::invalid_argument, "lower: it stands once, between the stages");
  std::vector<std::string> all = kStage1;
  all.insert(all.end(), kStage2.begin(), kStage2.end());
  all.emplace_back("lower");
  fail(ErrorCode::invalid_argument, "'{}' is no primitive{}", line.primitive, did_you_mean(line.primitive, all));
}

}  // namespace

std::vector<FormatRewriteRule> rules_of(const Operand& format, const MatrixAxes& matrix) {
  const auto number = [&](size_t i) { return format.operands[i].integer; };
  const bool integers = std::all_of(format.operands.begin(), format.operands.end(),
                                    [](const Operand& o) { return o.kind == Operand::Kind::integer; });
  const size_t count = format.operands.size();
  if (format.kind == Operand::Kind::call && integers) {
    if (format.text == "csr" && count == 0) return {csr_rule(matrix)};
    if (format.text == "ell" && count == 1) return {ell_rule(matrix, number(0))};
    if (format.text == "bsr" && count == 1) return {bsr_rule(matrix, number(0))};
    if (format.text == "hyb" && count == 2) return hyb_rules(matrix, number(0), number(1));
  }
  fail(ErrorCode::invalid_argument, "'{}' is no format; allowed are csr(), ell(width), bsr(block) and hyb(c, k)",
       to_text(format));
}

void ScheduleRunner::decompose(const ScheduleLine& line, Stage1& program) {
  const std::string form =
      "decompose_format(iteration, buffer, format, ...), as in decompose_format(csrmm, A, hyb(1, 5))";
  const std::string iteration = name_at(line, 0, form), buffer = name_at(line, 1, form);
  require(line.operands.size() >= 3 && line.results.empty(), line, form);
  const SparseBuffer* matrix = program.find_buffer(buffer);
  check(matrix != nullptr, ErrorCode::invalid_argument, "decompose_format({}, {}): there is no buffer '{}'", iteration,
        buffer, buffer);
  const bool is_csr =
      matrix->axes.size() == 2 && program.axis(matrix->axes[1]).is_sparse && program.axis(matrix->axes[1]).is_variable;
  check(is_csr, ErrorCode::unsupported,
        "decompose_format({}, {}): required: a matrix on a dense and a sparse variable axis, which is CSR", iteration,
        buffer);
  const MatrixAxes axes{matrix->axes[0], matrix->axes[1], program.axis(matrix->axes[0]).length,
                        program.axis(matrix->axes[1]).length};
  Decomposition decomposition{axes.row, axes.col, {}};
  for (size_t f = 2; f < line.operands.size(); ++f)
    for (FormatRewriteRule& rule : rules_of(line.operands[f], axes)) decomposition.rules.push_back(std::move(rule));
  const bool has_init =
      program.find_iteration(iteration) != nullptr && !program.find_iteration(iteration)->init.empty();
  program = decompose_format(program, iteration, buffer, decomposition.rules);
  Group& group = groups_[iteration];
  for (const FormatRewriteRule& rule : decomposition.rules) group.blocks.push_back(iteration + "_" + rule.name);
  if (has_init) group.init = iteration + "_init";
  decompositions_.push_back(std::move(decomposition));
}

void ScheduleRunner::run_line(const ScheduleLine& line, Stage1& program) {
  check_known(line, kStage1, kStage2, "it changes loops, which there are after lower(); write lower() before it");
  if (line.primitive == "decompose_format") return decompose(line, program);
  const std::string form = line.primitive + "(iteration, axis, axis, ...)";
  const std::string iteration = name_at(line, 0, form);
  require(line.results.empty(), line, form);
  std::vector<std::string> axes;
  for (size_t i = 1; i < line.operands.size(); ++i) axes.push_back(name_at(line, i, form));
  if (line.primitive == "sparse_reorder") {
    program = sparse_reorder(program, iteration, axes);
    return;
  }
  program = sparse_fuse(program, iteration, axes);
  if (program.find_iteration(iteration + "_init") != nullptr) groups_[iteration] = {{iteration}, iteration + "_init"};
}

void ScheduleRunner::run_stage1(Stage1& program) {
  for (const ScheduleLine& line : schedule_) {
    if (line.primitive == "lower") {
      at_line(line, [&] { require(line.operands.empty() && line.results.empty(), line, "lower()"); });
      return;
    }
    at_line(line, [&] { run_line(line, program); });
  }
}

bool ScheduleRunner::has_stage2_lines() const {
  const auto lowering = std::find_if(schedule_.begin(), schedule_.end(),
                                     [](const ScheduleLine& line) { return line.primitive == "lower"; });
  return lowering != schedule_.end() && lowering + 1 != schedule_.end();
}

std::string ScheduleRunner::resolved(const std::string& name) const {
  const auto found = results_.find(name);
  return found == results_.end() ? name : found->second;
}

std::vector<std::vector<std::string>> ScheduleRunner::loops_of(const Stage2& stage,
                                                               const std::vector<std::string>& names,
                                                               bool with_init) const {
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
    if (with_init && !group->second.init.empty()) blocks.insert(blocks.begin(), group->second.init);
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
        [&] {
          std::string list;
          for (const std::string& v : variables) list += (list.empty() ? "" : ", ") + v;
          return list;
        }());
  return result;
}

void ScheduleRunner::run_line(const ScheduleLine& line, Stage2& stage) {
  check_known(line, kStage2, kStage1, "it changes iterations, of which lower() makes loops; write it before lower()");
  const std::string& p = line.primitive;
  const auto each = [&](const std::vector<std::string>& names, bool with_init, const auto& work) {
    for (const std::vector<std::string>& loops : loops_of(stage, names, with_init)) work(loops);
  };
  const auto define = [&](const std::string& result, const std::string& loop) {
    const std::string name = resolved(loop);
    check(!results_.contains(result), ErrorCode::invalid_argument, "'{}' names a loop already", result);
    results_[result] = name.substr(0, name.find('.')) + "." + result;
  };
  if (p == "split") {
    const std::string form = "outer, inner = split(loop, factor), as in ko, ki = split(csrmm.k, 16)";
    const std::string loop = name_at(line, 0, form);
    const int64_t factor = integer_at(line, 1, form);
    require(line.operands.size() == 2 && line.results.size() == 2, line, form);
    each({loop}, true, [&](const auto& l) { split(stage, l[0], factor, line.results[0], line.results[1]); });
    for (const std::string& result : line.results) define(result, loop);
    return;
  }
  if (p == "fuse") {
    const std::string form = "fused = fuse(outer, inner)";
    const std::string outer = name_at(line, 0, form), inner = name_at(line, 1, form);
    require(line.operands.size() == 2 && line.results.size() == 1, line, form);
    each({outer, inner}, true, [&](const auto& l) { fuse(stage, l[0], l[1], line.results[0]); });
    return define(line.results[0], outer);
  }
  require(line.results.empty(), line, p + "(...) without results");
  if (p == "reorder") {
    std::vector<std::string> loops;
    for (size_t i = 0; i < line.operands.size(); ++i) loops.push_back(name_at(line, i, "reorder(loop, loop, ...)"));
    require(loops.size() >= 2, line, "reorder(loop, loop, ...)");
    return each(loops, false, [&](const auto& l) { reorder(stage, l); });
  }
  const bool has_word = p == "bind" || p == "annotate" || p == "cache_write" || p == "rfactor";
  const bool has_buffer = p == "cache_read";
  const std::string form = p + "(loop" +
                           (has_buffer        ? ", buffer, scope"
                            : p == "bind"     ? ", thread"
                            : p == "annotate" ? ", word, or also a number of iterations"
                            : has_word        ? ", scope"
                                              : "") +
                           ")";
  if (p == "set_scope") {
    require(line.operands.size() == 2, line, "set_scope(buffer, scope)");
    return set_scope(stage, name_at(line, 0, "set_scope(buffer, scope)"),
                     scope_of(name_at(line, 1, "set_scope(buffer, scope)")));
  }
  const bool has_number = p == "annotate" && line.operands.size() == 3;
  require(line.operands.size() == (has_buffer || has_number ? 3u : has_word ? 2u : 1u), line, form);
  const std::string loop = name_at(line, 0, form), word = line.operands.size() > 1 ? name_at(line, 1, form) : "";
  const bool with_init = p == "parallel" || p == "vectorize" || p == "unroll" || p == "bind";
  each({loop}, with_init, [&](const std::vector<std::string>& l) {
    if (p == "parallel") parallel(stage, l[0]);
    if (p == "vectorize") vectorize(stage, l[0]);
    if (p == "unroll") unroll(stage, l[0]);
    if (p == "bind") bind(stage, l[0], word);
    if (p == "annotate") annotate(stage, l[0], word, has_number ? integer_at(line, 2, form) : 8);
    if (p == "cache_write") cache_write(stage, l[0], scope_of(word));
    if (p == "cache_read") cache_read(stage, l[0], word, scope_of(name_at(line, 2, form)));
    if (p == "rfactor") rfactor(stage, l[0], scope_of(word));
    if (p == "decompose_reduction") decompose_reduction(stage, l[0]);
  });
}

void ScheduleRunner::run_stage2(Stage2& stage) {
  bool lowered = false;
  for (const ScheduleLine& line : schedule_) {
    if (lowered)
      at_line(line, [&] {
        run_line(line, stage);
        verify(stage);
      });
    lowered |= line.primitive == "lower";
  }
}

void default_schedule(Stage2& stage) {
  std::vector<std::string> loops;
  for (const Stmt& stmt : stage.body) {
    if (stmt.kind != Stmt::Kind::loop || stmt.reduction || stmt.loop != loop::LoopKind::serial) continue;
    std::string block;
    visit(Body{stmt}, [&](const Stmt& inner) {
      if (block.empty() && inner.kind == Stmt::Kind::block) block = inner.name;
    });
    loops.push_back(block + "." + stmt.name);
  }
  for (const std::string& loop : loops) {
    try {
      parallel(stage, loop);
    } catch (const Error&) {
      // What the team cannot share, one worker runs.
    }
  }
}

}  // namespace weft::sparse
