// Sockets: one thread that accepts, reads and writes for all connections.
#pragma once

#include <memory>
#include <string>

#include "serve/http/service.h"

namespace weft::serve::http {

// Throws Error(invalid_argument) for what no server can have. The server checks its own; this is for who wants to know
// before a model is loaded.
void check_options(const ServerOptions& options);

// Throws Error(io_error) where this process may not open what a server needs: it would start, and then accept nobody.
// For who starts one, before anything of it is open.
void check_descriptors();

class Server {
 public:
  // Listens. Throws Error(io_error | invalid_argument).
  Server(Service& service, const ServerOptions& options);
  ~Server();
  std::string url() const;
  // Serves until SIGTERM or SIGINT: then nothing new is taken, and what streams may end within `drain_s`; a second
  // signal ends it at once.
  void run();
  // As a signal would; from any thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve::http
