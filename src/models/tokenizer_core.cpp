#include "models/tokenizer_core.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace weft {
namespace {

std::vector<int32_t> ids_of(const Vocabulary& vocabulary, std::initializer_list<TokenType> types) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (std::find(types.begin(), types.end(), vocabulary.type(id)) != types.end()) ids.push_back(id);
  return ids;
}

// U+FDD0, which no text has: Unicode keeps it for use inside of programs.
constexpr std::string_view kPlainMark = "\xEF\xB7\x90";

std::string without_marks(std::string_view text) {
  std::string rest;
  rest.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(kPlainMark, at), text.size());
    rest += text.substr(at, mark - at);
    at = mark + kPlainMark.size();
  }
  return rest;
}

size_t bytes_of_marks(std::string_view text) {
  size_t marks = 0;
  for (size_t at = 0; (at = text.find(kPlainMark, at)) != std::string_view::npos; at += kPlainMark.size()) ++marks;
  return marks * kPlainMark.size();
}

}  // namespace

TokenizerCore::TokenizerCore(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      index_(vocabulary_.texts),
      user_defined_(vocabulary_.texts, ids_of(vocabulary_, {TokenType::user_defined})),
      all_special_(vocabulary_.texts,
                   ids_of(vocabulary_, {TokenType::user_defined, TokenType::control, TokenType::unknown})),
      ends_(static_cast<size_t>(vocabulary_.size())) {
  if (vocabulary_.model == "gpt2") {
    pretokenizer_.emplace(vocabulary_.pre);
    byte_pairs_.emplace(vocabulary_, index_);
    vocabulary_.merges = {};
  } else {
    pieces_.emplace(vocabulary_, index_);
  }
  if (vocabulary_.eos >= 0) ends_[static_cast<size_t>(vocabulary_.eos)] = true;
  for (const int32_t id : vocabulary_.ends) ends_[static_cast<size_t>(id)] = true;
  for (int32_t id = 0; id < vocabulary_.size(); ++id)  // no token stands for more bytes than its text has
    if (vocabulary_.texts[id].size() > longest_) longest_ = std::max(longest_, piece(id, false).size());
}

bool TokenizerCore::is_special(int32_t id) const {
  const TokenType type = vocabulary_.type(id);
  return type == TokenType::control || type == TokenType::unknown;
}

bool TokenizerCore::is_end(int32_t id) const {
  return id >= 0 && id < vocabulary_.size() && ends_[static_cast<size_t>(id)];
}

// Where bytes may be left out, any text may have none.
int64_t TokenizerCore::least_tokens(size_t bytes) const {
  if (byte_pairs_ && byte_pairs_->leaves_bytes_out()) return 0;
  return static_cast<int64_t>((bytes + longest_ - 1) / longest_);
}

std::vector<int32_t> TokenizerCore::encode(std::string_view text, EncodeOptions options) const {
  const auto check_count = [&](int64_t tokens) {
    check(tokens <= options.at_most, ErrorCode::context_full, "text: it has more than {} tokens, as many as are wanted",
          options.at_most);
  };
  const size_t marks = options.parse_special ? bytes_of_marks(text) : 0;
  check_count(least_tokens(text.size() - marks));
  // Words become a token each at least.
  const bool all_words = byte_pairs_ && byte_pairs_->leaves_bytes_out();
  const size_t most_words = all_words ? std::numeric_limits<size_t>::max() : static_cast<size_t>(options.at_most);
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(std::min(static_cast<int64_t>(text.size() / 3), options.at_most)) + 2);
  // A BOS or EOS that the text brings along is not put there twice.
  const int32_t bos = vocabulary_.bos;
  const bool has_bos = options.parse_special && bos >= 0 && text.starts_with(vocabulary_.texts[bos]) &&
                       find_special(text, 0, true).id == bos;
  if (options.add_special && vocabulary_.add_bos && !has_bos) ids.push_back(bos);
  // SentencePiece puts its space in front of the text, and again after a control token.
  bool space_prefix = vocabulary_.add_space_prefix;
  std::vector<std::string_view> words;
  for (size_t done = 0; done < text.size();) {
    const SpecialTokens::Match match = find_special(text, done, options.parse_special);
    std::string_view raw = text.substr(done, (match.id < 0 ? text.size() : match.begin) - done);
    const std::string unmarked = options.parse_special ? without_marks(raw) : std::string();
    if (options.parse_special) raw = unmarked;
    if (!raw.empty()) {
      if (pieces_) {
        pieces_->encode(raw, space_prefix, ids);
      } else {
        words.clear();
        pretokenizer_->split(raw, words, most_words);
        for (const std::string_view word : words) {
          byte_pairs_->encode(word, pretokenizer_->takes_whole_words(), ids);
          check_count(static_cast<int64_t>(ids.size()));
        }
      }
    }
    if (match.id < 0) break;
    ids.push_back(match.id);
    check_count(static_cast<int64_t>(ids.size()));
    space_prefix = vocabulary_.add_space_prefix && is_special(match.id);
    done = match.begin + match.length;
  }
  const bool has_eos = options.parse_special && !ids.empty() && ids.back() == vocabulary_.eos;
  if (options.add_special && vocabulary_.add_eos && !has_eos) ids.push_back(vocabulary_.eos);
  check_count(static_cast<int64_t>(ids.size()));
  return ids;
}

// A control token behind a mark is none.
SpecialTokens::Match TokenizerCore::find_special(std::string_view text, size_t from, bool parse_special) const {
  if (!parse_special) return user_defined_.find(text, from);
  for (;; ++from) {
    const SpecialTokens::Match match = all_special_.find(text, from);
    if (match.id < 0 || !is_special(match.id) || !text.substr(0, match.begin).ends_with(kPlainMark)) return match;
    from = match.begin;
  }
}

std::string TokenizerCore::as_plain_text(std::string_view text) const {
  const std::string own = without_marks(text);
  std::string marked;
  size_t done = 0;
  for (size_t from = 0; from < own.size();) {
    const SpecialTokens::Match match = all_special_.find(own, from);
    if (match.id < 0) break;
    from = match.begin + 1;  // another may begin inside
    if (!is_special(match.id)) continue;
    marked.append(own, done, match.begin - done).append(kPlainMark);
    done = match.begin;
  }
  return marked.append(own, done);
}

std::string TokenizerCore::piece(int32_t id, bool skip_special) const {
  check(id >= 0 && id < vocabulary_.size(), ErrorCode::invalid_token, "id {}; allowed are 0 to {}", id,
        vocabulary_.size() - 1);
  const std::string_view text = vocabulary_.texts[id];
  if (is_special(id)) return skip_special ? std::string() : std::string(text);
  const TokenType type = vocabulary_.type(id);
  if (type == TokenType::byte)
    if (const int byte = byte_of_token(text); byte >= 0) return std::string(1, static_cast<char>(byte));
  if (byte_pairs_) return type == TokenType::user_defined ? std::string(text) : byte_level_bytes(text);
  std::string spaced;
  spaced.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kSpaceMark);
    spaced += mark ? ' ' : text[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return spaced;
}

std::string TokenizerCore::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool first = vocabulary_.add_space_prefix;  // no text yet: the space that encoding put in front goes again
  for (const int32_t id : ids) {
    const std::string piece_text = piece(id, skip_special);
    const bool strip = first && !is_special(id) && piece_text.starts_with(' ');
    text.append(piece_text, strip ? 1 : 0);
    if (!is_special(id)) first = false;
  }
  return text;
}

}  // namespace weft
