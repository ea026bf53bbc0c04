#include "serve/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace weft::serve::http {

namespace beast_http = boost::beast::http;

void make_parser(std::optional<Parser>& parser, const Limits& limits) {
  parser.emplace();
  parser->header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser->body_limit(static_cast<uint64_t>(limits.body_bytes));
}

HttpRequest request_of(const Parser::value_type& message, bool local) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::string(message.target());
  request.path = request.path.substr(0, request.path.find('?'));
  request.local = local;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string& value = request.headers[name];
    if (!value.empty()) value += ", ";
    value += std::string(field.value());
  }
  return request;
}

std::optional<Failure> failure_of_read(const boost::beast::error_code& error, const Limits& limits) {
  using Error = beast_http::error;
  if (error == Error::body_limit)
    return Failure(413, "body_too_large", fmt::format("the body has more than {} bytes", limits.body_bytes), {},
                   Limit::max_body);
  if (error == Error::header_limit)
    return Failure(431, "header_too_large", fmt::format("the header has more than {} bytes", limits.header_bytes), {},
                   Limit::max_header);
  const bool malformed = error.category() == beast_http::make_error_code(Error::bad_method).category() &&
                         error != Error::end_of_stream && error != Error::partial_message;
  if (malformed) return Failure(400, "bad_http", "the request is no HTTP/1.1: " + error.message());
  return std::nullopt;
}

}  // namespace weft::serve::http
