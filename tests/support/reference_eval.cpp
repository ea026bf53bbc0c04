// Log-probabilities of a text's tokens by the reference forward pass, as JSON lines to hold against `weft eval`:
//
//   weft tokenize MODEL -f text > ids; reference_eval MODEL ids [THREADS [TOKENS]] > reference.jsonl
//
// The ids are the numbers in the file; anything between them is passed over. For each token but the first:
//   {"position":1,"id":403,"logprob":-0.35}; last {"event":"done","tokens":2047,"perplexity":12.5}
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>

#include "tests/support/reference_forward.h"

namespace {

std::vector<int32_t> read_ids(const char* path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(fmt::format("cannot open {}", path));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    char* end = nullptr;
    ids.push_back(static_cast<int32_t>(std::strtol(text.c_str() + i, &end, 10)));
    i = static_cast<size_t>(end - text.c_str());
  }
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: reference_eval MODEL IDS [THREADS [TOKENS]]\n");
    return 2;
  }
  try {
    std::vector<int32_t> ids = read_ids(argv[2]);
    const int threads = argc > 3 ? std::atoi(argv[3]) : 2;
    if (argc > 4) ids.resize(std::min(ids.size(), static_cast<size_t>(std::atoll(argv[4]))));
    if (ids.size() < 2)
      throw std::runtime_error(fmt::format("{} holds {} ids; at least 2 are needed", argv[2], ids.size()));
    double sum = 0;
    weft::testing::ReferenceModel(argv[1]).log_probabilities(
        ids, threads, [&](int64_t at, std::span<const double> row) {
          const auto next = static_cast<size_t>(at) + 1;
          if (next >= ids.size()) return;
          const double logprob = row[static_cast<size_t>(ids[next])];
          sum += logprob;
          fmt::print("{{\"position\":{},\"id\":{},\"logprob\":{:.9f}}}\n", next, ids[next], logprob);
        });
    const auto predicted = static_cast<double>(ids.size() - 1);
    fmt::print("{{\"event\":\"done\",\"tokens\":{},\"perplexity\":{:.6f}}}\n", ids.size() - 1,
               std::exp(-sum / predicted));
  } catch (const std::exception& error) {
    fmt::print(stderr, "reference_eval: {}\n", error.what());
    return 1;
  }
  return 0;
}
