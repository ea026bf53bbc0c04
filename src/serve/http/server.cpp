#include "serve/http/server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <filesystem>
#include <list>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "serve/http/session.h"
#include "serve/http/thread_slice.h"

namespace weft::serve::http {
namespace {

namespace net = boost::asio;
using Tcp = net::ip::tcp;
using Local = net::local::stream_protocol;
using Code = boost::system::error_code;

constexpr std::chrono::milliseconds kTick{50}, kAcceptPause{100};
constexpr int kMostLate = 32;  // connections closed in a tick: a thousand at once would keep a worker from its CPU

// Beside those of connections and what was open before: sockets, signals and timers, and files that are read meanwhile.
constexpr int64_t kOwnDescriptors = 13;
constexpr int64_t kYear = 365 * 24 * 3600;

uint64_t most_descriptors() {
  rlimit allowed{};
  getrlimit(RLIMIT_NOFILE, &allowed);
  return allowed.rlim_cur;
}

// None: nobody knows how many.
std::optional<int64_t> open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error == std::errc::too_many_files_open) return static_cast<int64_t>(most_descriptors());
  if (error) return std::nullopt;
  return std::distance(begin(files), end(files)) - 1;  // it is one itself
}

void check_code(Code error, const std::string& what) {
  check(!error, ErrorCode::io_error, "{}: {}", what, error.message());
}

}  // namespace

void check_options(const ServerOptions& options) {
  const Limits& limits = options.limits;
  struct Range {
    const char* option;
    int64_t value, lowest, highest;
    const char* unit;
  };
  for (const Range& range : {Range{"--max-header", limits.header_bytes, 256, 1 << 30, "bytes"},
                             {"--max-body", limits.body_bytes, 1, int64_t{1} << 40, "bytes"},
                             {"--max-unread", limits.unread_bytes, 0, int64_t{1} << 40, "bytes"},
                             {"--header-time", limits.header_s, 1, kYear, "seconds"},
                             {"--body-time", limits.body_s, 1, kYear, "seconds"},
                             {"--idle-time", limits.idle_s, 1, kYear, "seconds"},
                             {"--unread-time", limits.unread_s, 1, kYear, "seconds"},
                             {"--queue-time", limits.queue_s, 0, kYear, "seconds"},
                             {"--request-time", limits.request_s, 0, kYear, "seconds"},
                             {"--drain", options.drain_s, 0, kYear, "seconds"}})
    check(range.value >= range.lowest && range.value <= range.highest, ErrorCode::invalid_argument,
          "{} = {}; allowed are {} to {} {}", range.option, range.value, range.lowest, range.highest, range.unit);
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  check(options.unix_socket.size() <= kLongest, ErrorCode::invalid_argument,
        "--unix-socket = {}; allowed are paths of up to {} bytes, this one has {}", options.unix_socket, kLongest,
        options.unix_socket.size());
  const Access origins(options);
}

void check_descriptors() {
  constexpr int64_t kStandard = 3;
  const int64_t open = open_descriptors().value_or(kStandard), needed = open + kOwnDescriptors;
  check(most_descriptors() > static_cast<uint64_t>(needed), ErrorCode::io_error,
        "this process may have {} descriptors and has {}; {} and one for each connection are needed: raise them with "
        "ulimit -n",
        most_descriptors(), open, needed);
}

struct Server::Impl {
  ServerOptions options;
  Service& service;
  const Access access{options};
  Transport transport;
  net::io_context io{1};
  std::optional<Tcp::acceptor> tcp;
  std::optional<Local::acceptor> local;
  net::signal_set signals{io};
  net::steady_timer tick{io}, accept_again{io};
  std::list<std::weak_ptr<Session>> sessions;
  std::chrono::steady_clock::time_point drain_end;
  bool accepting = false, ticking = false, waiting = false;  // each is to come, or has to be asked for again

  Impl(Service& s, const ServerOptions& o)
      : options(o), service(s), transport{s, access, options.limits, !o.unix_socket.empty()} {}

  void listen_tcp();
  void listen_local();
  void accept();
  void pause_accepting();
  void wait_for_signals();
  template <class Socket_>
  void add(Socket_ socket);
  void close_late_sessions();
  void on_tick();
  void begin_drain();
  void end();
};

void Server::Impl::listen_tcp() {
  Code error;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const auto address = net::ip::make_address(host, error);
  check(!error, ErrorCode::invalid_argument, "--host = {}; an address is needed, such as 127.0.0.1 or ::1",
        options.host);
  const Tcp::endpoint endpoint(address, static_cast<unsigned short>(options.port));
  const std::string what = fmt::format("{} port {}", options.host, options.port);
  tcp.emplace(io);
  tcp->open(endpoint.protocol(), error), check_code(error, what);
  tcp->set_option(Tcp::acceptor::reuse_address(true), error);
  tcp->bind(endpoint, error), check_code(error, what);
  tcp->listen(net::socket_base::max_listen_connections, error), check_code(error, what);
}

// A socket that an earlier server left behind is replaced; one that is in use is not, nor is any other file.
void Server::Impl::listen_local() {
  Code error;
  const Local::endpoint endpoint(options.unix_socket);
  struct stat status {};
  if (lstat(options.unix_socket.c_str(), &status) == 0) {
    check(S_ISSOCK(status.st_mode), ErrorCode::io_error, "--unix-socket {}: there is a file that is no socket",
          options.unix_socket);
    Local::socket probe(io);
    probe.connect(endpoint, error);
    check(static_cast<bool>(error), ErrorCode::io_error, "--unix-socket {}: another server listens there",
          options.unix_socket);
    unlink(options.unix_socket.c_str());
  }
  local.emplace(io);
  local->open(endpoint.protocol(), error), check_code(error, options.unix_socket);
  const mode_t before = umask(0077);  // for this user alone
  local->bind(endpoint, error);
  umask(before);
  check_code(error, options.unix_socket);
  local->listen(net::socket_base::max_listen_connections, error), check_code(error, options.unix_socket);
}

template <class Socket_>
void Server::Impl::add(Socket_ socket) {
  const bool one_too_many = transport.connections >= options.limits.connections;
  const auto session = std::make_shared<Session>(Socket(std::move(socket)), transport);
  sessions.push_back(session);
  if (one_too_many) {
    ++transport.counts.refused_connections;
    service.limits_met().add(Limit::max_connections);
    return session->start_refusing();
  }
  session->start();
}

void Server::Impl::accept() {
  const auto next = [this](Code error, auto socket) {
    accepting = false;
    if (error == net::error::operation_aborted) return;
    if (error) return pause_accepting();  // no descriptor or no memory is left: others will close theirs
    if constexpr (std::is_same_v<decltype(socket), Tcp::socket>) {
      Code ignored;
      socket.set_option(Tcp::no_delay(true), ignored);
    }
    add(std::move(socket));
    accept();
  };
  if (tcp) tcp->async_accept(next);
  if (local) local->async_accept(next);
  accepting = true;
}

void Server::Impl::pause_accepting() {
  ++transport.counts.accept_failures;
  accept_again.expires_after(kAcceptPause);
  accept_again.async_wait([this](Code stopped) {
    if (!stopped) accept();
  });
  accepting = true;
}

void Server::Impl::begin_drain() {
  if (transport.draining) return io.stop();  // the second signal
  transport.draining = true;
  service.drain();
  drain_end = std::chrono::steady_clock::now() + std::chrono::seconds(options.drain_s);
  for (const auto& session : sessions)
    if (const auto alive = session.lock()) alive->drain();
}

void Server::Impl::wait_for_signals() {
  signals.async_wait([this](Code error, int) {
    waiting = false;
    if (error) return;
    begin_drain();
    wait_for_signals();
  });
  waiting = true;
}

// A timer a connection would wake this thread for each of them, and the system would be told whenever one is set.
void Server::Impl::close_late_sessions() {
  int closed = 0;
  const auto now = std::chrono::steady_clock::now();
  sessions.remove_if([&](const auto& session) {
    const auto alive = session.lock();
    if (alive) alive->close_if_gone();
    if (alive && closed < kMostLate) closed += alive->close_if_late(now);
    return !alive;
  });
}

void Server::Impl::on_tick() {
  ticking = false;
  close_late_sessions();
  transport.counts.connections = transport.connections;
  service.set_transport_counts(transport.counts);
  if (transport.draining) {
    const bool late = std::chrono::steady_clock::now() >= drain_end;
    bool answering = service.open_generations() > 0;
    for (const auto& session : sessions)
      if (const auto alive = session.lock()) answering = answering || alive->answering();
    if (late || !answering) return io.stop();
  }
  tick.expires_after(kTick);
  tick.async_wait([this](Code error) {
    if (!error) on_tick();
  });
  ticking = true;
}

Server::Server(Service& service, const ServerOptions& options) try : impl_(std::make_unique<Impl>(service, options)) {
  check_options(options);
  for (const int signal : {SIGTERM, SIGINT}) impl_->signals.add(signal);
  if (options.unix_socket.empty())
    impl_->listen_tcp();
  else
    impl_->listen_local();
} catch (const boost::system::system_error& error) {  // what waits for sockets and signals needs descriptors
  check_code(error.code(), "the server's sockets");
}

Server::~Server() {
  if (impl_->local) unlink(impl_->options.unix_socket.c_str());
}

std::string Server::url() const {
  if (impl_->local) return "unix:" + impl_->options.unix_socket;
  const auto endpoint = impl_->tcp->local_endpoint();
  const std::string address = endpoint.address().to_string();
  return fmt::format("http://{}:{}", endpoint.address().is_v6() ? "[" + address + "]" : address, endpoint.port());
}

void Server::Impl::end() {
  service.end();
  for (const auto& session : sessions)
    if (const auto alive = session.lock()) alive->close();
}

void Server::run() {
  Impl& server = *impl_;
  run_soon_and_briefly();
  // What throws, for want of memory, ends the connection that it is about, and nothing else.
  for (bool ended = false; !ended;) try {
      if (!server.waiting) server.wait_for_signals();
      if (!server.accepting) server.accept();
      if (!server.ticking) server.on_tick();
      server.io.run();
      ended = true;
    } catch (const std::exception&) {
      ++server.transport.counts.failures;
    }
  server.end();
}

void Server::stop() {
  boost::asio::post(impl_->io, [this] { impl_->begin_drain(); });
}

}  // namespace weft::serve::http
