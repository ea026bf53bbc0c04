// Progress on stderr: a bar on a terminal, nothing but a final line elsewhere, and that only when it took a while.
//
//   Progress progress("loading model.gguf");
//   progress.set(0.4);
//   progress.done();
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace weft::cli {

// At most so many columns of a terminal, its middle left out.
std::string shorten(std::string_view text, size_t columns);
// A label, a bar and a percentage for a terminal of that width: of a narrow one the bar goes first, then the label.
std::string progress_line(std::string_view label, double fraction, size_t columns);

class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();  // clears the bar where done() was not reached
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set(double fraction);  // 0 to 1; from any thread, one at a time
  void done();

 private:
  std::string label_;
  bool terminal_ = false, drawn_ = false;
  Clock::time_point start_, last_;
};

}  // namespace weft::cli
