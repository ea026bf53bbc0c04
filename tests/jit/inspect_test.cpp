#include <sys/stat.h>
#include <utime.h>

#include <ctime>

#include "support.h"
#include "weft/jit.h"

namespace weft::jit {
namespace {

class InspectTest : public JitTest {
 protected:
  // Builds answers 1 to n, each a day older than the one before; returns their keys.
  std::vector<std::string> build_days(int n) {
    std::vector<std::string> keys;
    for (int i = 1; i <= n; ++i) {
      load(request_of(i));
      for (const Entry& entry : list())
        if (entry.name == request_of(i).name) keys.push_back(entry.key);
      const utimbuf times{std::time(nullptr) - i * 86400, std::time(nullptr) - i * 86400};
      EXPECT_EQ(utime((cache_ + "/modules/" + keys.back()).c_str(), &times), 0);
    }
    return keys;
  }
};

TEST_F(InspectTest, ListsNothingWhereThereIsNoCache) {
  EXPECT_TRUE(list().empty());
  EXPECT_TRUE(verify().empty());
  EXPECT_TRUE(prune({.max_bytes = 0}).empty());
  EXPECT_TRUE(names_in(cache_).empty());
}

TEST_F(InspectTest, ListsWhatWasBuiltNewestFirst) {
  const auto keys = build_days(2);
  const auto entries = list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key, keys[0]);
  EXPECT_EQ(entries[0].name, "answer 1");
  EXPECT_EQ(entries[0].compiler, host_compiler().version);
  EXPECT_TRUE(entries[0].intact);
  EXPECT_EQ(entries[0].bytes, read(cache_ + "/modules/" + keys[0]).size());
  EXPECT_NEAR(static_cast<double>(entries[1].modified_s), static_cast<double>(std::time(nullptr) - 2 * 86400), 60);
}

TEST_F(InspectTest, ShowsTheTextUnderAUniquePrefix) {
  const auto keys = build_days(2);
  EXPECT_EQ(source(keys[0]), text_of(1));
  EXPECT_EQ(source(keys[1].substr(0, 12)), text_of(2));
  EXPECT_EQ(answer_of(Module::load(object(keys[1].substr(0, 12)), "again")), 2);
  for (const std::string& wrong : {std::string("abc"), std::string(), std::string(12, 'x'), keys[0] + "0"}) {
    const Error error = error_of([&] { source(wrong); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << wrong;
  }
  const std::string twin = keys[0].substr(0, 63) + (keys[0][63] == '0' ? "1" : "0");
  write("cache/modules/" + twin, "x");
  const Error error = error_of([&] { source(keys[0].substr(0, 8)); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(contains(error.what(), "ambiguous")) << error.what();
  EXPECT_EQ(error_of([&] { source(twin); }).code(), ErrorCode::invalid_file);
}

TEST_F(InspectTest, VerifyRemovesTheBrokenAndKeepsTheSound) {
  const auto keys = build_days(2);
  write("cache/modules/" + keys[1], "broken");
  for (const Entry& entry : list()) EXPECT_EQ(entry.intact, entry.key == keys[0]);
  const auto removed = verify();
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].key, keys[1]);
  EXPECT_EQ(names_in(cache_ + "/modules"), std::vector<std::string>{keys[0]});
  EXPECT_TRUE(verify().empty());
}

TEST_F(InspectTest, PruneRemovesTheOldestUntilTheRestFits) {
  const auto keys = build_days(3);
  EXPECT_TRUE(prune({}).empty());
  EXPECT_TRUE(prune({.max_bytes = 1 << 30}).empty());
  const auto size = static_cast<int64_t>(list()[0].bytes);
  int64_t total = 0;
  for (const Entry& entry : list()) total += static_cast<int64_t>(entry.bytes);
  EXPECT_TRUE(prune({.max_bytes = total}).empty());  // it fits
  const auto removed = prune({.max_bytes = 2 * size + size / 2});
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].key, keys[2]);
  EXPECT_EQ(prune({.max_bytes = 0}).size(), 2u);
  EXPECT_TRUE(list().empty());
}

TEST_F(InspectTest, PruneRemovesWhatIsTooOld) {
  const auto keys = build_days(3);
  const auto removed = prune({.max_age_s = 86400 * 5 / 2});
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].key, keys[2]);
  EXPECT_EQ(error_of([] { prune({.max_age_s = -2}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([] { prune({.max_bytes = -5}); }).code(), ErrorCode::invalid_argument);
}

TEST_F(InspectTest, AnExportServesWithoutACompilerElsewhere) {
  const auto keys = build_days(2);
  const std::string folder = folder_ + "/a/new/folder";
  export_to(folder, {keys[0].substr(0, 16)});
  const ScopedEnv cache("WEFT_CACHE_DIR", folder.c_str()), none("WEFT_CXX", "none");
  EXPECT_EQ(build_elsewhere(text_of(1)).output, "disk 1\n");
  EXPECT_EQ(build_elsewhere(text_of(2)).exit_code, 3);
  ASSERT_EQ(list().size(), 1u);
  EXPECT_EQ(list()[0].key, keys[0]);
}

TEST_F(InspectTest, AnExportOfAllTakesAllThatIsSound) {
  const auto keys = build_days(3);
  write("cache/modules/" + keys[2], "broken");
  export_to(folder_ + "/export");
  EXPECT_EQ(names_in(folder_ + "/export/modules").size(), 2u);
  EXPECT_TRUE(names_in(folder_ + "/export/build").empty());
  EXPECT_EQ(error_of([&] { export_to(folder_ + "/export", {keys[2]}); }).code(), ErrorCode::invalid_file);
}

TEST_F(InspectTest, ExportRefusesAFolderThatCannotBeACache) {
  EXPECT_EQ(error_of([&] { export_to(folder_ + "/export"); }).code(), ErrorCode::invalid_argument);  // nothing there
  build_days(1);
  EXPECT_EQ(error_of([] { export_to(""); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { export_to(cache_); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { export_to(folder_ + "/export", {"0123456789"}); }).code(), ErrorCode::invalid_argument);
  const std::string open_folder = folder_ + "/open";
  mkdir(open_folder.c_str(), 0700);
  chmod(open_folder.c_str(), 0777);
  EXPECT_EQ(error_of([&] { export_to(open_folder); }).code(), ErrorCode::cache_refused);
  EXPECT_EQ(error_of([&] { export_to(write("file", "")); }).code(), ErrorCode::io_error);
}

}  // namespace
}  // namespace weft::jit
