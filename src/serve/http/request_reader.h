// What the bytes of a connection become, before anybody looks at what is asked: requests within their limits, or a
// refusal.
//
//   RequestReader reader(limits, local);
//   reader.add(socket.read_some(reader.room()));
//   if (reader.read_head() && reader.read_body()) answer(reader.take());
//   reader.next();  // what has come behind it is kept
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "serve/http/exchange.h"
#include "serve/http/failure.h"
#include "serve/http/limits.h"

namespace weft::serve::http {

class RequestReader {
 public:
  RequestReader(const Limits& limits, bool local);

  // Where the next bytes go. Empty: nothing more is taken until next(): a header's and a body's worth has come behind
  // the request that is being answered.
  boost::asio::mutable_buffer room();
  void add(size_t bytes);  // so many are in room() now
  bool has_room() const { return bytes_of_room() > 0; }
  bool begun() const;  // a byte of the request is there, other than an empty line before it

  // Both read on in what is there, and say whether it is whole. Throw Failure(400 | 413 | 431).
  bool read_head();
  bool read_body();
  // Throws Failure(413) where the head says that the body is too long: none of it need be sent.
  void check_length() const;
  // Once its head is read, or refused: then the lines before the one at fault. Before that as if it were empty.
  const HttpRequest& head() const { return head_; }
  bool keep_alive() const { return keep_alive_; }
  // With its body.
  HttpRequest take();
  void next();

  size_t capacity() const { return buffer_.capacity(); }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  size_t bytes_of_room() const;
  void skip_empty_lines();
  [[noreturn]] void refuse_head(const boost::beast::error_code& error);

  const Limits& limits_;
  const bool local_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;  // none once the request is whole
  HttpRequest head_;
  size_t head_bytes_ = 0, body_bytes_ = 0;  // that were read
  bool keep_alive_ = false;
};

}  // namespace weft::serve::http
