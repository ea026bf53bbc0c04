// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::utf8 {

// Bytes of the character at text[at]; 0 where no whole valid character begins there.
inline size_t character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto in = [](uint8_t value, uint8_t low, uint8_t high) { return value >= low && value <= high; };
  const uint8_t lead = byte(at);
  if (at >= text.size()) return 0;
  if (lead < 0x80) return 1;
  if (in(lead, 0xc2, 0xdf)) return in(byte(at + 1), 0x80, 0xbf) ? 2 : 0;
  if (in(lead, 0xe0, 0xef)) {
    const uint8_t low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return in(byte(at + 1), low, high) && in(byte(at + 2), 0x80, 0xbf) ? 3 : 0;
  }
  if (in(lead, 0xf0, 0xf4)) {
    const uint8_t low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return in(byte(at + 1), low, high) && in(byte(at + 2), 0x80, 0xbf) && in(byte(at + 3), 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

// The code point of a valid character of `length` bytes.
inline uint32_t code_point(std::string_view text, size_t at, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  switch (length) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3: return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

inline void append(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t value) { text += static_cast<char>(static_cast<uint8_t>(value)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// How many bytes at the end of the text begin a character that more bytes could complete: 0 to 3.
inline size_t incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto lead = static_cast<uint8_t>(text[text.size() - back]);
    if ((lead & 0xc0) == 0x80) continue;
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    if (length <= back || lead > 0xf4) return 0;
    // Valid so far exactly when some continuation completes it.
    for (const uint8_t next : {uint8_t{0x80}, uint8_t{0x90}, uint8_t{0xa0}}) {
      std::string whole(text.substr(text.size() - back));
      whole.resize(length, static_cast<char>(0x80));
      if (back == 1) whole[1] = static_cast<char>(next);
      if (character_length(whole, 0) == length) return back;
    }
    return 0;
  }
  return 0;
}

}  // namespace weft::utf8
