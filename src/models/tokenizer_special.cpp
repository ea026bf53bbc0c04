#include "models/tokenizer_special.h"

#include <algorithm>

namespace weft {

SpecialTokens::SpecialTokens(const TokenTexts& texts, std::vector<int32_t> ids)
    : texts_(texts), sorted_(std::move(ids)) {
  std::erase_if(sorted_, [&](int32_t id) { return texts[id].empty(); });
  std::sort(sorted_.begin(), sorted_.end(),
            [&](int32_t a, int32_t b) { return texts[a] != texts[b] ? texts[a] < texts[b] : a < b; });
  for (const int32_t id : sorted_) ++first_byte_[static_cast<size_t>(static_cast<uint8_t>(texts[id][0])) + 1];
  for (size_t byte = 0; byte < 256; ++byte) first_byte_[byte + 1] += first_byte_[byte];
}

SpecialTokens::Match SpecialTokens::find(std::string_view text, size_t from) const {
  if (sorted_.empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    const auto byte = static_cast<size_t>(static_cast<uint8_t>(text[begin]));
    auto low = sorted_.begin() + first_byte_[byte], high = sorted_.begin() + first_byte_[byte + 1];
    if (low == high) continue;
    // Narrows the sorted texts that share the next byte, one byte at a time; a complete one sorts first among them.
    Match match;
    for (size_t length = 1;; ++length) {
      if (texts_[*low].size() == length) {
        match = {begin, length, *low};
        while (low != high && texts_[*low].size() == length) ++low;
      }
      if (low == high || begin + length >= text.size()) break;
      const auto next = static_cast<uint8_t>(text[begin + length]);
      const auto byte_of = [&](int32_t id) { return static_cast<uint8_t>(texts_[id][length]); };
      low = std::lower_bound(low, high, next, [&](int32_t id, uint8_t value) { return byte_of(id) < value; });
      high = std::upper_bound(low, high, next, [&](uint8_t value, int32_t id) { return value < byte_of(id); });
      if (low == high) break;
    }
    if (match.id >= 0) return match;
  }
  return {};
}

}  // namespace weft
