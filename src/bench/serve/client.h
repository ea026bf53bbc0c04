// An open-loop client of completions that stream: it sends when it is time, whatever has been answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::bench {

struct Url {
  std::string host, port;
};
Url parse_url(const std::string& text);  // http://HOST:PORT; throws Error(invalid_argument)

struct Ask {
  double at_s;
  std::string body;
};

// Times in seconds from the start of all.
struct Outcome {
  double scheduled = 0, sent = 0, first = -1, last = -1;  // -1: no token came
  int status = 0;                                         // 0: the connection failed
  bool complete = false;
  int64_t tokens = 0;        // as the answer's usage says, else its events
  std::vector<double> gaps;  // between events with text
};

// Plays all of them from one thread. Throws Stopped, and Error(io_error) where nobody listens at the start.
std::vector<Outcome> play(const Url& url, const std::vector<Ask>& asks, const std::string& api_key);
// One GET, whole. Throws Error(io_error).
std::string fetch(const Url& url, const std::string& path, const std::string& api_key);

}  // namespace weft::bench
