#include "models/spm.h"

#include <algorithm>

#include "base/check.h"
#include "models/utf8.h"

namespace weft {

SentencePieceEncoder::SentencePieceEncoder(const Vocabulary& vocabulary, const TokenIndex& index)
    : vocabulary_(vocabulary), index_(index) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = index.find(fmt::format("<0x{:02X}>", byte));
    if (byte_tokens_[byte] >= 0 && vocabulary.type(byte_tokens_[byte]) != TokenType::byte) byte_tokens_[byte] = -1;
  }
  for (int32_t id = 0; id < vocabulary.size(); ++id) longest_ = std::max(longest_, vocabulary.texts[id].size());
}

int32_t SentencePieceEncoder::find(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const int32_t id = index_.find(text);
  if (id < 0) return -1;
  const TokenType type = vocabulary_.type(id);
  return type == TokenType::normal || type == TokenType::user_defined ? id : -1;
}

void SentencePieceEncoder::append_bytes(std::string_view text, std::vector<int32_t>& ids) const {
  const bool all =
      std::all_of(text.begin(), text.end(), [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; });
  if (all) {
    for (const char c : text) ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    return;
  }
  check(vocabulary_.unknown >= 0, ErrorCode::invalid_token,
        "text: the tokenizer has no token for '{}', no byte tokens and no unknown token; leave that character out",
        text);
  ids.push_back(vocabulary_.unknown);
}

void SentencePieceEncoder::encode(std::string_view text, bool space_prefix, std::vector<int32_t>& ids) const {
  check(text.size() < (size_t{1} << 29), ErrorCode::invalid_argument,
        "text: {} bytes at once; allowed are 512 MiB, encode it in parts", text.size());
  std::string marked;
  marked.reserve(text.size() + text.size() / 2 + 3);
  if (space_prefix) marked += kSpaceMark;
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }

  // Symbols are pieces of `marked` in a doubly linked list over indices; a swallowed one has length 0.
  struct Symbol {
    int32_t begin, length, previous, next;
  };
  struct Candidate {
    float score;
    int32_t at, length;  // index of the left symbol; bytes of both
    int32_t left_length;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.at > b.at;
  };
  std::vector<Symbol> symbols;
  symbols.reserve(marked.size());
  for (size_t at = 0; at < marked.size();) {
    const size_t length = std::max<size_t>(utf8::character_length(marked, at), 1);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<int32_t>(at), static_cast<int32_t>(length), index - 1, index + 1});
    at += length;
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  const auto text_at = [&](int32_t begin, int32_t length) {
    return std::string_view(marked).substr(static_cast<size_t>(begin), static_cast<size_t>(length));
  };

  std::vector<Candidate> heap;
  const auto push = [&](int32_t at) {
    if (at < 0 || symbol(at).next < 0) return;
    const Symbol& left = symbol(at);
    const int32_t length = left.length + symbol(left.next).length;
    const int32_t id = find(text_at(left.begin, length));
    if (id < 0) return;
    heap.push_back({vocabulary_.scores[static_cast<size_t>(id)], at, length, left.length});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) push(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbol(best.at);
    if (left.length != best.left_length || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    if (left.length + right.length != best.length) continue;
    left.length = best.length;
    right.length = 0;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    push(left.previous);
    push(best.at);
  }
  for (int32_t at = 0; at >= 0; at = symbol(at).next) {
    const std::string_view piece = text_at(symbol(at).begin, symbol(at).length);
    if (const int32_t id = find(piece); id >= 0) {
      ids.push_back(id);
    } else {
      append_bytes(piece, ids);
    }
  }
}

}  // namespace weft
