// What the bytes of a connection become, before anybody looks at what is asked: a request within its limits, or a
// refusal.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "serve/http/exchange.h"
#include "serve/http/failure.h"
#include "serve/http/limits.h"

namespace weft::serve::http {

using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

void make_parser(std::optional<Parser>& parser, const Limits& limits);
// Of a head that was read; without its body.
HttpRequest request_of(const Parser::value_type& message, bool local);
// None: the client has gone, and hears no answer.
std::optional<Failure> failure_of_read(const boost::beast::error_code& error, const Limits& limits);

}  // namespace weft::serve::http
