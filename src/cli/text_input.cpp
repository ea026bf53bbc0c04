#include "cli/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/output.h"

namespace weft::cli {
namespace {

constexpr const char* kStandardInput = "standard input";

// The next bytes; none at the end.
std::string_view read_some(int fd, const std::string& name, std::span<char> buffer) {
  wait_for_input(fd);
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  check(count >= 0, ErrorCode::io_error, "{}; name a text that can be read with -p or -f FILE",
        stream_failure(name, errno));
  return {buffer.data(), static_cast<size_t>(count)};
}

std::string read_all(int fd, const std::string& name) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const std::string_view part = read_some(fd, name, buffer);
    if (part.empty()) return text;
    text += part;
  }
}

}  // namespace

void add_text_options(Verb& verb, TextInput& input, const std::string& what) {
  input.text_option = verb.option("-p,--prompt", input.text, what);
  verb.option("-f,--file", input.file, "The same from a file; - is stdin").excludes(input.text_option);
}

std::string read_text(const TextInput& input) {
  if (input.text_option.given()) return input.text;
  if (input.file.empty() || input.file == "-") return read_all(STDIN_FILENO, kStandardInput);
  const struct File {
    int fd;
    ~File() { close(fd); }
  } file{open(input.file.c_str(), O_RDONLY | O_CLOEXEC)};
  check(file.fd >= 0, ErrorCode::io_error, "-f {}: {}; name a file that can be read", input.file, std::strerror(errno));
  return read_all(file.fd, input.file);
}

std::optional<std::string> LineReader::next() {
  char buffer[4096];
  for (;;) {
    if (const size_t end = text_.find('\n'); end != text_.npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    const std::string_view part = read_some(STDIN_FILENO, kStandardInput, buffer);
    if (part.empty()) return text_.empty() ? std::nullopt : std::optional(std::exchange(text_, {}));
    text_ += part;
  }
}

}  // namespace weft::cli
