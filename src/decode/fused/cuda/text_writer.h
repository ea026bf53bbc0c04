// Writes the text of a kernel line by line, blocks indented.
//
//   TextWriter text;
//   text.block("for (int layer = 0; layer < 32; ++layer)", [&] { text.line("step.merge({});", kind); });
//   std::string all = text.take();
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace weft::decode::fused {

class TextWriter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (!text.empty() && text.front() != '#') text_.append(static_cast<size_t>(2 * depth_), ' ');
    text_ += text + "\n";
  }
  // `head {`, what the body writes, `}` and the tail.
  template <class Body>
  void block(std::string_view head, const Body& body, std::string_view tail = "") {
    line("{} {{", head);
    ++depth_;
    body();
    --depth_;
    line("}}{}", tail);
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace weft::decode::fused
