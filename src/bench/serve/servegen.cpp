#include "bench/serve/servegen.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

namespace weft::bench {
namespace {

using nlohmann::json;

// Seconds between requests. A Weibull's mean is scale * gamma(1 + 1 / shape), a Gamma's scale * shape.
std::function<double(std::mt19937_64&)> gaps_of(const std::string& family, double rate, double shape) {
  if (!(rate > 0 && shape > 0)) throw std::runtime_error("rates and shapes are above 0");
  if (family == "Gamma") return std::gamma_distribution<double>(shape, 1 / (rate * shape));
  if (family == "Weibull") return std::weibull_distribution<double>(shape, 1 / (rate * std::tgamma(1 + 1 / shape)));
  throw std::runtime_error("families are Gamma and Weibull, not '" + family + "'");
}

class Lengths {
 public:
  explicit Lengths(const json& pmf)
      : values_(pmf.at(0)), index_(pmf.at(1).begin(), pmf.at(1).end()), count_(pmf.at(1).size()) {
    if (values_.empty() || values_.size() != count_)
      throw std::runtime_error("lengths and probabilities differ in number");
  }
  int64_t draw(std::mt19937_64& random) { return std::max<int64_t>(1, static_cast<int64_t>(values_[index_(random)])); }

 private:
  std::vector<double> values_;
  std::discrete_distribution<size_t> index_;
  size_t count_;
};

// The last window of lengths that has begun.
const json& lengths_at(const json& windows, double second) {
  const json* found = nullptr;
  double begin = -1;
  for (const auto& [at, lengths] : windows.items()) {
    const double here = std::stod(at);
    if (here <= second && here > begin) found = &lengths, begin = here;
  }
  if (found == nullptr) throw std::runtime_error("there are no lengths for second " + std::to_string(second));
  return *found;
}

}  // namespace

bool is_servegen(const std::string& line) { return line.find("\"length_pmf_by_window_s\"") != std::string::npos; }

void add_servegen(const std::string& line, int64_t most, uint64_t seed, std::vector<Arrival>& arrivals) {
  const json client = json::parse(line);
  const json& windows = client.at("arrivals");
  std::mt19937_64 random(seed);
  int64_t count = 0;
  for (size_t w = 0; w < windows.size(); ++w) {
    const double begin = windows[w].at(0), rate = windows[w].at(1);
    if (rate <= 0) continue;  // it is silent
    constexpr double kLastWindow = 600;
    const double end = w + 1 < windows.size() ? windows[w + 1].at(0).get<double>() : begin + kLastWindow;
    const auto gap = gaps_of(windows[w].at(3), rate, windows[w].at(4));
    const json& lengths = lengths_at(client.at("length_pmf_by_window_s"), begin);
    Lengths input(lengths.at("input_tokens")), output(lengths.at("output_tokens"));
    for (double at = begin + gap(random); at < end; at += gap(random)) {
      if (most > 0 && ++count > most) return;
      Arrival& arrival = arrivals.emplace_back();
      arrival.at_s = at;
      arrival.prompt_tokens = input.draw(random);
      arrival.output_tokens = output.draw(random);
    }
  }
}

}  // namespace weft::bench
