// The arguments of one run, checked against what spec and variant declare, as slots for the leaf.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/leaf.h"
#include "attention/variant_text.h"
#include "base/check.h"

namespace weft {
namespace {

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

// Every scalar of mask and variant, those of intervals included: plan and run may be given the same list.
std::vector<ScalarDecl> known_scalars(const AttentionSpec& spec) {
  std::vector<ScalarDecl> all = spec.variant.scalars;
  const auto same = [](const ScalarDecl& s) { return s.name == "window_left"; };
  if (spec.sliding_window && std::none_of(all.begin(), all.end(), same))
    all.push_back(variants::sliding_window().scalars.front());
  return all;
}

template <class T>
std::vector<std::string> names_of(const std::vector<T>& list) {
  std::vector<std::string> names;
  for (const T& item : list) names.push_back(item.name);
  return names;
}

// Each given name is declared, and given once.
template <class Arg, class Decl>
void check_names(std::string_view kind, std::string_view other_kind, const std::vector<Arg>& given,
                 const std::vector<Decl>& declared, const std::vector<std::string>& others) {
  const auto known = names_of(declared);
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& name = given[i].name;
    check(std::find(others.begin(), others.end(), name) == others.end(), ErrorCode::invalid_argument,
          "'{}' is given as a {}, and declared as a {}", name, kind, other_kind);
    check(std::find(known.begin(), known.end(), name) != known.end(), ErrorCode::invalid_argument,
          "{} '{}' is not declared by the spec's mask or variant; declared are {}{}", kind, name, list(known),
          did_you_mean(name, known));
    for (size_t j = 0; j < i; ++j)
      check(given[j].name != name, ErrorCode::invalid_argument, "{} '{}' is given twice; give it once", kind, name);
  }
}

abi::Slot scalar_slot(const ScalarDecl& declared, double value) {
  abi::Slot slot{};
  if (declared.kind == ScalarKind::real) {
    check(!std::isnan(value), ErrorCode::invalid_argument, "scalar '{}' is NaN; give a number", declared.name);
    slot.real = value;
    return slot;
  }
  check(value == std::trunc(value) && std::abs(value) <= std::numeric_limits<int32_t>::max(),
        ErrorCode::invalid_argument, "scalar '{}' = {}: it is an integer; give a whole number of 32 bits",
        declared.name, value);
  slot.integer = static_cast<long long>(value);
  return slot;
}

void check_tensor(const TensorDecl& declared, const TensorView& tensor) {
  check(tensor.dtype() == declared.dtype, ErrorCode::invalid_dtype, "tensor '{}' is {}; the variant declares {}",
        declared.name, to_string(tensor.dtype()), to_string(declared.dtype));
  check(tensor.rank() == declared.rank, ErrorCode::invalid_shape,
        "tensor '{}' is {}, of rank {}; the variant declares rank {}", declared.name, shape_string(tensor),
        tensor.rank(), declared.rank);
  check(tensor.device() == Device::cpu(), ErrorCode::invalid_device, "tensor '{}' lies on {}; the kernel runs on {}",
        declared.name, to_string(tensor.device()), to_string(Device::cpu()));
  const int last = declared.rank - 1;
  check(tensor.shape(last) <= 1 || tensor.stride(last) == 1, ErrorCode::invalid_stride,
        "tensor '{}' has stride {} on its last axis; a variant's tensors are contiguous there: copy it", declared.name,
        tensor.stride(last));
  check(tensor.data() != nullptr || tensor.size() == 0, ErrorCode::invalid_argument,
        "tensor '{}' of shape {} has no data", declared.name, shape_string(tensor));
}

}  // namespace

std::vector<abi::Slot> pack_params(const AttentionSpec& spec, float sm_scale, const std::vector<ScalarArg>& scalars,
                                   const std::vector<TensorArg>& tensors) {
  check(std::isfinite(sm_scale), ErrorCode::invalid_argument, "sm_scale = {}; give a finite number", sm_scale);
  const Declarations declared = declarations(spec);
  const auto known = known_scalars(spec);
  check_names("scalar", "tensor", scalars, known, names_of(declared.tensors));
  check_names("tensor", "scalar", tensors, declared.tensors, names_of(known));

  const auto find = [](const auto& given, const std::string& name) {
    return std::find_if(given.begin(), given.end(), [&](const auto& arg) { return arg.name == name; });
  };
  // A scalar of an interval may be given to run as well; it must still be an integer.
  for (const ScalarDecl& scalar : known)
    if (const auto it = find(scalars, scalar.name); it != scalars.end()) scalar_slot(scalar, it->value);

  std::vector<abi::Slot> slots(1);
  slots[0].real = sm_scale;
  for (const ScalarDecl& scalar : declared.scalars) {
    const auto it = find(scalars, scalar.name);
    check(it != scalars.end() || scalar.default_value.has_value(), ErrorCode::invalid_argument,
          "scalar '{}' is missing; add {{\"{}\", value}} to the scalars of run", scalar.name, scalar.name);
    slots.push_back(scalar_slot(scalar, it != scalars.end() ? it->value : *scalar.default_value));
  }
  for (const TensorDecl& tensor : declared.tensors) {
    const auto it = find(tensors, tensor.name);
    check(it != tensors.end(), ErrorCode::invalid_argument,
          "tensor '{}' is missing; add {{\"{}\", view}} to the tensors of run ({}, rank {})", tensor.name, tensor.name,
          to_string(tensor.dtype), tensor.rank);
    check_tensor(tensor, it->value);
    abi::Slot slot{};
    slot.pointer = it->value.data();
    slots.push_back(slot);
    for (int axis = 0; axis < tensor.rank; ++axis) {
      slot = {};
      slot.integer = it->value.stride(axis);
      slots.push_back(slot);
    }
  }
  return slots;
}

}  // namespace weft
