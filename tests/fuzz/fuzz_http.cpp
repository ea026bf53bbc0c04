// Any bytes on a connection, in pieces of any size: they are a request within its limits or are refused with a status,
// and whoever may ask is told so. The first byte is the size of the pieces, the second says who asks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "serve/http/access.h"
#include "serve/http/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::serve::http;
  static const Limits limits = [] {
    Limits made;
    made.header_bytes = 512, made.body_bytes = 1024;
    return made;
  }();
  static const auto with_keys = [](std::vector<std::string> keys) {
    ServerOptions options;
    options.api_keys = std::move(keys);
    return options;
  };
  static const Access open(with_keys({})), closed(with_keys({"secret"}));
  if (size < 2) return 0;
  const size_t piece = 1 + data[0], total = size - 2;
  const uint8_t* bytes = data + 2;
  std::optional<Parser> parser;
  make_parser(parser, limits);
  parser->eager(true);
  boost::beast::error_code error;
  for (size_t at = 0, end = std::min(piece, total); !parser->is_done(); end = std::min(end + piece, total)) {
    error = {};
    at += parser->put(boost::asio::const_buffer(bytes + at, end - at), error);
    if (error == boost::beast::http::error::need_more && end < total) continue;
    if (error) break;
    if (end == total && at == total && !parser->is_done()) break;
  }
  if (error) {
    const auto failure = failure_of_read(error, limits);
    if (failure && (failure->status < 400 || failure->status > 499 || failure->json().empty())) std::abort();
    return 0;
  }
  if (!parser->is_done()) return 0;
  if (parser->get().body().size() > static_cast<size_t>(limits.body_bytes)) std::abort();
  const HttpRequest request = request_of(parser->get(), (data[1] & 1) != 0);
  try {
    ((data[1] & 2) != 0 ? closed : open).check(request);
  } catch (const Failure& failure) {
    if (failure.status < 400 || failure.status > 499 || failure.json().empty()) std::abort();
  }
  return 0;
}
