#include "decode/fused/cuda/stuck_text.h"

#include <fmt/format.h>

#include <iterator>

#include "decode/fused/cuda/kernels/stuck.h"

namespace weft::decode::fused {

std::string stuck_text(std::span<const uint64_t> words, const std::function<std::string(uint32_t)>& name_of) {
  const auto phase_of = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const uint64_t* first = nullptr;  // who is least far: others wait for it
  size_t waiting = 0;
  std::string silent;
  for (const uint64_t& word : words) {
    if (word == 0) {
      fmt::format_to(std::back_inserter(silent), "{}{}", silent.empty() ? "" : ", ", &word - words.data());
      continue;
    }
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
  if (!silent.empty()) text += ", all but " + silent;
  return text;
}

}  // namespace weft::decode::fused
