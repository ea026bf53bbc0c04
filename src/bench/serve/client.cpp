#include "bench/serve/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "bench/stop.h"

namespace weft::bench {
namespace {

constexpr double kLongestWait = 0.05;

struct AddressList {
  addrinfo* list = nullptr;
  explicit AddressList(const Url& url) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const int failed = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &list);
    check(failed == 0, ErrorCode::io_error, "--url: {}: {}", url.host, gai_strerror(failed));
  }
  ~AddressList() { freeaddrinfo(list); }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
};

// A request on a connection of its own.
class Exchange {
 public:
  Exchange(const addrinfo& address, std::string request) : out_(std::move(request)), unsent_(out_) {
    fd_ = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd_ >= 0) setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fd_ < 0 || (connect(fd_, address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)) over_ = true;
  }
  ~Exchange() {
    if (fd_ >= 0) close(fd_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  pollfd waits_for() const { return {fd_, static_cast<short>(unsent_.empty() ? POLLIN : POLLOUT), 0}; }
  bool over() const { return over_; }
  int status() const { return status_; }
  const std::string& body() const { return body_; }  // so far
  bool complete() const { return complete_; }
  bool sent_all() const { return unsent_.empty(); }
  void keep_back(size_t bytes) { unsent_.remove_suffix(std::min(bytes, unsent_.size())); }  // it never sends these

  void work() {
    if (!unsent_.empty()) {
      const auto sent = send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (sent < 0) over_ = errno != EAGAIN && errno != EINTR;
      if (sent > 0) unsent_.remove_prefix(static_cast<size_t>(sent));
      return;
    }
    char buffer[65536];
    const auto got = recv(fd_, buffer, sizeof buffer, 0);
    if (got < 0) {
      over_ = errno != EAGAIN && errno != EINTR;
      return;
    }
    in_.append(buffer, static_cast<size_t>(got));
    read();
    over_ = over_ || got == 0 || complete_;
  }

 private:
  void read() {
    if (status_ == 0) {
      const size_t end = in_.find("\r\n\r\n");
      if (end == std::string::npos) return;
      status_ = end > 12 ? std::atoi(in_.c_str() + 9) : 0;
      std::string head = in_.substr(0, end + 2);
      std::transform(head.begin(), head.end(), head.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      chunked_ = head.find("transfer-encoding: chunked") != std::string::npos;
      if (const size_t at = head.find("content-length: "); at != std::string::npos)
        length_ = std::stoul(head.substr(at + 16));
      in_.erase(0, end + 4);
    }
    if (!chunked_) {
      body_ += in_;
      in_.clear();
      complete_ = body_.size() >= length_;
      return;
    }
    for (size_t line; (line = in_.find("\r\n")) != std::string::npos;) {
      const size_t size = std::strtoul(in_.c_str(), nullptr, 16);
      if (in_.size() < line + 2 + size + 2) return;
      body_.append(in_, line + 2, size);
      in_.erase(0, line + 2 + size + 2);
      if (size == 0) complete_ = true;
    }
  }

  int fd_ = -1, status_ = 0;
  std::string out_, in_, body_;
  std::string_view unsent_;
  size_t length_ = SIZE_MAX;
  bool chunked_ = false, over_ = false, complete_ = false;
};

std::string head_of(const std::string& method, const Url& url, const std::string& path, const std::string& api_key) {
  std::string head =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n", method, path, url.host, url.port);
  if (!api_key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", api_key);
  return head;
}

// An exchange of a stream, and what of its body was looked at.
struct Stream {
  size_t number;
  Leave leave;
  std::unique_ptr<Exchange> exchange;
  size_t seen = 0;
};

// Servers differ in whether the last token and the reason of the end come together.
bool is_end_alone(std::string_view event) {
  return event.find("\"finish_reason\":\"") != event.npos && event.find("\"text\":\"\"") != event.npos;
}

// What stands between the quotes, escapes as they are.
std::string_view text_of(std::string_view event) {
  constexpr std::string_view kKey = "\"text\":\"";
  const size_t begin = event.find(kKey);
  if (begin == event.npos) return {};
  size_t end = begin + kKey.size();
  while (end < event.size() && event[end] != '"') end += event[end] == '\\' ? 2 : 1;
  return event.substr(begin + kKey.size(), end - begin - kKey.size());
}

void read_events(Stream& stream, double now, Outcome& outcome) {
  const std::string& body = stream.exchange->body();
  bool text = false;
  for (size_t end; (end = body.find("\n\n", stream.seen)) != std::string::npos; stream.seen = end + 2) {
    const std::string_view event = std::string_view(body).substr(stream.seen, end - stream.seen);
    if (event.find("[DONE]") != event.npos) {
      outcome.complete = true;
    } else if (const size_t at = event.find("\"completion_tokens\":"); at != event.npos) {
      outcome.tokens = std::atoll(event.data() + at + 20);
    } else if (event.find("\"choices\":[{") != event.npos && !is_end_alone(event)) {
      text = true;
      ++outcome.tokens;
      for (const char byte : text_of(event))
        outcome.digest = (outcome.digest ^ static_cast<unsigned char>(byte)) * 1099511628211u;
    }
  }
  if (!text) return;
  if (outcome.first < 0)
    outcome.first = now;
  else
    outcome.gaps.push_back(now - outcome.last);
  outcome.last = now;
}

bool leaves_now(const Stream& stream, const Outcome& outcome, double now) {
  switch (stream.leave.when) {
    case Leave::When::never: return false;
    case Leave::When::sending: return stream.exchange->sent_all();
    case Leave::When::waiting: return now - outcome.sent >= stream.leave.after;
    case Leave::When::reading: return static_cast<double>(outcome.tokens) >= stream.leave.after;
  }
  return false;
}

bool is_over(Patience patience, const std::vector<Outcome>& outcomes, double now) {
  if (patience.limit_s > 0 && now >= patience.limit_s) return true;
  if (patience.first_token_s <= 0) return false;
  const auto late = std::count_if(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
    return (outcome.first < 0 ? now : outcome.first) - outcome.scheduled > patience.first_token_s;
  });
  return 10 * static_cast<size_t>(late) > outcomes.size();
}

Stream open_stream(const addrinfo& address, size_t number, const Ask& ask, const std::string& head) {
  const std::string request =
      fmt::format("{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", head, ask.body.size(), ask.body);
  Stream stream{number, ask.leave, std::make_unique<Exchange>(address, request)};
  if (ask.leave.when == Leave::When::sending)
    stream.exchange->keep_back(request.size() -
                               static_cast<size_t>(ask.leave.after * static_cast<double>(request.size())));
  return stream;
}

}  // namespace

Url parse_url(const std::string& text) {
  const std::string scheme = "http://";
  std::string rest = text.starts_with(scheme) ? text.substr(scheme.size()) : "";
  if (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  check(colon != std::string::npos && colon > 0 && colon + 1 < rest.size() &&
            rest.find_first_not_of("0123456789", colon + 1) == std::string::npos,
        ErrorCode::invalid_argument, "--url = {}; http://HOST:PORT is needed", text);
  return {rest.substr(0, colon), rest.substr(colon + 1)};
}

std::vector<Outcome> play(const Url& url, const std::vector<Ask>& asks, const std::string& api_key, Patience patience) {
  const AddressList addresses(url);
  fetch(url, "/v1/models", api_key);
  std::vector<Outcome> outcomes(asks.size());
  for (size_t i = 0; i < asks.size(); ++i) outcomes[i].scheduled = asks[i].at_s;
  std::vector<Stream> open;
  const std::string head = head_of("POST", url, "/v1/completions", api_key);
  const auto start = Clock::now();
  for (size_t next = 0; next < asks.size() || !open.empty();) {
    double now = seconds_since(start);
    if (asked_to_stop() || is_over(patience, outcomes, now)) break;
    for (; next < asks.size() && asks[next].at_s <= now; ++next) {
      outcomes[next].sent = now = seconds_since(start);
      open.push_back(open_stream(*addresses.list, next, asks[next], head));
    }
    std::vector<pollfd> files;
    for (const Stream& stream : open) files.push_back(stream.exchange->waits_for());
    const double wait = next < asks.size() ? asks[next].at_s - now : kLongestWait;
    poll(files.data(), files.size(), static_cast<int>(std::clamp(wait, 0., kLongestWait) * 1000));
    now = seconds_since(start);
    for (size_t i = 0; i < open.size(); ++i) {
      Outcome& outcome = outcomes[open[i].number];
      if (files[i].revents != 0) open[i].exchange->work();
      outcome.status = open[i].exchange->status();
      outcome.end = now;
      read_events(open[i], now, outcome);
      outcome.left = leaves_now(open[i], outcome, now);
    }
    std::erase_if(open, [&](const Stream& stream) { return stream.exchange->over() || outcomes[stream.number].left; });
  }
  return outcomes;
}

std::string fetch(const Url& url, const std::string& path, const std::string& api_key) {
  const AddressList addresses(url);
  Exchange exchange(*addresses.list, head_of("GET", url, path, api_key) + "\r\n");
  const auto start = Clock::now();
  while (!exchange.over() && seconds_since(start) < 10) {
    pollfd file = exchange.waits_for();
    if (poll(&file, 1, 100) > 0) exchange.work();
  }
  check(exchange.status() == 200, ErrorCode::io_error, "--url: http://{}:{}{} answers with status {}; 200 is needed",
        url.host, url.port, path, exchange.status());
  return exchange.body();
}

}  // namespace weft::bench
