#include "jit/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace weft::jit {
namespace {

constexpr std::string_view kOwnPrefix = "variant ";
constexpr size_t kMaxMessages = 8;
constexpr int kLinesAround = 3;

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::optional<int> parse_number(std::string_view digits) {
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// FILE:LINE:COLUMN: REST of C++ compilers; FILE(LINE): REST, and `at line LINE of FILE` in what follows it, of NVRTC.
struct Message {
  std::string_view file, rest, all;
  int line = 0;
  bool is_own() const { return file.starts_with(kOwnPrefix); }
  bool is_error() const { return rest.starts_with("error: ") || rest.starts_with("fatal error: "); }
};

std::optional<Message> parse_nvrtc_message(std::string_view line) {
  constexpr std::string_view kAtLine = " at line ", kOf = " of ";
  if (const size_t close = line.find("): "), open = line.rfind('(', close); close != line.npos && open != line.npos) {
    const auto number = parse_number(line.substr(open + 1, close - open - 1));
    if (number) return Message{line.substr(0, open), line.substr(close + 3), line, *number};
  }
  if (const size_t at = line.rfind(kAtLine); at != line.npos && line.starts_with(' ')) {
    std::string_view place = line.substr(at + kAtLine.size());
    const size_t of = place.find(kOf);
    const auto number = of == place.npos ? std::nullopt : parse_number(place.substr(0, of));
    if (number) return Message{place.substr(of + kOf.size()), {}, line, *number};
  }
  return std::nullopt;
}

std::optional<Message> parse_message(std::string_view line) {
  for (size_t colon = line.find(':'); colon != line.npos; colon = line.find(':', colon + 1)) {
    const size_t second = line.find(':', colon + 1);
    const size_t third = second == line.npos ? line.npos : line.find(':', second + 1);
    if (third == line.npos) break;
    const auto number = parse_number(line.substr(colon + 1, second - colon - 1));
    if (!number || !parse_number(line.substr(second + 1, third - second - 1))) continue;
    return Message{line.substr(0, colon), line.substr(std::min(third + 2, line.size())), line, *number};
  }
  return parse_nvrtc_message(line);
}

// The lines that FILE:LINE - around to FILE:LINE + around name, with their numbers, the named one marked.
std::string excerpt(std::string_view text, std::string_view file, int line) {
  std::string result, current = "<stdin>";
  int number = 0;
  for (const std::string_view source : split_lines(text)) {
    if (source.starts_with("#line ")) {
      const std::string_view rest = source.substr(6);
      const size_t space = std::min(rest.find(' '), rest.size());
      if (const auto next = parse_number(rest.substr(0, space))) number = *next - 1;
      if (const size_t open = rest.find('"'); open != rest.npos)
        current = rest.substr(open + 1, rest.rfind('"') - open - 1);
      continue;
    }
    ++number;
    if (current == file && number >= line - kLinesAround && number <= line + kLinesAround)
      result += fmt::format("  {}{:4} | {}\n", number == line ? '>' : ' ', number, source);
  }
  return result;
}

}  // namespace

std::string explain_errors(std::string_view text, std::string_view messages) {
  std::vector<Message> own, other, contexts;
  for (const std::string_view line : split_lines(messages)) {
    const auto message = parse_message(line);
    if (!message) continue;
    if (message->is_error())
      (message->is_own() ? own : other).push_back(*message);
    else if (message->is_own())
      contexts.push_back(*message);
  }
  const std::vector<Message>& shown = own.empty() ? other : own;
  if (shown.empty()) return std::string(messages.substr(0, 2000));
  std::string result;
  for (size_t i = 0; i < std::min(shown.size(), kMaxMessages); ++i) result += fmt::format("  {}\n", shown[i].all);
  if (shown.size() > kMaxMessages) result += fmt::format("  and {} more\n", shown.size() - kMaxMessages);
  // An error inside the vocabulary is the variant's, where it called it.
  if (own.empty() && !contexts.empty()) result += fmt::format("  {}\n", contexts.front().all);
  const Message& first = own.empty() && !contexts.empty() ? contexts.front() : shown.front();
  return result + excerpt(text, first.file, first.line);
}

}  // namespace weft::jit
