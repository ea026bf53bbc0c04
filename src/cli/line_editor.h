// Lines that are typed on a terminal: arrow keys, a history, pasted lines that stay together. libedit does the work.
//
//   if (LineEditor::usable()) {
//     LineEditor editor(history_file());
//     while (const auto line = editor.next("> ")) ...
//   }
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace weft::cli {

class LineEditor {
 public:
  // Whether standard input and stderr are a terminal that can move its cursor.
  static bool usable();
  // `history_file`: where lines are kept for the next time, readable by the user alone; "": nowhere.
  explicit LineEditor(const std::string& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Without its end, with those of pasted lines within; none at the end of input. Ctrl-C drops what was typed; where
  // nothing was, it throws Interrupted.
  std::optional<std::string> next(const std::string& prompt);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
