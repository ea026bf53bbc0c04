// Text that a verb works on, and files that turn out to be bad.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

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
  CLI::Option* text_option = nullptr;
  bool given() const { return text_option->count() > 0 || !file.empty(); }
};
void add_text_options(CLI::App& verb, TextInput& input, const std::string& what);
// Throws Error(io_error).
std::string read_text(const TextInput& input);

}  // namespace weft::cli
