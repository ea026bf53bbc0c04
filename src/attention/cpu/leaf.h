// The leaf of a spec on a CPU: its text, and the code, built in or compiled.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/cpu/traits.h"
#include "attention/variant/text.h"
#include "device/cpu/module.h"
#include "tile/abi/leaf.h"
#include "weft/attention.h"

namespace weft {

// Whether keys and values reach their hooks, and leave them, in bf16: where both products are in it.
bool are_hooks_in_bf16(const AttentionSpec& spec, Isa isa);

// Definitions of a leaf's text, up to and including the loops; the same for every leaf.
std::string leaf_head(Isa isa);
// The initialiser of the abi::Leaf of a body in `name_space`.
std::string leaf_instance(const LeafParts& parts, std::string_view name_space, bool hooks_in_bf16 = false);
// The complete text. real = float in kernels.
std::string leaf_text(const AttentionSpec& spec, Isa isa);
// Of weft::exp, weft::tanh and so on, as leaves have them.
std::string float_math_text();

// Flags beside those of every build: it is standalone, and the two outcomes of a clamp do not go separate ways, which
// would compute both and compare twice once vectorised.
std::vector<std::string> leaf_flags();

struct LeafHandle {
  const abi::Leaf* leaf = nullptr;
  std::shared_ptr<const Module> module;  // null for built-in leaves
  std::string origin;                    // "built-in", "memory", "disk", "compiler"
};
// Built in, or compiled by jit::build. Throws Error(no_compiler | compile_failed).
LeafHandle find_leaf(const AttentionSpec& spec, Isa isa);

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
extern const char* const k_cpu_vec;
extern const char* const k_cpu_bf16_dot;
extern const char* const k_cpu_leaf_target;
extern const char* const k_cpu_float_bits;
extern const char* const k_cpu_leaf_vector;
extern const char* const k_cpu_leaf_driver;
}  // namespace weft::text
