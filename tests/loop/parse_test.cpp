// Statements and functions as text.
#include "loop/parse.h"

#include <gtest/gtest.h>

#include "weft/error.h"

namespace weft::loop {
namespace {

constexpr const char* kFunction = R"(stage3 f(n, m):
  p = flat(n + 1): int32 in 0 to m
  A = flat(m): fp32
  B = temporary(n * 4): bf16
  for i in range(n) [parallel, balance=p]:
    allocate s[4]: fp32 in register
    for j in range(4) [unroll]:
      s[j] = 0.0
    for j in range(p[i + 1] - p[i]) [reduce, prefetch]:
      let at = find(p[0], n, j)
      if at >= 0 and j < 4:
        s[j] = s[j] + A[p[i] + j]
    for j in range(4) [vectorize]:
      B[i * 4 + j] = s[j]
  for x in range(n) [bind=blockIdx.x]:
    for y in range(4) [bind=threadIdx.y]:
      B[x * 4 + y] = B[x * 4 + y] / 2.0
)";

TEST(ParseFunction, ReadsBackWhatItPrints) { EXPECT_EQ(to_text(parse_function(kFunction)), kFunction); }

TEST(ParseFunction, RefusesWrongTextAtItsPlace) {
  struct {
    const char *from, *to, *says;
  } cases[] = {
      {"stage3 f", "stage2 f", "line 1, column 1: 'stage3' is expected"},
      {"range(n) [parallel", "rang(n) [parallel", "'range' is expected here"},
      {"[unroll]", "[bind=thread.x]", "'thread.x' is no thread axis"},
      {"[unroll]", "[unroll", "']' is expected here, not ':'"},
      {"in register", "in cache", "'cache' is no scope"},
      {"in 0 to m", "in 0 up m", "'to' is expected here"},
      {"      s[j] = 0.0\n", "", "a statement is expected, 6 spaces deep"},
      {"let at =", "let i =", "'i' is declared twice"},
      {"if at >= 0 and j < 4:", "if at:", "a condition is expected here"},
      {"B[i * 4 + j] = s[j]", "B[i * 4 + j, 0] = s[j]", "'B' is accessed with 2 indices"},
      {"p = flat(n + 1)", "n = flat(n + 1)", "'n' is declared twice"},
  };
  for (const auto& c : cases) {
    std::string text = kFunction;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    try {
      parse_function(text);
      ADD_FAILURE() << "read: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << error.what() << "\nnot: " << c.says;
    }
  }
}

TEST(Verify, FindsWhatAPassMayNotLeaveBehind) {
  const auto breaks = [](auto change) {
    Function function = parse_function(kFunction);
    verify(function);
    change(function);
    EXPECT_THROW(verify(function), InternalError);
  };
  breaks([](Function& f) { f.body.push_back(make_store("B", {variable("q")}, real(0))); });
  breaks([](Function& f) { f.body.push_back(make_store("Q", {Expr(0)}, real(0))); });
  breaks([](Function& f) { f.body.push_back(make_store("B", {Expr(0), Expr(1)}, real(0))); });
  breaks([](Function& f) { f.body.push_back(make_block("b", {})); });
  breaks([](Function& f) { f.body.push_back(make_loop("n", 3, {make_store("B", {Expr(0)}, real(0))})); });
  breaks([](Function& f) { f.body.push_back(make_store("B", {variable("i")}, real(0))); });  // out of its scope
}

}  // namespace
}  // namespace weft::loop
