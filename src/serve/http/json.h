// JSON of clients: bounded when read, always UTF-8 when written.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace weft::serve::http {

// Throws Failure(400) for what is no JSON object, deeper than `depth`, or has a key twice in an object.
nlohmann::json parse_object(std::string_view text, int64_t depth);
// Text that is not UTF-8 shows as U+FFFD.
std::string dump(const nlohmann::json& value);

}  // namespace weft::serve::http
