// The generated text of a variant: a head (contract, vocabulary, loops), which is its target's, and a body (parameters,
// the variant's own text), which is the same for every target. Several bodies behind one head make built-in kernels;
// one body makes what the JIT compiles.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "attention/spec.h"
#include "weft/attention.h"

namespace weft {

// What of a spec a leaf depends on: intervals are not in it, nor types, and head dims only where hooks change queries,
// keys or values. A variant that is a mask's built-in form and a spec that names this mask are the same leaf.
struct LeafParts {
  Variant variant;
  Mask mask = Mask::none;                // none, custom or custom_packed: what is a predicate
  int head_dim_qk = 0, head_dim_vo = 0;  // 0: any
  friend bool operator==(const LeafParts&, const LeafParts&) = default;
};
LeafParts leaf_parts(const AttentionSpec& spec);
Declarations declarations(const LeafParts& parts);

// Whether the text's code names one of the hooks.
bool names_hook(const Variant& variant, std::initializer_list<const char*> hooks);

// A file of the text, whose lines compilers name.
std::string text_part(std::string_view file, std::string_view text);
// Everything of one leaf inside `name_space`; after it the loops can be instantiated for name_space::P and class_name.
// `real`: the member of slots that has real numbers.
std::string leaf_body(const LeafParts& parts, std::string_view name_space, std::string_view real = "real");
// Of the class of the spec's variant, or of its mask, in that body.
std::string variant_class(const LeafParts& parts, std::string_view name_space);
std::string mask_class(const LeafParts& parts, std::string_view name_space);

// What makes a text no variant: it reads a file or the clock, has no class that kernels can use, or has a member that
// could only be a misspelt hook. Throws Error(invalid_argument).
void check_variant_text(const Variant& variant);

}  // namespace weft

namespace weft::text {
// Embedded at build time from src/tile, without their #pragma once.
extern const char* const k_abi_leaf;
extern const char* const k_variant_language;
extern const char* const k_variant_float_math;
extern const char* const k_variant_float_exp;
extern const char* const k_variant_float_tanh;
extern const char* const k_variant_vectors;
extern const char* const k_variant_hooks;
}  // namespace weft::text
