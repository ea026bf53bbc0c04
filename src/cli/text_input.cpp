#include "cli/text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/output.h"

namespace weft::cli {
namespace {

std::string read_stream(std::FILE* stream, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const size_t count = std::fread(buffer, 1, sizeof buffer, stream);
    text.append(buffer, count);
    if (count < sizeof buffer) break;
  }
  check(std::ferror(stream) == 0, ErrorCode::io_error, "{}; name a text that can be read with -p or -f FILE",
        stream_failure(name, errno));
  return text;
}

}  // namespace

void add_text_options(Verb& verb, TextInput& input, const std::string& what) {
  input.text_option = verb.option("-p,--prompt", input.text, what);
  verb.option("-f,--file", input.file, "The same from a file; - is stdin").excludes(input.text_option);
}

std::string read_text(const TextInput& input) {
  if (input.text_option.given()) return input.text;
  if (input.file.empty() || input.file == "-") return read_stream(stdin, "standard input");
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(input.file.c_str(), "rb"));
  check(file != nullptr, ErrorCode::io_error, "-f {}: {}; name a file that can be read", input.file,
        std::strerror(errno));
  return read_stream(file.get(), input.file);
}

}  // namespace weft::cli
