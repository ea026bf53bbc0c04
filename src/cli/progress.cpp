#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace weft::cli {
namespace {

// Faster than the eye needs is work for nothing; what ends sooner needs no bar.
constexpr auto kInterval = std::chrono::milliseconds(60);
constexpr auto kFirst = std::chrono::milliseconds(150);
constexpr double kWorthALine = 1.0;
constexpr size_t kWidth = 30;

}  // namespace

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
  const double share = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const auto full = static_cast<size_t>(share * static_cast<double>(kWidth));
  std::fputs(fmt::format("\r{} [{}{}] {:3.0f}%\033[K", label_, std::string(full, '#'), std::string(kWidth - full, ' '),
                         share * 100)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void Progress::done() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
  const double seconds = seconds_since(start_);
  if (seconds >= kWorthALine) std::fputs(fmt::format("weft: {} took {:.1f} s\n", label_, seconds).c_str(), stderr);
}

}  // namespace weft::cli
