#include <fmt/format.h>

#include <set>

#include "sparse/operator.h"
#include "tests/sparse/random/case.h"
#include "tests/sparse/random/make_program.h"

namespace weft::sparse::random {

Tally::Count Tally::all() const {
  Count sum;
  for (const auto& [primitive, count] : primitives) sum.drawn += count.drawn, sum.accepted += count.accepted;
  sum.cases = num_cases;
  return sum;
}

std::string Tally::text() const {
  std::string text = fmt::format("{:20} {:>8} {:>8} {:>5} {:>8}\n", "lines", "drawn", "accepted", "%", "cases");
  const auto add = [&](const std::string& name, const Count& count) {
    text += fmt::format("{:20} {:8} {:8} {:5} {:8}\n", name, count.drawn, count.accepted,
                        count.drawn == 0 ? 0 : 100 * count.accepted / count.drawn, count.cases);
  };
  for (const auto& [primitive, count] : primitives) add(primitive, count);
  add("all", all());
  return text + fmt::format("{} cases divide by 0, {} write where nothing is stored\n", num_dividing, num_missing);
}

void Tally::add_case(const Case& c) {
  std::set<std::string> names;
  for (const auto* lines : {&c.stage1, &c.stage2})
    for (const Line& line : *lines) names.insert(line.primitive);
  for (const std::string& name : names) ++primitives[name].cases;
  ++num_cases;
  const Results results = results_of(c.program);
  num_dividing += results.divides_by_zero() ? 1 : 0;
  num_missing += !results.failures.empty() && !results.divides_by_zero() ? 1 : 0;
}

namespace {

// Adds lines that are accepted, so many or until the tries are over.
class Drawing {
 public:
  Drawing(Random& random, Tally& tally, MadeCase& made) : random_(random), tally_(tally), made_(made), maker_(random) {
    if (random.chance(30)) maker_.want(random.pick({"tensorize", "tensorize", "compute_inline"}));  // few programs fit
  }

  void draw(bool stage1, int64_t wanted) {
    auto& lines = stage1 ? made_.c.stage1 : made_.c.stage2;
    for (int64_t tries = 4 * wanted + 4; tries > 0 && wanted > 0; --tries) {
      const Compilation& now = op_->impl().made;
      const Line line = stage1 ? maker_.stage1_line(now.stage1) : maker_.stage2_line(now.compute2);
      if (line.primitive.empty()) continue;
      lines.push_back(line);
      Tally::Count& count = tally_.primitives[line.primitive];
      ++count.drawn;
      if (Problem problem = compiles()) {
        if (problem.kind != "refused") {
          made_.problem = std::move(problem);
          return;
        }
        lines.pop_back();
        if (!stage1) maker_.want("");
        continue;
      }
      ++count.accepted;
      wanted -= line.prepares ? 0 : 1;
    }
  }

  Problem compiles() { return accepted(made_.c, &op_); }

 private:
  Random& random_;
  Tally& tally_;
  MadeCase& made_;
  LineMaker maker_;
  std::unique_ptr<Operator> op_;
};

}  // namespace

MadeCase make_case(Random& random, Tally& tally, const std::string& name) {
  MadeCase made;
  made.c.program = make_program(random, {.may_fail = random.chance(15)});
  made.c.program.name = name;
  Drawing drawing(random, tally, made);
  made.problem = drawing.compiles();
  if (made.problem) return made;
  drawing.draw(true, random.pick({0, 0, 0, 1, 1, 2}));
  if (!made.problem) drawing.draw(false, random.between(1, 8));
  return made;
}

}  // namespace weft::sparse::random
