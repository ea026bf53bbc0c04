#include "cli/line_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/env.h"

namespace weft::cli {
namespace {

constexpr mode_t kOwnFile = 0600;

std::string escaped(std::string_view line) {
  std::string text;
  for (const char c : line) {
    if (c == '\\' || c == '\n') text += '\\';
    text += c == '\n' ? 'n' : c;
  }
  return text + '\n';
}

std::string unescaped(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    line += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return line;
}

// 0, or an errno.
int write_all(const std::string& path, int flags, std::string_view text) {
  const int fd = open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnFile);
  if (fd < 0) return errno;
  // One write, so that chats that run beside each other keep their lines whole.
  const bool written = fchmod(fd, kOwnFile) == 0 && write(fd, text.data(), text.size()) == ssize_t(text.size());
  const int error = written ? 0 : errno;
  return close(fd) == 0 ? error : errno;
}

// 0, or an errno. Folders are made for the user alone.
int make_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return 0;
  if (const int above = make_folder(path.parent_path()); above != 0) return above;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

std::vector<std::string> LineHistory::read() const {
  std::vector<std::string> lines;
  std::ifstream file(path_, std::ios::binary);
  for (std::string text; !path_.empty() && std::getline(file, text);) lines.push_back(unescaped(text));
  if (lines.size() <= most_) return lines;
  const bool is_long = lines.size() > 2 * most_;
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most_));
  if (!is_long) return lines;
  std::string all;
  for (const std::string& line : lines) all += escaped(line);
  const std::string fresh = fmt::format("{}.{}", path_, getpid());
  if (write_all(fresh, O_EXCL, all) == 0 && std::rename(fresh.c_str(), path_.c_str()) != 0) unlink(fresh.c_str());
  return lines;
}

void LineHistory::add(const std::string& line) {
  if (path_.empty()) return;
  int error = make_folder(std::filesystem::path(path_).parent_path());
  if (error == 0) error = write_all(path_, O_APPEND, escaped(line));
  if (error == 0) return;
  std::fputs(fmt::format("weft: {}: {}; what you type is not kept (--no-history: without asking)\n", path_,
                         std::strerror(error))
                 .c_str(),
             stderr);
  path_.clear();
}

std::string default_history_file() {
  const auto folder = env::user_state_dir();
  return folder ? *folder + "/weft/history" : std::string();
}

}  // namespace weft::cli
