// The fields of a JSON object, each asked for once. What is wrong with them is collected, so that a client hears of all
// of it; names that nobody asked for are collected, too.
//
//   Findings findings(strict);
//   Fields fields(body, findings);
//   request.n = fields.integer("n", 1, 1, 64);
//   fields.ignore({"user"});
//   fields.note_others();
//   findings.throw_faults();
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/failure.h"
#include "serve/limits_met.h"

namespace weft::serve::http {

// Of one body. Both lists are bounded, however large the body is.
class Findings {
 public:
  explicit Findings(bool strict) : strict_(strict) {}
  void add(Failure fault);
  // A field that has no meaning here: a fault where the server is strict, else it is ignored.
  void add_unknown(const std::string& prefix, const std::string& name);
  // Throws one Failure that names all faults, and has the code, field and limit of the first.
  void throw_faults() const;
  // Names without their indices: "messages[].weight".
  const std::set<std::string>& ignored() const { return ignored_; }

 private:
  bool strict_;
  std::vector<Failure> faults_;
  size_t further_faults_ = 0;
  std::set<std::string> ignored_;
};

// Null counts as left out. A value that is wrong is a fault with the field's name, and reads as left out.
class Fields {
 public:
  Fields(const nlohmann::json& object, Findings& findings, std::string prefix = {})
      : object_(object), findings_(findings), prefix_(std::move(prefix)) {}

  // The field's name has to live as long as this: it is a literal.
  const nlohmann::json* find(const char* name);
  bool boolean(const char* name, bool otherwise);
  // `limit` is the server's that `most` is, where it is one. 4.0 is 4.
  int64_t integer(const char* name, int64_t otherwise, int64_t least, int64_t most, std::optional<Limit> limit = {});
  float number(const char* name, float otherwise);
  std::string text(const char* name, const std::string& otherwise);
  std::optional<std::string> optional_text(const char* name);
  // A text, or a list of them; empty ones are left out.
  std::vector<std::string> texts(const char* name, size_t most);
  void ignore(std::initializer_list<const char*> names) { known_.insert(known_.end(), names.begin(), names.end()); }
  // A feature that is not there: only null, what is empty, and these values are accepted.
  void only(const char* name, std::initializer_list<nlohmann::json> values);
  void note_others() const;
  // "NAME = VALUE; allowed".
  void refuse(const char* name, const std::string& allowed, std::optional<Limit> limit = {}) const;
  // A fault in words that follow the field's name, where only a part of its value is wrong.
  void say(const char* name, const std::string& what, std::optional<Limit> limit = {}) const;

 private:
  const nlohmann::json& object_;
  Findings& findings_;
  std::string prefix_;
  std::vector<std::string_view> known_;
};

// A number within a float's range: beyond it a conversion has no meaning.
bool is_float(const nlohmann::json& value);
// Of a whole number, written with or without a fraction of zero.
std::optional<int64_t> whole_number(const nlohmann::json& value);
// What of a value fits into a message.
std::string shown(const nlohmann::json& value);

}  // namespace weft::serve::http
