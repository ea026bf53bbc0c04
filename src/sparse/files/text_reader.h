// Words, numbers and lines of a text file, which are counted for messages.
//
//   TextReader reader("graph.mtx", text);
//   reader.integer("a row", 1, num_rows);   // "'graph.mtx', line 7: a row is 9; allowed are 1 to 5"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sparse {

class TextReader {
 public:
  // `lines`, if not null, gets the line of each element that is noted.
  TextReader(std::string_view name, std::string_view text, std::vector<int>* lines = nullptr)
      : name_(name), text_(text), lines_(lines) {}

  bool at_end();            // nothing but space follows
  std::string_view line();  // up to its end, which is taken
  // Lines from here on that begin with that character, and blank ones.
  void skip_comments(char mark);
  // A word ends at space or at a comma. Both throw where the file ends, and for a word that is no such number; `what`
  // it is, for messages.
  int64_t integer(std::string_view what, int64_t least, int64_t most);
  double real(std::string_view what);
  int line_number() const { return line_; }  // of what comes next
  // Words that are left of the first line that has some, which comes next; and of the whole file.
  int64_t words_of_line();
  int64_t words_of_rest() const;
  size_t num_left() const { return text_.size() - at_; }  // characters
  // An element of the list that is made stands in that line.
  void note_element(int line) {
    if (lines_ != nullptr) lines_->push_back(line);
  }
  // Throw Error(invalid_file), or Error(unsupported), that names file and line.
  [[noreturn]] void fail(const std::string& message) const { fail_at(line_, message); }
  [[noreturn]] void fail_at(int line, const std::string& message) const;
  [[noreturn]] void refuse_at(int line, const std::string& message) const;

 private:
  std::string_view word(std::string_view what);
  void skip();

  std::string_view name_, text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<int>* lines_;
};

// The words of a line.
std::vector<std::string_view> words_of(std::string_view line);
// A text of a file as a message shows it: the begin of a long one; what is no printable ASCII as \x1f.
std::string shown(std::string_view text);
bool parse_whole(std::string_view word, int64_t* value);
bool parse_real(std::string_view word, double* value);

}  // namespace weft::sparse
