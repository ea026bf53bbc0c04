// to_string of the enums of a spec and a plan.
#include "base/enum_names.h"

#include "weft/attention.h"

namespace weft {

std::string_view to_string(KvForm form) {
  static constexpr std::string_view kNames[] = {"padded", "ragged", "paged", "block_sparse", "latent"};
  return enum_name(kNames, form);
}
std::string_view to_string(Layout layout) {
  static constexpr std::string_view kNames[] = {"nhd", "hnd"};
  return enum_name(kNames, layout);
}
std::string_view to_string(KvScales scales) {
  static constexpr std::string_view kNames[] = {"none", "tensor", "head", "token", "token_group"};
  return enum_name(kNames, scales);
}
std::string_view to_string(Mask mask) {
  static constexpr std::string_view kNames[] = {"none", "causal", "custom", "custom_packed"};
  return enum_name(kNames, mask);
}
std::string_view to_string(Loader loader) {
  static constexpr std::string_view kNames[] = {"elements", "cp_async", "tma"};
  return enum_name(kNames, loader);
}
std::string_view to_string(ScalarKind kind) {
  static constexpr std::string_view kNames[] = {"real", "integer"};
  return enum_name(kNames, kind);
}
std::string_view to_string(PlanMode mode) {
  static constexpr std::string_view kNames[] = {"balanced", "paper", "fixed_split", "no_split", "even"};
  return enum_name(kNames, mode);
}

}  // namespace weft
