#include "serve/http/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "serve/http/failure.h"

namespace weft::serve::http {

nlohmann::json parse_object(std::string_view text, int64_t depth) {
  const auto within = [&](int level, nlohmann::json::parse_event_t event, nlohmann::json&) {
    using Event = nlohmann::json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && level >= depth)
      throw Failure(400, "invalid_argument", fmt::format("the body's JSON is deeper than {} levels", depth));
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
