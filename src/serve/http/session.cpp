#include "serve/http/session.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <cerrno>

#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

namespace net = boost::asio;
namespace beast_http = boost::beast::http;

constexpr int64_t kLingerSeconds = 1;

const char* reason_of(int status) {
  const auto known = beast_http::obsolete_reason(beast_http::int_to_status(static_cast<unsigned>(status)));
  return known.data();
}

std::string head_of(int status, const std::string& content_type, bool keep_alive,
                    const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\n", status,
                                 reason_of(status), content_type);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive) head += "Connection: close\r\n";
  return head;
}

}  // namespace

Session::Session(Socket socket, Transport& transport) : socket_(std::move(socket)), transport_(transport) {
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
  deadline_ = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  deadline_of_ = of;
}

void Session::lift_limit() { deadline_ = Moment::max(); }

bool Session::close_if_late(Moment now) {
  if (closed_ || now < deadline_) return false;
  ++transport_.counts.timeouts;
  if (deadline_of_) transport_.service.limits_met().add(*deadline_of_);
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

void Session::start() { read_head(transport_.limits.header_s, Limit::header_time); }

void Session::start_refusing() {
  keep_alive_ = false;
  answering_ = true;
  limit(1);
  respond(
      response_of({503, "too_many_connections", "this server has as many connections as it takes: try again later"}));
}

void Session::drain() {
  if (!answering_) close();
}

void Session::read_head(int64_t seconds, Limit of) {
  make_parser(parser_, transport_.limits);
  limit(seconds, of);
  beast_http::async_read_header(socket_, buffer_, *parser_,
                                [self = shared_from_this()](Code error, size_t) { self->on_head(error); });
}

void Session::on_head(Code error) {
  if (closed_) return;
  if (error) return answer_bad_read(error);
  keep_alive_ = parser_->get().keep_alive() && !transport_.draining;
  if (auto refusal = transport_.service.refuse(request_of(parser_->get(), transport_.local))) {
    keep_alive_ = false;  // its body stays unread
    answering_ = true;
    return respond(std::move(*refusal));
  }
  limit(transport_.limits.body_s, Limit::body_time);
  if (!boost::beast::iequals(parser_->get()[beast_http::field::expect], "100-continue")) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  net::async_write(socket_, net::buffer(kContinue), [self = shared_from_this()](Code failed, size_t) {
    if (failed) return self->close();
    self->read_body();
  });
}

void Session::read_body() {
  beast_http::async_read(socket_, buffer_, *parser_,
                         [self = shared_from_this()](Code error, size_t) { self->on_body(error); });
}

void Session::on_body(Code error) {
  if (closed_) return;
  if (error) return answer_bad_read(error);
  lift_limit();
  answering_ = true;
  HttpRequest request = request_of(parser_->get(), transport_.local);
  request.body = std::move(parser_->get().body());
  transport_.service.handle(std::move(request), shared_from_this());
  watch_for_end();
}

void Session::answer_bad_read(Code error) {
  keep_alive_ = false;
  answering_ = true;
  if (const auto failure = failure_of_read(error, transport_.limits)) {
    if (failure->limit) transport_.service.limits_met().add(*failure->limit);
    return respond(response_of(*failure));
  }
  close();
}

// While an answer is made nothing is read: a closed connection shows as readable, and empty. A half that is closed
// counts.
void Session::watch_for_end() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](Code error) {
    if (self->closed_ || !self->answering_) return;
    char byte;
    const auto got = recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (error || got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return self->close();
    if (got < 0) self->watch_for_end();  // else the next request has come: it waits its turn
  });
}

// ---------------------------------------------------------------- writing

void Session::watch(std::function<void()> closed, std::function<void(bool)> stalled) {
  // Asked for by the service while it handles a request: on this thread.
  on_closed_ = std::move(closed);
  on_stalled_ = std::move(stalled);
}

void Session::respond(Response response) {
  post([response = std::move(response)](Session& self) {
    self.write(head_of(response.status, response.content_type, self.keep_alive_, response.headers) +
                   fmt::format("Content-Length: {}\r\n\r\n", response.body.size()) + response.body,
               true);
  });
}

void Session::begin_events() {
  post([](Session& self) {
    self.write(head_of(200, "text/event-stream", self.keep_alive_,
                       {{"Transfer-Encoding", "chunked"}, {"X-Accel-Buffering", "no"}}) +
                   "\r\n",
               false);
  });
}

void Session::send_event(std::string data) {
  post([data = std::move(data)](Session& self) {
    self.write(fmt::format("{:x}\r\ndata: {}\n\n\r\n", data.size() + 8, data), false);
  });
}

void Session::end_events() {
  post([](Session& self) { self.write("0\r\n\r\n", true); });
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
    const size_t bytes = socket_.write_some(net::buffer(out_.front()), error);
    if (error == net::error::would_block) return wait_for_room();
    if (error) return close();
    unread_ -= bytes;
    out_.front().erase(0, bytes);
    if (out_.front().empty()) out_.pop_front();
  }
  if (std::exchange(stalled_, false) && on_stalled_) on_stalled_(false);
  if (last_) next_request();
}

void Session::wait_for_room() {
  waits_for_room_ = true;
  limit(transport_.limits.unread_s, Limit::unread_time);
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](Code error) {
    self->waits_for_room_ = false;
    if (self->closed_) return;
    if (error) return self->close();
    self->lift_limit();
    self->write_next();
  });
}

void Session::next_request() {
  on_closed_ = nullptr;
  on_stalled_ = nullptr;
  answering_ = last_ = false;
  Code ignored;
  socket_.cancel(ignored);  // of watching for the end
  if (keep_alive_ && !transport_.draining) return read_head(transport_.limits.idle_s, Limit::idle_time);
  // What the client still sends is read: else the system would take the answer back.
  socket_.shutdown(Socket::shutdown_send, ignored);
  limit(kLingerSeconds);
  linger();
}

void Session::linger() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(16 << 10), [self = shared_from_this()](Code error, size_t) {
    if (self->closed_) return;
    if (error) return self->close();
    self->linger();
  });
}

}  // namespace weft::serve::http
