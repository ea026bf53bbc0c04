// The text of an answer as it grows: whole characters, nothing that may yet become a stop text, nothing from one on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decode/text_stream.h"

namespace weft::serve {

class AnswerText {
 public:
  explicit AnswerText(std::vector<std::string> stop) : stop_(std::move(stop)) {}
  // What can be said now that these bytes have come.
  std::string push(std::string_view bytes) { return scan(stream_.push(bytes), false); }
  // What was held back, at the end of an answer that no stop text ended.
  std::string finish() { return scan(stream_.finish(), true); }
  // Characters of the answer before the one that the first of `bytes` is part of, if they are pushed next.
  int64_t offset_of(std::string_view bytes) const { return stream_.offset_of(bytes); }
  bool stopped() const { return stopped_; }

 private:
  std::string scan(std::string_view text, bool all);

  decode::TextStream stream_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace weft::serve
