#include "decode/text_stream.h"

#include "models/utf8.h"

namespace weft::decode {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

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
  return text;
}

std::string TextStream::finish() {
  const std::string text = replace_invalid(pending_);
  pending_.clear();
  return text;
}

std::string valid_utf8(std::string_view bytes) { return replace_invalid(bytes); }

}  // namespace weft::decode
