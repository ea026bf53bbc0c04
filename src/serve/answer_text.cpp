#include "serve/answer_text.h"

#include <algorithm>

namespace weft::serve {
namespace {

// How many characters at the end of `text` begin `stop`.
size_t beginning_at_end(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.ends_with(stop.substr(0, length))) return length;
  return 0;
}

}  // namespace

std::string AnswerText::scan(std::string_view text, bool all) {
  if (stopped_) return {};
  held_ += text;
  size_t end = std::string::npos;
  for (const std::string& stop : stop_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, end);
  }
  size_t keep = 0;
  if (!all)
    for (const std::string& stop : stop_) keep = std::max(keep, beginning_at_end(held_, stop));
  const std::string said = held_.substr(0, held_.size() - keep);
  held_.erase(0, said.size());
  return said;
}

}  // namespace weft::serve
