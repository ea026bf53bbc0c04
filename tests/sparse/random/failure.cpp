// What the error of a run has to say.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tests/sparse/random/program.h"

namespace weft::sparse::random {
namespace {

// "2, 5 or beyond"
std::string place_of(const ProgramDef& program, const std::string& buffer, const std::vector<int64_t>& at) {
  std::string text;
  for (size_t d = 0; d < at.size(); ++d) {
    const bool is_beyond = at[d] == program.axis(program.buffer(buffer).axes[d]).length;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", at[d] < 0 ? "below 0" : std::to_string(at[d]),
                        is_beyond ? " or beyond" : "");
  }
  return text;
}

// Which of a division's iterators its text names, in their order there.
std::vector<size_t> iterators_in(const std::string& text, const Failures::Division& division) {
  std::vector<size_t> found;
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if_not(at, text.end(), is_of_name);
    const auto name = std::find(division.iterators.begin(), division.iterators.end(), std::string(at, end));
    const auto place = static_cast<size_t>(name - division.iterators.begin());
    if (name != division.iterators.end() && std::find(found.begin(), found.end(), place) == found.end())
      found.push_back(place);
    at = end == text.end() ? end : std::max(end, at + 1);
  }
  return found;
}

// The least coordinates of the iterators that the text of the division names: "divides by 0 at (i = 2, j = 0): TEXT".
std::string words_of(const Failures::Division& division, const std::string& text) {
  const std::vector<size_t> named = iterators_in(text, division);
  std::vector<std::vector<int64_t>> places;
  for (const std::vector<int64_t>& at : division.at) {
    std::vector<int64_t>& place = places.emplace_back();
    for (const size_t i : named) place.push_back(at[i]);
  }
  const std::vector<int64_t>& least = *std::min_element(places.begin(), places.end());
  std::string at;
  for (size_t n = 0; n < named.size(); ++n)
    at += fmt::format("{}{} = {}", at.empty() ? "" : ", ", division.iterators[named[n]], least[n]);
  return fmt::format("divides by 0{}: {};", at.empty() ? "" : fmt::format(" at ({})", at), text);
}

// What an error says has been divided.
std::string division_in(const std::string& message) {
  const auto says = message.find("divides by 0"), begin = message.find(": ", says), end = message.rfind("; leave such");
  return says == message.npos || begin == message.npos || end == message.npos || end < begin + 2
             ? ""
             : message.substr(begin + 2, end - begin - 2);
}

}  // namespace

bool Results::divides_by_zero() const {
  return std::any_of(failures.begin(), failures.end(), [](const auto& of) { return !of.second.divisions.empty(); });
}

std::string wrong_failure(const ProgramDef& program, const Results& want, const std::string& message, bool in_formats) {
  if (want.failures.empty() != message.empty()) return message.empty() ? "the run does not fail" : message;
  if (message.empty()) return {};
  const auto says = [&](const std::string& text) { return message.find(text) != message.npos; };
  if (in_formats) {
    for (const auto& [iteration, failures] : want.failures)
      if (says(fmt::format("{}: iteration '{}", program.name, iteration))) return {};
    return message;
  }
  const auto& [iteration, failures] = *want.failures.begin();
  std::vector<std::string> allowed;
  // Which of its divisions is first, their text decides. What it names is what the compiler has left of it: of what is
  // multiplied by 0 nothing.
  for (const Failures::Division& division : failures.divisions)
    allowed.push_back(words_of(division, division_in(message)));
  if (allowed.empty()) {
    const auto& [buffer, at] = *failures.writes.begin();
    allowed.push_back(
        fmt::format("writes '{}' at ({}), where it stores nothing", buffer, place_of(program, buffer, at)));
  }
  const std::string begin = fmt::format("{}: iteration '{}' ", program.name, iteration);
  const bool is_right =
      std::any_of(allowed.begin(), allowed.end(), [&](const std::string& words) { return says(begin + words); });
  return is_right ? "" : fmt::format("{}\nnot: {}{}", message, begin, allowed[0]);
}

}  // namespace weft::sparse::random
