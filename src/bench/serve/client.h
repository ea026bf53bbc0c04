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

// A client that goes away: after this share of its request is sent, or so many seconds, or tokens, later.
struct Leave {
  enum class When : uint8_t { never, sending, waiting, reading };
  When when = When::never;
  double after = 0;
};

struct Ask {
  double at_s;
  std::string body;
  Leave leave = {};
};

// Times in seconds from the start of all.
struct Outcome {
  double scheduled = 0, sent = -1, first = -1, last = -1, end = -1;  // -1: it was not sent, no token came, no end
  int status = 0;                                                    // 0: the connection failed
  bool complete = false, left = false;
  int64_t tokens = 0;                       // as the answer's usage says, else its events
  std::vector<double> gaps;                 // between events with text
  uint64_t digest = 14695981039346656037u;  // of the answer's text, as JSON has it (FNV-1a)
};

// When a load ends that is not answered yet; 0: never.
struct Patience {
  double limit_s = 0;
  double first_token_s = 0;  // more than a tenth of all waited longer: nine of ten can't come in time any more
};

// Plays all of them from one thread, until all are answered, patience ends or a stop is asked for: what came so far is
// worth keeping. Throws Error(io_error) where nobody listens at the start.
std::vector<Outcome> play(const Url& url, const std::vector<Ask>& asks, const std::string& api_key,
                          Patience patience = {});
// One GET, whole. Throws Error(io_error).
std::string fetch(const Url& url, const std::string& path, const std::string& api_key);

}  // namespace weft::bench
