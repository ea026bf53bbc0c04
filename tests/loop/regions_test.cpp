// What statements read and write, and that the interpreter holds blocks to it.
#include "loop/regions.h"

#include <gtest/gtest.h>

#include "loop/interpret.h"
#include "loop/parse.h"
#include "weft/error.h"

namespace weft::loop {
namespace {

Body statements(const std::string& text) {
  Symbols symbols{.variables = {"i", "j", "m", "n"}};
  symbols.buffers = {{"A", {Type::real, 2}}, {"B", {Type::real, 2}}, {"C", {Type::real, 1}}};
  symbols.buffers["p"] = symbols.buffers["q"] = {Type::integer, 1};
  Source source(text);
  return parse_body(source, 0, symbols);
}

std::string reads(const std::string& text) { return to_text(regions_of(statements(text)).reads); }
std::string writes(const std::string& text) { return to_text(regions_of(statements(text)).writes); }

TEST(Regions, ArePlacesInTermsOfWhatIsAround) {
  const std::string text = "C[i] = C[i] + A[i, j * 2] * B[q[j], 0]\n";
  EXPECT_EQ(reads(text), "C[i], A[i, j * 2], q[j], B[q[j], 0]");
  EXPECT_EQ(writes(text), "C[i]");
}

TEST(Regions, CoverTheIterationsOfLoopsWithin) {
  EXPECT_EQ(writes("for k in range(8):\n  A[i, k] = 0.0\n"), "A[i, 0:8]");
  EXPECT_EQ(writes("for k in range(n):\n  A[i, j * 4 + k + 1] = 0.0\n"), "A[i, j * 4 + 1:j * 4 + n + 1]");
  EXPECT_EQ(writes("for k in range(n):\n  A[i, m - k] = 0.0\n"), "A[i, m + 1 - n:m + 1]");
  EXPECT_EQ(writes("for k in range(4):\n  for l in range(8):\n    A[0, k * 8 + l] = 0.0\n"), "A[0, 0:32]");
  EXPECT_EQ(writes("for k in range(4):\n  for l in range(k + 1):\n    C[k - l] = 0.0\n"), "C[0:4]");
}

TEST(Regions, AreWholeWhereAnIndexIsNoSumOfLoopsWithin) {
  EXPECT_EQ(reads("for k in range(n):\n  C[i] = A[q[k], k]\n"), "q[0:n], A[:, 0:n]");
  EXPECT_EQ(writes("for k in range(n):\n  C[k // 2] = 0.0\n"), "C[:]");
  EXPECT_EQ(writes("for k in range(n):\n  C[k * k] = 0.0\n"), "C[:]");
  EXPECT_EQ(reads("let at = q[j] * 2\nC[i] = A[at, j]\n"), "q[j], A[:, j]");
  EXPECT_EQ(reads("for k in range(n):\n  for l in range(q[k]):\n    C[l] = B[i, l]\n"), "q[0:n], B[i, :]");
}

TEST(Regions, UniteWhatIsALiteralApart) {
  EXPECT_EQ(reads("for k in range(p[i + 1] - p[i]):\n  C[i] = A[i, k]\n"), "p[i:i + 2], A[i, 0:p[i + 1] - p[i]]");
  EXPECT_EQ(writes("C[i * 2] = 0.0\nC[i * 2 + 3] = 0.0\n"), "C[i * 2:i * 2 + 4]");
  EXPECT_EQ(writes("for k in range(4):\n  C[k + 4] = 0.0\nfor k in range(4):\n  C[k] = 0.0\n"), "C[0:8]");
  EXPECT_EQ(writes("C[i] = 0.0\nC[j] = 0.0\n"), "C[:]");
  EXPECT_EQ(writes("A[i, j] = 0.0\nA[i, m] = 0.0\nA[i, j] = 1.0\n"), "A[i, :]");
}

TEST(Regions, CountSearchesAndLeaveOutOwnMemory) {
  EXPECT_EQ(reads("let at = find(q[p[i]], n, j)\nC[i] = 0.0\n"), "p[i], q[p[i]:p[i] + n]");
  EXPECT_EQ(reads("let at = upper_bound(p[0], m + 1, i)\nC[i] = 0.0\n"), "p[0:m + 1]");
  const std::string own = "allocate L[4]: fp32 in register\nfor k in range(4):\n  L[k] = B[i, k]\nC[i] = L[0]\n";
  EXPECT_EQ(reads(own), "B[i, 0:4]");
  EXPECT_EQ(writes(own), "C[i]");
}

TEST(Regions, AreApartWhereADimensionProvesIt) {
  const auto written = [](const std::string& index) {
    return regions_of(statements("A[" + index + "] = 0.0\n")).writes[0];
  };
  EXPECT_TRUE(are_apart(written("i, 0"), written("i, 1")));
  EXPECT_TRUE(are_apart(written("i + 1, j"), written("i, j")));
  EXPECT_FALSE(are_apart(written("i, j"), written("i, j")));
  EXPECT_FALSE(are_apart(written("i, j"), written("j, i")));
  const auto of = [](const std::string& text) { return regions_of(statements(text)).writes[0]; };
  const Region low = of("for k in range(8):\n  C[k] = 0.0\n"), high = of("for k in range(8):\n  C[k + 8] = 0.0\n");
  EXPECT_TRUE(are_apart(low, high));
  EXPECT_TRUE(are_apart(high, low));
  EXPECT_FALSE(are_apart(low, of("C[7] = 0.0\n")));
  EXPECT_FALSE(are_apart(low, of("C[q[0]] = 0.0\n")));
  EXPECT_TRUE(are_apart(low, written("7, 7")));  // another buffer
}

// A block whose lines say what it accesses.
constexpr const char* kBlock =
    "for k in range(4):\n"
    "  block twice:\n"
    "    reads: q[k], B[q[k], 0]\n"
    "    writes: C[k]\n"
    "    C[k] = B[q[k], 0] * 2.0\n";

TEST(Regions, StandInTheTextOfBlocks) {
  const Body body = statements(kBlock);
  EXPECT_EQ(to_text(body), kBlock);
  Body without = statements("for k in range(4):\n  block twice:\n    C[k] = B[q[k], 0] * 2.0\n");
  EXPECT_NE(without, body);
  find_regions(without);
  EXPECT_EQ(without, body);
}

TEST(Regions, OfATextAreThoseOfItsAccesses) {
  const auto message = [](const std::string& line) -> std::string {
    std::string text = kBlock;
    text.replace(text.find("    writes: C[k]\n"), 17, line);
    try {
      statements(text);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message("    writes: C[k]\n"), "");
  EXPECT_NE(message("    writes: C[0]\n").find("what block 'twice' reads is q[k], B[q[k], 0]; what it writes is C[k]"),
            std::string::npos);
  EXPECT_NE(message("    writes: C[k], A[k, :]\n").find("what it writes is C[k]"), std::string::npos);
  EXPECT_NE(message("    writes: D[k]\n").find("line 4, column 13: no buffer 'D' is declared here"), std::string::npos);
  EXPECT_NE(message("    writes: C[k, 0:4]\n").find("'C' has 1 dimensions, not 2"), std::string::npos);
  EXPECT_NE(message("    writes: C[k:]\n").find("line 4, column 17"), std::string::npos);
}

// What happens where a block has the regions of something else.
std::string interpreted(Body body, const std::function<void(Stmt&)>& change) {
  change(body[0].body[0]);
  Memory memory{.buffers = {{"B", {1, 2, 3, 4}}, {"C", {0, 0, 0, 0}}, {"q", {3, 2, 1, 0}}}};
  const auto place = [](const std::string&, const std::vector<int64_t>& at) { return at[0]; };
  try {
    Interpreter(memory, place).run(body);
  } catch (const InternalError& error) {
    return error.what();
  }
  EXPECT_EQ(memory.buffers["C"], (std::vector<double>{8, 6, 4, 2}));
  return {};
}

TEST(Regions, AreWhatTheInterpreterHoldsBlocksTo) {
  const Body body = statements(kBlock);
  EXPECT_EQ(interpreted(body, [](Stmt&) {}), "");
  EXPECT_EQ(interpreted(body, [](Stmt& block) { block.reads = block.writes = {}; }), "");  // nothing is known
  EXPECT_EQ(interpreted(body, [](Stmt& block) { block.reads[1].ranges[0] = {0, 4}; }), "");
  EXPECT_NE(interpreted(body,
                        [](Stmt& block) {
                          block.reads[1].ranges[0] = {0, 3};
                        })
                .find("reads 'B' at 3"),
            std::string::npos);
  EXPECT_NE(interpreted(body, [](Stmt& block) { block.writes[0].ranges[0] = {Expr(0)}; }).find("writes 'C' at 1"),
            std::string::npos);
  EXPECT_NE(interpreted(body, [](Stmt& block) { block.reads.pop_back(); }).find("reads 'B' at 3"), std::string::npos);
}

}  // namespace
}  // namespace weft::loop
