#include "serve/http/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serve/http/failure.h"
#include "serve/http/json.h"

namespace weft::serve::http {
namespace {

constexpr size_t kShown = 60;  // characters of a value

}  // namespace

bool is_float(const nlohmann::json& value) { return value.is_number() && std::abs(value.get<double>()) <= 1e30; }

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = dump(value);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

void Fields::refuse(const std::string& name, const std::string& allowed, std::optional<Limit> limit) const {
  const auto found = object_.find(name);
  throw Failure(
      400, "invalid_argument",
      fmt::format("{}{} = {}; {}", prefix_, name, found == object_.end() ? "nothing" : shown(*found), allowed),
      prefix_ + name, limit);
}

const nlohmann::json* Fields::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::boolean(const std::string& name, bool otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, "allowed are true and false");
  return value->get<bool>();
}

int64_t Fields::integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most,
                        std::optional<Limit> limit) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                : value->is_number_integer();
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most)
    refuse(name, fmt::format("allowed are whole numbers from {} to {}", least, most),
           value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(most) ? limit : std::nullopt);
  return value->get<int64_t>();
}

float Fields::number(const std::string& name, float otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!is_float(*value)) refuse(name, "a number is needed");
  return value->get<float>();
}

std::optional<std::string> Fields::optional_text(const std::string& name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "a text is needed");
  return value->get<std::string>();
}

std::string Fields::text(const std::string& name, const std::string& otherwise) {
  return optional_text(name).value_or(otherwise);
}

std::vector<std::string> Fields::texts(const std::string& name, size_t most) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const std::string allowed = fmt::format("allowed are a text and a list of up to {} texts", most);
  if (!value->is_array() || value->size() > most) refuse(name, allowed);
  std::vector<std::string> texts;
  for (const nlohmann::json& element : *value) {
    if (!element.is_string()) refuse(name, allowed);
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

void Fields::ignore(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }

void Fields::only(const std::string& name, std::initializer_list<nlohmann::json> values) {
  const nlohmann::json* value = find(name);
  if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
  throw Failure(400, "unsupported",
                fmt::format("{}{} = {}: required is a feature that this server does not have; leave it out", prefix_,
                            name, shown(*value)),
                prefix_ + name);
}

void Fields::refuse_others() const {
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name))
      throw Failure(400, "invalid_argument",
                    fmt::format("{}{}: no field of this request has that name", prefix_, name.substr(0, kShown)),
                    prefix_ + name.substr(0, kShown));
}

}  // namespace weft::serve::http
