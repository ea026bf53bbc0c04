// Barriers between steps, held against runs of the text: no thread accesses what another one may still access.
#include "loop/threads/barriers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace weft::loop {
namespace {

const Names kShared{"u", "v", "w", "x", "y"};
const std::vector<std::string> kBuffers{"u", "v", "w", "x", "y", "Z"};  // Z is a buffer of the function

constexpr int64_t kRuns = 4;  // the extent of a loop that runs once at least

// Random steps. What a step accesses is told by its number, which its text says.
class RandomSteps {
 public:
  // With steps that wait themselves, and loops that run once at least.
  explicit RandomSteps(uint32_t seed, bool is_told = false) : random_(seed), is_told_(is_told) {}

  std::vector<Step> steps(int depth) {
    const size_t outer = names_.size();
    std::vector<Step> list;
    for (int count = 2 + pick(6); count > 0; --count) {
      const int kind = depth == 0 ? pick(6) : pick(12);
      list.push_back(kind < 2 ? let() : kind < 6 ? leaf() : nest(depth));
    }
    names_.resize(outer);
    return list;
  }
  const std::vector<Accesses>& accesses() const { return accesses_; }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  Access access(bool may_write) {
    Access a{kBuffers[static_cast<size_t>(pick(6))], may_write && pick(2) == 0};
    a.atomic = a.writes && pick(5) == 0;
    if (pick(3) == 0) return a;
    a.owner = "threadIdx.x * 1";
    if (!names_.empty() && pick(4) != 0) {
      const std::string& name =
          pick(2) == 0 ? names_.back() : names_[static_cast<size_t>(pick(static_cast<int>(names_.size())))];
      a.owner += " + " + name + " * 8";
      a.fixed.insert(name);
    }
    return a;
  }

  // A number for these accesses.
  int64_t number_of(Accesses accesses) {
    accesses_.push_back(std::move(accesses));
    return static_cast<int64_t>(accesses_.size()) - 1;
  }

  Step leaf() {
    Step step{.accesses = {access(true)}};
    if (pick(3) == 0) step.accesses.push_back(access(true));
    step.body = {make_store("step", {number_of(step.accesses)}, real(0))};
    step.waits = is_told_ && pick(5) == 0;
    if (step.waits) step.body.insert(step.body.begin(), {.kind = Stmt::Kind::barrier});
    return step;
  }

  bool is_free(const std::string& name) const { return std::find(names_.begin(), names_.end(), name) == names_.end(); }

  Step let() {
    const std::string name = "let" + std::to_string(pick(3));
    if (!is_free(name)) return leaf();
    names_.push_back(name);
    return {.body = {make_let(name, 0)}};
  }

  Step nest(int depth) {
    Step step;
    const size_t outer = names_.size();
    const int kind = pick(4);
    const std::string name = std::string(1, "ijc"[kind == 3 ? 2 : kind % 2]);
    if (kind == 0 || !is_free(name)) {
      if (pick(2) == 0) step.accesses = {access(false)};
      step.nest = make_condition(operation(Op::equal, {number_of(step.accesses), 0}), {});
    } else {
      step.runs = is_told_ && kind != 3 && pick(2) == 0;
      step.nest = make_loop(name, step.runs ? kRuns : 3, {});
      if (kind == 3) step.nest->loop = LoopKind::bind, step.nest->thread = "blockIdx.x";
      names_.push_back(name);
    }
    step.steps = steps(depth - 1);
    names_.resize(outer);
    return step;
  }

  std::mt19937 random_;
  bool is_told_ = false;
  std::vector<std::string> names_;
  std::vector<Accesses> accesses_;
};

// Runs the text some way that data may take, and watches what is accessed between two barriers.
class Watch {
 public:
  Watch(const std::vector<Accesses>& accesses, uint32_t seed) : accesses_(accesses), random_(seed) {}
  // What meets without a barrier between; "" where nothing does.
  const std::string& problem() const { return problem_; }

  void run(const Body& body) {
    const auto outer = values_;
    for (const Stmt& stmt : body) switch (stmt.kind) {
        case Stmt::Kind::barrier: since_barrier_.clear(); break;
        case Stmt::Kind::store: access(stmt.indices[0]); break;
        case Stmt::Kind::let: values_[stmt.name] = static_cast<int>(random_() % 3); break;
        case Stmt::Kind::condition:
          access(stmt.value->operands[0]);
          if (random_() % 2 == 0) run(stmt.body);
          break;
        default: {
          const uint32_t least = is_literal(stmt.value, kRuns) ? 1 : 0;
          const auto extent = static_cast<uint32_t>(least + random_() % (4 - least));
          for (uint32_t i = 0; i < extent; ++i) {
            values_[stmt.name] = static_cast<int>(i);
            run(stmt.body);
          }
          if (const auto found = outer.find(stmt.name); found == outer.end()) values_.erase(stmt.name);
        }
      }
    values_ = outer;
  }

 private:
  struct Done {
    Access access;
    std::map<std::string, int> values;  // of variables around it
  };

  static bool may_meet(const Done& a, const Done& b) {
    Access x = a.access, y = b.access;
    const auto value = [](const Done& d, const std::string& v) {
      const auto found = d.values.find(v);
      return found == d.values.end() ? -1 : found->second;
    };
    // CTAs access elements of their own in buffers of the function.
    if (!kShared.contains(x.buffer) && value(a, "c") >= 0 && value(b, "c") >= 0 && value(a, "c") != value(b, "c"))
      return false;
    for (const std::string& v : x.fixed)
      if (value(a, v) != value(b, v)) x.owner.clear();
    return meet(x, y);
  }

  void access(const Expr& number) {
    const size_t before = since_barrier_.size();
    for (const Access& a : accesses_[static_cast<size_t>(number->integer)]) {
      const Done now{a, values_};
      for (size_t i = 0; i < before; ++i)
        if (may_meet(since_barrier_[i], now)) problem_ = a.buffer + ", in step " + std::to_string(number->integer);
      since_barrier_.push_back(now);
    }
  }

  const std::vector<Accesses>& accesses_;
  std::mt19937 random_;
  std::map<std::string, int> values_;
  std::vector<Done> since_barrier_;
  std::string problem_;
};

TEST(Barriers, StandBetweenAllThatMeets) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomSteps random(seed, seed % 4 >= 2);
    const std::vector<Step> steps = random.steps(static_cast<int>(1 + seed % 2));
    const Body text = Barriers(kShared).placed(steps);
    for (uint32_t run = 0; run < 6; ++run) {
      Watch watch(random.accesses(), run);
      watch.run(text);
      ASSERT_EQ(watch.problem(), "") << "seed " << seed << "\n" << to_text(text);
    }
  }
}

// Barriers that one iteration needs may stand elsewhere than those that the next one needs.
TEST(Barriers, AreThoseThatEveryIterationNeeds) {
  const auto writes = [](const char* buffer) { return Access{buffer, true}; };
  const auto step = [](const char* name, Accesses accesses) {
    return Step{.body = {make_store(name, {0}, real(0))}, .accesses = std::move(accesses)};
  };
  const std::vector<Step> loop{
      {.nest = make_loop("i", variable("n"), {}),
       .steps = {step("q", {writes("a"), {"e"}}), step("r", {writes("c"), {"d"}}), step("s", {{"a"}}),
                 step("t", {writes("b")}), step("u", {writes("d"), writes("e")}), step("v", {{"b"}}),
                 step("w", {{"c"}})}}};
  EXPECT_EQ(to_text(Barriers({"a", "b", "c", "d", "e"}).placed(loop)), R"(for i in range(n):
  barrier
  q[0] = 0.0
  r[0] = 0.0
  barrier
  s[0] = 0.0
  t[0] = 0.0
  u[0] = 0.0
  barrier
  v[0] = 0.0
  w[0] = 0.0
)");
}

// What an iteration leaves pending for the next one is known before it is asked what stands behind the loop: the
// barrier within the last iteration is behind its read of x.
TEST(Barriers, AreNotRepeatedBehindALoop) {
  RandomSteps random(3140);
  const std::string text = to_text(Barriers(kShared).placed(random.steps(1)));
  const std::string end = "  barrier\n  step[10] = 0.0\nstep[11] = 0.0\n";
  ASSERT_GE(text.size(), end.size());
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

// A variable of one nest means nothing in the next.
TEST(Barriers, StandWhereNamesMeanOtherValues) {
  const Access write{"x", true, false, "threadIdx.x * 1 + a * 4", {"a"}};
  const auto nest = [&](const char* name) {
    return Step{.nest = make_condition(less(variable("n"), 3), {}),
                .steps = {{.body = {make_let("a", load("p", {variable("n")}, Type::integer))}},
                          {.body = {make_store(name, {0}, real(0))}, .accesses = {write}}}};
  };
  EXPECT_EQ(to_text(Barriers({"x"}).placed({nest("q"), nest("r")})), R"(if n < 3:
  let a = p[n]
  q[0] = 0.0
if n < 3:
  let a = p[n]
  barrier
  r[0] = 0.0
)");
}

// Behind a loop that surely runs, and in which all wait, nothing of before it is pending.
TEST(Barriers, AreNotRepeatedBehindStepsThatWait) {
  const auto text_of = [](bool waits, bool runs) {
    Step turn{.body = {make_store("q", {0}, real(0))}, .accesses = {{"y"}}, .waits = waits};
    const std::vector<Step> steps{{.body = {make_store("p", {0}, real(0))}, .accesses = {{"x", true}}},
                                  {.nest = make_loop("i", 8, {}), .runs = runs, .steps = {std::move(turn)}},
                                  {.body = {make_store("r", {0}, real(0))}, .accesses = {{"x"}}}};
    return to_text(Barriers({"x"}).placed(steps));
  };
  const std::string begin = "p[0] = 0.0\nfor i in range(8):\n  q[0] = 0.0\n", end = "r[0] = 0.0\n";
  EXPECT_EQ(text_of(true, true), begin + end);
  EXPECT_EQ(text_of(true, false), begin + "barrier\n" + end);
  EXPECT_EQ(text_of(false, true), begin + "barrier\n" + end);
}

TEST(Barriers, StandBeforeALoopThatNeedsNoneWithin) {
  const std::vector<Step> steps{
      {.body = {make_store("q", {0}, real(0))}, .accesses = {{"x", true}}},
      {.nest = make_loop("i", 8, {}), .steps = {{.body = {make_store("r", {0}, real(0))}, .accesses = {{"x"}}}}}};
  EXPECT_EQ(to_text(Barriers({"x"}).placed(steps)), "q[0] = 0.0\nbarrier\nfor i in range(8):\n  r[0] = 0.0\n");
}

// Loops in each other, each with a step before and behind the inner one.
std::vector<Step> nest_of(int depth) {
  const Access write{"x", true}, read{"y"};
  if (depth == 0) return {{.body = {make_store("inner", {0}, real(0))}, .accesses = {{"x"}}}};
  Step loop{.nest = make_loop("i" + std::to_string(depth), 8, {}), .steps = nest_of(depth - 1)};
  return {{.body = {make_store("before", {0}, real(0))}, .accesses = {write}},
          std::move(loop),
          {.body = {make_store("behind", {0}, real(0))}, .accesses = {read}}};
}

TEST(Barriers, TakeStepsInProportionToTheSquareOfTheDepth) {
  const auto visits = [](int depth) {
    Barriers barriers({"x"});
    barriers.placed(nest_of(depth));
    return barriers.num_visits();
  };
  for (const int depth : {5, 10, 20, 40}) EXPECT_LE(visits(depth), 6 * (depth + 1) * (depth + 1)) << depth;
}

}  // namespace
}  // namespace weft::loop
