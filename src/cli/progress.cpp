#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

namespace weft::cli {
namespace {

// Faster than the eye needs is work for nothing; what ends sooner needs no bar.
constexpr auto kInterval = std::chrono::milliseconds(60);
constexpr auto kFirst = std::chrono::milliseconds(150);
constexpr double kWorthALine = 1.0;
constexpr size_t kMostBar = 30, kLeastBar = 10, kLeastLabel = 12;
constexpr size_t kUnknownWidth = 80;

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownWidth;
}

struct Character {
  std::string_view bytes;
  size_t columns;
};

// What a terminal shows, by UTF-8's own lengths. From U+1100 on, where wide ones begin, each counts as two columns: a
// line that is too short does no harm.
std::vector<Character> characters(std::string_view text) {
  std::vector<Character> all;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = std::min(text.size() - at, first < 0xc0   ? 1
                                                     : first < 0xe0 ? size_t{2}
                                                     : first < 0xf0 ? 3
                                                                    : 4);
    if (first < 0x20 || first == 0x7f)
      all.push_back({"?", 1});
    else
      all.push_back({text.substr(at, length),
                     first < 0xe1 || (first == 0xe1 && length > 1 && static_cast<unsigned char>(text[at + 1]) < 0x84)
                         ? size_t{1}
                         : 2});
    at += length;
  }
  return all;
}

}  // namespace

std::string shorten(std::string_view text, size_t columns) {
  constexpr std::string_view kCut = "...";
  const std::vector<Character> all = characters(text);
  size_t whole = 0;
  for (const Character& character : all) whole += character.columns;
  size_t begin = 0, end = all.size();  // what is left out
  if (whole > columns) {
    const size_t kept = columns - std::min(columns, kCut.size());
    size_t right = 0, left = 0;  // the end says most: a file's name
    while (end > 0 && right + all[end - 1].columns <= kept - kept / 3) right += all[--end].columns;
    while (begin < end && left + all[begin].columns <= kept - right) left += all[begin++].columns;
  } else {
    begin = end;
  }
  std::string result;
  for (size_t i = 0; i < begin; ++i) result += all[i].bytes;
  if (whole > columns) result += kCut.substr(0, columns);
  for (size_t i = end; i < all.size(); ++i) result += all[i].bytes;
  return result;
}

std::string progress_line(std::string_view label, double fraction, size_t columns) {
  const double share = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const std::string percent = fmt::format("{:3.0f}%", share * 100);
  // The last column stays free: terminals differ in what follows a character there.
  const size_t room = columns - std::min<size_t>(columns, 1);
  constexpr size_t kFrame = 4;  // brackets, and spaces around them
  if (room < percent.size()) return {};
  if (room < percent.size() + 1 + kLeastLabel) return percent;
  const size_t rest = room - percent.size() - kFrame;
  if (rest < kLeastLabel + kLeastBar) return shorten(label, room - percent.size() - 1) + ' ' + percent;
  const size_t bar = std::clamp(rest / 3, kLeastBar, kMostBar);
  const auto full = static_cast<size_t>(share * static_cast<double>(bar));
  return fmt::format("{} [{}{}] {}", shorten(label, rest - bar), std::string(full, '#'), std::string(bar - full, ' '),
                     percent);
}

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::set(double fraction) {
  const auto now = Clock::now();
  if (!terminal_ || now - start_ < kFirst || (drawn_ && now - last_ < kInterval)) return;
  last_ = now;
  drawn_ = true;
  std::fputs(fmt::format("\r{}\033[K", progress_line(label_, fraction, terminal_width())).c_str(), stderr);
  std::fflush(stderr);
}

void Progress::done() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
  const double seconds = seconds_since(start_);
  if (seconds >= kWorthALine) std::fputs(fmt::format("weft: {} took {:.1f} s\n", label_, seconds).c_str(), stderr);
}

}  // namespace weft::cli
