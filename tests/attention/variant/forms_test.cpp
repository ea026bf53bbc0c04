// Which forms of a score functor GCC vectorises in a leaf, per instruction set: the table of docs/variants.md, read
// from the compiler's own report on the generated text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "attention/cpu/leaf.h"
#include "attention/variant/text.h"
#include "device/cpu/cpuid.h"
#include "tests/support/temp_folder.h"

namespace weft {
namespace {

enum Fast { never, plain_too, avx2_up, avx512_up };
struct Form {
  const char* name;
  Fast fast;
  const char* member;
};

// With these parameters: real scalars a, b; integer n; tensors bias fp32 [., .], ids int32 [., .], parent int32 [.],
// mask uint8 [.], words int32 [.], start int64 [.].
const Form kForms[] = {
    {"scale_and_add", plain_too, "real logits_transform(P p, Score, real s) { return p.a * s + p.b; }"},
    {"tanh", plain_too, "real logits_transform(P p, Score, real s) { return p.a * weft::tanh(s / p.a); }"},
    {"sigmoid", plain_too, "real logits_transform(P p, Score, real s) { return weft::sigmoid(s + p.a); }"},
    {"exp_log", plain_too, "real logits_transform(P p, Score, real s) { return weft::exp(p.a * weft::log(s)); }"},
    {"sincos", plain_too,
     "real logits_transform(P p, Score c, real s) { return s * weft::cos(p.a * real(c.kv_pos)); }"},
    {"select", plain_too, "real logits_transform(P p, Score, real s) { return weft::select(s > p.a, p.a, s * p.b); }"},
    {"early_return", plain_too,
     "real logits_transform(P p, Score, real s) { if (s > p.a) return p.a + weft::tanh(s - p.a); return s; }"},
    {"if_else_on_position", plain_too,
     "real logits_transform(P p, Score c, real s) { if (c.kv_pos < p.n) s += p.a; else s -= p.b; return s; }"},
    {"min_max", plain_too, "real logits_transform(P p, Score, real s) { return weft::max(p.a, weft::min(s, p.b)); }"},
    {"alibi", plain_too, "real logits_transform(P p, Score c, real s) { return s + p.a * real(c.kv_pos - c.q_pos); }"},
    {"bias_row", plain_too, "real logits_transform(P p, Score c, real s) { return s + p.bias(c.qo_head, c.kv_idx); }"},
    {"bias_of_distance", plain_too,
     "real logits_transform(P p, Score c, real s) { return s + p.bias(c.qo_head, c.q_pos - c.kv_idx); }"},
    {"window_and_sinks", plain_too,
     "bool logits_mask(P p, Score c) { return (c.kv_pos < 4) | ((c.kv_pos > c.q_pos - p.n) & (c.kv_pos <= c.q_pos)); "
     "}"},
    {"short_circuits", never,
     "bool logits_mask(P p, Score c) { return c.kv_pos < 4 || (c.kv_pos > c.q_pos - p.n && c.kv_pos <= c.q_pos); }"},
    {"same_segment", plain_too,
     "bool logits_mask(P p, Score c) { return p.ids(c.batch, c.kv_idx) == p.ids(c.batch, c.qo_idx); }"},
    {"bool_mask", plain_too,
     "bool logits_mask(P p, Score c) { return p.mask.at(p.start(c.batch) + 1ll * c.qo_idx * c.kv_len, c.kv_idx) != 0; "
     "}"},
    {"mask_bit", avx2_up,
     "bool logits_mask(P p, Score c) { return weft::mask_bit(p.mask, p.start(c.batch), 1ll * c.qo_idx * c.kv_len, c); "
     "}"},
    {"div_const", plain_too,
     "bool logits_mask(P p, Score c) { return weft::div_const(c.kv_pos, p.n) == weft::div_const(c.q_pos, p.n); }"},
    {"literal_division", plain_too, "bool logits_mask(P, Score c) { return c.kv_pos / 7 == c.q_pos / 7; }"},
    {"gather", plain_too, "real logits_transform(P p, Score c, real s) { return s + p.bias(0, p.parent(c.kv_idx)); }"},
    {"run_time_division", never, "bool logits_mask(P p, Score c) { return c.kv_pos / p.n == c.q_pos / p.n; }"},
    {"bits_by_hand", never, "bool logits_mask(P p, Score c) { return (p.mask(c.kv_idx / 8) >> (c.kv_idx % 8)) & 1; }"},
    {"pointer_chase", never,
     "bool logits_mask(P p, Score c) { int i = c.qo_idx; while (i > c.kv_idx) i = p.parent(i); return i == c.kv_idx; "
     "}"},
    {"loop_over_a_table", never,
     "real logits_transform(P p, Score c, real s) { for (int i = 0; i < p.n; ++i) s += p.bias(i, c.kv_idx) * p.a; "
     "return s; }"},
};

// Vector functors: what else the tensors hold is of no interest here.
const char* const kVectorForms[][2] = {
    {"norm", "return x[i] * weft::rsqrt(weft::dot(x, x) / real(x.size()) + p.a);"},
    {"centre", "return x[i] - weft::sum(x) / real(x.size());"},
    {"rotate_pairs", "return x[i] * p.bias(r.pos, i) + weft::pair(x, i) * p.bias(r.pos + p.n, i);"},
    {"rotate_halves", "return x[i] * p.bias(r.pos, i) + weft::pair_halves(x, i) * p.bias(r.pos + p.n, i);"},
    {"rotate_by_sincos",
     "return x[i] * weft::cos(real(r.pos) * p.bias(0, i)) + weft::pair(x, i) * weft::sin(real(r.pos) * p.bias(0, i));"},
};

// The line of a loop of the driver, which every functor is inlined into.
int driver_line(std::string_view loop) {
  std::istringstream driver(text::k_cpu_leaf_driver);
  std::string line;
  for (int number = 1; std::getline(driver, line); ++number)
    if (line.find(loop) != line.npos) return number;
  ADD_FAILURE() << "the driver has no loop " << loop;
  return -1;
}

LeafParts parts_of(const std::string& member) {
  LeafParts parts;
  parts.variant = {.name = "Form",
                   .text = fmt::format("struct Form {{\n{}\n}};\n", member),
                   .scalars = {{.name = "a"}, {.name = "b"}, {"n", ScalarKind::integer}},
                   .tensors = {{.name = "bias", .rank = 2},
                               {"ids", DType::int32, 2},
                               {"parent", DType::int32, 1},
                               {"mask", DType::uint8, 1},
                               {"start", DType::int64, 1}}};
  return parts;
}

// One text with every form, and the report of what was vectorised: form -> loops.
std::map<std::string, int> vectorised(Isa isa) {
  std::string text = leaf_head(isa);
  for (const Form& form : kForms) {
    const std::string name = fmt::format("form_{}", form.name);
    text += leaf_body(parts_of(form.member), name);
    text += fmt::format(
        "extern \"C\" __attribute__((flatten)) void {0}_score(const weft::abi::ScoreTile* t) {{\n"
        "  weft::detail::Leaf<{0}::P, {0}::variant::Form, weft::detail::NoHooks>::score(t);\n}}\n",
        name);
  }
  for (const auto& [form, body] : kVectorForms) {
    const std::string name = fmt::format("form_{}", form);
    text += leaf_body(parts_of(fmt::format("real key_transform(P p, Vec x, int i, Row r) {{ {} }}", body)), name);
    text += fmt::format(
        "extern \"C\" __attribute__((flatten)) void {0}_vector(const weft::abi::VectorTile* t) {{\n"
        "  weft::detail::Leaf<{0}::P, {0}::variant::Form, weft::detail::NoHooks, 128, 128, {1}>::key(t);\n}}\n",
        name, isa == Isa::avx512_bf16 ? "unsigned short" : "float");
  }
  const testing::TempFolder folder;
  folder.write("forms.cpp", text);
  std::string command = fmt::format(
      "cd '{}' && '{}' -std=c++20 -O3 -fPIC -fno-trapping-math -fno-math-errno -ffp-contract=fast -fno-exceptions",
      folder.path(), WEFT_TEST_CXX);
  for (const char* flag : compiler_flags(isa)) command += fmt::format(" {}", flag);
  for (const char* flag : {"-fno-tree-loop-distribute-patterns", "-fno-thread-jumps"})
    command += fmt::format(" {}", flag);
  command += " -fdump-tree-vect-optimized=report -S -o /dev/null forms.cpp";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;

  std::map<std::string, int> loops;
  std::ifstream report(folder.path("report"));
  std::string line, form;
  const auto place = [](std::string_view loop) { return fmt::format("leaf_driver.h:{}:", driver_line(loop)); };
  const std::string scores = place("for (int u = 0; u < n; ++u) {");
  const std::string elements = place("for (int i = 0; i < dim / 2; ++i) {");
  while (std::getline(report, line)) {
    constexpr std::string_view kFunction = ";; Function form_";
    if (line.compare(0, 12, kFunction.substr(0, 12)) == 0) {
      const size_t end = line.find_first_of(" (", kFunction.size());
      form = line.compare(0, kFunction.size(), kFunction) == 0 ? line.substr(kFunction.size(), end - kFunction.size())
                                                               : "";
    }
    if ((line.find(scores) != line.npos || line.find(elements) != line.npos) &&
        line.find("loop vectorized") != line.npos)
      ++loops[form];
  }
  return loops;
}

void check_forms(Isa isa) {
  const auto loops = vectorised(isa);
  for (const Form& form : kForms) {
    const bool expected = form.fast != never && (form.fast == plain_too || (form.fast == avx2_up && isa >= Isa::avx2) ||
                                                 (form.fast == avx512_up && isa >= Isa::avx512));
    EXPECT_EQ(loops.contains(form.name + std::string("_score")), expected) << form.name;
  }
  for (const auto& [form, body] : kVectorForms) EXPECT_TRUE(loops.contains(form + std::string("_vector"))) << form;
}

TEST(Forms, VectoriseOnPlainAsTheTableSays) { check_forms(Isa::plain); }
TEST(Forms, VectoriseOnAvx2AsTheTableSays) { check_forms(Isa::avx2); }
TEST(Forms, VectoriseOnAvx512AsTheTableSays) { check_forms(Isa::avx512); }
TEST(Forms, VectoriseOnAvx512WithKeysInBf16AsTheTableSays) { check_forms(Isa::avx512_bf16); }

}  // namespace
}  // namespace weft
