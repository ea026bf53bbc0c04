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
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

class Client {
 public:
  explicit Client(int port);
  explicit Client(const std::string& unix_socket);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes);
  // The next reply, or what came of it before the connection ended or a minute went by.
  Reply read();
  bool read_some(std::string& to);  // false at the end
  bool at_end();                    // whether the server has closed
  void close();

  Reply get(const std::string& path, const std::string& headers = {});
  Reply post(const std::string& path, const nlohmann::json& body, const std::string& headers = {});
  static std::string post_text(const std::string& path, const std::string& body, const std::string& headers = {});

 private:
  int fd_ = -1;
  std::string held_;
};

}  // namespace weft::testing
