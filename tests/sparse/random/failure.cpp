// What the error of a run has to say.
#include <fmt/format.h>

#include <algorithm>

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

// The least coordinates of some of the iterators, a bit for each: "divides by 0 at (i = 2, j = 0): ".
std::string words_of(const Failures::Division& division, size_t some) {
  std::vector<std::vector<int64_t>> places;
  for (const std::vector<int64_t>& at : division.at) {
    std::vector<int64_t>& place = places.emplace_back();
    for (size_t i = 0; i < at.size(); ++i)
      if ((some >> i & 1) != 0) place.push_back(at[i]);
  }
  const std::vector<int64_t>& least = *std::min_element(places.begin(), places.end());
  std::string text;
  size_t next = 0;
  for (size_t i = 0; i < division.iterators.size(); ++i)
    if ((some >> i & 1) != 0)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", division.iterators[i], least[next++]);
  return text.empty() ? "divides by 0: " : fmt::format("divides by 0 at ({}): ", text);
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
  // Which of its divisions is first, their text decides, from which iterators are gone that are multiplied by 0.
  std::vector<std::string> allowed;
  for (const Failures::Division& division : failures.divisions)
    for (size_t some = size_t{1} << division.iterators.size(); some-- > 0;) allowed.push_back(words_of(division, some));
  if (allowed.empty()) {
    const auto& [buffer, at] = *failures.writes.begin();
    allowed.push_back(
        fmt::format("writes '{}' at ({}), where it stores nothing", buffer, place_of(program, buffer, at)));
  }
  const std::string begin = fmt::format("{}: iteration '{}' ", program.name, iteration);
  const std::string begin_of_init = fmt::format("{}: iteration '{}_init' ", program.name, iteration);  // of sparse_fuse
  const bool is_right = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& words) {
    return says(begin + words) || says(begin_of_init + words);
  });
  return is_right ? "" : fmt::format("{}\nnot: {}{}", message, begin, allowed[0]);
}

}  // namespace weft::sparse::random
