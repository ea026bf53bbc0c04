// Formats as text: what is read is printed one way and compared as a value.
#include <gtest/gtest.h>

#include "sparse/formats/format.h"
#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

TEST(FormatNames, AreTheSameHoweverTheyAreSpaced) {
  for (const char* text : {"hyb(1, 0)", "hyb(1,0)", " hyb( 1 , 0 )", "hyb (1,0) "}) {
    EXPECT_EQ(parse_formats(text), (Formats{{Format::Kind::hyb, {1, 0}}})) << text;
    EXPECT_EQ(to_text(parse_formats(text)), "hyb(1, 0)") << text;
    EXPECT_EQ(hash_of(parse_formats(text)), hash_of(parse_formats("hyb(1, 0)"))) << text;
  }
  EXPECT_NE(parse_formats("hyb(1, 0)"), parse_formats("hyb(0, 1)"));
  EXPECT_NE(parse_formats("csc()"), parse_formats("coo()"));
}

TEST(FormatNames, ReadBackAsTheyArePrinted) {
  for (const char* text : {"csr", "csr()", "csc()", "coo()", "dcsr()", "dia()", "ell(3)", "bsr(4)", "dbsr(2)",
                           "sr_bcrs(4, 2)", "hyb(2)", "hyb(1, 5)", "bsr(4), ell(2), coo()"})
    EXPECT_EQ(to_text(parse_formats(text)), text);
  // CSR as it is, and a copy of it.
  EXPECT_EQ(parse_formats(" csr "), Formats());
  EXPECT_EQ(parse_formats("csr()").size(), 1u);
}

TEST(FormatNames, SayWhereATextIsWrong) {
  const auto says = [](const char* text, const std::string& part) {
    expect_contains(refusal([&] { parse_formats(text); }), part, text);
  };
  says("",
       "format '', column 1: the name of a format is expected; allowed are csr(), csc(), coo(), dcsr(), dia(), "
       "ell(width), bsr(block), dbsr(block), sr_bcrs(t, g), hyb(c) and hyb(c, k), and lists of these");
  says("csb()", "format 'csb()', column 1: 'csb()' is no format");
  says("bsr(4), csb()", "column 9: 'csb()' is no format");
  says("bsr()", "'bsr()' is no format");
  says("hyb(1, 2, 3)", "'hyb(1, 2, 3)' is no format");
  says("bsr", "column 4: '(' is expected");
  says("bsr(4", "column 6: ',' or ')' is expected");
  says("bsr(x)", "column 5: an integer is expected");
  says("bsr(99999999999999999999)", "column 5: an integer is expected");
  says("bsr(4); coo()", "column 7: a comma or the end is expected");
  says("bsr(4),", "column 8: the name of a format is expected");
  says("bsr(4), csr", "column 12: '(' is expected");
}

// Numbers are compared, not texts: each spacing runs the same operator.
TEST(FormatNames, OfCallsMayBeSpacedInAnyWay) {
  constexpr int64_t kFeat = 16;
  const Matrix a = random_matrix(Shape::power_law, 981);
  const Values b = random_values(static_cast<size_t>(a.cols * kFeat), 982);
  for (const char* format : {"hyb(1,0)", " hyb( 1 , 0 )", "bsr( 2 )", "bsr(2),hyb(1)", "ell( 40)"}) {
    Values c(static_cast<size_t>(a.rows * kFeat));
    spmm(a.structure(), a.values_view(), {b.data(), DType::fp32, {a.cols, kFeat}},
         {c.data(), DType::fp32, {a.rows, kFeat}}, {.format = format});
    expect_close(doubles(c), dense_spmm(a, b, kFeat), 1e-5, format);
  }
  EXPECT_EQ(formats_for("bsr(2), hyb(3)",
                        csr(2, 9, std::vector<int32_t>{0, 4, 8}, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7})),
            parse_formats("bsr(2), hyb(3, 2)"));
}

}  // namespace
}  // namespace weft::sparse::test
