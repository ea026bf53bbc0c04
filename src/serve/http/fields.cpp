#include "serve/http/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serve/http/json.h"

namespace weft::serve::http {
namespace {

constexpr size_t kShown = 60;  // bytes of a value
constexpr size_t kMostFaults = 16, kMostIgnored = 64;

// "messages[12].weight" -> "messages[].weight": one name for all messages.
std::string without_indices(const std::string& prefix) {
  std::string name;
  bool within = false;
  for (const char c : prefix) {
    if (c == ']') within = false;
    if (!within) name += c;
    if (c == '[') within = true;
  }
  return name;
}

}  // namespace

bool is_float(const nlohmann::json& value) { return value.is_number() && std::abs(value.get<double>()) <= 1e30; }

std::optional<int64_t> whole_number(const nlohmann::json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  constexpr double kBeyond = 9223372036854775808.;  // 2^63
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || number < -kBeyond || number >= kBeyond) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  if (!value.is_string()) return shortened(dump(value), kShown);
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() <= kShown) return dump(value);
  const std::string cut = shortened(text, kShown);
  return dump(cut.substr(0, cut.size() - 3)) + "...";  // the marks of a text stand around what is shown
}

// ---------------------------------------------------------------- findings

void Findings::add(Failure fault) {
  if (faults_.size() < kMostFaults)
    faults_.push_back(std::move(fault));
  else
    ++further_faults_;
}

void Findings::add_unknown(const std::string& prefix, const std::string& name) {
  const std::string shown_name = shortened(name, kShown);
  if (strict_)
    add(Failure(400, "invalid_argument",
                fmt::format("{}{}: no field of this request has that name", prefix, shown_name), prefix + shown_name));
  else if (ignored_.size() < kMostIgnored)
    ignored_.insert(without_indices(prefix) + shown_name);
}

void Findings::throw_faults() const {
  if (faults_.empty()) return;
  const Failure& first = faults_.front();
  if (faults_.size() == 1) throw Failure(first);
  std::string message = fmt::format("{} fields are wrong. {}", faults_.size() + further_faults_, first.what());
  for (size_t i = 1; i < faults_.size(); ++i) message += fmt::format(". {}", faults_[i].what());
  if (further_faults_ > 0) message += fmt::format(". And {} more", further_faults_);
  std::optional<Limit> limit;
  for (const Failure& fault : faults_)
    if (!limit) limit = fault.limit;
  throw Failure(first.status, first.code, message, first.param, limit);
}

// ---------------------------------------------------------------- fields

void Fields::refuse(const char* name, const std::string& allowed, std::optional<Limit> limit) const {
  const auto found = object_.find(name);
  say(name, fmt::format(" = {}; {}", found == object_.end() ? "nothing" : shown(*found), allowed), limit);
}

void Fields::say(const char* name, const std::string& what, std::optional<Limit> limit) const {
  findings_.add(Failure(400, "invalid_argument", prefix_ + name + what, prefix_ + name, limit));
}

const nlohmann::json* Fields::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::boolean(const char* name, bool otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, "allowed are true and false");
  return otherwise;
}

int64_t Fields::integer(const char* name, int64_t otherwise, int64_t least, int64_t most, std::optional<Limit> limit) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  const std::optional<int64_t> number = whole_number(*value);
  if (number && *number >= least && *number <= most) return *number;
  const bool too_large = value->is_number() && value->get<double>() > static_cast<double>(most);
  refuse(name, fmt::format("allowed are whole numbers from {} to {}", least, most), too_large ? limit : std::nullopt);
  return otherwise;
}

float Fields::number(const char* name, float otherwise) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return otherwise;
  if (is_float(*value)) return value->get<float>();
  refuse(name, "a number is needed");
  return otherwise;
}

std::optional<std::string> Fields::optional_text(const char* name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  refuse(name, "a text is needed");
  return std::nullopt;
}

std::string Fields::text(const char* name, const std::string& otherwise) {
  return optional_text(name).value_or(otherwise);
}

std::vector<std::string> Fields::texts(const char* name, size_t most) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return {};
  const std::string allowed = fmt::format("allowed are a text and a list of up to {} texts", most);
  if (!value->is_string() && !value->is_array()) return refuse(name, allowed), std::vector<std::string>();
  std::vector<std::string> texts;
  const auto add = [&](const nlohmann::json& text) {
    if (!text.get_ref<const std::string&>().empty()) texts.push_back(text.get<std::string>());
  };
  if (value->is_string()) return add(*value), texts;
  for (size_t i = 0; i < value->size(); ++i) {
    const nlohmann::json& element = (*value)[i];
    if (!element.is_string())
      return say(name, fmt::format("[{}] = {}; a text is needed", i, shown(element))), std::vector<std::string>();
    add(element);
    if (texts.size() > most)
      return say(name, fmt::format(" has more than {} texts; {}", most, allowed)), std::vector<std::string>();
  }
  return texts;
}

void Fields::only(const char* name, std::initializer_list<nlohmann::json> values) {
  const nlohmann::json* value = find(name);
  if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
  if (value->is_structured() && value->empty()) return;
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return;
  findings_.add(Failure(400, "unsupported",
                        fmt::format("{}{} = {}: required is a feature that this server does not have; leave it out",
                                    prefix_, name, shown(*value)),
                        prefix_ + name));
}

void Fields::note_others() const {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && std::find(known_.begin(), known_.end(), name) == known_.end())
      findings_.add_unknown(prefix_, name);
}

}  // namespace weft::serve::http
