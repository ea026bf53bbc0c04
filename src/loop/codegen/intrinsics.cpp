#include "loop/codegen/intrinsics.h"

#include <fmt/args.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace weft::loop {
namespace {

// Operands are {0}, {1}, ...; null: the target has none.
struct Row {
  Intrinsic intrinsic;
  const char* cpp;
  const char* cuda;
};

constexpr Row kRows[] = {
    {Intrinsic::vector, "weft_{0}x{1}", nullptr},
    {Intrinsic::dot, "{0} = weft_dot_bf16({0}, {1}, {2});", nullptr},
    {Intrinsic::product, "weft_product<{0}, {1}, {2}>({3}, {4}, {5}, {6}, {7}, {8}, {9});",
     "weft_product<{0}, {1}, {2}>({3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11});"},
    {Intrinsic::mma, nullptr,
     "weft::loop::multiply<{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}>({8}, {9}, {10}, {11}, {12});"},
    {Intrinsic::load_narrow, "weft_load_{0}x{2}({1})", nullptr},
    {Intrinsic::store_narrow, "weft_store_{0}({1}, {2});", nullptr},
    {Intrinsic::load_wide, nullptr, "weft_load<{0}, {1}>({2}, {3});"},
    {Intrinsic::store_wide, nullptr, "weft_store<{0}, {1}>({2}, {3});"},
    {Intrinsic::prefetch, "__builtin_prefetch({0});", nullptr},
    {Intrinsic::rolled, nullptr, "#pragma unroll 1"},
    {Intrinsic::unroll, "#pragma GCC unroll {0}", "#pragma unroll"},
    {Intrinsic::lanes, "#pragma GCC ivdep", "#pragma unroll"},
    {Intrinsic::infinity_fp32, "__builtin_inff()", "__int_as_float(0x7f800000)"},
    {Intrinsic::infinity_fp64, "__builtin_inf()", "__longlong_as_double(0x7ff0000000000000ll)"},
    {Intrinsic::nan_fp32, "__builtin_nanf(\"\")", "__int_as_float(0x7fffffff)"},
    {Intrinsic::nan_fp64, "__builtin_nan(\"\")", "__longlong_as_double(0x7fffffffffffffffll)"},
    {Intrinsic::barrier, nullptr, "__syncthreads();"},
    {Intrinsic::copy_async, nullptr, "weft::ptx::cp_async_16({0}, {1}, {2});"},
    {Intrinsic::commit_copies, nullptr, "weft::ptx::cp_async_commit();"},
    {Intrinsic::wait_copies, nullptr, "weft::ptx::cp_async_wait<{0}>();"},
    {Intrinsic::warp_sum, nullptr, "{0} = weft_warp<{1}>({0}, blockDim.x);"},
    {Intrinsic::whole_warp_sum, nullptr, "{0} = weft_whole_warp<{1}>({0}, blockDim.x);"},
    {Intrinsic::cta_sum, nullptr, "{0} = weft_cta<{1}>({0}, blockDim.x, weft_sums);"},
};

const char* format_of(Intrinsic intrinsic, Target target) {
  const Row* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.intrinsic == intrinsic; });
  return target == Target::cpp ? row->cpp : row->cuda;
}

}  // namespace

bool has(Intrinsic intrinsic, Target target) { return format_of(intrinsic, target) != nullptr; }

std::string text_of(Intrinsic intrinsic, Target target, const std::vector<std::string>& operands) {
  const char* format = format_of(intrinsic, target);
  ensure(format != nullptr, "intrinsic {} has no text for target {}", static_cast<int>(intrinsic),
         static_cast<int>(target));
  fmt::dynamic_format_arg_store<fmt::format_context> arguments;
  for (const std::string& operand : operands) arguments.push_back(operand);
  return fmt::vformat(format, arguments);
}

}  // namespace weft::loop
