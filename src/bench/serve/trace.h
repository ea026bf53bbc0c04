// Requests as they arrived somewhere, or as a Poisson process makes them, with prompts of token ids to match.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::bench {

struct Arrival {
  double at_s = 0;  // from the first one
  int64_t prompt_tokens = 1, output_tokens = 1;
  std::vector<int64_t> blocks;  // equal numbers are equal parts of prompts, block_tokens each
  int64_t block_tokens = 0;
};

// A table (arrival_ms,prompt_tokens,output_tokens with that line above), JSON lines (timestamp in ms, input_length,
// output_length, hash_ids), or ServeGen's clients (servegen.h), of which `most` requests are drawn by `seed`; 0: a day
// of them. Throws Error(invalid_file) with the line's number; `path` is where the text comes from.
std::vector<Arrival> parse_trace(const std::string& path, const std::string& text, int64_t most = 0, uint64_t seed = 1);
// A Poisson process whose rate grows evenly from the first request's to the last one's.
struct Process {
  int64_t requests = 1;
  double per_second = 1, last_per_second = 1;
  int64_t prompt_tokens = 1, output_tokens = 1;
  uint64_t seed = 1;
};
std::vector<Arrival> poisson(const Process& process);

struct Shaping {
  int64_t requests = 0;     // the first so many; 0: all
  double speed = 1;         // arrivals so many times as fast
  bool at_once = false;     // all at the start
  int64_t divide = 1;       // lengths are divided by it
  int64_t most_prompt = 0;  // prompts are cut to so many; 0: as they are
  int64_t most_output = 0;  //
};
void shape(std::vector<Arrival>& arrivals, const Shaping& shaping);

// Ids from 3 to vocabulary - 1: those of a block follow from its number, others from the request's.
std::vector<int32_t> prompt_of(const Arrival& arrival, uint64_t number, int32_t vocabulary);

}  // namespace weft::bench
