// What a spec may say, and what follows from it before any text is made.
#include "attention/spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attention/abi.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "base/names.h"

namespace weft {
namespace {

// Words that a parameter cannot be called, as the text already means something by them.
constexpr std::string_view kReserved[] = {
    "sm_scale", "real",     "P",         "Vec",      "Row",       "Score",     "Request",  "alignas",  "alignof",
    "and",      "asm",      "auto",      "bool",     "break",     "case",      "catch",    "char",     "class",
    "concept",  "const",    "constexpr", "continue", "default",   "delete",    "do",       "double",   "else",
    "enum",     "explicit", "export",    "extern",   "false",     "float",     "for",      "friend",   "goto",
    "if",       "inline",   "int",       "long",     "mutable",   "namespace", "new",      "noexcept", "not",
    "nullptr",  "operator", "or",        "private",  "protected", "public",    "register", "requires", "return",
    "short",    "signed",   "sizeof",    "static",   "struct",    "switch",    "template", "this",     "throw",
    "true",     "try",      "typedef",   "typename", "union",     "unsigned",  "using",    "virtual",  "void",
    "volatile", "while",    "xor"};

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

void check_name(std::string_view what, std::string_view name) {
  check(is_identifier(name), ErrorCode::invalid_argument,
        "{} '{}' is not a name: use letters, digits and _, and begin with a letter", what, name);
  check(std::find(std::begin(kReserved), std::end(kReserved), name) == std::end(kReserved) &&
            name.substr(0, 4) != "weft" && name.find("__") == name.npos,
        ErrorCode::invalid_argument, "{} '{}' is reserved in a variant's text; choose another name", what, name);
}

void check_float_type(std::string_view field, DType dtype) {
  check(dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16, ErrorCode::unsupported,
        "{} = {}: required {}, supported fp32, fp16, bf16, missing {}", field, to_string(dtype), to_string(dtype),
        to_string(dtype));
}

bool is_integer(DType dtype) { return dtype == DType::int8 || dtype == DType::int4; }

void check_kv_type(const AttentionSpec& spec) {
  const DType dtype = spec.kv_dtype;
  const bool fp8 = dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
  const bool integer = is_integer(dtype);
  check(spec.kv_scales <= KvScales::token_group, ErrorCode::invalid_argument,
        "kv_scales = {}: allowed are KvScales::none, tensor, head, token, token_group",
        static_cast<int>(spec.kv_scales));
  if (!fp8 && !integer) {
    check(dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16, ErrorCode::unsupported,
          "kv_dtype = {}: required {}, supported fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4, missing {}",
          to_string(dtype), to_string(dtype), to_string(dtype));
    check(spec.kv_scales == KvScales::none, ErrorCode::invalid_argument,
          "kv_scales = {} with kv_dtype = {}: only fp8, int8 and int4 are scaled; set it to none",
          to_string(spec.kv_scales), to_string(dtype));
  }
  check(!integer || spec.kv_scales != KvScales::none, ErrorCode::invalid_argument,
        "kv_scales = none with kv_dtype = {}: integers need scales; allowed are tensor, head, token, token_group",
        to_string(dtype));
  check(spec.kv_scales == KvScales::token_group ? spec.kv_scale_group >= 1 : spec.kv_scale_group == 0,
        ErrorCode::invalid_argument,
        "kv_scale_group = {} with kv_scales = {}: allowed are 1 and more with token_group, and 0 without",
        spec.kv_scale_group, to_string(spec.kv_scales));
}

void check_dim(std::string_view field, int dim) {
  check(dim >= 8 && dim <= 576 && dim % 8 == 0, ErrorCode::unsupported,
        "{} = {}: supported are 8 to 576 in steps of 8; pad the head with zeros to {}", field, dim,
        (std::clamp(dim, 8, 576) + 7) / 8 * 8);
}

void check_declarations(const Variant& v) {
  std::set<std::string> names;
  const auto unique = [&](const std::string& name) {
    check(names.insert(name).second, ErrorCode::invalid_argument,
          "variant '{}' declares '{}' twice; give each scalar and tensor its own name", v.name, name);
  };
  for (const ScalarDecl& scalar : v.scalars) {
    check_name("scalar", scalar.name);
    unique(scalar.name);
    const double value = scalar.default_value.value_or(0);
    check(scalar.kind != ScalarKind::integer ||
              (value == std::trunc(value) && std::abs(value) <= std::numeric_limits<int32_t>::max()),
          ErrorCode::invalid_argument, "integer scalar '{}' has default {}; give a whole number of 32 bits",
          scalar.name, value);
  }
  for (const TensorDecl& tensor : v.tensors) {
    check_name("tensor", tensor.name);
    unique(tensor.name);
    check(tensor.rank >= 1 && tensor.rank <= 4, ErrorCode::invalid_argument,
          "tensor '{}' has rank {}; allowed are 1 to 4", tensor.name, tensor.rank);
    check(tensor.dtype == DType::fp32 || tensor.dtype == DType::int32 || tensor.dtype == DType::int64 ||
              tensor.dtype == DType::uint8,
          ErrorCode::invalid_dtype, "tensor '{}' is declared {}; a variant reads fp32, int32, int64 and uint8",
          tensor.name, to_string(tensor.dtype));
  }
}

void check_bounds(const Variant& v, const std::vector<Bound>& bounds) {
  for (const Bound& bound : bounds) {
    check(bound.scalar_sign == 1 || bound.scalar_sign == -1, ErrorCode::invalid_argument,
          "bound of variant '{}' has scalar_sign {}; allowed are 1 and -1", v.name, bound.scalar_sign);
    if (bound.scalar.empty()) continue;
    const auto scalar =
        std::find_if(v.scalars.begin(), v.scalars.end(), [&](const ScalarDecl& s) { return s.name == bound.scalar; });
    std::vector<std::string> known;
    for (const ScalarDecl& s : v.scalars) known.push_back(s.name);
    check(scalar != v.scalars.end(), ErrorCode::invalid_argument,
          "a bound of variant '{}' names the scalar '{}', which the variant does not declare{}", v.name, bound.scalar,
          did_you_mean(bound.scalar, known));
    check(scalar->kind == ScalarKind::integer, ErrorCode::invalid_argument,
          "a bound of variant '{}' names the scalar '{}', which is real; declare it ScalarKind::integer", v.name,
          bound.scalar);
  }
}

void check_variant(const Variant& v) {
  check(v.name.empty() == v.text.empty(), ErrorCode::invalid_argument,
        "variant has name '{}' and a text of {} bytes; give both, the name being the class's name in the text, or "
        "neither",
        v.name, v.text.size());
  check_declarations(v);
  check(v.intervals.size() <= 2, ErrorCode::unsupported, "variant '{}' has {} intervals; supported are at most 2",
        v.name, v.intervals.size());
  for (const Interval& interval : v.intervals) {
    check_bounds(v, interval.lower);
    check_bounds(v, interval.upper);
  }
  if (v.text.empty()) {
    check(v.use_softmax, ErrorCode::invalid_argument,
          "use_softmax is false, but the variant has no text; give a class with static constexpr bool use_softmax = "
          "false");
    return;
  }
  check_name("variant", v.name);
  check_variant_text(v);
}

std::vector<Interval> intersect(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::vector<Interval> both;
  for (const Interval& x : a)
    for (const Interval& y : b) {
      Interval i = x;
      const auto add = [](std::vector<Bound>& to, const std::vector<Bound>& from) {
        for (const Bound& bound : from)
          if (std::find(to.begin(), to.end(), bound) == to.end()) to.push_back(bound);
      };
      add(i.lower, y.lower);
      add(i.upper, y.upper);
      both.push_back(std::move(i));
    }
  return both;
}

}  // namespace

void validate(const AttentionSpec& spec) {
  check_float_type("q_dtype", spec.q_dtype);
  check_kv_type(spec);
  check_float_type("o_dtype", spec.o_dtype);
  if (spec.compute) {
    const bool halves = (spec.compute == DType::bf16 || spec.compute == DType::fp16) && spec.q_dtype == spec.compute;
    check(
        spec.compute == DType::fp32 || (halves && (spec.kv_dtype == spec.compute || bits_of(spec.kv_dtype) < 16)) ||
            (spec.compute == DType::int8 && is_integer(spec.kv_dtype)),
        ErrorCode::invalid_argument,
        "compute = {} with q {} and KV {}: allowed are fp32, bf16 or fp16 where q is that and KV is that or has fewer "
        "bits, and int8 where KV is int8 or int4",
        to_string(*spec.compute), to_string(spec.q_dtype), to_string(spec.kv_dtype));
  }
  check_dim("head_dim_qk", spec.head_dim_qk);
  check_dim("head_dim_vo", spec.head_dim_vo);
  check(spec.kv_form <= KvForm::latent, ErrorCode::invalid_argument,
        "kv_form = {}: allowed are KvForm::padded, ragged, paged, block_sparse, latent",
        static_cast<int>(spec.kv_form));
  check(spec.kv_form != KvForm::latent || spec.head_dim_vo <= spec.head_dim_qk, ErrorCode::invalid_argument,
        "head_dim_vo = {} with head_dim_qk = {}: a latent value is the beginning of its key; head_dim_qk is "
        "head_dim_vo and the rotated dims together",
        spec.head_dim_vo, spec.head_dim_qk);
  check(
      spec.kv_form != KvForm::latent || bits_of(spec.kv_dtype) >= 16, ErrorCode::unsupported,
      "kv_dtype = {} with kv_form = latent: supported are fp32, fp16, bf16; missing: latent rows of fewer bits, which "
      "are key and value at once and have no place for the scales of either",
      to_string(spec.kv_dtype));
  check(spec.page_size >= 0 && (spec.page_size == 0 || spec.kv_form >= KvForm::paged), ErrorCode::invalid_argument,
        "page_size = {} with kv_form = {}: allowed are 1 and more where there are pages, and 0", spec.page_size,
        to_string(spec.kv_form));
  check(!spec.loader || *spec.loader <= Loader::tma, ErrorCode::invalid_argument,
        "loader = {}: allowed are Loader::elements, cp_async and tma", static_cast<int>(*spec.loader));
  check(spec.loader != Loader::elements || spec.compute.value_or(DType::fp32) == DType::fp32,
        ErrorCode::invalid_argument,
        "loader = elements with compute = {}: it multiplies in fp32; leave one of them out",
        to_string(spec.compute.value_or(DType::fp32)));
  check(spec.layout == Layout::nhd || spec.layout == Layout::hnd, ErrorCode::invalid_argument,
        "layout = {}: allowed are Layout::nhd and Layout::hnd", static_cast<int>(spec.layout));
  check(spec.mask <= Mask::custom_packed, ErrorCode::invalid_argument,
        "mask = {}: allowed are Mask::none, causal, custom, custom_packed", static_cast<int>(spec.mask));
  check(spec.kv_form != KvForm::block_sparse || (spec.mask != Mask::custom && spec.mask != Mask::custom_packed),
        ErrorCode::unsupported,
        "mask = custom with kv_form = block_sparse: supported are none and causal; what else rows see is said by the "
        "bits of their blocks (weft/block_sparse.h)");
  check_variant(spec.variant);

  // What the spec's mask declares must not meet the variant's names.
  const LeafParts parts = leaf_parts(spec);
  if (parts.mask != Mask::none) {
    for (const char* name : {"mask", "mask_indptr"}) {
      const auto same = [&](const auto& declared) { return declared.name == name; };
      check(std::none_of(parts.variant.tensors.begin(), parts.variant.tensors.end(), same) &&
                std::none_of(parts.variant.scalars.begin(), parts.variant.scalars.end(), same),
            ErrorCode::invalid_argument,
            "variant '{}' declares '{}', which the spec's custom mask declares too; rename it", spec.variant.name,
            name);
    }
    check(spec.mask == Mask::none || spec.mask == parts.mask || spec.mask == Mask::causal, ErrorCode::invalid_argument,
          "the spec's mask and the variant '{}' are two custom masks; AND them into one", spec.variant.name);
  }
  if (spec.sliding_window)
    for (const ScalarDecl& scalar : spec.variant.scalars)
      check(scalar.name != "window_left" || scalar.kind == ScalarKind::integer, ErrorCode::invalid_argument,
            "variant '{}' declares window_left as a real; with sliding_window it is an integer", spec.variant.name);
  for (const TensorDecl& tensor : spec.variant.tensors)
    check(!spec.sliding_window || tensor.name != "window_left", ErrorCode::invalid_argument,
          "variant '{}' declares a tensor window_left, which is sliding_window's integer scalar; rename it",
          spec.variant.name);
  for (const Interval& interval : combined_intervals(spec))
    check(std::max(interval.lower.size(), interval.upper.size()) <= attention::kMaxTerms, ErrorCode::unsupported,
          "an interval of mask and variant together has {} bounds on one side; supported are {}",
          std::max(interval.lower.size(), interval.upper.size()), attention::kMaxTerms);
}

std::vector<Interval> combined_intervals(const AttentionSpec& spec) {
  std::vector<Interval> all;
  if (spec.mask == Mask::causal) all = variants::causal().intervals;
  if (spec.sliding_window) all = intersect(all, variants::sliding_window().intervals);
  return intersect(all, spec.variant.intervals);
}

}  // namespace weft
