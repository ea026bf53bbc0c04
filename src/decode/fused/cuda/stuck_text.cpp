#include "decode/fused/cuda/stuck_text.h"

#include <fmt/format.h>

#include <iterator>

#include "decode/fused/cuda/kernels/stuck.h"

namespace weft::decode::fused {
namespace {

constexpr int kMostRanges = 12;

// Workers without a word: "0 to 6, 8, 10 to 89".
std::string silent_workers(std::span<const uint64_t> words) {
  std::string text;
  int ranges = 0;
  for (size_t begin = 0, end = 0; begin < words.size(); begin = end + 1) {
    for (end = begin; end < words.size() && words[end] == 0; ++end) continue;
    if (begin == end) continue;
    if (++ranges > kMostRanges) return text + ", ...";
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : ", ", begin);
    if (end > begin + 1) fmt::format_to(std::back_inserter(text), " to {}", end - 1);
  }
  return text;
}

}  // namespace

std::string stuck_text(std::span<const uint64_t> words, const std::function<std::string(uint32_t)>& name_of) {
  const auto phase_of = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const uint64_t* first = nullptr;  // who is least far: others wait for it
  size_t waiting = 0;
  for (const uint64_t& word : words) {
    if (word == 0) continue;
    ++waiting;
    if (first == nullptr || phase_of(word) < phase_of(*first)) first = &word;
  }
  if (first == nullptr) return "";
  const auto at = static_cast<StuckAt>(*first >> 32);
  std::string text = fmt::format("worker {} waits in {} for {}, and gave up; {} of {} workers did",
                                 first - words.data(), name_of(phase_of(*first)),
                                 at == StuckAt::edge   ? "what the phase before leaves"
                                 : at == StuckAt::copy ? "what is copied"
                                                       : "a free entry of its ring",
                                 waiting, words.size());
  if (waiting < words.size()) text += ", all but " + silent_workers(words);
  return text;
}

}  // namespace weft::decode::fused
