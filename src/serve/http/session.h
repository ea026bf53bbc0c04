// One connection: reads a request, waits for its answer, writes it, and begins again. All of it runs on the thread of
// the sockets; what other threads say is posted there. Its end alone may come on another thread: whoever made the
// answer may be the last to let go.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/error.hpp>
#include <chrono>
#include <deque>
#include <optional>

#include "serve/http/access.h"
#include "serve/http/request_reader.h"
#include "serve/http/service.h"

namespace weft::serve::http {

using Socket = boost::asio::generic::stream_protocol::socket;

using Moment = std::chrono::steady_clock::time_point;

// What sessions share.
struct Transport {
  Service& service;
  const Access& access;
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
  bool answering() const { return phase_ == Phase::answering || phase_ == Phase::refusing; }
  // Closes a connection that nothing is read from for now, and whose client has gone.
  void close_if_gone();
  // Closes a connection that is too slow, and says that it has.
  bool close_if_late(Moment now);

  void respond(Response response) override;
  void begin_events() override;
  void send_event(std::string data) override;
  void end_events() override;
  void watch(std::function<void()> closed, std::function<void(bool)> stalled) override;

 private:
  using Code = boost::beast::error_code;
  // A request's head is read, then its body; then it is answered, while the next one may come. A refused one stays
  // unread; the connection ends once what the client still sends has been dropped.
  enum class Phase { head, body, answering, refusing, lingering };
  void read_on();
  void on_readable();
  void read_request();
  void on_head();
  void on_request();
  void refuse(Response response);
  std::string head_of(const Response& response) const;
  void write(std::string bytes, bool last);
  void write_next();
  void wait_for_room();
  void next_request();
  void limit(int64_t seconds, std::optional<Limit> of = {});  // of reading; `of`: the option that says so
  template <class Work>
  void post(Work work);

  Socket socket_;
  Transport& transport_;
  struct Deadline {
    Moment at = Moment::max();
    std::optional<Limit> of = {};
  };
  Deadline reading_, writing_;
  Phase phase_ = Phase::head;
  RequestReader reader_;
  std::deque<std::string> out_;
  size_t unread_ = 0;   // bytes of out_
  size_t written_ = 0;  // bytes of its first that are gone
  bool last_ = false, keep_alive_ = true, in_chunks_ = false, closed_ = false, stalled_ = false;
  bool waits_for_bytes_ = false, waits_for_room_ = false;
  std::function<void()> on_closed_;
  std::function<void(bool)> on_stalled_;
};

}  // namespace weft::serve::http
