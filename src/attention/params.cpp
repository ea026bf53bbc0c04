// The arguments of one run, checked against what spec and variant declare, as slots for the leaf.
#include "attention/params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/traits.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "base/device_checks.h"
#include "base/format_tensor.h"
#include "base/names.h"

namespace weft {
namespace {

template <class T>
std::vector<std::string> names_of(const std::vector<T>& list) {
  std::vector<std::string> names;
  for (const T& item : list) names.push_back(item.name);
  return names;
}

template <class T>
bool names(const std::vector<T>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const T& item) { return item.name == name; });
}

// Each given name is declared, and given once.
template <class Arg, class Decl, class Other>
void check_names(std::string_view kind, std::string_view other_kind, const std::vector<Arg>& given,
                 const std::vector<Decl>& declared, const std::vector<Other>& others) {
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& name = given[i].name;
    check(!names(others, name), ErrorCode::invalid_argument, "'{}' is given as a {}, and declared as a {}", name, kind,
          other_kind);
    if (!names(declared, name)) {
      const auto known = names_of(declared);
      fail(ErrorCode::invalid_argument, "{} '{}' is not declared by the spec's mask or variant; declared are {}{}",
           kind, name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), did_you_mean(name, known));
    }
    for (size_t j = 0; j < i; ++j)
      check(given[j].name != name, ErrorCode::invalid_argument, "{} '{}' is given twice; give it once", kind, name);
  }
}

abi::Slot scalar_slot(const ScalarDecl& declared, double value) {
  abi::Slot slot{};
  if (declared.kind == ScalarKind::real) {
    check(!std::isnan(value), ErrorCode::invalid_argument, "scalar '{}' is NaN; give a number", declared.name);
    constexpr double kLeast = std::numeric_limits<float>::min();  // kernels may count what is smaller as 0
    check(value == 0 || std::abs(value) >= kLeast, ErrorCode::invalid_argument,
          "scalar '{}' = {}: kernels have floats, of which the least above 0 is {:.3g}; give 0, or at least that",
          declared.name, value, kLeast);
    slot.real = value;
    return slot;
  }
  check(value == std::trunc(value) && std::abs(value) <= std::numeric_limits<int32_t>::max(),
        ErrorCode::invalid_argument, "scalar '{}' = {}: it is an integer; give a whole number of 32 bits",
        declared.name, value);
  slot.integer = static_cast<long long>(value);
  return slot;
}

void check_tensor(const TensorDecl& declared, const TensorView& tensor, Device device) {
  check(tensor.dtype() == declared.dtype, ErrorCode::invalid_dtype, "tensor '{}' is {}; the variant declares {}",
        declared.name, to_string(tensor.dtype()), to_string(declared.dtype));
  check(tensor.rank() == declared.rank, ErrorCode::invalid_shape,
        "tensor '{}' is {}, of rank {}; the variant declares rank {}", declared.name, tensor, tensor.rank(),
        declared.rank);
  check_on("tensor", declared.name, tensor.device(), device);
  const int last = declared.rank - 1;
  check(tensor.shape(last) <= 1 || tensor.stride(last) == 1, ErrorCode::invalid_stride,
        "tensor '{}' has stride {} on its last axis; a variant's tensors are contiguous there: copy it", declared.name,
        tensor.stride(last));
  check(tensor.data() != nullptr || tensor.size() == 0, ErrorCode::invalid_argument,
        "tensor '{}' of shape {} has no data", declared.name, tensor);
  const auto bytes = static_cast<uintptr_t>(bits_of(tensor.dtype()) / 8);
  check(reinterpret_cast<uintptr_t>(tensor.data()) % bytes == 0, ErrorCode::invalid_stride,
        "tensor '{}': its data is not aligned to its elements of {} bytes; copy it", declared.name, bytes);
}

}  // namespace

Params::Params(const AttentionSpec& spec, Device device)
    : declared_(declarations(spec)), device_(device), known_(spec.variant.scalars) {
  if (spec.sliding_window && !names(known_, "window_left"))
    known_.push_back(variants::sliding_window().scalars.front());
  const std::vector<Interval> intervals = combined_intervals(spec);
  for (const std::string_view name : interval_scalars(intervals)) planned_.emplace_back(name);
  has_custom_mask_ = leaf_parts(spec).mask != Mask::none;
  num_slots_ += declared_.scalars.size();
  for (const TensorDecl& tensor : declared_.tensors) num_slots_ += 1 + static_cast<size_t>(tensor.rank);
}

void Params::pack(float sm_scale, const std::vector<ScalarArg>& scalars, const std::vector<TensorArg>& tensors,
                  const Planned* plan, abi::Slot* slots) const {
  check(std::isfinite(sm_scale), ErrorCode::invalid_argument, "sm_scale = {}; give a finite number", sm_scale);
  check_names("scalar", "tensor", scalars, known_, declared_.tensors);
  check_names("tensor", "scalar", tensors, declared_.tensors, known_);

  const auto find = [](const auto& given, const std::string& name) {
    return std::find_if(given.begin(), given.end(), [&](const auto& arg) { return arg.name == name; });
  };
  // A scalar of an interval may be given to run as well; it must still be an integer, and the plan's.
  for (const ScalarDecl& scalar : known_)
    if (const auto it = find(scalars, scalar.name); it != scalars.end()) scalar_slot(scalar, it->value);
  const auto planned = [&](const std::string& name) -> const int* {
    const auto it = plan != nullptr ? std::find(planned_.begin(), planned_.end(), name) : planned_.end();
    return it != planned_.end() ? plan->scalars + (it - planned_.begin()) : nullptr;
  };
  for (const ScalarArg& scalar : scalars)
    if (const int* value = planned(scalar.name))
      check(scalar.value == *value, ErrorCode::plan_mismatch,
            "scalar '{}' = {}, the plan was made with {}; leave it out of the scalars of run, or plan with it",
            scalar.name, scalar.value, *value);

  *slots++ = {.real = static_cast<double>(sm_scale)};
  for (const ScalarDecl& scalar : declared_.scalars) {
    if (const int* value = planned(scalar.name)) {
      *slots++ = scalar_slot(scalar, *value);
      continue;
    }
    const auto it = find(scalars, scalar.name);
    check(it != scalars.end() || scalar.default_value.has_value(), ErrorCode::invalid_argument,
          "scalar '{}' is missing; add {{\"{}\", value}} to the scalars of run", scalar.name, scalar.name);
    *slots++ = scalar_slot(scalar, it != scalars.end() ? it->value : *scalar.default_value);
  }
  for (const TensorDecl& tensor : declared_.tensors) {
    const auto it = find(tensors, tensor.name);
    if (plan != nullptr && has_custom_mask_ && tensor.name == "mask_indptr") {
      check(it == tensors.end(), ErrorCode::invalid_argument,
            "tensor 'mask_indptr': the plan holds it (PlanInput::mask_indptr); leave it out of the tensors of run");
      *slots++ = {.pointer = plan->mask_indptr};
      *slots++ = {.integer = 1};
      continue;
    }
    check(it != tensors.end(), ErrorCode::invalid_argument,
          "tensor '{}' is missing; add {{\"{}\", view}} to the tensors of run ({}, rank {})", tensor.name, tensor.name,
          to_string(tensor.dtype), tensor.rank);
    check_tensor(tensor, it->value, device_);
    *slots++ = {.pointer = it->value.data()};
    for (int axis = 0; axis < tensor.rank; ++axis) *slots++ = {.integer = it->value.stride(axis)};
  }
}

void Params::narrow(abi::Slot* slots) const {
  const auto narrow = [](abi::Slot& slot) { slot.single = static_cast<float>(slot.real); };
  narrow(*slots++);  // sm_scale
  for (const ScalarDecl& scalar : declared_.scalars) {
    if (scalar.kind == ScalarKind::real) narrow(*slots);
    ++slots;
  }
}

std::vector<abi::Slot> pack_params(const AttentionSpec& spec, float sm_scale, const std::vector<ScalarArg>& scalars,
                                   const std::vector<TensorArg>& tensors) {
  const Params params(spec);
  std::vector<abi::Slot> slots(params.num_slots());
  params.pack(sm_scale, scalars, tensors, nullptr, slots.data());
  return slots;
}

}  // namespace weft
