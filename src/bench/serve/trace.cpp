#include "bench/serve/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/check.h"
#include "bench/serve/servegen.h"

namespace weft::bench {
namespace {

Arrival from_table(const std::string& line) {
  Arrival arrival;
  char comma = 0, comma2 = 0;
  double ms = 0;
  std::istringstream in(line);
  if (!(in >> ms >> comma >> arrival.prompt_tokens >> comma2 >> arrival.output_tokens) || comma != ',' || comma2 != ',')
    throw std::runtime_error("three numbers with commas between are needed");
  arrival.at_s = ms / 1000;
  return arrival;
}

Arrival from_json(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line);
  Arrival arrival;
  arrival.at_s = object.at("timestamp").get<double>() / 1000;
  arrival.prompt_tokens = object.at("input_length").get<int64_t>();
  arrival.output_tokens = object.at("output_length").get<int64_t>();
  if (object.contains("hash_ids")) arrival.blocks = object.at("hash_ids").get<std::vector<int64_t>>();
  return arrival;
}

}  // namespace

std::vector<Arrival> parse_trace(const std::string& path, const std::string& text, int64_t most, uint64_t seed) {
  std::istringstream lines(text);
  std::vector<Arrival> arrivals;
  int64_t number = 0, block = 1;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.starts_with("arrival_ms")) continue;
    try {
      if (is_servegen(line)) {
        add_servegen(line, most, seed + static_cast<uint64_t>(number), arrivals);
        continue;
      }
      Arrival arrival = line.front() == '{' ? from_json(line) : from_table(line);
      if (arrival.prompt_tokens < 1 || arrival.output_tokens < 1 || !(arrival.at_s >= 0))
        throw std::runtime_error("lengths are 1 and more, times 0 and more");
      // The last block of a prompt may be partly filled: the largest share is the blocks' size, a power of two.
      if (!arrival.blocks.empty()) {
        const auto count = static_cast<int64_t>(arrival.blocks.size());
        block = std::max(block, (arrival.prompt_tokens + count - 1) / count);
      }
      arrivals.push_back(std::move(arrival));
    } catch (const std::exception& error) {
      fail(ErrorCode::invalid_file, "--trace {}: line {}: {}", path, number, error.what());
    }
  }
  check(!arrivals.empty(), ErrorCode::invalid_file, "--trace {}: there is no request in it", path);
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at_s < b.at_s; });
  for (Arrival& arrival : arrivals)
    arrival.block_tokens = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(block)));
  const double first = arrivals.front().at_s;
  for (Arrival& arrival : arrivals) arrival.at_s -= first;
  return arrivals;
}

std::vector<Arrival> poisson(const Process& process) {
  std::mt19937_64 random(process.seed);
  std::exponential_distribution<double> gap(1);
  std::vector<Arrival> arrivals;
  const double growth =
      (process.last_per_second - process.per_second) / static_cast<double>(std::max<int64_t>(1, process.requests - 1));
  double at = 0;
  for (int64_t i = 0; i < process.requests; ++i) {
    arrivals.push_back(
        {.at_s = at, .prompt_tokens = process.prompt_tokens, .output_tokens = process.output_tokens, .blocks = {}});
    at += gap(random) / (process.per_second + growth * static_cast<double>(i));
  }
  return arrivals;
}

void shape(std::vector<Arrival>& arrivals, const Shaping& shaping) {
  if (shaping.requests > 0 && static_cast<size_t>(shaping.requests) < arrivals.size())
    arrivals.resize(static_cast<size_t>(shaping.requests));
  const auto divided = [&](int64_t value) { return std::max<int64_t>(1, value / shaping.divide); };
  for (Arrival& arrival : arrivals) {
    arrival.at_s = shaping.at_once ? 0 : arrival.at_s / shaping.speed;
    arrival.prompt_tokens = divided(arrival.prompt_tokens);
    arrival.output_tokens = divided(arrival.output_tokens);
    arrival.block_tokens = divided(arrival.block_tokens);
    if (shaping.most_prompt > 0) arrival.prompt_tokens = std::min(arrival.prompt_tokens, shaping.most_prompt);
    if (shaping.most_output > 0) arrival.output_tokens = std::min(arrival.output_tokens, shaping.most_output);
  }
}

std::vector<int32_t> prompt_of(const Arrival& arrival, uint64_t number, int32_t vocabulary) {
  std::vector<int32_t> ids;
  const auto wanted = static_cast<size_t>(arrival.prompt_tokens);
  const auto add = [&](uint64_t seed, size_t count) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
    for (size_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>(3 + random() % static_cast<uint64_t>(vocabulary - 3)));
  };
  for (const int64_t block : arrival.blocks)
    add(static_cast<uint64_t>(block), std::min(wanted - ids.size(), static_cast<size_t>(arrival.block_tokens)));
  add(number + (uint64_t{1} << 40), wanted - ids.size());
  return ids;
}

}  // namespace weft::bench
