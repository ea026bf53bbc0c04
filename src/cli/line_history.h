// The lines that a user typed, kept in a file that only the user may read: a line each, with \n and \\ for what would
// end it early.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

class LineHistory {
 public:
  // `path` "": nothing is kept. `most` lines are read; the file is cut to them once it has twice as many.
  LineHistory(std::string path, size_t most) : path_(std::move(path)), most_(most) {}
  std::vector<std::string> read() const;  // oldest first; none where there is no file yet
  // Says once on stderr where the file cannot be written, and then keeps nothing.
  void add(const std::string& line);

 private:
  std::string path_;
  size_t most_;
};

// history in weft/ of the user's folder of states; "" where there is none.
std::string default_history_file();

}  // namespace weft::cli
