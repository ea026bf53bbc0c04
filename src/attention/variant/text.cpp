// Spec and variant -> the complete text of a leaf.
#include "attention/variant/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/variant/tokens.h"
#include "base/check.h"

namespace weft {
namespace {

std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::fp32: return "float";
    case DType::int32: return "int";
    case DType::int64: return "long long";
    case DType::uint8: return "unsigned char";
    default: break;
  }
  throw InternalError("tensor of a variant has a type that validate refuses");
}

// struct P and the function that fills it from the host's slots; real numbers are their member `real`.
std::string parameters(const Declarations& d, std::string_view real) {
  std::string members = "  real sm_scale;\n";
  std::string loads = fmt::format("    p.sm_scale = static_cast<real>(s[0].{});\n", real);
  int slot = 1;
  for (const ScalarDecl& scalar : d.scalars) {
    const bool integer = scalar.kind == ScalarKind::integer;
    members += fmt::format("  {} {};\n", integer ? "int" : "real", scalar.name);
    loads += integer ? fmt::format("    p.{} = static_cast<int>(s[{}].integer);\n", scalar.name, slot)
                     : fmt::format("    p.{} = static_cast<real>(s[{}].{});\n", scalar.name, slot, real);
    ++slot;
  }
  for (const TensorDecl& tensor : d.tensors) {
    const auto type = element_type(tensor.dtype);
    members += fmt::format("  weft::Tensor<{}, {}> {};\n", type, tensor.rank, tensor.name);
    std::string strides;
    for (int axis = 0; axis < tensor.rank; ++axis)
      strides += fmt::format("{}s[{}].integer", axis == 0 ? "" : ", ", slot + 1 + axis);
    loads += fmt::format("    p.{} = {{static_cast<const {}*>(s[{}].pointer), {{{}}}}};\n", tensor.name, type, slot,
                         strides);
    slot += 1 + tensor.rank;
  }
  return fmt::format(
      "struct P {{\n{}  WEFT_INLINE static P weft_load(const weft::abi::Slot* s) {{\n    P p{{}};\n{}    return p;\n  "
      "}}\n}};\n",
      members, loads);
}

Variant mask_variant(Mask mask) {
  switch (mask) {
    case Mask::custom: return variants::custom_mask();
    case Mask::custom_packed: return variants::custom_mask_packed();
    default: return {};
  }
}

// True for a scalar that an interval names and the text does not.
bool only_in_intervals(const Variant& variant, const ScalarDecl& scalar) {
  const auto names = [&](const std::vector<Bound>& bounds) {
    return std::any_of(bounds.begin(), bounds.end(), [&](const Bound& b) { return b.scalar == scalar.name; });
  };
  const auto& all = variant.intervals;
  return std::any_of(all.begin(), all.end(), [&](const Interval& i) { return names(i.lower) || names(i.upper); }) &&
         !mentions(variant.text, scalar.name);
}

std::string class_text(std::string_view name_space, const Variant& variant) {
  if (variant.text.empty()) return {};
  return fmt::format("namespace {} {{\n#line 1 \"variant {}\"\n{}\n#line 1 \"weft/leaf\"\n}}\n", name_space,
                     variant.name, variant.text);
}

std::string class_name(std::string_view name_space, std::string_view part_name, const Variant& variant) {
  if (variant.text.empty()) return "weft::detail::NoHooks";
  return fmt::format("{}::{}::{}", name_space, part_name, variant.name);
}

}  // namespace

// Every look-up of a leaf asks, so that a text without spliced lines is read token by token only where a plain search
// finds the name, which may stand in a comment.
bool names_hook(const Variant& variant, std::initializer_list<const char*> hooks) {
  const bool may_splice = variant.text.find('\\') != std::string::npos;
  return std::any_of(hooks.begin(), hooks.end(), [&](const char* hook) {
    return (may_splice || variant.text.find(hook) != std::string::npos) && mentions(variant.text, hook);
  });
}

LeafParts leaf_parts(const AttentionSpec& spec) {
  LeafParts parts{spec.variant, Mask::none};
  if (spec.mask == Mask::custom || spec.mask == Mask::custom_packed) parts.mask = spec.mask;
  if (parts.variant == variants::causal() || parts.variant == variants::sliding_window()) {
    parts.variant = {};
  } else if (parts.variant == variants::custom_mask()) {
    parts = {{}, Mask::custom};
  } else if (parts.variant == variants::custom_mask_packed()) {
    parts = {{}, Mask::custom_packed};
  }
  // Where the planner looks for keys is not the leaf's business, nor are numbers that only say where.
  std::erase_if(parts.variant.scalars,
                [&](const ScalarDecl& scalar) { return only_in_intervals(parts.variant, scalar); });
  parts.variant.intervals.clear();
  // Loops of known length are worth a leaf for each.
  if (names_hook(parts.variant, {"query_transform", "key_transform", "value_transform"})) {
    parts.head_dim_qk = spec.head_dim_qk;
    parts.head_dim_vo = spec.head_dim_vo;
  }
  return parts;
}

Declarations declarations(const LeafParts& parts) {
  Declarations all{parts.variant.scalars, parts.variant.tensors};
  const Variant mask = mask_variant(parts.mask);
  all.tensors.insert(all.tensors.end(), mask.tensors.begin(), mask.tensors.end());
  return all;
}

Declarations declarations(const AttentionSpec& spec) { return declarations(leaf_parts(spec)); }

std::string text_part(std::string_view file, std::string_view text) {
  return fmt::format("#line 1 \"weft/{}\"\n{}\n", file, text);
}

std::string leaf_body(const LeafParts& parts, std::string_view name_space, std::string_view real) {
  const Variant mask = mask_variant(parts.mask);
  std::string text = fmt::format("namespace {} {{\n", name_space);
  text += "using weft::real;\nusing weft::Score;\nusing weft::Row;\nusing weft::Vec;\nusing weft::Request;\n";
  text += parameters(declarations(parts), real);
  text += class_text("variant", parts.variant);
  text += class_text("mask", mask);
  text += "}\n";
  text += fmt::format(
      "static_assert(weft::detail::Hooks<{0}, {1}::P>::use_softmax == {2},\n"
      "              \"Variant::use_softmax is {2}, but the text of the variant says otherwise\");\n",
      class_name(name_space, "variant", parts.variant), name_space, parts.variant.use_softmax);
  return text;
}

std::string variant_class(const LeafParts& parts, std::string_view name_space) {
  return class_name(name_space, "variant", parts.variant);
}
std::string mask_class(const LeafParts& parts, std::string_view name_space) {
  return class_name(name_space, "mask", mask_variant(parts.mask));
}

}  // namespace weft
