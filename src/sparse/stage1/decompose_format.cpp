#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/decompose.h"
#include "sparse/stage1/format_rewriter.h"
#include "sparse/stage1/primitives.h"

namespace weft::sparse {
namespace {

// The iteration that copies the buffer into the format of the rule; the end where there is none.
std::vector<Iteration>::const_iterator copy_by(const Stage1& program, const std::string& buffer,
                                               const FormatRewriteRule& rule) {
  return std::find_if(program.iterations.begin(), program.iterations.end(), [&](const Iteration& it) {
    return !it.body.empty() && it.name == "copy_" + it.body[0].name && loads_from(it.body, buffer) &&
           program.buffer(it.body[0].name).axes == rule.buffer_axes;
  });
}

// Over the spatial axes; each store of what it had, or of nothing yet where init gives that.
Iteration gather_of(const Iteration& it, const Stage1& program) {
  Iteration gather = init_of(it);
  gather.name = it.name + "_gather";
  gather.body = it.body;
  for (Stmt& stmt : gather.body) {
    const bool begins_anew = !it.init.empty() || is_assigned(it, stmt);
    stmt.value =
        begins_anew ? Expr() : loop::load(stmt.name, stmt.indices, loop::type_of(program.buffer(stmt.name).dtype));
  }
  return gather;
}

// Whether others ask for elements of format `r`: what gathers results, or blocks that come behind it.
bool is_asked(const std::vector<FormatRewriteRule>& rules, size_t r, bool gathers) {
  return gathers || std::any_of(rules.begin() + static_cast<std::ptrdiff_t>(r) + 1, rules.end(), stores_zeros);
}

// Parameters and axes of the rule.
void declare(Stage1& program, const FormatRewriteRule& rule, const std::string& iteration, const std::string& buffer) {
  for (const std::string& param : rule.params) {
    if (program.all_names().contains(param))
      refuse_format(iteration, buffer, fmt::format("format {} stands twice", rule.name));
    program.params.push_back(param);
  }
  for (const Axis& axis : rule.axes) {
    if (const std::string problem = problem_of(program, axis); !problem.empty())
      refuse_format(iteration, buffer, fmt::format("format {}: {}", rule.name, problem));
    program.axes.push_back(axis);
  }
}

// The array that tells where the elements of the buffer stand on the rule's counting axis.
void declare_places(Stage1& program, const FormatRewriteRule& rule, const std::string& iteration,
                    const SparseBuffer& buffer) {
  const SparseBuffer places{places_of(counting_axis(rule)), buffer.axes, DType::int32};
  if (program.find_buffer(places.name) != nullptr) return;  // another iteration of the same formats asks it, too
  if (const std::string problem = problem_of(program, places); !problem.empty())
    refuse_format(iteration, buffer.name, fmt::format("format {}: {}", rule.name, problem));
  program.buffers.push_back(places);
}

}  // namespace

std::vector<std::string> copies_of(const Stage1& program, const std::string& iteration, const std::string& buffer,
                                   const std::vector<FormatRewriteRule>& rules) {
  const auto reader = std::find_if(program.iterations.begin(), program.iterations.end(),
                                   [&](const Iteration& it) { return it.name == iteration; });
  if (reader == program.iterations.end() || stores_to(reader->body, buffer)) return {};
  auto first = reader, last = reader;
  std::vector<std::string> copies;
  for (const FormatRewriteRule& rule : rules) {
    const auto copy = copy_by(program, buffer, rule);
    if (copy == program.iterations.end() || copy->preprocess == is_computed(program, *reader, buffer)) return {};
    first = std::min(first, copy);
    last = std::max(last, copy);
    copies.push_back(copy->body[0].name);
  }
  const bool changes = std::any_of(
      first, last, [&](const Iteration& it) { return stores_to(it.body, buffer) || stores_to(it.init, buffer); });
  return changes ? std::vector<std::string>() : copies;
}

Stage1 decompose_format(const Stage1& program, const std::string& name, const std::string& buffer_name,
                        const std::vector<FormatRewriteRule>& rules, const std::vector<std::string>& copied) {
  if (rules.empty()) refuse_format(name, buffer_name, "no format is given");
  check_decomposable(program, name, buffer_name, rules);
  const Iteration it = *program.find_iteration(name);
  const SparseBuffer buffer = program.buffer(buffer_name);

  Stage1 result = program;
  const bool gathers = writes_on_axes_of(program, it, buffer);
  std::vector<Iteration> copies, computes;
  std::map<int64_t, std::vector<std::string>> apart;  // by partition
  std::vector<std::pair<const FormatRewriteRule*, std::string>> before;
  Iteration gather = gathers ? gather_of(it, program) : Iteration{};
  for (size_t r = 0; r < rules.size(); ++r) {
    const FormatRewriteRule& rule = rules[r];
    check_inverse(rule, buffer.axes);
    if (copied.empty()) declare(result, rule, name, buffer_name);
    if (!counting_axis(rule).empty() && is_asked(rules, r, gathers)) declare_places(result, rule, name, buffer);
    const FormatRewriter rewriter(result, it, buffer, rule, copied.empty() ? "" : copied[r]);
    const bool copies_anew = rewriter.copies() && copied.empty();
    if (copies_anew) {
      copies.push_back(rewriter.copy(before));
      before.emplace_back(&rule, rewriter.new_buffer().name);
    }
    computes.push_back(rewriter.compute(r == 0));
    if (copies_anew) result.buffers.push_back(rewriter.new_buffer());
    for (SparseBuffer& own : rewriter.new_results()) result.buffers.push_back(std::move(own));
    for (size_t s = 0; s < gather.body.size(); ++s) {
      Expr& sum = gather.body[s].value;
      const Expr part = rewriter.gathered(it.body[s]);
      sum = sum ? sum + part : part;
    }
    if (!rule.apart.empty() && copied.empty()) apart[rule.partition].push_back(rule.apart);
  }
  const bool all_say_so =
      std::none_of(rules.begin(), rules.end(), [](const FormatRewriteRule& rule) { return rule.apart.empty(); });
  for (const auto& [partition, axes] : apart)
    if (all_say_so && axes.size() > 1) result.apart.push_back(axes);

  const auto is_copy = [&](const Iteration& other) {
    return std::any_of(copied.begin(), copied.end(), [&](const auto& copy) { return other.name == "copy_" + copy; });
  };
  // Copies that another iteration has are read here, too: those behind this one come before it.
  const auto here = std::find_if(program.iterations.begin(), program.iterations.end(),
                                 [&](const Iteration& other) { return other.name == name; });
  std::copy_if(here, program.iterations.end(), std::back_inserter(copies), is_copy);
  std::vector<Iteration> iterations;
  for (const Iteration& other : program.iterations) {
    if (is_copy(other) && &other > &*here) continue;
    if (other.name != name) {
      iterations.push_back(other);
      continue;
    }
    iterations.insert(iterations.end(), copies.begin(), copies.end());
    if (!it.init.empty() && !gathers) iterations.push_back(init_of(it));
    iterations.insert(iterations.end(), computes.begin(), computes.end());
    if (gathers) iterations.push_back(gather);
  }
  result.iterations = std::move(iterations);
  verify(result);
  return result;
}

Iteration init_of(const Iteration& it) {
  Iteration init{.name = it.name + "_init", .body = it.init, .preprocess = it.preprocess, .place = it.place};
  init.place.iteration = it.name_in_errors();
  const std::vector<std::string> axes = it.flat_axes();
  Names reductions;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (it.kinds[a] == 'R') {
      reductions.insert(it.iterators[a]);
      continue;
    }
    init.axes.push_back({axes[a]});
    init.kinds += 'S';
    init.iterators.push_back(it.iterators[a]);
  }
  for (const Expr& condition : it.where) {
    const Names used = loop::variables_of(condition);
    if (std::none_of(used.begin(), used.end(), [&](const std::string& v) { return reductions.contains(v); }))
      init.where.push_back(condition);
  }
  return init;
}

}  // namespace weft::sparse
