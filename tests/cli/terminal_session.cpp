#include "tests/cli/terminal_session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace weft::testing {
namespace {

constexpr int kRows = 24;

winsize size_of(int columns) { return {kRows, static_cast<unsigned short>(columns), 0, 0}; }

std::string without_end(std::string text) {
  text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

// ---------------------------------------------------------------- the screen

void Screen::move_to_row(int number) {
  row_ = std::max(number, 0);
  if (rows_.size() <= static_cast<size_t>(row_)) rows_.resize(static_cast<size_t>(row_) + 1);
}

void Screen::put(char c) {
  if (column_ == columns_) {
    move_to_row(row_ + 1);
    row().goes_on = true;
    column_ = 0;
  }
  std::string& text = row().text;
  if (text.size() <= static_cast<size_t>(column_)) text.resize(static_cast<size_t>(column_) + 1, ' ');
  text[static_cast<size_t>(column_++)] = c;
}

void Screen::obey(const std::string& parameters, char command) {
  const int number = parameters.empty() ? 0 : std::atoi(parameters.c_str()), count = std::max(number, 1);
  std::string& text = row().text;
  const auto at = static_cast<size_t>(place());
  switch (command) {
    case 'A': return move_to_row(row_ - count);
    case 'B': return move_to_row(row_ + count);
    case 'C': column_ = std::min(place() + count, columns_ - 1); return;
    case 'G': column_ = std::min(count, columns_) - 1; return;
    case 'D': column_ = std::max(place() - count, 0); return;
    case 'K':
    case 'J':
      if (number != 0) break;
      text.resize(std::min(text.size(), at));
      if (command == 'J') rows_.resize(static_cast<size_t>(row_) + 1);
      return;
    case 'P':
      if (at < text.size()) text.erase(at, static_cast<size_t>(count));
      return;
    case '@':
      if (at < text.size()) text.insert(at, static_cast<size_t>(count), ' ');
      return;
    case 'h':
    case 'l':
    case 'm': return;
    default: break;
  }
  unknown_ += "[" + parameters + command;
}

void Screen::write(const std::string& bytes) {
  for (const char c : bytes) {
    if (!sequence_.empty()) {
      sequence_ += c;
      if (sequence_ == "\033[" || (sequence_.size() > 2 && static_cast<unsigned char>(c) < 0x40)) continue;
      if (sequence_[1] == '[')
        obey(sequence_.substr(2, sequence_.size() - 3), c);
      else
        unknown_ += sequence_.substr(1);
      sequence_.clear();
    } else if (c == '\033') {
      sequence_ = c;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      move_to_row(row_ + 1);
    } else if (c == '\b') {
      column_ = std::max(place() - 1, 0);
    } else if (static_cast<unsigned char>(c) >= ' ') {
      put(c);
    }
  }
}

void Screen::resize(int columns) {
  std::vector<Row> folded;
  int new_row = 0, new_column = 0;
  for (size_t first = 0; first < rows_.size();) {
    std::string line;
    size_t next = first, cursor = std::string::npos;
    do {
      if (static_cast<size_t>(row_) == next) cursor = line.size() + static_cast<size_t>(column_);
      line += rows_[next++].text;
    } while (next < rows_.size() && rows_[next].goes_on);
    const auto width = static_cast<size_t>(columns);
    if (cursor != std::string::npos) {
      new_row = static_cast<int>(folded.size() + cursor / width);
      new_column = static_cast<int>(cursor % width);
    }
    for (size_t at = 0; at == 0 || at < line.size(); at += width) folded.push_back({line.substr(at, width), at > 0});
    first = next;
  }
  rows_ = std::move(folded);
  columns_ = columns;
  column_ = new_column;
  move_to_row(new_row);
}

std::vector<std::string> Screen::rows() const {
  std::vector<std::string> texts;
  for (const Row& each : rows_) texts.push_back(without_end(each.text));
  return texts;
}

// ---------------------------------------------------------------- the program

TerminalSession::TerminalSession(const std::vector<std::string>& arguments, int columns) : screen_(columns) {
  int out[2];
  terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal_ < 0 || grantpt(terminal_) != 0 || unlockpt(terminal_) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error("posix_openpt");
  const winsize size = size_of(columns);
  ioctl(terminal_, TIOCSWINSZ, &size);
  const std::string name = ptsname(terminal_);
  std::vector<std::string> words = {WEFT_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  child_ = fork();
  if (child_ == 0) {
    setsid();
    const int fd = open(name.c_str(), O_RDWR);  // the first terminal of a session is what signals of resizes come from
    dup2(fd, 0), dup2(out[1], 1), dup2(fd, 2);
    setenv("TERM", "xterm", 1);
    setenv("EDITRC", "/nowhere", 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  out_ = out[0];
}

TerminalSession::~TerminalSession() {
  if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
  close(terminal_), close(out_);
}

void TerminalSession::type(const std::string& keys) const {
  if (write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("write");
}

void TerminalSession::resize(int columns) {
  screen_.resize(columns);
  const winsize size = size_of(columns);
  ioctl(terminal_, TIOCSWINSZ, &size);
}

bool TerminalSession::read() {
  pollfd files[2] = {{terminal_, POLLIN, 0}, {out_, POLLIN, 0}};
  poll(files, 2, 20);
  char buffer[4096];
  bool open = false;
  for (const pollfd& file : files) {
    if ((file.revents & (POLLIN | POLLHUP)) == 0) {
      open = open || file.revents == 0;
      continue;
    }
    const ssize_t count = ::read(file.fd, buffer, sizeof buffer);
    if (count <= 0) continue;
    open = true;
    const std::string bytes(buffer, static_cast<size_t>(count));
    file.fd == terminal_ ? screen_.write(bytes) : static_cast<void>(out_text_ += bytes);
  }
  return open;
}

void TerminalSession::expect(const std::string& last_row) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string last;
  while (std::chrono::steady_clock::now() < deadline) {
    last.clear();
    for (const std::string& text : screen_.rows())
      if (!text.empty()) last = text;
    if (last == last_row) return;
    if (!read()) break;
  }
  std::string all;
  for (const std::string& text : screen_.rows()) all += text + "\n";
  ADD_FAILURE() << "'" << last_row << "' is not the last row of\n" << all;
}

std::vector<std::string> TerminalSession::rows_that_begin_with(const std::string& text) const {
  std::vector<std::string> found = screen_.rows();
  std::erase_if(found, [&](const std::string& row) { return !row.starts_with(text); });
  return found;
}

std::vector<std::string> TerminalSession::out() const {
  std::vector<std::string> lines;
  std::istringstream stream(out_text_);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int TerminalSession::end() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (read()) {
    if (std::chrono::steady_clock::now() < deadline) continue;
    ADD_FAILURE() << "the program does not end";
    return -1;
  }
  int status = 0;
  waitpid(std::exchange(child_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace weft::testing
