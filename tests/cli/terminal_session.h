// `weft` on a terminal of its own, typed at by a test, and what stands on the terminal's screen.
//
//   TerminalSession chat({"run", model}, 80);
//   chat.expect("> ");
//   chat.type("hello\r");
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft::testing {

// As terminals do that fold long lines anew for another width, such as those of GNOME, KDE and macOS.
class Screen {
 public:
  explicit Screen(int columns) : columns_(columns) {}
  void write(const std::string& bytes);
  void resize(int columns);
  std::vector<std::string> rows() const;  // without spaces at their ends
  const std::string& unknown() const { return unknown_; }

 private:
  struct Row {
    std::string text;
    bool goes_on = false;  // the row before it, which was full
  };
  void put(char c);
  void obey(const std::string& parameters, char command);
  Row& row() { return rows_[static_cast<size_t>(row_)]; }
  int place() const { return column_ < columns_ ? column_ : columns_ - 1; }
  void move_to_row(int number);

  int columns_, row_ = 0, column_ = 0;  // at the end of a full row the column is one beyond it
  std::vector<Row> rows_ = std::vector<Row>(1);
  std::string sequence_, unknown_;
};

// Standard input and stderr are the terminal, stdout is not.
class TerminalSession {
 public:
  TerminalSession(const std::vector<std::string>& arguments, int columns);
  ~TerminalSession();
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;

  void type(const std::string& keys) const;
  void resize(int columns);
  // Waits until the last row that is not empty is this one.
  void expect(const std::string& last_row);
  std::vector<std::string> rows_that_begin_with(const std::string& text) const;
  const Screen& screen() const { return screen_; }
  std::vector<std::string> out() const;  // lines of stdout so far
  int end();                             // waits for it; the exit code, or -1

 private:
  bool read();  // what has come, or what comes within a moment; false at the end
  int terminal_ = -1, out_ = -1;
  pid_t child_ = -1;
  Screen screen_;
  std::string out_text_;
};

}  // namespace weft::testing
