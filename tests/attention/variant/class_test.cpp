// What a variant's text may be: the class it names, the members of this class, and nothing that reads a file.
#include <gtest/gtest.h>

#include <random>

#include "attention/cpu/leaf.h"
#include "attention/variant/text.h"
#include "weft/error.h"

namespace weft {
namespace {

AttentionSpec spec_of(const std::string& text, bool use_softmax = true) {
  return {.variant = {.name = "Own", .text = text, .use_softmax = use_softmax}};
}

// The message of the refusal; empty where the text is accepted.
std::string refusal_of(const std::string& text) {
  try {
    validate(spec_of(text));
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    return error.what();
  }
}

void expect_refused(const std::string& text, const std::string& says) {
  const std::string message = refusal_of(text);
  EXPECT_NE(message.find(says), std::string::npos) << text << "\n-> " << (message.empty() ? "accepted" : message);
}

void expect_accepted(const std::string& text) { EXPECT_EQ(refusal_of(text), "") << text; }

std::string own(const std::string& members) { return "struct Own {\n" + members + "\n};\n"; }

struct Misspelt {
  const char* member;
  const char* name;
  const char* hook;  // that the message names
};

TEST(VariantMembers, AFunctionThatIsNoHookAndThatNothingCallsIsRefusedWithTheNearestHook) {
  const Misspelt cases[] = {
      {"real logits_transfrom(P, Score, real s) { return s; }", "logits_transfrom", "logits_transform"},
      {"real output_tranform(P, Vec x, int i, Row) { return x[i]; }", "output_tranform", "output_transform"},
      {"real value_trans(P, Vec x, int i, Row) { return x[i]; }", "value_trans", "value_transform"},
      {"void Init(P, Request) {}", "Init", "init"},
      {"static double logits_transfom(P, Score, real s) { return s; }", "logits_transfom", "logits_transform"},
      {"real Logits_Transform(P, Score, real s) { return s; }", "Logits_Transform", "logits_transform"},
      {"real logits_transform2(P, Score, real s) { return s; }", "logits_transform2", "logits_transform"},
      {"auto logits_masks(P, Score) const noexcept -> bool { return true; }", "logits_masks", "logits_mask"},
      {"template <class T> real kye_transform(P, T x, int i, Row) { return x[i]; }", "kye_transform", "key_transform"},
      {"template <class T, int N = (3 > 2)> real kye_transform(P, T x) { return x[0]; }", "kye_transform",
       "key_transform"},
      {"constexpr const weft::real lse_transfrm(P, Row r) const { return r.lse; }", "lse_transfrm", "lse_transform"},
      {"[[nodiscard]] real query_tranform(P, Vec x, int i, Row) { return x[i]; }", "query_tranform", "query_transform"},
      {"__attribute__((noinline)) real query_tranform(P, Vec x, int i, Row) { return x[i]; }", "query_tranform",
       "query_transform"},
      {"real (logits_transfrom)(P, Score, real s) { return s; }", "logits_transfrom", "logits_transform"},
      {"real logits_transfrom [[gnu::cold]] (P, Score, real s) { return s; }", "logits_transfrom", "logits_transform"},
      {"real logits_\\\ntransfrom(P, Score, real s) { return s; }", "logits_transfrom", "logits_transform"},
      {"real logits_\\ \t\ntransfrom(P, Score, real s) { return s; }", "logits_transfrom", "logits_transform"},
      {"real /* logits_transform */ logits_transfrom(P, Score, real s) { return s; }  // logits_transfrom",
       "logits_transfrom", "logits_transform"},
      {"const char* note() { return \"logits_transfrom\"; }\nreal x = note()[0];\n"
       "real logits_transfrom(P, Score, real s) { return s; }",
       "logits_transfrom", "logits_transform"},
      {"real logits_transfrom(P, Score, real s);\nreal logits_transfrom(P, Row, real s);", "logits_transfrom",
       "logits_transform"},
      {"real logits_transfrom(P p, Score c, real s) { return s > 1 ? logits_transfrom(p, c, s - 1) : s; }",
       "logits_transfrom", "logits_transform"},
      {"real x[4] = {1, 2, 3, 4}; int n{3};\nreal logits_transfrom(P, Score, real s) { return s + x[n]; }",
       "logits_transfrom", "logits_transform"},
      {"Own() : x{1}, y(2) {}\nreal logits_transfrom(P, Score, real s) { return s + x + y; }\nreal x, y;",
       "logits_transfrom", "logits_transform"},
      {"template <class T> requires requires(T t) { t + 1; } real logits_transfrom(P, Score, T s) { return s; }",
       "logits_transfrom", "logits_transform"},
      {"bool operator<(const Own&) const { return false; }\nvoid innit(P, Request) {}", "innit", "init"},
      {"static constexpr bool use_softmx = true;", "use_softmx", "use_softmax"},
      {"static constexpr bool softmax = false;", "softmax", "use_softmax"},
      {"constexpr static inline const bool use_soft_max{false};", "use_soft_max", "use_softmax"},
      {"static constexpr int kBlock = 4, use_sofmax = 0;", "use_sofmax", "use_softmax"},
      {"static constexpr auto logits_transfrom = [](P, Score, real s) { return s; };", "logits_transfrom",
       "logits_transform"},
  };
  for (const Misspelt& wrong : cases) {
    const std::string message = refusal_of(own(wrong.member));
    EXPECT_NE(message.find("'" + std::string(wrong.name) + "'"), std::string::npos) << wrong.member << message;
    EXPECT_NE(message.find("'" + std::string(wrong.hook) + "'"), std::string::npos) << wrong.member << message;
  }
}

TEST(VariantMembers, AMisspeltHookIsFoundInABaseAndOutsideOfTheClassToo) {
  expect_refused("struct Base { real logits_transfrom(P, Score, real s) { return s; } };\nstruct Own : Base {};",
                 "'logits_transform'");
  expect_refused("template <class T> struct Base { void Init(P, Request) {} };\nstruct Own final_ : Base<Own> {};",
                 "no class of this name");
  expect_refused("template <class T> struct Base { void Init(P, Request) {} };\nstruct Own : public Base<Own> {};",
                 "'init'");
  expect_refused(
      "struct Own { real logits_transfrom(P, Score, real s); };\n"
      "inline real Own::logits_transfrom(P, Score, real s) { return s; }",
      "'logits_transform'");
}

TEST(VariantMembers, HelpersDataConstructorsDestructorsAndOperatorsAreLegal) {
  for (const char* members : {
           "real half(real s) { return s / 2; }\nreal logits_transform(P, Score, real s) { return half(s); }",
           "real quarter(real s) { return half(s) / 2; }\nreal half(real s) { return s / 2; }\n"
           "real logits_transform(P, Score, real s) { return quarter(s); }",
           "bool logits_mask_left(P, Score) { return true; }\n"
           "bool logits_mask(P p, Score c) { return logits_mask_left(p, c); }",
           "Own() {}\nexplicit Own(int) {}\n~Own() {}\nOwn(const Own&) = default;\nOwn& operator=(const Own&) = "
           "default;\n"
           "operator bool() const { return true; }\nreal operator()(real s) { return s; }\n"
           "bool operator==(const Own&) const { return true; }\nbool operator<(const Own&) const { return true; }\n"
           "real operator[](int i) const { return i; }",
           "real scale = 1, offset;\nint table[4] = {1, 2, 3, 4};\nconst real* pointer{nullptr};\nint bits : 3;",
           "static constexpr int kBlock = 4;\nstatic constexpr real kTable[] = {1, 2};",
           "static_assert(sizeof(int) == 4, \"logits_transfrom(\");\nusing Real = real;\ntypedef int Int;\n"
           "enum Kind { kOne, kTwo };\nenum class Color : int { red };\nfriend void swap(Own&, Own&) {}",
           "struct Inner { real unused(real s) { return s; } };\nunion Either { int i; float f; };",
           "weft::Tensor<float, 2> tensor;\nreal f(real x = weft::max(1, 2)) { return x; }\n"
           "real logits_transform(P, Score, real s) { return f(s); }",
           "public:\n  real logits_transform(P, Score, real s) const noexcept(noexcept(1 + 1)) { return s; }\nprivate:",
           "#define HALF(x) ((x) / 2)\n#if 1\nreal logits_transform(P, Score, real s) { return HALF(s); }\n#endif",
           "#if 0\nreal logits_transfrom(P, Score, real s) { don't } }\n#endif",
           "// real logits_transfrom(P, Score, real s)\n/* void Init(P, Request) {} */",
           "static real logits_transform(const P& p, const Score& c, real s) { return s; }",
           "real half(real); real logits_transform(P, Score, real s) { return half(s); }\n};\n"
           "inline real Own::half(real s) { return s / 2; }\nstruct Rest {",
       })
    expect_accepted(own(members));
}

TEST(VariantClass, IsFoundWithAttributesBasesAndADeclarationBeforeIt) {
  for (const char* text : {
           "struct alignas(64) Own { int x; };",
           "struct [[maybe_unused]] Own {};",
           "struct __attribute__((aligned(64))) Own {};",
           "struct alignas(16) [[maybe_unused]] Own {};",
           "class Own { public: real logits_transform(P, Score, real s) { return s; } };",
           "struct Base { real twice(real s) { return 2 * s; } };\nstruct Own : Base { real logits_transform(P, Score, "
           "real s) { return twice(s); } };",
           "struct Own;\nreal use(Own*);\nstruct Own {};",
           "namespace helpers { inline real half(real s) { return s / 2; } }\nstruct Own {};",
           "struct // Own\nOwn\n{};",
           "namespace { struct Own {}; }",
           "inline namespace v2 { struct Own {}; }",
           "struct Own; namespace other { struct Own final {}; }\nstruct Own {};",
           "template <class T> struct Twice { T x; };\nstruct Own : Twice<int> {};",
           "constexpr int kTable[] = {1, 2};\ntemplate <class T> T twice(T x) { return 2 * x; }\nstruct Own {};",
       })
    expect_accepted(text);
}

TEST(VariantClass, ThatKernelsCannotNameOrDeriveFromIsRefusedWithTheReason) {
  expect_refused("struct Own final {};", "final");
  expect_refused("template <class T> struct Own {};", "template");
  expect_refused("namespace mine { struct Own {}; }", "namespace");
  expect_refused("struct Outer { struct Own {}; };", "no class of this name");
  expect_refused("union Own { int i; };", "no class of this name");
  expect_refused("using Own = int;", "no class of this name");
  expect_refused("struct Own;", "no class of this name");
  expect_refused("struct Other {}; struct Own* p;", "no class of this name");
  expect_refused("/* struct Own {}; */", "no class of this name");
  expect_refused("const char* text = R\"x(struct Own {};)x\";", "no class of this name");
}

TEST(VariantClass, WithAnAlignmentOrABaseRuns) {
  for (const char* text :
       {"struct alignas(64) Own { real half = 0.5f; real logits_transform(P, Score, real s) { return s * half; } };",
        "struct Base { real logits_transform(P, Score, real s) { return s / 2; } };\nclass Own : public Base {};"}) {
    const AttentionSpec spec = spec_of(text);
    validate(spec);
    EXPECT_NE(find_leaf(spec, current_isa()).leaf->score, nullptr) << text;
  }
}

TEST(VariantText, ThatReadsAFileIsRefusedHoweverItIsWritten) {
  const char* const lines[] = {"#include <cmath>",
                               "# include <cmath>",
                               "  #\tinclude \"/etc/passwd\"",
                               "%:include <cmath>",
                               "%: include <cmath>",
                               "#/**/include <cmath>",
                               "/* */ # /* \n */ include <cmath>",
                               "#\\\ninclude <cmath>",
                               "#inc\\\nlude <cmath>",
                               "\\\n#include <cmath>",
                               "#inc\\ \t\nlude <cmath>",
                               "#inc\\\r\nlude <cmath>",
                               "%\\\n:include <cmath>",
                               "#include_next <cmath>",
                               "#import <cmath>",
                               "#embed \"/etc/passwd\"",
                               "import <cmath>;",
                               "export import std;",
                               "#pragma GCC dependency \"/etc/passwd\"",
                               "#pragma GCC pch_preprocess \"/etc/passwd\"",
                               "#pragma clang module import std",
                               "_Pragma(\"GCC dependency \\\"/etc/passwd\\\"\")",
                               "#if __has_include(<cmath>)\n#endif",
                               "#if defined __has_include_next\n#endif",
                               "#if __has_embed(\"/etc/passwd\")\n#endif",
                               "asm(\".incbin \\\"/etc/passwd\\\"\");",
                               "__asm__(\".incbin \\\"/etc/passwd\\\"\");",
                               "__asm volatile (\".include \\\"/etc/passwd\\\"\");",
                               "__attribute__((section(\".x\\n.incbin \\\"/etc/passwd\\\"\"))) int x = 1;",
                               "[[gnu::__section__(R\"(.x)\")]] int x = 1;",
                               "#line 3 \"/etc/passwd\"",
                               "# 3 \"/etc/passwd\"",
                               "#ident \"x\"",
                               "#define PASTE(a, b) a##b",
                               "#define PASTE(a, b) a%:%:b",
                               "/* R\"( */\n#include <cmath>\n/* )\" */",
                               "// \\\n\n#include <cmath>",
                               "int n = 1'0;\n#include <cmath>\nint m = 1'0;",
                               "char c = '\"';\n#include <cmath>\nchar d = '\"';",
                               "auto s = R\"x()\\\nx\")x\";\n#include <cmath>\nauto t = \"\";",
                               "auto s = LR\"(\")\";\n#include <cmath>\nauto t = LR\"(\")\";",
                               "#if 0\n#endif\n#include <cmath>",
                               "#if 0\n#else\n#include <cmath>\n#endif"};
  for (const char* line : lines) {
    const std::string message = refusal_of(std::string(line) + "\nstruct Own {};\n");
    EXPECT_NE(message.find("variant 'Own'"), std::string::npos) << line << "\n-> " << message;
    EXPECT_EQ(message.find("no class of this name"), std::string::npos) << line << "\n-> " << message;
  }
}

TEST(VariantText, ThatChangesWithTheClockIsRefused) {
  for (const char* macro : {"__DATE__", "__TIME__", "__TIMESTAMP__"})
    expect_refused(own(std::string("const char* made() { return ") + macro +
                       "; }\nreal logits_transform(P, Score, real s) { return s + made()[0]; }"),
                   macro);
}

TEST(VariantText, WithALoneCarriageReturnIsRefusedAsCompilersReadItDifferently) {
  expect_refused("// \r#include <cmath>\nstruct Own {};", "carriage return");
  expect_accepted("// lines that end as on Windows\r\nstruct Own {\r\n};\r\n");
}

TEST(VariantText, ThatOnlySpeaksOfFilesIsAccepted) {
  for (const char* line :
       {"// #include <cmath>", "/*\n#include <cmath>\n*/", "// \\\n#include <cmath>", "// \\ \n#include <cmath>",
        "const char* s = \"\\\n#include <cmath>\";", "const char* s = R\"(\n#include <cmath>\n)\";",
        "const char* s = R\"x()\"\n#include <cmath>\n)x\";", "#pragma GCC unroll 4", "#", "#undef X",
        "#define include 1", "#pragma GCC diagnostic ignored \"-Wunused\"",
        "#ifdef __clang__\n#pragma clang loop vectorize(enable)\n#else\n#endif", "#define STRING(x) #x",
        "const char* file = __FILE__;", "int asm_ = 0, important = 0;",
        "inline int section(int x) { return x; }\nint one = section(1);"})
    expect_accepted(std::string(line) + "\nstruct Own {};\n");
}

TEST(VariantText, OfAnyTokensIsJudgedWithoutEnd) {
  const char* const pieces[] = {
      "struct", "Own", "{", "}",       "(",        ")",    "[",        "]",        "<",        ">",
      ";",      ":",   "=", ",",       "real",     "init", "template", "operator", "requires", "\n",
      "#",      "\"",  "'", "R\"(",    ")\"",      "/*",   "*/",       "//",       "\\\n",     "static",
      "bool",   "%:",  "~", "#if 0\n", "#endif\n", "1'0",  " "};
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = round % 2 == 0 ? "struct Own {" : "";
    for (size_t i = 0, n = random() % 24; i < n; ++i) text += pieces[random() % std::size(pieces)];
    refusal_of(text);
  }
}

TEST(VariantText, OfAnyDepthAndLengthIsJudgedInALineOfTime) {
  const auto repeat = [](std::string_view piece, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += piece;
    return text;
  };
  for (const char* piece : {"namespace a {", "struct A {", "struct Own {", "(", "x<", "real f(", "#if 0\n", "f();"})
    refusal_of("struct Own { real " + repeat(piece, 50'000));
  expect_accepted("struct Own {};\n" + repeat("namespace a {", 50'000) + repeat("}", 50'000));
}

TEST(VariantText, NamesAHookWhereItsCodeDoes) {
  const auto dims = [](const char* text) { return leaf_parts(spec_of(text)).head_dim_qk; };
  EXPECT_EQ(dims("struct Own { /* key_transform */ };  // query_transform"), 0);
  EXPECT_EQ(dims("struct Own { real key_transform_scale = 1; };"), 0);
  EXPECT_EQ(dims("struct Own { real key_transform(P, Vec x, int i, Row) { return x[i]; } };"), 64);
  EXPECT_EQ(dims("struct Own { real key_\\\ntransform(P, Vec x, int i, Row) { return x[i]; } };"), 64);
}

}  // namespace
}  // namespace weft
