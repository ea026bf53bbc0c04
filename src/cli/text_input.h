// Text that a verb works on, and files that turn out to be bad.
#pragma once

#include <optional>
#include <string>

#include "cli/arguments.h"
#include "weft/error.h"

namespace weft::cli {

// A file that asks for what Weft does not have is bad input, not a machine that lacks something.
class InputError : public Error {
 public:
  explicit InputError(const Error& error) : Error(error) {}
};
template <class Read>
auto from_file(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw InputError(error);
  }
}

// Text from -p, from -f FILE ("-": stdin), else from stdin.
struct TextInput {
  std::string text, file;
  Option text_option;
  bool given() const { return text_option.given() || !file.empty(); }
};
void add_text_options(Verb& verb, TextInput& input, const std::string& what);
// Throws Error(io_error); Ctrl-C ends the wait.
std::string read_text(const TextInput& input);

// The lines of standard input, one after another, without their ends.
class LineReader {
 public:
  std::optional<std::string> next();  // none at the end of input

 private:
  std::string text_;
};

}  // namespace weft::cli
