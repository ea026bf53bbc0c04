// What the documents say of the code holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
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

TEST(Docs, PathsNamesFilesThatExistEachFromAnEarlierStepOn) {
  const std::string text = read("docs/paths.md");
  const std::regex step("\n([0-9]+)\\. `([^`]+)`");
  int expected = 1, steps = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), step), end; it != end; ++it, ++steps) {
    const int number = std::stoi((*it)[1]);
    if (number == 1) expected = 1;  // another path begins
    EXPECT_EQ(number, expected++) << (*it)[2];
    EXPECT_TRUE(fs::exists(kRoot / (*it)[2].str())) << (*it)[2];
  }
  EXPECT_GE(steps, 8);
}

TEST(Docs, AttentionCallIsFollowedInTheOrderOfItsLayers) {
  const std::string text = read("docs/paths.md");
  size_t at = 0;
  for (const char* file : {"include/weft/attention.h", "src/attention/spec.cpp", "src/attention/variant/text.cpp",
                           "src/jit/build.cpp", "src/attention/plan/plan.cpp", "src/attention/run.cpp"}) {
    const size_t next = text.find(fmt::format("`{}`", file), at);
    ASSERT_NE(next, std::string::npos) << file << " is missing or comes too early";
    at = next;
  }
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
