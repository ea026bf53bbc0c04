#include "tests/serve/http/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>

namespace weft::testing {
namespace {

int connected(int family, const sockaddr* address, socklen_t size, int receive_bytes = 0) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval limit{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (receive_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  if (connect(fd, address, size) != 0) throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
  return fd;
}

// The data of chunks; false until the last one is there.
bool join_chunks(std::string_view bytes, std::string& body, size_t& used) {
  body.clear();
  for (size_t at = 0;;) {
    const size_t line = bytes.find("\r\n", at);
    if (line == std::string_view::npos) return false;
    const size_t size = std::stoul(std::string(bytes.substr(at, line - at)), nullptr, 16);
    if (bytes.size() < line + 2 + size + 2) return false;
    body += bytes.substr(line + 2, size);
    at = line + 2 + size + 2;
    used = at;
    if (size == 0) return true;
  }
}

}  // namespace

Client::Client(int port) : Client(port, 0) {}

Client::Client(int port, int receive_bytes) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fd_ = connected(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address, receive_bytes);
}

Client::Client(const std::string& unix_socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(unix_socket.begin(), unix_socket.end(), address.sun_path);
  fd_ = connected(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Client::~Client() { close(); }

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::finish() { shutdown(fd_, SHUT_WR); }

void Client::reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void Client::send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const auto count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;  // what it answered can be read yet
    sent += static_cast<size_t>(count);
  }
}

bool Client::read_some(std::string& to) {
  char buffer[16384];
  const auto count = recv(fd_, buffer, sizeof buffer, 0);
  if (count > 0) to.append(buffer, static_cast<size_t>(count));
  return count > 0;
}

bool Client::at_end() {
  char byte;
  return recv(fd_, &byte, 1, 0) <= 0;
}

Reply Client::read(bool to_head) {
  Reply reply;
  size_t head_end;
  while ((head_end = held_.find("\r\n\r\n")) == std::string::npos)
    if (!read_some(held_)) return reply;
  const std::string head = held_.substr(0, head_end + 2);
  held_.erase(0, head_end + 4);
  reply.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at), colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    reply.headers[name] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  if (reply.status == 100 || reply.status == 204 || to_head) return reply;
  size_t used = 0;
  if (reply.headers.contains("content-length")) {
    const size_t size = std::stoul(reply.headers["content-length"]);
    while (held_.size() < size && read_some(held_)) {
    }
    reply.body = held_.substr(0, size);
    used = reply.body.size();
  } else if (reply.headers.contains("transfer-encoding")) {
    while (!join_chunks(held_, reply.body, used) && read_some(held_)) {
    }
  } else {
    while (read_some(held_)) {
    }
    reply.body = held_;
    used = held_.size();
  }
  held_.erase(0, used);
  if (reply.header("content-type") == "text/event-stream")
    for (size_t at = 0, end; (end = reply.body.find("\n\n", at)) != std::string::npos; at = end + 2)
      reply.events.push_back(reply.body.substr(at + 6, end - at - 6));
  return reply;
}

Reply Client::get(const std::string& path, const std::string& headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  return read();
}

std::string Client::post_text(const std::string& path, const std::string& body, const std::string& headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), headers, body);
}

Reply Client::post(const std::string& path, const nlohmann::json& body, const std::string& headers) {
  send(post_text(path, body.dump(), headers));
  return read();
}

}  // namespace weft::testing
