#include "models/tokenizer_vocabulary.h"

#include <cmath>
#include <cstring>

#include "base/check.h"

namespace weft {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

TokenTexts::TokenTexts(const std::vector<std::string>& texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  check(bytes < (size_t{1} << 31) && texts.size() < (size_t{1} << 24), ErrorCode::invalid_file,
        "tokenizer.ggml.tokens holds {} tokens of {} bytes; allowed are 16777215 tokens and 2 GiB", texts.size(),
        bytes);
  blob_.reserve(bytes);
  ends_.reserve(texts.size());
  for (const std::string& text : texts) {
    blob_ += text;
    ends_.push_back(static_cast<uint32_t>(blob_.size()));
  }
}

uint64_t TokenIndex::hash(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ull;
  uint64_t state = text.size() * kMultiplier;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = (state ^ word) * kMultiplier;
    state ^= state >> 32;
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  state = (state ^ tail) * kMultiplier;
  return state ^ state >> 29;
}

TokenIndex::TokenIndex(const TokenTexts& texts) : texts_(texts) {
  size_t capacity = 16;
  while (capacity < static_cast<size_t>(texts.size()) * 2) capacity *= 2;
  slots_.resize(capacity);
  mask_ = capacity - 1;
  for (int32_t id = 0; id < texts.size(); ++id) {
    const uint64_t text_hash = hash(texts[id]);
    if (find(texts[id], text_hash) >= 0) continue;
    uint64_t slot = text_hash & mask_;
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask_;
    slots_[slot] = {id, static_cast<uint32_t>(text_hash >> 32)};
  }
}

int32_t TokenIndex::find(std::string_view text, uint64_t text_hash) const {
  const auto tag = static_cast<uint32_t>(text_hash >> 32);
  for (uint64_t slot = text_hash & mask_; slots_[slot].id >= 0; slot = (slot + 1) & mask_)
    if (slots_[slot].tag == tag && texts_[slots_[slot].id] == text) return slots_[slot].id;
  return -1;
}

void check_vocabulary(const Vocabulary& vocabulary) {
  const int32_t count = vocabulary.size();
  check(count > 0, ErrorCode::invalid_file, "tokenizer.ggml.tokens is empty; a tokenizer needs tokens");
  if (vocabulary.model == "llama") {
    check(vocabulary.scores.size() == static_cast<size_t>(count), ErrorCode::invalid_file,
          "tokenizer.ggml.scores has {} entries for {} tokens", vocabulary.scores.size(), count);
    for (size_t i = 0; i < vocabulary.scores.size(); ++i)
      check(std::isfinite(vocabulary.scores[i]), ErrorCode::invalid_file,
            "tokenizer.ggml.scores[{}] = {}; allowed are finite numbers", i, vocabulary.scores[i]);
  }
  check(!vocabulary.add_bos || vocabulary.bos >= 0, ErrorCode::invalid_file,
        "tokenizer.ggml.add_bos_token = true, but there is no tokenizer.ggml.bos_token_id");
  check(!vocabulary.add_eos || vocabulary.eos >= 0, ErrorCode::invalid_file,
        "tokenizer.ggml.add_eos_token = true, but there is no tokenizer.ggml.eos_token_id");
}

}  // namespace weft
