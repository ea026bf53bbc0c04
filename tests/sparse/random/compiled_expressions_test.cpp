// Random expressions as code have the value that a plain evaluator gives, also where they divide by 0: a thousand a
// file of the host's compiler, in programs of a few. A loop of fifty of them takes it minutes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sparse/random/compiled.h"
#include "tests/sparse/random/make_program.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::random {
namespace {

constexpr int64_t kPrograms = 100, kIterations = 2, kStores = 5;

// Z[c, i, j] of the c-th expression, or Y[c, i, j] of a real one.
class ExpressionsMaker {
 public:
  // `fails`: its first expression divides by 0, and others may.
  ExpressionsMaker(Random& random, const std::string& name, bool fails) : random_(random), fails_(fails) {
    const int64_t n = random.between(1, 7), count = kIterations * kStores;
    program_ = {.name = name, .params = {{"n", n}, {"m", random.between(1, 9)}}};
    program_.axes = {{.name = "I", .length = n, .length_text = "n"},
                     {.name = "J", .length = 4, .length_text = "4"},
                     {.name = "C", .length = count, .length_text = std::to_string(count)},
                     {.name = "S", .length = 6, .length_text = "6"}};
    add_buffer("P", {"I"}, "int32");
    add_buffer("Q", {"S"}, "int64");
    add_buffer("X", {"S"}, "fp32");
    add_buffer("Z", {"C", "I", "J"}, "int64");
    add_buffer("Y", {"C", "I", "J"}, "fp32");
    one_ = program_;  // of one expression
    one_.axes[2].length = 1;
    for (BufferDef& buffer : one_.buffers) buffer.values.resize(places_of(one_, buffer.axes).size());
  }

  ProgramDef make() {
    for (int64_t f = 0, next = 0; f < kIterations; ++f) {
      IterationDef it{.name = fmt::format("f{}", f), .axes = {"I", "J"}, .kinds = "SS", .iterators = {"i", "j"}};
      if (random_.chance(40))
        it.where.push_back(operation("<", {name(random_.pick({"i", "j"})), literal(random_.between(1, 5))}));
      for (int64_t s = 0; s < kStores; ++s) {
        StoreDef store = make_store(it, fails_ && next == 0);
        store.indices[0] = literal(next++);
        it.body.push_back(std::move(store));
      }
      program_.iterations.push_back(std::move(it));
    }
    return std::move(program_);
  }

 private:
  void add_buffer(const char* name, std::vector<std::string> axes, const char* dtype) {
    BufferDef buffer{.name = name, .axes = std::move(axes), .dtype = dtype};
    buffer.values.resize(places_of(program_, buffer.axes).size());
    for (double& value : buffer.values) value = static_cast<double>(random_.between(-4, 4));
    program_.buffers.push_back(std::move(buffer));
  }

  // One that has a value, at the first place.
  StoreDef make_store(const IterationDef& it, bool fails) {
    for (;;) {
      const bool real = random_.chance(25);
      StoreDef store{real ? "Y" : "Z", {literal(0), name("i"), name("j")}};
      store.value = make_term(random_, real ? 'r' : 'i', static_cast<int>(random_.between(1, 3)),
                              [&](char type) { return make_leaf(type); });
      one_.iterations = {it};
      one_.iterations[0].body = {store};
      try {
        const bool failed = !results_of(one_).failures.empty();
        // What is certain to fail is refused.
        if (failed ? fails_ && !accepted({.program = one_}) : !fails) return store;
      } catch (const Unusable&) {
      }
    }
  }

  Term make_leaf(char type) {
    const int64_t choice = random_.below(100);
    if (type == 'r' && choice < 60) return load("X", {make_leaf('i')}, 'r');
    if (type == 'r') return real_literal(static_cast<double>(random_.between(-4, 4)));
    if (choice < 12) return load(random_.pick({"P", "Q"}), {make_leaf('i')}, 'i');
    if (choice < 65) return name(random_.pick({"i", "j", "n", "m"}));
    return literal(random_.chance(5) ? random_.pick({70000, -65536, 1000003}) : random_.between(-9, 9));
  }

  Random& random_;
  const bool fails_;
  ProgramDef program_, one_;
};

// A part of the stores that has something wrong, halved as long as one half has.
Case narrowed(Case c) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    size_t count = 0;
    for (const IterationDef& it : c.program.iterations) count += it.body.size();
    for (const bool first : {true, false}) {
      Case half = c;
      size_t number = 0;
      for (IterationDef& it : half.program.iterations)
        std::erase_if(it.body, [&](const StoreDef&) { return (number++ < count / 2) != first; });
      std::erase_if(half.program.iterations, [](const IterationDef& it) { return it.body.empty(); });
      if (count < 2 || !compiled(half)) continue;
      c = half;
      smaller = true;
      break;
    }
  }
  return c;
}

TEST(RandomExpressions, CompiledHaveTheirValue) {
  const std::vector<uint64_t> seeds = testing::case_seeds(testing::kUnderSanitizer ? 0 : 1);
  for (size_t i = 0; i < seeds.size() && !HasFailure(); ++i) {
    Random random(seeds[i]);
    std::vector<Case> cases;
    for (int64_t p = 0; p < kPrograms; ++p)
      cases.push_back({.program = ExpressionsMaker(random, fmt::format("p{}", p), p % 10 == 0).make()});
    const std::vector<Problem> problems = run_compiled(cases);
    for (size_t p = 0; p < cases.size() && !HasFailure(); ++p) {
      if (!problems[p]) continue;
      const Case small = shrunk(narrowed(cases[p]), compiled, 60);
      const Problem left = compiled(small);
      ADD_FAILURE() << report(left ? small : cases[p], left ? left : problems[p]) << testing::only_case(i);
    }
  }
}

}  // namespace
}  // namespace weft::sparse::random
