#include "serve/http/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "serve/http/failure.h"

namespace weft::serve::http {

namespace {

using Event = nlohmann::json::parse_event_t;

// The keys of the objects that are open. Of two that are the same one would count, and which is a matter of the reader.
class OpenObjects {
 public:
  void see(Event event, const nlohmann::json& parsed) {
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event != Event::key || keys_.back().insert(parsed).second) return;
    const std::string key = parsed.get<std::string>().substr(0, 60);
    throw Failure(400, "invalid_argument", fmt::format("{}: the body has this key twice", key), key);
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

nlohmann::json parse_object(std::string_view text, int64_t depth) {
  OpenObjects objects;
  const auto within = [&](int level, Event event, const nlohmann::json& parsed) {
    if ((event == Event::object_start || event == Event::array_start) && level >= depth)
      throw Failure(400, "invalid_argument", fmt::format("the body's JSON is deeper than {} levels", depth), {},
                    Limit::max_json_depth);
    objects.see(event, parsed);
    return true;
  };
  try {
    nlohmann::json value = nlohmann::json::parse(text, within);
    if (!value.is_object()) throw Failure(400, "invalid_argument", "the body is no JSON object");
    return value;
  } catch (const nlohmann::json::exception& error) {
    throw Failure(400, "invalid_argument", fmt::format("the body is no JSON: {}", error.what()));
  }
}

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weft::serve::http
