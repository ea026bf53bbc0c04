// The fields of a JSON object, each asked for once: what nobody asked for is refused by name.
//
//   Fields fields(body);
//   request.n = fields.integer("n", 1, 1, 64);
//   fields.ignore({"user"});
//   fields.refuse_others();
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serve/limits_met.h"

namespace weft::serve::http {

// Null counts as left out. Everything throws Failure(400) with the field's name.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json* find(const std::string& name);
  bool boolean(const std::string& name, bool otherwise);
  // `limit` is the server's that `most` is, where it is one.
  int64_t integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most,
                  std::optional<Limit> limit = {});
  float number(const std::string& name, float otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  std::optional<std::string> optional_text(const std::string& name);
  // A text, or a list of them.
  std::vector<std::string> texts(const std::string& name, size_t most);
  void ignore(std::initializer_list<const char*> names);
  // A feature that is not there: only null and these values are accepted.
  void only(const std::string& name, std::initializer_list<nlohmann::json> values);
  void refuse_others() const;
  [[noreturn]] void refuse(const std::string& name, const std::string& allowed, std::optional<Limit> limit = {}) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::set<std::string> known_;
};

// A number within a float's range: beyond it a conversion has no meaning.
bool is_float(const nlohmann::json& value);
// What of a value fits into a message.
std::string shown(const nlohmann::json& value);

}  // namespace weft::serve::http
