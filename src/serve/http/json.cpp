#include "serve/http/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "serve/http/failure.h"

namespace weft::serve::http {

namespace {

using nlohmann::json;

// Looks at a text before it is parsed: how deep it is, and keys that an object has twice, of which one would count, and
// which is a matter of the reader. The library's own callback would look at all elements of an array after each object.
class Check : public json::json_sax_t {
 public:
  explicit Check(int64_t depth) : depth_(depth) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& key) override {
    if (keys_.back().insert(key).second) return true;
    key = shortened(key, 60);
    throw Failure(400, "invalid_argument", fmt::format("{}: the body has this key twice", key), key);
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    throw Failure(400, "invalid_argument", fmt::format("the body is no JSON: {}", error.what()));
  }

 private:
  bool enter() {
    if (level_++ >= depth_)
      throw Failure(400, "invalid_argument", fmt::format("the body's JSON is deeper than {} levels", depth_), {},
                    Limit::max_json_depth);
    return true;
  }
  bool leave() {
    --level_;
    return true;
  }
  const int64_t depth_;
  int64_t level_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

nlohmann::json parse_object(std::string_view text, int64_t depth) {
  Check check(depth);
  json::sax_parse(text, &check);
  try {
    json value = json::parse(text);
    if (!value.is_object()) throw Failure(400, "invalid_argument", "the body is no JSON object");
    return value;
  } catch (const json::exception& error) {
    throw Failure(400, "invalid_argument", fmt::format("the body is no JSON: {}", error.what()));
  }
}

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weft::serve::http
