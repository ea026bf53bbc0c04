// Words of a variant's text, and the nearest right name for a wrong one.
#include <algorithm>
#include <cctype>
#include <numeric>

#include "attention/variant_text.h"

namespace weft {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int next = std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = row[j + 1];
      row[j + 1] = next;
    }
  }
  return row.back();
}

}  // namespace

std::vector<Word> words(std::string_view text) {
  std::vector<Word> found;
  size_t i = 0;
  while (i < text.size()) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t end = text.find("*/", i + 2);
      i = end == text.npos ? text.size() : end + 2;
    } else if (text[i] == '"' || text[i] == '\'') {
      const char quote = text[i++];
      while (i < text.size() && text[i] != quote) i += text[i] == '\\' ? 2 : 1;
      ++i;
    } else if (is_word(text[i])) {
      const size_t begin = i;
      // A digit starts a number, whose quotes (1'000) belong to it.
      const bool number = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
      while (i < text.size() && (is_word(text[i]) || (number && text[i] == '\''))) ++i;
      found.push_back({text.substr(begin, i - begin), begin});
    } else {
      ++i;
    }
  }
  return found;
}

bool mentions(std::string_view text, std::string_view word) {
  const auto all = words(text);
  return std::any_of(all.begin(), all.end(), [&](const Word& w) { return w.word == word; });
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  int distance = std::max(2, static_cast<int>(name.size()) / 3) + 1;
  for (const std::string& candidate : known) {
    const int d = edit_distance(name, candidate);
    if (d < distance) {
      distance = d;
      best = &candidate;
    }
  }
  return best != nullptr ? "; did you mean '" + *best + "'?" : "";
}

}  // namespace weft
