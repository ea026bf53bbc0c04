// A client of HTTP/1.1 for tests: blocking, and as rude as a test wants it to be.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::testing {

struct Reply {
  int status = 0;  // 0: the connection ended without one
  std::map<std::string, std::string> headers;
  std::string body;                 // without chunks
  std::vector<std::string> events;  // of text/event-stream, without "data: "
  // Empty: there is none of that name, which is in small letters.
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class Client {
 public:
  explicit Client(int port);
  // Of what it leaves unread the system holds about so many bytes.
  Client(int port, int receive_bytes);
  explicit Client(const std::string& unix_socket);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes);
  // The next reply, or what came of it before the connection ended or a minute went by. One that says neither its
  // length nor that it comes in chunks ends with the connection.
  Reply read(bool to_head = false);  // to_head: of a HEAD, which has no body
  bool read_some(std::string& to);   // false at the end
  bool at_end();                     // whether the server has closed
  void close();
  void finish();  // closes its sending half
  void reset();   // takes back what was sent and not read yet

  Reply get(const std::string& path, const std::string& headers = {});
  Reply post(const std::string& path, const nlohmann::json& body, const std::string& headers = {});
  static std::string post_text(const std::string& path, const std::string& body, const std::string& headers = {});

 private:
  int fd_ = -1;
  std::string held_;
};

}  // namespace weft::testing
