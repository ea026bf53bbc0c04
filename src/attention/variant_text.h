// The generated text of a leaf: a head (contract, vocabulary, loops) that is the same for every leaf, and a body
// (parameters, the variant's own text, one instance of the loops). Several bodies behind one head make the built-in
// leaves; one body makes what the JIT compiles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/leaf.h"
#include "weft/attention.h"

namespace weft {

// What a leaf depends on: intervals are not in it, nor types but for keys and values that hooks change in bf16, and head
// dims only where hooks change queries, keys or values. A variant that is a mask's built-in form and a spec that names
// this mask are the same leaf.
struct LeafParts {
  Variant variant;
  Mask mask = Mask::none;                // none, custom or custom_packed: what is a predicate
  int head_dim_qk = 0, head_dim_vo = 0;  // 0: any
  bool bf16_kv = false;                  // of an instruction set
  friend bool operator==(const LeafParts&, const LeafParts&) = default;
};
LeafParts leaf_parts(const AttentionSpec& spec);
LeafParts leaf_parts(const AttentionSpec& spec, Isa isa);
Declarations declarations(const LeafParts& parts);

// What a text is compiled for: kernels; the fp64 reference, in double; and the same in the kernels' float, which shows
// what a variant's own arithmetic rounds.
enum class TextFor { kernels, reference, reference_in_float };
// Definitions up to and including the loops.
std::string leaf_head(TextFor purpose);
// Everything of one leaf inside `name_space`; after it weft::detail::Leaf<name_space::P, ...> can be named.
std::string leaf_body(const LeafParts& parts, std::string_view name_space);
// The initialiser of the abi::Leaf of that body.
std::string leaf_instance(const LeafParts& parts, std::string_view name_space);
// What is compiled for the reference: exports weft_reference_leaf.
std::string reference_text(const AttentionSpec& spec, TextFor purpose);

// Flags beside those of every build: no loop becomes a call of memcpy or memset, which a leaf cannot link; and the two
// outcomes of a clamp do not go separate ways, which would compute both and compare twice once vectorised.
std::vector<std::string> leaf_flags();

// What makes a text no variant: it reads a file or the clock, has no class that kernels can use, or has a member that
// could only be a misspelt hook. Throws Error(invalid_argument).
void check_variant_text(const Variant& variant);

// "; did you mean 'cap'?" for the nearest of `known`, or nothing when none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);
// The nearest of `known`, near or not; `known` is not empty.
const std::string& nearest_name(std::string_view name, const std::vector<std::string>& known);

// Built-in leaves, by index into these lists.
struct BuiltinVariant {
  const char* name;  // of the file and the symbol: "soft_cap"
  Variant (*make)();
};
inline constexpr BuiltinVariant kBuiltinVariants[] = {{"plain", variants::plain},
                                                      {"soft_cap", variants::logits_soft_cap},
                                                      {"alibi", variants::alibi},
                                                      {"sigmoid", variants::sigmoid},
                                                      {"attention_sink", variants::attention_sink}};
struct BuiltinMask {
  const char* name;
  Mask mask;
};
inline constexpr BuiltinMask kBuiltinMasks[] = {
    {"interval", Mask::none}, {"custom", Mask::custom}, {"custom_packed", Mask::custom_packed}};
inline constexpr int kNumBuiltins = 15;  // variant-major

}  // namespace weft

namespace weft::text {
// Embedded at build time from src/tile, without their #pragma once.
extern const char* const k_abi_leaf;
extern const char* const k_abi_reference_leaf;
extern const char* const k_variant_language;
extern const char* const k_variant_vectors;
extern const char* const k_variant_hooks;
extern const char* const k_cpu_leaf_target;
extern const char* const k_cpu_leaf_math;
extern const char* const k_cpu_leaf_vector;
extern const char* const k_cpu_leaf_driver;
extern const char* const k_reference_target;
extern const char* const k_reference_math;
extern const char* const k_reference_vector;
extern const char* const k_reference_driver;
}  // namespace weft::text
