#include "sparse/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "loop/passes.h"
#include "loop/product.h"
#include "sparse/schedule_line.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

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

}  // namespace

const std::vector<std::string>& stage1_primitives() {
  static const std::vector<std::string> names = {"decompose_format", "sparse_reorder", "sparse_fuse"};
  return names;
}

void check_known(const ScheduleLine& line, const std::vector<std::string>& own, const std::vector<std::string>& other,
                 const char* advice) {
  const auto is_of = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), line.primitive) != names.end();
  };
  if (is_of(own)) return;
  if (is_of(other)) fail(ErrorCode::invalid_argument, "{}: {}", line.primitive, advice);
  check(line.primitive != "lower", ErrorCode::invalid_argument, "lower: it stands once, between the stages");
  std::vector<std::string> all = stage1_primitives();
  all.insert(all.end(), stage2_primitives().begin(), stage2_primitives().end());
  all.emplace_back("lower");
  fail(ErrorCode::invalid_argument, "'{}' is no primitive{}", line.primitive, did_you_mean(line.primitive, all));
}

namespace {

Format format_of(const Operand& operand, const std::vector<FormatDefinition>& defined) {
  std::vector<int64_t> numbers;
  for (const Operand& number : operand.operands)
    if (number.kind == Operand::Kind::integer) numbers.push_back(number.integer);
  const bool is_call = operand.kind == Operand::Kind::call && numbers.size() == operand.operands.size();
  std::string own;
  for (const FormatDefinition& definition : defined) {
    if (is_call && numbers.empty() && definition.name == operand.text)
      return {.kind = Format::Kind::defined, .name = definition.name};
    own += fmt::format(", {}()", definition.name);
  }
  const std::optional<Format> named = is_call ? format_named(operand.text, numbers) : std::nullopt;
  check(named.has_value(), ErrorCode::invalid_argument, "'{}' is no format; allowed are {}{}", to_text(operand),
        known_formats(), own);
  return *named;
}

// A matrix, or a stack of them.
MatrixAxes matrix_axes(const Stage1& program, const SparseBuffer& matrix, const std::string& iteration) {
  const std::vector<std::string>& axes = matrix.axes;
  const auto is_compressed = [&](size_t d) {
    const Axis& axis = program.axis(axes[d]);
    return axis.is_sparse && axis.is_variable && axis.parent == axes[d - 1];
  };
  const bool is_stack = axes.size() == 3 && is_compressed(1) && is_compressed(2);
  check(
      is_stack || (axes.size() == 2 && is_compressed(1)), ErrorCode::unsupported,
      "decompose_format({}, {}): required: a matrix on a dense and a sparse variable axis, which is CSR, or a stack of "
      "them below a dense axis",
      iteration, matrix.name);
  const size_t row = is_stack ? 1 : 0;
  MatrixAxes result{.row = axes[row],
                    .col = axes[row + 1],
                    .num_rows = program.axis(axes[row]).length,
                    .num_cols = program.axis(axes[row + 1]).length};
  result.num_stored = program.num_positions(result.col);
  result.num_stored_rows = program.num_positions(result.row);
  if (is_stack) {
    result.outer = axes[0];
    result.num_outer = program.axis(axes[0]).length;
  }
  return result;
}

// Under names of its own where another decomposition of the program has some of the rule's.
FormatRewriteRule apart_from(const std::vector<Decomposition>& others, const FormatRewriteRule& rule,
                             const Stage1& program) {
  Names taken;
  for (const Decomposition& other : others)
    for (const FormatRewriteRule& of_other : other.rules) taken.merge(declared_names(of_other));
  const auto clashes = [&](const FormatRewriteRule& r) {
    const Names names = declared_names(r);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return taken.contains(name); });
  };
  if (!clashes(rule)) return rule;
  taken.merge(program.all_names());
  FormatRewriteRule named = rule;
  for (int number = 2; clashes(named); ++number) named = with_suffix(rule, fmt::format("_{}", number));
  return named;
}

}  // namespace

void ScheduleRunner::decompose(const ScheduleLine& line, Stage1& program) {
  const std::string form =
      "decompose_format(iteration, buffer, format, ...), as in decompose_format(csrmm, A, hyb(1, 5))";
  const std::string iteration = name_at(line, 0, form), buffer = name_at(line, 1, form);
  require(line.operands.size() >= 3 && line.results.empty(), line, form);
  const SparseBuffer* matrix = program.find_buffer(buffer);
  check(matrix != nullptr, ErrorCode::invalid_argument, "decompose_format({}, {}): there is no buffer '{}'", iteration,
        buffer, buffer);
  const MatrixAxes axes = matrix_axes(program, *matrix, iteration);
  Decomposition decomposition{axes.row, axes.col, buffer, {}, {}};
  for (size_t f = 2; f < line.operands.size(); ++f) {
    Format format = format_of(line.operands[f], formats_);
    if (format.kind == Format::Kind::hyb && format.numbers.size() == 1)
      format.numbers.push_back(default_bucket(format, axes));
    decomposition.formats.push_back(std::move(format));
  }
  // What another iteration has of the matrix in these formats is read here, too.
  std::vector<std::string> copies;
  for (const Decomposition& earlier : decompositions_) {
    if (earlier.buffer != buffer || earlier.formats != decomposition.formats || !copies.empty()) continue;
    copies = copies_of(program, iteration, buffer, earlier.rules);
    decomposition.rules = earlier.rules;
  }
  if (copies.empty()) {
    decomposition.rules.clear();
    for (const Format& format : decomposition.formats)
      for (const FormatRewriteRule& rule : rules_of(format, axes, formats_))
        decomposition.rules.push_back(apart_from(decompositions_, rule, program));
  }
  program = decompose_format(program, iteration, buffer, decomposition.rules, copies);
  std::vector<std::string> blocks;
  for (const FormatRewriteRule& rule : decomposition.rules) blocks.push_back(iteration + "_" + rule.name);
  add_group(iteration, blocks, program);
  if (copies.empty()) decompositions_.push_back(std::move(decomposition));
}

void ScheduleRunner::add_group(const std::string& iteration, const std::vector<std::string>& blocks,
                               const Stage1& program) {
  std::vector<std::string> beside;
  for (const char* other : {"_init", "_gather"})
    if (program.find_iteration(iteration + other) != nullptr) beside.push_back(iteration + other);
  for (auto& [name, group] : groups_) {
    const auto at = std::find(group.blocks.begin(), group.blocks.end(), iteration);
    if (at == group.blocks.end()) continue;
    group.blocks.insert(group.blocks.erase(at), blocks.begin(), blocks.end());
    group.beside.insert(group.beside.end(), beside.begin(), beside.end());
  }
  groups_[iteration] = {blocks, beside};
}

void ScheduleRunner::run_line(const ScheduleLine& line, Stage1& program) {
  check_known(line, stage1_primitives(), stage2_primitives(),
              "it changes loops, which there are after lower(); write lower() before it");
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
  if (program.find_iteration(iteration + "_init") != nullptr) groups_[iteration] = {{iteration}, {iteration + "_init"}};
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

namespace {

bool is_of_one(const Axis& axis) {
  return !axis.is_variable && loop::is_literal(axis.parent.empty() ? axis.length : axis.nnz, 1);
}

}  // namespace

Names ScheduleRunner::named_axes_of_one(const Stage1& program) const {
  Names axes;
  const auto add = [&](const std::string& block, const std::string& variable) {
    std::vector<std::string> blocks{block};
    if (const auto group = groups_.find(block); group != groups_.end()) {
      blocks = group->second.blocks;
      blocks.insert(blocks.end(), group->second.beside.begin(), group->second.beside.end());
    }
    const bool is_iteration = std::any_of(
        blocks.begin(), blocks.end(), [&](const std::string& name) { return program.find_iteration(name) != nullptr; });
    Names of_one;
    bool has_loop = false;
    for (const Iteration& it : program.iterations) {
      // A block that a primitive makes of an iteration, as csrmm_fetch, has loops of it.
      const bool is_meant = is_iteration ? std::find(blocks.begin(), blocks.end(), it.name) != blocks.end()
                                         : block.starts_with(it.name + "_");
      size_t a = 0;
      for (const auto& group : it.axes) {
        const Axis& axis = program.axis(group[0]);
        if (is_meant && group.size() == 1 && it.iterators[a] == variable) {
          if (is_of_one(axis)) of_one.insert(axis.name);
          has_loop |= !is_of_one(axis);
        }
        a += group.size();
      }
    }
    if (!has_loop) axes.merge(of_one);
  };
  bool lowered = false;
  for (const ScheduleLine& line : schedule_) {
    for (const Operand& operand : line.operands)
      if (const size_t dot = operand.text.find('.'); lowered && dot != operand.text.npos)
        add(operand.text.substr(0, dot), operand.text.substr(dot + 1));
    lowered |= line.primitive == "lower";
  }
  return axes;
}

namespace {

// Memory of its own around all loops is that of one phase, and a nest that a team shares is a phase alone.
void check_phases(const ScheduleLine& line, const Stage2& stage) {
  const Body& body = stage.body;
  for (size_t memory = 0; memory < body.size(); ++memory) {
    if (body[memory].kind != Stmt::Kind::allocate) continue;
    const auto begin = body.begin() + static_cast<std::ptrdiff_t>(memory);
    const auto end = body.begin() + static_cast<std::ptrdiff_t>(loop::end_of_memory(body, memory));
    loop::visit(Body(begin, end), [&](const Stmt& stmt) {
      check(stmt.loop != loop::LoopKind::parallel, ErrorCode::unsupported,
            "{}: '{}' lies around all loops in memory of one worker, and loop '{}' is shared; required: a loop around "
            "the memory, which compute_at makes of two, or a buffer",
            line.primitive, body[memory].name, stmt.name);
    });
  }
}

// A line that no primitive should have taken is refused all the same.
void check_rules(const ScheduleLine& line, const Stage2& stage) {
  check_phases(line, stage);
  try {
    verify(stage);
  } catch (const InternalError& error) {
    fail(ErrorCode::unsupported, "{}: {} ({})", line.primitive, kBreaksRules, error.what());
  }
}

// What a card may refuse later names the line.
void mark_scheduled(Stage2& stage, int line) {
  visit(stage.body, [&](Stmt& stmt) {
    const bool is_shared = stmt.loop == loop::LoopKind::bind || stmt.loop == loop::LoopKind::parallel ||
                           loop::is_mma(stmt) || loop::num_stages(stmt) > 0;
    if ((is_shared || stmt.kind == Stmt::Kind::allocate) && stmt.scheduled.line == 0) stmt.scheduled.line = line;
  });
}

}  // namespace

void ScheduleRunner::run_stage2(Stage2& stage) {
  bool lowered = false;
  for (const ScheduleLine& line : schedule_) {
    if (lowered)
      at_line(line, [&] {
        run_line(line, stage);
        check_rules(line, stage);
        mark_scheduled(stage, line.line);
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
