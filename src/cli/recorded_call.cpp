#include "cli/recorded_call.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

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

template <class Enum>
Enum named(const json& name, std::string_view what) {
  const std::optional<Enum> value = enum_from_string<Enum>(name.get<std::string>());
  check(value.has_value(), ErrorCode::invalid_file, "call.json: {} '{}' is not known", what, name.get<std::string>());
  return *value;
}

double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  check(text == "inf" || text == "-inf" || text == "nan" || text == "-nan", ErrorCode::invalid_file,
        "call.json: '{}' is no number", text);
  if (text.ends_with("nan")) return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Bound bound_of(const json& j) {
  return {.q_pos = j.at("q_pos").get<bool>(),
          .kv_len = j.at("kv_len").get<bool>(),
          .constant = j.at("constant").get<int32_t>(),
          .scalar = j.at("scalar").get<std::string>(),
          .scalar_sign = j.at("scalar_sign").get<int>()};
}

template <class Item>
auto list_of(const json& j, const Item& item) {
  std::vector<decltype(item(j))> list;
  for (const json& x : j) list.push_back(item(x));
  return list;
}

Variant variant_of(const json& j) {
  Variant v;
  v.name = j.at("name").get<std::string>();
  v.text = j.at("text").get<std::string>();
  v.use_softmax = j.at("use_softmax").get<bool>();
  v.scalars = list_of(j.at("scalars"), [](const json& s) {
    ScalarDecl scalar{.name = s.at("name").get<std::string>(), .kind = named<ScalarKind>(s.at("kind"), "scalar kind")};
    if (!s.at("default").is_null()) scalar.default_value = number_of(s.at("default"));
    return scalar;
  });
  v.tensors = list_of(j.at("tensors"), [](const json& t) {
    return TensorDecl{t.at("name").get<std::string>(), dtype_from_string(t.at("dtype").get<std::string>()),
                      t.at("rank").get<int>()};
  });
  v.intervals = list_of(j.at("intervals"), [](const json& i) {
    return Interval{list_of(i.at("lower"), bound_of), list_of(i.at("upper"), bound_of)};
  });
  return v;
}

AttentionSpec spec_of(const json& j) {
  AttentionSpec s;
  s.q_dtype = dtype_from_string(j.at("q_dtype").get<std::string>());
  s.kv_dtype = dtype_from_string(j.at("kv_dtype").get<std::string>());
  s.o_dtype = dtype_from_string(j.at("o_dtype").get<std::string>());
  if (const json& compute = j.at("compute"); !compute.is_null())
    s.compute = dtype_from_string(compute.get<std::string>());
  s.head_dim_qk = j.at("head_dim_qk").get<int>();
  s.head_dim_vo = j.at("head_dim_vo").get<int>();
  s.kv_form = named<KvForm>(j.at("kv_form"), "kv_form");
  s.layout = named<Layout>(j.at("layout"), "layout");
  s.mask = named<Mask>(j.at("mask"), "mask");
  s.sliding_window = j.at("sliding_window").get<bool>();
  if (const auto scales = j.find("kv_scales"); scales != j.end()) {
    s.kv_scales = named<KvScales>(*scales, "kv_scales");
    s.kv_scale_group = j.at("kv_scale_group").get<int>();
  }
  s.variant = variant_of(j.at("variant"));
  return s;
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

bool RecordedCall::has_input(std::string_view name) const {
  return std::any_of(inputs.begin(), inputs.end(), [&](const RecordedTensor& t) { return t.name == name; });
}

const RecordedTensor* RecordedCall::output(std::string_view name) const {
  for (const RecordedTensor& t : outputs)
    if (t.name == name) return &t;
  return nullptr;
}

AttentionTensors RecordedCall::tensors() const {
  constexpr std::string_view kPrefix = "tensor.";
  AttentionTensors all;
  all.q = input("q").view();
  all.kv.k = input("k").view();
  if (spec.kv_form != KvForm::latent || has_input("v")) all.kv.v = input("v").view();
  if (spec.kv_scales != KvScales::none) {
    all.kv.k_scale = input("k_scale").view();
    all.kv.v_scale = input("v_scale").view();
  }
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
    check(j.at("version").get<int>() == 1, ErrorCode::invalid_file, "call.json: version {}; this program reads 1",
          j.at("version").get<int>());
    RecordedCall call;
    call.target = target_of(j.at("isa").get<std::string>());
    call.sm_scale = static_cast<float>(number_of(j.at("sm_scale")));
    call.spec = spec_of(j.at("spec"));
    call.scalars = list_of(j.at("scalars"), [](const json& s) {
      return ScalarArg{s.at("name").get<std::string>(), number_of(s.at("value"))};
    });
    call.inputs = list_of(j.at("inputs"), [&](const json& t) { return tensor_of(t, folder, true); });
    call.outputs = list_of(j.at("outputs"), [&](const json& t) { return tensor_of(t, folder, false); });
    call.plan = read_file(fs::path(folder) / "plan.bin");
    return call;
  } catch (const json::exception& bad) {
    fail(ErrorCode::invalid_file, "'{}/call.json': {}", folder, bad.what());
  }
}

}  // namespace weft::cli
