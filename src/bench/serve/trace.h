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

// A table (arrival_ms,prompt_tokens,output_tokens with that line above) or JSON lines (timestamp in ms, input_length,
// output_length, hash_ids). Throws Error(io_error | invalid_file) with the line's number.
std::vector<Arrival> read_trace(const std::string& path);
std::vector<Arrival> poisson(int64_t count, double per_second, int64_t prompt_tokens, int64_t output_tokens,
                             uint64_t seed);

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
