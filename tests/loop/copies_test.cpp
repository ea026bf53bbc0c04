// Which loads from memory are known to be loads of what was copied there.
#include "loop/copies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "loop/parse.h"

namespace weft::loop {
namespace {

// Y's index in the last statement of the body, with what was copied in place of copies.
std::string index_of_last_store(const std::string& body) {
  const Function function = parse_function(fmt::format(R"(stage3 f(n, m):
  p = flat(n * 8): int32 in 0 to m
  q = flat(n * 8): int32 in 0 to m
  Y = flat(m): fp32
{})",
                                                       body));
  const Copies copies(function.body, Facts(function));
  const Stmt* last = nullptr;
  visit(function.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store && stmt.name == "Y") last = &stmt;
  });
  return to_text(copies.original(last->indices[0], *last));
}

// Within loop i the statements, each a line, and behind them the store.
std::string index_behind(const std::string& statements, const std::string& index = "c[0]",
                         const std::string& memory = "1", const std::string& last = "    Y[{}] = 1.0\n") {
  return index_of_last_store(
      fmt::format("  for i in range(n):\n    allocate c[{}]: int64 in register\n{}", memory, statements) +
      fmt::format(fmt::runtime(last), index));
}

TEST(Copies, HoldWhatWasCopied) {
  EXPECT_EQ(index_behind("    c[0] = p[i]\n"), "p[i]");
  EXPECT_EQ(index_behind("    c[0] = p[i]\n", "c[0] * 4 + 1"), "p[i] * 4 + 1");
  // Of several places, the one that is loaded.
  const std::string all = "    for k in range(8):\n      c[k] = p[i * 8 + k]\n";
  EXPECT_EQ(index_behind(all, "c[j]", "8", "    for j in range(8):\n      Y[{}] = 1.0\n"), "p[i * 8 + j]");
  EXPECT_EQ(index_behind(all, "c[7 - k]", "8", "    for k in range(8):\n      Y[{}] = 1.0\n"), "p[i * 8 + (7 - k)]");
  EXPECT_EQ(index_behind(all, "c[3]", "8"), "p[i * 8 + 3]");
  // Copies of copies, and places that are copies.
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    allocate d[1]: int64 in register\n    d[0] = c[0]\n", "d[0]"), "p[i]");
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    allocate d[1]: int64 in register\n    d[0] = q[c[0]]\n", "d[0]"),
            "q[p[i]]");
  // Memory that is larger than what was copied, at a place that was.
  EXPECT_EQ(index_behind(all, "c[j]", "9", "    for j in range(8):\n      Y[{}] = 1.0\n"), "p[i * 8 + j]");
}

TEST(Copies, AreNoneWhereSomethingElseMayBeLoaded) {
  // Two stores.
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    c[0] = q[i]\n"), "c[0]");
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    if i < 3:\n      c[0] = p[i]\n"), "c[0]");
  EXPECT_EQ(index_behind("    c[0] = p[i]\n", "c[0]", "1", "    Y[{}] = 1.0\n    c[0] = p[i]\n"), "c[0]");
  // More than a copy.
  EXPECT_EQ(index_behind("    c[0] = p[i] + 1\n"), "c[0]");
  // Of what changes.
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    p[i] = 3\n"), "c[0]");
  EXPECT_EQ(index_behind("    c[0] = q[p[i]]\n    p[i] = 3\n"), "c[0]");
  // A part of the memory.
  const std::string part = "    for k in range(7):\n      c[k] = p[i * 8 + k]\n";
  EXPECT_EQ(index_behind(part, "c[j]", "8", "    for j in range(8):\n      Y[{}] = 1.0\n"), "c[j]");
  EXPECT_EQ(index_behind(part, "c[j]", "8", "    for j in range(7):\n      Y[{}] = 1.0\n"), "p[i * 8 + j]");
  EXPECT_EQ(index_behind("    c[0] = p[i]\n", "c[1]", "2"), "c[1]");
  EXPECT_EQ(index_behind("    for k in range(4):\n      c[k * 2] = p[k]\n", "c[2]", "8"), "c[2]");
  // A diagonal.
  const std::string diagonal = "    for k in range(8):\n      c[k, k] = p[k]\n";
  EXPECT_EQ(index_behind(diagonal, "c[1, 2]", "8, 8"), "c[1, 2]");
  // The last of several.
  EXPECT_EQ(index_behind("    for k in range(8):\n      c[0] = p[i * 8 + k]\n"), "c[0]");
  EXPECT_EQ(index_behind("    for k in range(8):\n      c[k] = p[i * 8 + k]\n", "c[k]", "8",
                         "    for k in range(8):\n      for j in range(2):\n        c[k] = q[j]\n"
                         "      Y[{}] = 1.0\n"),
            "c[k]");
  EXPECT_EQ(
      index_behind("    for j in range(2):\n      for k in range(8):\n        c[k] = p[j * 8 + k]\n", "c[3]", "8"),
      "c[3]");
  // Before the copy, and in another iteration of what stands around both.
  EXPECT_EQ(index_of_last_store("  allocate c[1]: int64 in register\n  for i in range(n):\n    Y[c[0]] = 1.0\n"
                                "    c[0] = p[i]\n"),
            "c[0]");
  EXPECT_EQ(index_of_last_store("  allocate c[1]: int64 in register\n  for i in range(n):\n    c[0] = p[i]\n"
                                "  Y[c[0]] = 1.0\n"),
            "c[0]");
}

TEST(Copies, HoldOnlyWhereTheirConditionsDo) {
  const std::string copy = "    if i < m:\n      c[0] = p[i]\n";
  EXPECT_EQ(index_behind(copy), "c[0]");
  EXPECT_EQ(index_behind(copy, "c[0]", "1", "    if i < m:\n      Y[{}] = 1.0\n"), "p[i]");
  EXPECT_EQ(index_behind(copy, "c[0]", "1", "    if i + 1 < m:\n      Y[{}] = 1.0\n"), "p[i]");
  EXPECT_EQ(index_behind(copy, "c[0]", "1", "    if i < m + 1:\n      Y[{}] = 1.0\n"), "c[0]");
  EXPECT_EQ(index_behind("    if i < n:\n      c[0] = p[i]\n"), "p[i]");
  // Of the place that is loaded, and of other arrays.
  const std::string some = "    for k in range(8):\n      if q[k] < m:\n        c[k] = p[k]\n";
  EXPECT_EQ(index_behind(some, "c[j]", "8", "    for j in range(8):\n      if q[j] < m:\n        Y[{}] = 1.0\n"),
            "p[j]");
  EXPECT_EQ(index_behind(some, "c[j]", "8", "    for j in range(8):\n      if q[7 - j] < m:\n        Y[{}] = 1.0\n"),
            "c[j]");
  EXPECT_EQ(index_behind("    if q[i] < m:\n      c[0] = p[i]\n    q[i] = 0\n", "c[0]", "1",
                         "    if q[i] < m:\n      Y[{}] = 1.0\n"),
            "c[0]");
  // What a condition says of a copy.
  EXPECT_EQ(index_behind("    c[0] = p[i]\n    allocate d[1]: int64 in register\n    if p[i] < m:\n      d[0] = q[i]\n",
                         "d[0]", "1", "    if c[0] < m:\n      Y[{}] = 1.0\n"),
            "q[i]");
}

TEST(Copies, SpeakOfNothingThatIsSetWithinThem) {
  EXPECT_EQ(index_behind("    if i < n:\n      let a = i * 2\n      c[0] = p[a]\n"), "c[0]");
  EXPECT_EQ(index_behind("    let a = i * 2\n    c[0] = p[a]\n"), "p[a]");
  EXPECT_EQ(index_behind("    if i < n:\n      let a = i * 2\n      if a < 4:\n        c[0] = p[i]\n", "c[0]", "1",
                         "    if i < n:\n      let a = i * 3\n      if a < 4:\n        Y[{}] = 1.0\n"),
            "c[0]");
}

}  // namespace
}  // namespace weft::loop
