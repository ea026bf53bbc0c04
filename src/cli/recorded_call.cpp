#include "cli/recorded_call.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "attention/fields.h"
#include "attention/record.h"
#include "base/check.h"
#include "base/enum_names.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<char> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ErrorCode::io_error, "'{}' cannot be read; give a folder that WEFT_RECORD made", path.string());
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  check(!file.bad(), ErrorCode::io_error, "'{}': reading failed", path.string());
  return bytes;
}

double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  check(text == "inf" || text == "-inf" || text == "nan" || text == "-nan", ErrorCode::invalid_file,
        "call.json: '{}' is no number", text);
  if (text.ends_with("nan")) return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

template <class Item>
auto list_of(const json& j, const Item& item) {
  std::vector<decltype(item(j))> list;
  for (const json& x : j) list.push_back(item(x));
  return list;
}

template <class Enum>
Enum enum_of(const json& j, std::string_view what) {
  const auto name = j.get<std::string>();
  if constexpr (std::is_same_v<Enum, DType>) {
    return dtype_from_string(name);
  } else {
    const std::optional<Enum> value = enum_from_string<Enum>(name);
    check(value.has_value(), ErrorCode::invalid_file, "call.json: {} '{}' is not known", what, name);
    return *value;
  }
}

// What record.cpp makes of a T; `what` says which in messages.
template <class T>
T read(const json& j, std::string_view what) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number_of(j));
  } else if constexpr (std::is_enum_v<T>) {
    return enum_of<T>(j, what);
  } else if constexpr (is_optional<T>) {
    return j.is_null() ? T() : T(read<typename T::value_type>(j, what));
  } else if constexpr (HasFields<T>) {
    T object;
    for_each_field(object, [&](std::string_view name, auto& field) {
      field = read<std::remove_reference_t<decltype(field)>>(j.at(name), name);
    });
    return object;
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, std::string>) {
    return j.get<T>();
  } else {
    return list_of(j, [&](const json& item) { return read<typename T::value_type>(item, what); });
  }
}

int64_t bytes_of(const RecordedTensor& t) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t elements = 1;
  for (const int64_t extent : t.shape) {
    check(extent >= 0 && extent <= kMost && (elements == 0 || extent <= kMost / elements), ErrorCode::invalid_file,
          "call.json: tensor '{}' has an extent of {}", t.name, extent);
    elements *= extent;
  }
  return elements * bits_of(t.dtype) / 8;
}

RecordedTensor tensor_of(const json& j, const fs::path& folder, bool required) {
  RecordedTensor t{.name = j.at("name").get<std::string>(),
                   .dtype = dtype_from_string(j.at("dtype").get<std::string>()),
                   .shape = j.at("shape").get<std::vector<int64_t>>(),
                   .bytes = {}};
  check(t.shape.size() <= static_cast<size_t>(kMaxRank) && !t.name.empty() && t.name.find('/') == std::string::npos,
        ErrorCode::invalid_file,
        "call.json: tensor '{}' of rank {}: a name without '/' and a rank of at most {} are "
        "allowed",
        t.name, t.shape.size(), kMaxRank);
  const int64_t expected = bytes_of(t);
  const fs::path path = folder / (t.name + ".bin");
  if (!required && !fs::exists(path)) return t;
  t.bytes = read_file(path);
  check(static_cast<int64_t>(t.bytes.size()) == expected, ErrorCode::invalid_file,
        "'{}': has {} bytes, its tensor {}; the file was cut short or extended", path.string(), t.bytes.size(),
        expected);
  return t;
}

constexpr Isa kIsas[] = {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16};

std::string target_of(const std::string& name) {
  const auto is_known =
      std::any_of(std::begin(kIsas), std::end(kIsas), [&](Isa isa) { return to_string(isa) == name; });
  const auto cards = jit::nvrtc_architectures();
  check(is_known || std::find(cards.begin(), cards.end(), name) != cards.end(), ErrorCode::invalid_file,
        "call.json: isa '{}' is not known", name);
  return name;
}

}  // namespace

bool RecordedCall::is_of_a_card() const { return target.starts_with("sm_"); }

Isa RecordedCall::isa() const {
  return *std::find_if(std::begin(kIsas), std::end(kIsas), [&](Isa isa) { return to_string(isa) == target; });
}

const RecordedTensor& RecordedCall::input(std::string_view name) const {
  for (const RecordedTensor& t : inputs)
    if (t.name == name) return t;
  fail(ErrorCode::invalid_file, "call.json: input '{}' is missing", name);
}

bool RecordedCall::needs(std::string_view name) const {
  if (name.ends_with("_scale")) return spec.kv_scales != KvScales::none;
  const auto same = [&](const RecordedTensor& t) { return t.name == name; };
  return name != "v" || spec.kv_form != KvForm::latent || std::any_of(inputs.begin(), inputs.end(), same);
}

const RecordedTensor* RecordedCall::output(std::string_view name) const {
  for (const RecordedTensor& t : outputs)
    if (t.name == name) return &t;
  return nullptr;
}

AttentionTensors RecordedCall::tensors() const {
  constexpr std::string_view kPrefix = "tensor.";
  AttentionTensors all;
  for_each_tensor(all, [&](std::string_view name, TensorView& tensor, TensorUse use) {
    if (use == TensorUse::read && needs(name)) tensor = input(name).view();
  });
  all.sm_scale = sm_scale;
  all.scalars = scalars;
  for (const RecordedTensor& t : inputs)
    if (t.name.starts_with(kPrefix)) all.tensors.push_back({t.name.substr(kPrefix.size()), t.view()});
  return all;
}

RecordedCall read_recorded_call(const std::string& folder) {
  const std::vector<char> text = read_file(fs::path(folder) / "call.json");
  try {
    const json j = json::parse(text.begin(), text.end());
    check(j.at("version").get<int>() == 2, ErrorCode::invalid_file, "call.json: version {}; this program reads 2",
          j.at("version").get<int>());
    RecordedCall call;
    call.target = target_of(j.at("isa").get<std::string>());
    call.sm_scale = static_cast<float>(number_of(j.at("sm_scale")));
    call.spec = read<AttentionSpec>(j.at("spec"), "spec");
    call.scalars = read<std::vector<ScalarArg>>(j.at("scalars"), "scalars");
    call.inputs = list_of(j.at("inputs"), [&](const json& t) { return tensor_of(t, folder, true); });
    call.outputs = list_of(j.at("outputs"), [&](const json& t) { return tensor_of(t, folder, false); });
    call.plan = read_file(fs::path(folder) / "plan.bin");
    return call;
  } catch (const json::exception& bad) {
    fail(ErrorCode::invalid_file, "'{}/call.json': {}", folder, bad.what());
  }
}

}  // namespace weft::cli
