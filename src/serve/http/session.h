// One connection: reads a request, waits for its answer, writes it, and begins again. All of it runs on the thread of
// the sockets; what other threads say is posted there. Its end alone may come on another thread: whoever made the
// answer may be the last to let go.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <deque>
#include <optional>

#include "serve/http/request_reader.h"
#include "serve/http/service.h"

namespace weft::serve::http {

using Socket = boost::asio::generic::stream_protocol::socket;

using Moment = std::chrono::steady_clock::time_point;

// What sessions share.
struct Transport {
  Service& service;
  const Limits& limits;
  bool local;  // a unix socket
  bool draining = false;
  std::atomic<int64_t> connections = 0;  // sessions that live
  Service::Counts counts = {};
};

class Session : public Exchange, public std::enable_shared_from_this<Session> {
 public:
  Session(Socket socket, Transport& transport);
  ~Session() override;
  void start();
  // The connection is one too many.
  void start_refusing();
  // Nothing new: an idle connection closes.
  void drain();
  void close();
  bool answering() const { return answering_; }
  // Closes a connection that is too slow, and says that it has.
  bool close_if_late(Moment now);

  void respond(Response response) override;
  void begin_events() override;
  void send_event(std::string data) override;
  void end_events() override;
  void watch(std::function<void()> closed, std::function<void(bool)> stalled) override;

 private:
  using Code = boost::beast::error_code;
  void read_head(int64_t seconds, Limit of);
  void on_head(Code error);
  void read_body();
  void on_body(Code error);
  void answer_bad_read(Code error);
  void watch_for_end();
  void write(std::string bytes, bool last);
  void write_next();
  void wait_for_room();
  void next_request();
  void linger();
  void limit(int64_t seconds, std::optional<Limit> of = {});  // `of`: the option that says so
  void lift_limit();
  template <class Work>
  void post(Work work);

  Socket socket_;
  Transport& transport_;
  Moment deadline_ = Moment::max();
  std::optional<Limit> deadline_of_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::deque<std::string> out_;
  size_t unread_ = 0;  // bytes of out_
  bool answering_ = false, last_ = false, keep_alive_ = true, closed_ = false, stalled_ = false,
       waits_for_room_ = false;
  std::function<void()> on_closed_;
  std::function<void(bool)> on_stalled_;
};

}  // namespace weft::serve::http
