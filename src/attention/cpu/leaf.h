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

// As of variant/text.h, and how keys and values reach their hooks on an instruction set.
LeafParts leaf_parts(const AttentionSpec& spec, Isa isa);

// Definitions of a leaf's text, up to and including the loops; the same for every leaf.
std::string leaf_head();
// The initialiser of the abi::Leaf of a body in `name_space`.
std::string leaf_instance(const LeafParts& parts, std::string_view name_space);
// The complete text. real = float in kernels.
std::string leaf_text(const AttentionSpec& spec, Isa isa);

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
extern const char* const k_cpu_leaf_target;
extern const char* const k_cpu_leaf_math;
extern const char* const k_cpu_leaf_vector;
extern const char* const k_cpu_leaf_driver;
}  // namespace weft::text
