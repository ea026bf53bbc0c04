#include "serve/http/session.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>

#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

namespace net = boost::asio;
namespace beast_http = boost::beast::http;

constexpr int64_t kLingerSeconds = 1;
constexpr int kNoContent = 204;  // has no body, and says nothing of one

const char* reason_of(int status) {
  const auto known = beast_http::obsolete_reason(beast_http::int_to_status(static_cast<unsigned>(status)));
  return known.data();
}

}  // namespace

Session::Session(Socket socket, Transport& transport)
    : socket_(std::move(socket)), transport_(transport), reader_(transport.limits, transport.local) {
  ++transport_.connections;
  Code ignored;
  socket_.non_blocking(true, ignored);
}

Session::~Session() { --transport_.connections; }

// What a thread of the engine says is done by the thread of the sockets.
template <class Work>
void Session::post(Work work) {
  net::post(socket_.get_executor(), [self = shared_from_this(), work = std::move(work)]() mutable {
    if (!self->closed_) work(*self);
  });
}

void Session::limit(int64_t seconds, std::optional<Limit> of) {
  reading_ = {std::chrono::steady_clock::now() + std::chrono::seconds(seconds), of};
}

bool Session::close_if_late(Moment now) {
  const Deadline& first = writing_.at < reading_.at ? writing_ : reading_;
  if (closed_ || now < first.at) return false;
  ++transport_.counts.timeouts;
  if (first.of) transport_.service.limits_met().add(*first.of);
  close();
  return true;
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  Code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.close(ignored);
  if (const auto closed = std::exchange(on_closed_, nullptr)) closed();
  on_stalled_ = nullptr;
}

// ---------------------------------------------------------------- reading

void Session::start() {
  limit(transport_.limits.header_s, Limit::header_time);
  read_on();
}

void Session::start_refusing() {
  limit(1);
  refuse(
      response_of({503, "too_many_connections", "this server has as many connections as it takes: try again later"}));
}

void Session::drain() {
  if (!answering()) close();
}

// Waits for bytes, while an answer is made too: so an end shows, of a half or of both, whatever came before it. Where
// the reader has no room the client has to wait, and close_if_gone looks for the end.
void Session::read_on() {
  if (closed_ || waits_for_bytes_ || (phase_ != Phase::lingering && !reader_.has_room())) return;
  waits_for_bytes_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](Code error) {
    self->waits_for_bytes_ = false;
    if (self->closed_) return;
    if (error) return self->close();
    self->on_readable();
  });
}

void Session::on_readable() {
  if (phase_ == Phase::refusing) return;  // until it lingers
  std::array<char, 16 << 10> dropped;
  Code error;
  const size_t got = phase_ == Phase::lingering ? socket_.read_some(net::buffer(dropped), error)
                                                : socket_.read_some(reader_.room(), error);
  if (error && error != net::error::would_block && error != net::error::interrupted) return close();
  if (phase_ != Phase::lingering) {
    reader_.add(got);
    read_request();
  }
  read_on();
}

void Session::read_request() try {
  if (phase_ == Phase::head) {
    if (reading_.of == Limit::idle_time && reader_.begun()) limit(transport_.limits.header_s, Limit::header_time);
    if (reader_.read_head()) on_head();
  }
  if (phase_ == Phase::body && reader_.read_body()) on_request();
} catch (const Failure& failure) {
  if (failure.limit) transport_.service.limits_met().add(*failure.limit);
  refuse(response_of(failure));
}

void Session::on_head() {
  keep_alive_ = reader_.keep_alive() && !transport_.draining;
  if (auto refusal = transport_.service.refuse(reader_.head())) return refuse(std::move(*refusal));
  reader_.check_length();  // before it is asked for
  phase_ = Phase::body;
  limit(transport_.limits.body_s, Limit::body_time);
  const bool waits = !reader_.head().http_1_0 && !reader_.head().header("expect").empty();
  if (waits) write("HTTP/1.1 100 Continue\r\n\r\n", false);
}

void Session::on_request() {
  reading_ = {};
  phase_ = Phase::answering;
  transport_.service.handle(reader_.take(), shared_from_this());
}

// What it still sends stays unread until it has its answer.
void Session::refuse(Response response) {
  keep_alive_ = false;
  phase_ = Phase::refusing;
  respond(std::move(response));
}

void Session::close_if_gone() {
  if (closed_ || waits_for_bytes_ || phase_ != Phase::answering) return;
  pollfd client{socket_.native_handle(), POLLRDHUP, 0};
  if (poll(&client, 1, 0) > 0) close();
}

// ---------------------------------------------------------------- writing

void Session::watch(std::function<void()> closed, std::function<void(bool)> stalled) {
  // Asked for by the service while it handles a request: on this thread.
  on_closed_ = std::move(closed);
  on_stalled_ = std::move(stalled);
}

std::string Session::head_of(const Response& response) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  if (response.status != kNoContent) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  head += "Cache-Control: no-store\r\n";
  for (const Headers& headers : {response.headers, transport_.access.headers_for(reader_.head(), response.status)})
    for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive_) head += "Connection: close\r\n";
  if (keep_alive_ && reader_.head().http_1_0) head += "Connection: keep-alive\r\n";
  return head;
}

void Session::respond(Response response) {
  post([response = std::move(response)](Session& self) {
    std::string bytes = self.head_of(response);
    if (response.status != kNoContent) bytes += fmt::format("Content-Length: {}\r\n", response.body.size());
    bytes += "\r\n";
    if (self.reader_.head().method != "HEAD") bytes += response.body;
    self.write(std::move(bytes), true);
  });
}

// HTTP/1.0 has no chunks: there the end of the connection is the answer's.
void Session::begin_events() {
  post([](Session& self) {
    self.in_chunks_ = !self.reader_.head().http_1_0;
    if (!self.in_chunks_) self.keep_alive_ = false;
    Headers headers = {{"X-Accel-Buffering", "no"}};
    if (self.in_chunks_) headers.emplace_back("Transfer-Encoding", "chunked");
    self.write(self.head_of({.content_type = "text/event-stream", .headers = headers}) + "\r\n", false);
  });
}

void Session::send_event(std::string data) {
  post([data = std::move(data)](Session& self) {
    self.write(self.in_chunks_ ? fmt::format("{:x}\r\ndata: {}\n\n\r\n", data.size() + 8, data)
                               : fmt::format("data: {}\n\n", data),
               false);
  });
}

void Session::end_events() {
  post([](Session& self) { self.write(self.in_chunks_ ? "0\r\n\r\n" : "", true); });
}

void Session::write(std::string bytes, bool last) {
  unread_ += bytes.size();
  out_.push_back(std::move(bytes));
  last_ = last;
  if (!stalled_ && on_stalled_ && unread_ > static_cast<size_t>(transport_.limits.unread_bytes)) {
    stalled_ = true;
    ++transport_.counts.stalls;
    transport_.service.limits_met().add(Limit::max_unread);
    on_stalled_(true);
  }
  if (!waits_for_room_) write_next();
}

// Most writes end at once. One that does not is limited, and what comes meanwhile goes out together.
void Session::write_next() {
  for (Code error; !out_.empty();) {
    while (out_.size() > 1) {
      out_.front() += out_[1];
      out_.erase(out_.begin() + 1);
    }
    const size_t bytes = socket_.write_some(net::buffer(out_.front()) + written_, error);
    if (error == net::error::would_block) return wait_for_room();
    if (error) return close();
    unread_ -= bytes;
    written_ += bytes;
    // What is left moves to the front once it is no more than what has gone.
    if (written_ * 2 < out_.front().size()) continue;
    out_.front().erase(0, std::exchange(written_, 0));
    if (out_.front().empty()) out_.pop_front();
  }
  if (std::exchange(stalled_, false) && on_stalled_) on_stalled_(false);
  if (last_) next_request();
}

void Session::wait_for_room() {
  waits_for_room_ = true;
  writing_ = {std::chrono::steady_clock::now() + std::chrono::seconds(transport_.limits.unread_s), Limit::unread_time};
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](Code error) {
    self->waits_for_room_ = false;
    if (self->closed_) return;
    if (error) return self->close();
    self->writing_ = {};
    self->write_next();
  });
}

void Session::next_request() {
  on_closed_ = nullptr;
  on_stalled_ = nullptr;
  last_ = false;
  if (keep_alive_ && !transport_.draining) {
    reader_.next();
    phase_ = Phase::head;
    limit(transport_.limits.idle_s, Limit::idle_time);
    read_request();  // it may have come already
    return read_on();
  }
  // What the client still sends is read: else the system would take the answer back.
  Code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  phase_ = Phase::lingering;
  limit(kLingerSeconds);
  read_on();
}

}  // namespace weft::serve::http
