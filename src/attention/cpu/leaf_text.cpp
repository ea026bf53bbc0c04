// Spec and variant -> the complete text of a leaf.
#include <fmt/format.h>

#include "attention/cpu/leaf.h"

namespace weft {

bool are_hooks_in_bf16(const AttentionSpec& spec, Isa isa) {
  return names_hook(spec.variant, {"key_transform", "value_transform"}) && compute_type(spec, isa) == DType::bf16;
}

std::string float_math_text() {
  return text_part("tile/cpu/float_bits.h", text::k_cpu_float_bits) +
         text_part("tile/variant/float_math.h", text::k_variant_float_math) +
         text_part("tile/variant/float_exp.h", text::k_variant_float_exp) +
         text_part("tile/variant/float_tanh.h", text::k_variant_float_tanh);
}

std::string leaf_head(Isa isa) {
  return fmt::format("#define WEFT_ISA_NAME {0}\n#define WEFT_ISA_{0} 1\n", to_string(isa)) +
         text_part("tile/cpu/vec.h", text::k_cpu_vec) + text_part("tile/cpu/bf16_dot.h", text::k_cpu_bf16_dot) +
         text_part("tile/abi/leaf.h", text::k_abi_leaf) + text_part("tile/cpu/leaf_target.h", text::k_cpu_leaf_target) +
         text_part("tile/variant/language.h", text::k_variant_language) + float_math_text() +
         text_part("tile/cpu/leaf_vector.h", text::k_cpu_leaf_vector) +
         text_part("tile/variant/vectors.h", text::k_variant_vectors) +
         text_part("tile/variant/hooks.h", text::k_variant_hooks) +
         text_part("tile/cpu/leaf_driver.h", text::k_cpu_leaf_driver) + "#line 1 \"weft/leaf\"\n";
}

std::string leaf_instance(const LeafParts& parts, std::string_view name_space, bool hooks_in_bf16) {
  return fmt::format("weft::detail::Leaf<{}::P, {}, {}, {}, {}, {}>::make()", name_space,
                     variant_class(parts, name_space), mask_class(parts, name_space), parts.head_dim_qk,
                     parts.head_dim_vo, hooks_in_bf16 ? "unsigned short" : "float");
}

std::string leaf_text(const AttentionSpec& spec, Isa isa) {
  const LeafParts parts = leaf_parts(spec);
  return fmt::format("// Leaf of {}, {}.\n", parts.variant.name.empty() ? "plain attention" : parts.variant.name,
                     to_string(isa)) +
         leaf_head(isa) + leaf_body(parts, "leaf") +
         "extern \"C\" {\nextern const weft::abi::Leaf weft_leaf __attribute__((visibility(\"default\")));\n"
         "const weft::abi::Leaf weft_leaf = " +
         leaf_instance(parts, "leaf", are_hooks_in_bf16(spec, isa)) + ";\n}\n";
}

}  // namespace weft
