#include "serve/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

namespace weft::serve::http {
namespace {

namespace beast_http = boost::beast::http;

constexpr size_t kPiece = 64 << 10;     // taken from a connection at once
constexpr size_t kFramingOfAByte = 16;  // a chunk of one byte needs five beside it

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

// "http://host/path", as a proxy asks: the name in it counts, whatever the header says (RFC 9112, 3.2.2).
void split_absolute(HttpRequest& request, std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower(target.substr(0, scheme.size())) != scheme) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    request.headers["host"] = std::string(target.substr(0, end));
    request.path = std::string(target.substr(end));
    if (!request.path.starts_with('/')) request.path.insert(0, "/");
    return;
  }
}

HttpRequest request_of(const beast_http::request<beast_http::string_body>& message, bool local) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::string(message.target());
  request.http_1_0 = message.version() < 11;
  request.local = local;
  for (const auto& field : message) {
    const auto [at, added] = request.headers.try_emplace(lower(field.name_string()), field.value());
    if (!added) at->second += ", " + std::string(field.value());
  }
  split_absolute(request, message.target());
  request.path.resize(std::min(request.path.find('?'), request.path.size()));
  return request;
}

[[noreturn]] void refuse_bytes(const boost::beast::error_code& error, const Limits& limits) {
  if (error == beast_http::error::body_limit)
    throw Failure(413, "body_too_large", fmt::format("the body has more than {} bytes", limits.body_bytes), {},
                  Limit::max_body);
  if (error == beast_http::error::header_limit)
    throw Failure(431, "header_too_large",
                  fmt::format("the header, or what stands beside the data of chunks, has more than {} bytes",
                              limits.header_bytes),
                  {}, Limit::max_header);
  throw Failure(400, "bad_http", "the request is no HTTP/1.1: " + error.message());
}

}  // namespace

RequestReader::RequestReader(const Limits& limits, bool local) : limits_(limits), local_(local) { next(); }

void RequestReader::next() {
  parser_.emplace();
  // Beast's limits leave gaps: lines that are read are not counted, nor is what stands beside the data of chunks.
  parser_->header_limit(std::numeric_limits<uint32_t>::max());
  parser_->body_limit(boost::none);
  head_ = {};
  head_bytes_ = body_bytes_ = 0;
  keep_alive_ = false;
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
}

bool RequestReader::begun() const { return parser_ && (parser_->got_some() || buffer_.size() > 0); }

size_t RequestReader::bytes_of_room() const {
  const auto header = static_cast<size_t>(limits_.header_bytes), body = static_cast<size_t>(limits_.body_bytes);
  const size_t most = !parser_                    ? header + body
                      : parser_->is_header_done() ? buffer_.size() + kPiece
                                                  : header - head_bytes_;
  return std::min(kPiece, most - std::min(most, buffer_.size()));
}

boost::asio::mutable_buffer RequestReader::room() { return buffer_.prepare(bytes_of_room()); }

void RequestReader::add(size_t bytes) { buffer_.commit(bytes); }

// Some clients end a body with a line's end that it does not count (RFC 9112, 2.2).
void RequestReader::skip_empty_lines() {
  const auto* bytes = static_cast<const char*>(buffer_.data().data());
  size_t skipped = 0;
  while (skipped + 1 < buffer_.size() && head_bytes_ + skipped + 1 < static_cast<size_t>(limits_.header_bytes) &&
         bytes[skipped] == '\r' && bytes[skipped + 1] == '\n')
    skipped += 2;
  buffer_.consume(skipped);
  head_bytes_ += skipped;
}

bool RequestReader::read_head() {
  if (!parser_->got_some()) skip_empty_lines();
  // What is read ahead may be more than a head may have.
  const size_t allowed = static_cast<size_t>(limits_.header_bytes) - head_bytes_;
  const size_t size = std::min(buffer_.size(), allowed);
  // A line's end may be the beginning of an empty line.
  const bool may_be_empty =
      size == 1 && !parser_->got_some() && *static_cast<const char*>(buffer_.data().data()) == '\r';
  if (size > 0 && !may_be_empty) {
    boost::beast::error_code error;
    const size_t used = parser_->put(boost::asio::const_buffer(buffer_.data().data(), size), error);
    buffer_.consume(used);
    head_bytes_ += used;
    if (error && error != beast_http::error::need_more) refuse_head(error);
  }
  if (parser_->is_header_done()) {
    head_ = request_of(parser_->get(), local_);
    keep_alive_ = parser_->keep_alive();
    return true;
  }
  if (size == allowed) refuse_head(beast_http::error::header_limit);
  return false;
}

// The answer follows what was read of the head: a page may read it where its origin is allowed.
void RequestReader::refuse_head(const boost::beast::error_code& error) {
  head_ = request_of(parser_->get(), local_);
  refuse_bytes(error, limits_);
}

void RequestReader::check_length() const {
  if (parser_->content_length() && *parser_->content_length() > static_cast<uint64_t>(limits_.body_bytes))
    refuse_bytes(beast_http::error::body_limit, limits_);
}

bool RequestReader::read_body() {
  const auto most = static_cast<uint64_t>(limits_.body_bytes);
  const auto header = static_cast<size_t>(limits_.header_bytes);
  if (body_bytes_ == 0) check_length();
  if (body_bytes_ == 0) parser_->body_limit(most);  // of chunks, counted down
  parser_->eager(true);
  while (!parser_->is_done() && buffer_.size() > 0) {
    boost::beast::error_code error;
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    body_bytes_ += used;
    if (error && error != beast_http::error::need_more) refuse_bytes(error, limits_);
    // Sizes of chunks, their extensions, and lines behind the last one.
    const size_t data = parser_->get().body().size();
    const size_t waits = error ? buffer_.size() : 0;
    if (body_bytes_ - data + waits > header + kFramingOfAByte * data)
      refuse_bytes(beast_http::error::header_limit, limits_);
    if (error) return false;
  }
  return parser_->is_done();
}

HttpRequest RequestReader::take() {
  HttpRequest request = head_;  // not what stands behind the last chunk: nobody has looked at that
  request.body = std::move(parser_->get().body());
  parser_.reset();
  return request;
}

}  // namespace weft::serve::http
