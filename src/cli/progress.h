// Progress on stderr: a bar on a terminal, nothing but a final line elsewhere, and that only when it took a while.
//
//   Progress progress("loading model.gguf");
//   progress.set(0.4);
//   progress.done();
#pragma once

#include <string>

#include "base/clock.h"

namespace weft::cli {

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
