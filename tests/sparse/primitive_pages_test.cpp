// docs/sparse/primitives.md: every text on it is what the compiler prints. WEFT_UPDATE_GOLDEN=1 writes what it is now.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sparse/schedule_line.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

// The page as lines; fences are the lines between two of ```.
struct Page {
  std::vector<std::string> lines;
  explicit Page(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  // From a line on, the next fence: its first line and the one behind its last.
  std::pair<size_t, size_t> fence(size_t from) const {
    const auto mark = [&](size_t at) {
      while (at < lines.size() && lines[at] != "```") ++at;
      return at;
    };
    const size_t open = mark(from);
    return {open + 1, mark(open + 1)};
  }
  std::string text(const std::pair<size_t, size_t>& range) const {
    std::string text;
    for (size_t l = range.first; l < range.second; ++l) text += lines[l] + "\n";
    return text;
  }
  // Other lines in a fence; the place behind them.
  size_t replace(const std::pair<size_t, size_t>& range, const std::string& text) {
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(range.first),
                lines.begin() + static_cast<std::ptrdiff_t>(range.second));
    std::istringstream in(text);
    size_t at = range.first;
    for (std::string line; std::getline(in, line); ++at)
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), line);
    return at;
  }
};

// "# spmm, feat=8" and the lines of a schedule.
struct Example {
  std::string program, schedule;
  std::map<std::string, int64_t> set;
  explicit Example(const std::string& text) {
    const size_t end = text.find('\n');
    std::istringstream head(text.substr(2, end - 2));
    schedule = text.substr(end + 1);
    std::getline(head, program, ',');
    for (std::string word; std::getline(head, word, ',');)
      set[word.substr(1, word.find('=') - 1)] = std::stoll(word.substr(word.find('=') + 1));
  }
  // The last line is the primitive.
  std::string before() const {
    const size_t last = schedule.rfind('\n', schedule.size() - 2);
    return last == schedule.npos ? "" : schedule.substr(0, last + 1);
  }
};

// Iterations or loops, at no indentation.
std::string shown(const Example& example, const std::string& schedule, const std::string& program) {
  const bool stage1 = example.schedule.find("lower()") == std::string::npos;
  const Operator op = compile(parse(program), schedule, Device::cpu(),
                              {.set = example.set, .stop_after = stage1 ? "schedule stage I" : "schedule stage II"});
  std::string text = op.text(stage1 ? "stage1" : "stage2");
  size_t from = text.find(stage1 ? "\n  iterate" : "\n  for");
  if (stage1) from = std::min(from, text.find("\n  preprocess"));
  std::istringstream in(text.substr(from + 1));
  std::string result;
  for (std::string line; std::getline(in, line);) result += line.substr(2) + "\n";
  return result;
}

TEST(Pages, ShowWhatEveryPrimitiveReallyDoes) {
  const std::string path = WEFT_PRIMITIVES;
  const bool update = std::getenv("WEFT_UPDATE_GOLDEN") != nullptr;
  Page page(path);
  std::map<std::string, std::string> programs;
  std::vector<std::string> sections;
  const auto hold = [&](size_t at, const std::string& text, const std::string& what) {
    const auto range = page.fence(at);
    if (update) return page.replace(range, text);
    EXPECT_EQ(page.text(range), text) << what;
    return range.second;
  };
  for (size_t l = 0; l < page.lines.size(); ++l) {
    if (sections.empty() && page.lines[l] == "```") {
      const auto range = page.fence(l);
      const std::string& head = page.lines[range.first];
      programs[head.substr(8, head.find('(') - 8)] = page.text(range);
      l = range.second;
      continue;
    }
    // A section has an example, and may have others below a heading of their own.
    const bool is_section = page.lines[l].starts_with("## ");
    if (!is_section && !page.lines[l].starts_with("### ")) continue;
    if (is_section) sections.push_back(page.lines[l].substr(3));
    const std::string& name = sections.back();
    const auto schedule = page.fence(l);
    const Example example(page.text(schedule));
    const std::string program = programs.at(example.program);
    const std::string last = example.schedule.substr(example.before().size());
    EXPECT_NE(last.find(name + "("), std::string::npos) << name;
    size_t at = hold(schedule.second + 1, shown(example, example.before(), program), name + ", before");
    at = hold(at + 1, shown(example, example.schedule, program), name + ", after");
    if (!is_section) {
      l = at;
      continue;
    }
    const auto refused = page.fence(at + 1);
    const Example wrong(page.text(refused));
    EXPECT_NE(wrong.schedule.find(name + "("), std::string::npos) << name;
    const std::string message = refusal([&] {
      compile(parse(programs.at(wrong.program)), wrong.schedule, Device::cpu(),
              {.set = wrong.set, .stop_after = "schedule stage II"});
    });
    EXPECT_NE(message, "") << name << ": not refused";
    for (l = refused.second + 1; l < page.lines.size() && !page.lines[l].starts_with(">");) ++l;
    ASSERT_LT(l, page.lines.size()) << name;
    if (update) page.lines[l] = "> " + message;
    EXPECT_EQ(page.lines[l], "> " + message) << name;
  }
  std::vector<std::string> all = stage1_primitives();
  all.insert(all.end(), stage2_primitives().begin(), stage2_primitives().end());
  std::sort(all.begin(), all.end());
  std::sort(sections.begin(), sections.end());
  EXPECT_EQ(sections, all);
  if (!update) return;
  std::ofstream out(path);
  for (const std::string& line : page.lines) out << line << "\n";
}

}  // namespace
}  // namespace weft::sparse::test
