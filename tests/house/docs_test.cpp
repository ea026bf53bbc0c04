// What the documents say of the code holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/env.h"
#include "weft/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = WEFT_SOURCE_DIR;

std::string read(const std::string& path) {
  std::ifstream in(kRoot / path);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string without_indents(const std::string& text) {
  static const std::regex kIndent("(^|\n) +");
  return std::regex_replace(text, kIndent, "$1");
}

// The cells of a table's rows, without the header: | `NAME` | second | ...
std::vector<std::vector<std::string>> rows(const std::string& document) {
  std::vector<std::vector<std::string>> result;
  std::istringstream in(read(document));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::string cell;
    for (size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
        cell += line[++i];
      } else if (line[i] == '|') {
        const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
        cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
    result.push_back(cells);
  }
  return result;
}

TEST(Docs, EnvListsEveryVariableAsTheTableInTheCodeDoes) {
  const auto table = rows("docs/env.md");
  ASSERT_EQ(table.size(), env::variables().size());
  for (size_t i = 0; i < table.size(); ++i) {
    const env::Variable& variable = env::variables()[i];
    ASSERT_EQ(table[i].size(), 3u);
    EXPECT_EQ(table[i][0], fmt::format("`{}`", variable.name));
    EXPECT_EQ(table[i][1], variable.values);
    EXPECT_EQ(table[i][2], variable.effect);
  }
}

TEST(Docs, NoOtherWeftVariableIsReadAnywhere) {
  std::set<std::string> known;
  for (const env::Variable& variable : env::variables()) known.insert(std::string(variable.name));
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "src")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    const std::string relative = fs::relative(entry.path(), kRoot).string();
    const std::string text = read(relative);
    if (relative != "src/base/env.cpp") {
      EXPECT_EQ(text.find("getenv("), std::string::npos) << relative << " reads the environment";
    }
    static const std::regex kRead("get\\(\"(WEFT_[A-Z_]+)\"\\)");
    for (std::sregex_iterator it(text.begin(), text.end(), kRead), end; it != end; ++it)
      EXPECT_TRUE(known.contains((*it)[1])) << relative << ": " << (*it)[1];
  }
}

TEST(Docs, ErrorsListsEveryCodeWithAnExampleAndARemedy) {
  const auto table = rows("docs/errors.md");
  size_t code = 0;
  for (; to_string(static_cast<ErrorCode>(code)) != "unknown"; ++code) {
    ASSERT_LT(code, table.size());
    ASSERT_EQ(table[code].size(), 4u);
    EXPECT_EQ(table[code][0], fmt::format("`{}`", to_string(static_cast<ErrorCode>(code))));
    for (const std::string& cell : table[code]) EXPECT_FALSE(cell.empty()) << table[code][0];
  }
  EXPECT_EQ(table.size(), code);
}

// A step of docs/paths.md: "N. `file`, `Class::function`: text"; steps of some paths name no function.
struct Step {
  std::string file, function;
};
struct Path {
  std::string title;
  std::vector<Step> steps;
};

std::vector<Path> paths() {
  std::vector<Path> result;
  std::istringstream in(read("docs/paths.md"));
  static const std::regex kStep("([0-9]+)\\. `([^`]+)`(, `([^`]+)`:)?.*");
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) result.push_back({line.substr(3), {}});
    if (!std::regex_match(line, match, kStep)) continue;
    result.back().steps.push_back({match[2], match[4]});
    EXPECT_EQ(std::stoul(match[1]), result.back().steps.size()) << line;
  }
  return result;
}

const Path& path(const std::vector<Path>& all, const std::string& title) {
  for (const Path& path : all)
    if (path.title == title) return path;
  throw std::runtime_error("docs/paths.md has no path '" + title + "'");
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where a file names a function or class, by its last part, from a place on, followed by one of these; npos: it does
// not.
size_t named(const std::string& file, const std::string& function, size_t from = 0,
             const std::vector<std::string>& followed_by = {""}) {
  const std::string name = function.substr(function.rfind(':') + 1), text = read(file);
  for (size_t at = text.find(name, from); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    for (const std::string& next : followed_by)
      if (text.compare(end, next.size(), next) == 0) return at;
  }
  return std::string::npos;
}
bool has(const std::string& file, const std::string& function) {
  return named(file, function, 0, {"(", " (", "{", " {"}) != std::string::npos;
}

TEST(Docs, PathsNameFilesAndFunctionsThatExistAndNoFileTwice) {
  int num_paths = 0;
  for (const Path& path : paths()) {
    std::set<std::string> files;
    for (const Step& step : path.steps) {
      EXPECT_TRUE(files.insert(step.file).second) << path.title << " enters " << step.file << " twice";
      ASSERT_TRUE(fs::exists(kRoot / step.file)) << step.file;
      if (!step.function.empty()) {
        EXPECT_TRUE(has(step.file, step.function)) << step.file << " has no " << step.function;
      }
    }
    num_paths += !path.steps.empty();
  }
  EXPECT_GE(num_paths, 6);
}

// Those that one file leads to come in the order in which it names them.
TEST(Docs, EachStepOfAPathIsNamedByTheFileOfAnEarlierOne) {
  for (const Path& path : paths()) {
    std::map<size_t, size_t> last_named;  // by the step whose file names another
    for (size_t i = 1; i < path.steps.size(); ++i) {
      const Step& step = path.steps[i];
      if (step.function.empty()) continue;
      size_t caller = i;
      while (--caller > 0 && named(path.steps[caller].file, step.function) == std::string::npos) {
      }
      const size_t at = named(path.steps[caller].file, step.function, last_named[caller]);
      ASSERT_NE(at, std::string::npos) << path.title << ": " << path.steps[caller].file << " does not name "
                                       << step.function << " of " << step.file << " after the steps between them";
      last_named[caller] = at;
    }
  }
}

TEST(Docs, OneRunIsFollowedInTwelveFilesAndAnItemInEight) {
  const std::vector<Path> all = paths();
  for (const char* title : {"One run of decode", "One run of prefill"}) {
    const std::vector<Step>& steps = path(all, title).steps;
    ASSERT_FALSE(steps.empty());
    EXPECT_LE(steps.size(), 12u) << title;
    EXPECT_EQ(steps.front().file, "include/weft/attention.h");
    size_t attend = 0;
    while (attend < steps.size() && !steps[attend].file.ends_with("/attend.cpp")) ++attend;
    ASSERT_LT(attend, steps.size()) << title;
    EXPECT_LE(steps.size() - attend, 8u) << title;
  }
}

TEST(Docs, WhereIsAnswersWithAFileAndAFunctionInIt) {
  const std::string text = read("docs/paths.md");
  const std::string section = text.substr(text.find("\n## Where is"));
  static const std::regex kAnswer("\n\\| ([^|]+)\\? \\| `([^`]+)`, `([^`]+)` \\|");
  std::string questions;
  for (std::sregex_iterator it(section.begin(), section.end(), kAnswer), end; it != end; ++it) {
    const std::smatch& answer = *it;
    questions += answer[1].str() + "\n";
    ASSERT_TRUE(fs::exists(kRoot / answer[2].str())) << answer[2];
    EXPECT_TRUE(has(answer[2], answer[3])) << answer[2] << " has no " << answer[3];
  }
  for (const char* asked :
       {"page pointer resolved", "score masked", "given its scale", "partial merged", "missing leaf"})
    EXPECT_NE(questions.find(asked), std::string::npos) << asked;
}

TEST(Docs, LinksBetweenDocumentsLeadSomewhere) {
  const std::regex link("\\]\\(([^)#:]+)(#[^)]*)?\\)");
  std::vector<fs::path> documents = {kRoot / "README.md", kRoot / "ARCHITECTURE.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  for (const fs::path& document : documents) {
    const std::string text = read(fs::relative(document, kRoot).string());
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
      EXPECT_TRUE(fs::exists(document.parent_path() / (*it)[1].str())) << document.filename() << ": " << (*it)[1];
  }
}

TEST(Docs, ReadmesProgramIsTheOneThatIsBuiltAgainstTheInstalledTree) {
  const std::string readme = read("README.md");
  const size_t begin = readme.find("```cpp\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = readme.find("```", begin + 7);
  EXPECT_EQ(readme.substr(begin + 7, end - begin - 7), read("tests/install/consumer/attend.cpp"));
}

TEST(Docs, SparseBeginsWithTheExampleThatIsBuilt) {
  const std::string document = read("docs/sparse.md"), begin = "```cpp\n";
  const size_t at = document.find(begin) + begin.size();
  EXPECT_EQ(document.substr(at, document.find("```", at) - at), read("examples/sparse_files.cpp"));
}

TEST(Docs, ReadmesFiguresAreThoseOfTheTablesOfPerformance) {
  const std::string performance = read("docs/performance.md");
  std::string section = read("README.md");
  section.erase(0, section.find("## How fast"));
  section.erase(section.find("\n## ", 1));
  static const std::regex kRow("\n\\| ([^|]+) \\| ([^|]+) \\|([^|]*)\\| ([^|]+) \\| ([^|]+) \\|");
  int rows = 0;
  for (std::sregex_iterator it(section.begin(), section.end(), kRow), end; it != end; ++it) {
    const std::smatch& cells = *it;
    if (cells[1] == "Work") continue;
    ++rows;
    // There: "| work[, quick] | figure (lowest to highest) | ...", with more cells between.
    size_t begin = performance.find(fmt::format("\n| {}, quick |", cells[1].str()));
    if (begin == std::string::npos) begin = performance.find(fmt::format("\n| {} |", cells[1].str()));
    ASSERT_NE(begin, std::string::npos) << cells[1];
    const std::string row = performance.substr(begin, performance.find('\n', begin + 1) - begin);
    for (const int cell : {2, 3, 4, 5}) {
      const std::string text = std::regex_replace(cells[cell].str(), std::regex("^ +| +$"), "");
      EXPECT_NE(row.find(" " + text), std::string::npos) << cells[1] << ": " << text << "\n" << row;
    }
  }
  EXPECT_EQ(rows, 8);
}

TEST(Docs, ReadmesFiguresOfCardsAreThoseOfTheResults) {
  struct Row {
    const char *work, *results, *line;
  };
  static constexpr Row kRows[] = {
      {"H100: decode of a llama-like 8B model", "gpu",
       R"("case": "8b bf16 random decode batch1 ctx1024, layered".*"metric": "speed",)"},
      {"H100: decode attention", "gpu",
       R"("case": "decode 32q/8kv hd128 page16 bf16 batch16 kv8192",.*"metric": "bandwidth",)"},
      {"H200: prefill attention", "gpu_h200",
       R"("case": "prefill causal 16q/16kv hd128 page16 bf16 batch4 n4096",.*"metric": "rate",)"}};
  const std::string readme = read("README.md");
  for (const Row& row : kRows) {
    const std::regex kLine("\n\\| " + std::string(row.work) + R"([^|]*\| ([0-9,]+) [^|]*\| ([0-9]*))");
    std::smatch cells;
    ASSERT_TRUE(std::regex_search(readme, cells, kLine)) << row.work;
    std::istringstream results(read(fmt::format("bench/results/{}.jsonl", row.results)));
    const std::regex kResult(row.line);
    std::string line, found;
    while (std::getline(results, line))
      if (std::regex_search(line, kResult)) found = line;  // the last one counts
    const auto number = [&](const char* key) {
      std::smatch match;
      const std::regex kNumber(fmt::format("\"{}\": ([0-9.]+)", key));
      return std::regex_search(found, match, kNumber) ? std::stod(match[1]) : 0;
    };
    const std::string figure = std::regex_replace(cells[1].str(), std::regex(","), "");
    EXPECT_EQ(figure, fmt::format("{:.0f}", number("value"))) << row.work;
    if (cells[2].length() > 0) {
      EXPECT_EQ(cells[2].str(), fmt::format("{:.0f}", 100 * number("share"))) << row.work;
    }
  }
}

TEST(Docs, ReadmesOtherExamplesArePartsOfLessons) {
  std::string lessons;
  for (const auto& entry : fs::directory_iterator(kRoot / "examples"))
    if (entry.path().extension() == ".cpp")
      lessons += without_indents(read(fs::relative(entry.path(), kRoot).string()));
  const std::string readme = read("README.md");
  int examples = 0;
  for (size_t at = readme.find("```cpp\n"); at != std::string::npos; at = readme.find("```cpp\n", at + 7)) {
    if (examples++ == 0) continue;  // the program of the test before
    const std::string example = readme.substr(at + 7, readme.find("```", at + 7) - at - 7);
    EXPECT_NE(lessons.find(without_indents(example)), std::string::npos) << example;
  }
  EXPECT_GE(examples, 2);
}

}  // namespace
}  // namespace weft
