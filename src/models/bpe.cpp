#include "models/bpe.h"

#include <algorithm>

#include "base/check.h"
#include "models/utf8.h"

namespace weft {
namespace {

constexpr int32_t kNoToken = -1;
// Up to this length a scan for the best pair beats a heap.
constexpr size_t kShortWord = 48;

// Printable bytes stand for themselves; the others follow from U+0100 in order.
constexpr std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> alphabet{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}
constexpr std::array<uint16_t, 256> kAlphabet = make_alphabet();
constexpr uint32_t kAlphabetEnd = 256 + 68;

constexpr std::array<int16_t, kAlphabetEnd> make_bytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (int16_t byte = 0; byte < 256; ++byte) bytes[kAlphabet[static_cast<size_t>(byte)]] = byte;
  return bytes;
}
constexpr std::array<int16_t, kAlphabetEnd> kBytes = make_bytes();

uint64_t hash_pair(int32_t left, int32_t right) {
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  const uint64_t mixed = pair * 0x9e3779b97f4a7c15ull;
  return mixed ^ mixed >> 32;
}

}  // namespace

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) utf8::append(text, kAlphabet[static_cast<uint8_t>(c)]);
  return text;
}

std::string byte_level_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8::character_length(text, at);
    const uint32_t code = length == 0 ? kAlphabetEnd : utf8::code_point(text, at, length);
    if (code < kAlphabetEnd && kBytes[code] >= 0) {
      bytes += static_cast<char>(kBytes[code]);
    } else {
      bytes += text.substr(at, std::max<size_t>(length, 1));
    }
    at += std::max<size_t>(length, 1);
  }
  return bytes;
}

BytePairEncoder::BytePairEncoder(const Vocabulary& vocabulary, const TokenIndex& index)
    : vocabulary_(vocabulary), index_(index) {
  const bool has_unknown = vocabulary.unknown >= 0 && vocabulary.type(vocabulary.unknown) == TokenType::unknown;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens_[byte] = index.find(byte_level_text({&c, 1}));
    if (byte_tokens_[byte] == kNoToken && has_unknown) byte_tokens_[byte] = vocabulary.unknown;
    leaves_bytes_out_ = leaves_bytes_out_ || byte_tokens_[byte] == kNoToken;
  }
  size_t capacity = 16;
  while (capacity < vocabulary.merges.size() * 2) capacity *= 2;
  merges_.resize(capacity);
  mask_ = capacity - 1;

  // Start-up is mostly these look-ups. A batch is hashed first and then looked up, so that cache misses overlap; and
  // the results usually are the tokens that follow each other, which saves their look-up.
  constexpr size_t kBatch = 32;
  struct Lookup {
    std::string_view left, right;
    uint64_t left_hash, right_hash;
  };
  std::array<Lookup, kBatch> batch;
  std::string joined;
  int32_t expected = 0;  // the token after the result before
  for (size_t begin = 0; begin < vocabulary.merges.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, vocabulary.merges.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view text = vocabulary.merges[begin + i];
      const size_t space = text.find(' ', 1);
      check(space != std::string_view::npos && space + 1 < text.size(), ErrorCode::invalid_file,
            "tokenizer.ggml.merges[{}] = '{}'; allowed are two tokens with a space between them", begin + i, text);
      Lookup& lookup = batch[i];
      lookup = {text.substr(0, space), text.substr(space + 1), 0, 0};
      lookup.left_hash = TokenIndex::hash(lookup.left);
      lookup.right_hash = TokenIndex::hash(lookup.right);
      index.prefetch(lookup.left_hash);
      index.prefetch(lookup.right_hash);
    }
    for (size_t i = 0; i < count; ++i) {
      const Lookup& lookup = batch[i];
      joined.assign(lookup.left).append(lookup.right);
      if (expected >= vocabulary.size() || vocabulary.texts[expected] != joined) expected = index.find(joined);
      const Merge merge{index.find(lookup.left, lookup.left_hash), index.find(lookup.right, lookup.right_hash),
                        static_cast<int32_t>(begin + i), expected};
      check(merge.left >= 0 && merge.right >= 0 && merge.result >= 0, ErrorCode::invalid_file,
            "tokenizer.ggml.merges[{}] = '{}': '{}' is not among tokenizer.ggml.tokens", begin + i,
            vocabulary.merges[begin + i],
            merge.left < 0    ? lookup.left
            : merge.right < 0 ? lookup.right
                              : joined);
      add_merge(merge);
      ++expected;
    }
  }
}

void BytePairEncoder::add_merge(const Merge& merge) {
  uint64_t slot = hash_pair(merge.left, merge.right) & mask_;
  while (merges_[slot].left >= 0 && (merges_[slot].left != merge.left || merges_[slot].right != merge.right))
    slot = (slot + 1) & mask_;
  merges_[slot] = merge;  // a pair that is listed again has its last rank, as in Hugging Face's tokenizers
}

const BytePairEncoder::Merge* BytePairEncoder::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  for (uint64_t slot = hash_pair(left, right) & mask_; merges_[slot].left >= 0; slot = (slot + 1) & mask_)
    if (merges_[slot].left == left && merges_[slot].right == right) return &merges_[slot];
  return nullptr;
}

void BytePairEncoder::encode(std::string_view word, bool whole, std::vector<int32_t>& ids) const {
  if (whole) {
    const int32_t id = index_.find(byte_level_text(word));
    if (id >= 0 && vocabulary_.type(id) == TokenType::normal) {
      ids.push_back(id);
      return;
    }
  }
  const size_t begin = ids.size();
  for (const char c : word)
    if (const int32_t id = byte_tokens_[static_cast<uint8_t>(c)]; id != kNoToken) ids.push_back(id);
  if (ids.size() - begin <= kShortWord) {
    merge_short(ids, begin);
  } else {
    merge_long(ids, begin);
  }
}

void BytePairEncoder::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  const Merge* pairs[kShortWord] = {};
  int32_t* symbols = ids.data() + begin;
  size_t count = ids.size() - begin;
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i)
      if (pairs[i] != nullptr && (best == count || pairs[i]->rank < pairs[best]->rank)) best = i;
    if (best == count) break;
    symbols[best] = pairs[best]->result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --count;
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    pairs[best] = best + 1 < count ? find(symbols[best], symbols[best + 1]) : nullptr;
  }
  ids.resize(begin + count);
}

void BytePairEncoder::merge_long(std::vector<int32_t>& ids, size_t begin) const {
  struct Candidate {
    int32_t rank, at;  // index of the left symbol
    const Merge* merge;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto count = static_cast<int32_t>(ids.size() - begin);
  std::vector<Symbol> symbols(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i)
    symbols[static_cast<size_t>(i)] = {ids[begin + static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };

  std::vector<Candidate> heap;
  heap.reserve(static_cast<size_t>(count));
  const auto push = [&](int32_t at) {
    if (at < 0 || symbol(at).next < 0) return;
    if (const Merge* merge = find(symbol(at).id, symbol(symbol(at).next).id)) {
      heap.push_back({merge->rank, at, merge});
      std::push_heap(heap.begin(), heap.end(), worse);
    }
  };
  for (int32_t i = 0; i < count; ++i) push(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbol(best.at);
    // Stale where one of the two has merged since: a symbol that was swallowed has no id, and a grown one another.
    if (left.id != best.merge->left || left.next < 0 || symbol(left.next).id != best.merge->right) continue;
    Symbol& right = symbol(left.next);
    left.id = best.merge->result;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    push(left.previous);
    push(best.at);
  }
  size_t end = begin;
  for (int32_t at = 0; at >= 0; at = symbol(at).next) ids[end++] = symbol(at).id;
  ids.resize(end);
}

}  // namespace weft
