#include "decode/text_stream.h"

#include <algorithm>

#include "models/utf8.h"

namespace weft::decode {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool goes_on(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

std::string replace_invalid(std::string_view bytes) {
  std::string text;
  bool in_gap = false;  // one mark for a run of bad bytes
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8::character_length(bytes, at);
    if (length == 0) {
      if (!in_gap) text += kReplacement;
    } else {
      text += bytes.substr(at, length);
    }
    in_gap = length == 0;
    at += length == 0 ? 1 : length;
  }
  return text;
}

}  // namespace

std::string TextStream::push(std::string_view bytes) {
  pending_ += bytes;
  const size_t tail = utf8::incomplete_tail(pending_);
  const std::string text = replace_invalid(std::string_view(pending_).substr(0, pending_.size() - tail));
  pending_.erase(0, pending_.size() - tail);
  characters_ += num_characters(text);
  return text;
}

int64_t TextStream::offset_of(std::string_view bytes) const {
  if (pending_.empty() || bytes.empty() || goes_on(bytes.front())) return characters_;
  // What is pending turns into U+FFFD, together with bytes behind it that are no character either.
  const bool begins = utf8::character_length(bytes, 0) > 0 || utf8::incomplete_tail(bytes) == bytes.size();
  return characters_ + (begins ? 1 : 0);
}

std::string TextStream::finish() {
  const std::string text = replace_invalid(pending_);
  pending_.clear();
  characters_ += num_characters(text);
  return text;
}

std::string valid_utf8(std::string_view bytes) { return replace_invalid(bytes); }

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !goes_on(byte); });
}

}  // namespace weft::decode
