#include "attention/reference/text.h"

#include <fmt/format.h>

#include "attention/variant/text.h"

namespace weft::text {
// Embedded at build time from src/tile, without their #pragma once.
extern const char* const k_abi_reference_leaf;
extern const char* const k_reference_target;
extern const char* const k_reference_math;
extern const char* const k_reference_vector;
extern const char* const k_reference_driver;
}  // namespace weft::text

namespace weft::reference {
namespace {

std::string complete_text(const AttentionSpec& spec, const char* real, const std::string& math) {
  const LeafParts parts = leaf_parts(spec);
  std::string text = fmt::format("// Reference of {}.\n", parts.variant.name);
  text += text_part("tile/abi/leaf.h", text::k_abi_leaf);
  text += text_part("tile/abi/reference_leaf.h", text::k_abi_reference_leaf);
  text += fmt::format("namespace weft {{ using real = {}; }}\n", real);
  text += text_part("tile/reference/target.h", text::k_reference_target);
  text += text_part("tile/variant/language.h", text::k_variant_language);
  text += math;
  text += text_part("tile/reference/vector.h", text::k_reference_vector);
  text += text_part("tile/variant/vectors.h", text::k_variant_vectors);
  text += text_part("tile/variant/hooks.h", text::k_variant_hooks);
  text += text_part("tile/reference/driver.h", text::k_reference_driver);
  text += "#line 1 \"weft/leaf\"\n" + leaf_body(parts, "leaf");
  return text +
         "extern \"C\" {\n"
         "extern const weft::abi::ReferenceLeaf weft_reference_leaf __attribute__((visibility(\"default\")));\n"
         "const weft::abi::ReferenceLeaf weft_reference_leaf = weft::detail::Reference<leaf::P, " +
         variant_class(parts, "leaf") + ">::make();\n}\n";
}

}  // namespace

std::string text_in_double(const AttentionSpec& spec) {
  return complete_text(spec, "double", text_part("tile/reference/math.h", text::k_reference_math));
}

std::string text_in_float(const AttentionSpec& spec, const std::string& math) {
  return complete_text(spec, "float",
                       math + "namespace weft::detail { inline void use_math(const abi::ReferenceMath*) {} }\n");
}

}  // namespace weft::reference
