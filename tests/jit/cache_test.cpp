#include "jit/cache.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "support.h"

namespace weft::jit {
namespace {

class CacheTest : public JitTest {
 protected:
  // Builds a module elsewhere, changes its file, and expects that it is noticed, removed and built again.
  void expect_rebuilt_after(int answer, const std::function<std::string(std::string)>& damage) {
    ASSERT_EQ(build_elsewhere(text_of(answer)).output, "compiler " + std::to_string(answer) + "\n");
    const std::string path = entry_file(), sound = read(path);
    write("cache/modules/" + path.substr(path.rfind('/') + 1), damage(sound));
    EXPECT_EQ(answer_of(load(request_of(answer))), answer);
    EXPECT_EQ(origin_, Origin::compiler);
    EXPECT_EQ(num_compiles(), 2);
    ASSERT_EQ(warnings().size(), 1u);
    EXPECT_TRUE(contains(warnings()[0], "damaged")) << warnings()[0];
    EXPECT_EQ(build_elsewhere(text_of(answer)).output, "disk " + std::to_string(answer) + "\n");
  }
  Error refusal() {
    return error_of([&] { load(request_of(1)); });
  }
};

TEST_F(CacheTest, IsMadeForTheUserAlone) {
  load(request_of(1));
  for (const char* part : {"", "/modules", "/compilers", "/stamps", "/build"}) {
    struct stat status {};
    ASSERT_EQ(stat((cache_ + part).c_str(), &status), 0) << part;
    EXPECT_EQ(status.st_mode & 07777, 0700u) << part;
  }
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
}

TEST_F(CacheTest, RebuildsAfterAFlippedBitInTheCode) {
  expect_rebuilt_after(50, [](std::string file) { return file[file.size() - 100] ^= 4, file; });
}
TEST_F(CacheTest, RebuildsAfterAFlippedBitInTheHeader) {
  expect_rebuilt_after(51, [](std::string file) { return file[3] ^= 1, file; });
}
TEST_F(CacheTest, RebuildsATruncatedEntry) {
  expect_rebuilt_after(52, [](std::string file) { return file.substr(0, file.size() / 2); });
}
TEST_F(CacheTest, RebuildsAnEmptyEntry) {
  expect_rebuilt_after(53, [](const std::string&) { return std::string(); });
}

TEST_F(CacheTest, TellsADamagedEntryThatNoCompilerCanMakeAgain) {
  build_elsewhere(text_of(54));
  write("cache/modules/" + entry_file().substr((cache_ + "/modules/").size()), "not a module");
  const ScopedEnv none("WEFT_CXX", "none");
  const Error error = error_of([&] { load(request_of(54)); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  EXPECT_TRUE(contains(error.what(), "damaged")) << error.what();
  EXPECT_TRUE(names_in(cache_ + "/modules").empty());
}

TEST_F(CacheTest, DoesNotRunAModuleUnderAnothersKey) {
  build_elsewhere(text_of(55));
  const std::string path = entry_file(), other = read(path);
  unlink(path.c_str());
  build_elsewhere(text_of(56));
  const std::string name = entry_file().substr((cache_ + "/modules/").size());
  write("cache/modules/" + name, other);
  EXPECT_EQ(answer_of(load(request_of(56))), 56);
  EXPECT_EQ(origin_, Origin::compiler);
}

TEST_F(CacheTest, DoesNotFollowASymbolicLinkInPlaceOfAnEntry) {
  build_elsewhere(text_of(57));
  const std::string path = entry_file(), elsewhere = folder_ + "/moved";
  ASSERT_EQ(rename(path.c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(symlink(elsewhere.c_str(), path.c_str()), 0);
  EXPECT_EQ(answer_of(load(request_of(57))), 57);
  EXPECT_EQ(origin_, Origin::compiler);
  struct stat status {};
  ASSERT_EQ(lstat(path.c_str(), &status), 0);
  EXPECT_TRUE(S_ISREG(status.st_mode));
}

TEST_F(CacheTest, DoesNotRunAnEntryThatOthersMayWriteOrOwn) {
  const auto expect_rebuilt = [&](int answer, const std::function<void(const char*)>& open_up) {
    build_elsewhere(text_of(answer));
    open_up(entry_file().c_str());
    EXPECT_EQ(answer_of(load(request_of(answer))), answer);
    EXPECT_EQ(origin_, Origin::compiler);
    unlink(entry_file().c_str());
  };
  for (const mode_t mode : {0620u, 0602u})
    expect_rebuilt(static_cast<int>(mode), [&](const char* path) { ASSERT_EQ(chmod(path, mode), 0); });
  if (geteuid() == 0) expect_rebuilt(58, [&](const char* path) { ASSERT_EQ(chown(path, 65534, 65534), 0); });
}

TEST_F(CacheTest, IsRefusedWhenOthersMayWriteIt) {
  for (const mode_t mode : {0770u, 0707u, 0777u, 01777u}) {
    mkdir(cache_.c_str(), 0700);
    chmod(cache_.c_str(), mode);
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::cache_refused) << std::oct << mode;
    EXPECT_TRUE(contains(error.what(), cache_)) << error.what();
    EXPECT_TRUE(contains(error.what(), "WEFT_CACHE_DIR")) << error.what();
  }
  EXPECT_EQ(error_of([] { list(); }).code(), ErrorCode::cache_refused);
  chmod(cache_.c_str(), 0755);
  EXPECT_EQ(answer_of(load(request_of(2))), 2);
}

TEST_F(CacheTest, IsRefusedWhenAFolderInItIsOpenToOthers) {
  build_elsewhere(text_of(3));
  chmod((cache_ + "/modules").c_str(), 0777);
  EXPECT_EQ(refusal().code(), ErrorCode::cache_refused);
}

TEST_F(CacheTest, IsRefusedBehindASymbolicLinkToAnOpenFolder) {
  const std::string target = folder_ + "/open";
  mkdir(target.c_str(), 0700);
  chmod(target.c_str(), 0777);
  ASSERT_EQ(symlink(target.c_str(), cache_.c_str()), 0);
  EXPECT_EQ(refusal().code(), ErrorCode::cache_refused);
  chmod(target.c_str(), 0700);
  EXPECT_EQ(answer_of(load(request_of(4))), 4);
}

TEST_F(CacheTest, IsRefusedWhenSomeoneElseOwnsIt) {
  // The system's own folder stands in where this user may not give folders away.
  mkdir(cache_.c_str(), 0700);
  if (geteuid() == 0)
    ASSERT_EQ(chown(cache_.c_str(), 65534, 65534), 0);
  else
    cache_ = "/usr";
  const ScopedEnv variable("WEFT_CACHE_DIR", cache_.c_str());
  const Error error = refusal();
  EXPECT_EQ(error.code(), ErrorCode::cache_refused);
  EXPECT_TRUE(contains(error.what(), "belongs to user")) << error.what();
}

TEST_F(CacheTest, IsNoConditionForAModule) {
  write("cache", "a file where the folder should be");
  EXPECT_EQ(answer_of(load(request_of(5))), 5);
  EXPECT_EQ(origin_, Origin::compiler);
  ASSERT_FALSE(warnings().empty());
  EXPECT_TRUE(contains(warnings()[0], cache_)) << warnings()[0];
}

TEST_F(CacheTest, DoesNotMakeTheFolderOfTemporaryFilesAndNamesBothPlaces) {
  write("cache", "a file where the folder should be");
  for (const std::string& temporary : {folder_ + "/missing", folder_ + "/missing/deeper", folder_ + "/cache"}) {
    const ScopedEnv variable("TMPDIR", temporary.c_str());
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    for (const std::string& part : {"'" + cache_ + "'", "'" + temporary + "/weft-", std::string("WEFT_CACHE_DIR"),
                                    std::string("TMPDIR"), std::string("answer 1")})
      EXPECT_TRUE(contains(error.what(), part)) << part << ": " << error.what();
    EXPECT_EQ(names_in(folder_), (std::vector<std::string>{"cache", "cxx"}));
  }
}

TEST_F(CacheTest, TakesTheUsersCacheFolderByDefault) {
  const ScopedEnv unset("WEFT_CACHE_DIR", nullptr), home("HOME", folder_.c_str());
  {
    const ScopedEnv xdg("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(cache_dir(), folder_ + "/.cache/weft/kernels");
  }
  const ScopedEnv relative("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(cache_dir(), folder_ + "/.cache/weft/kernels");
  const ScopedEnv xdg("XDG_CACHE_HOME", "/somewhere");
  EXPECT_EQ(cache_dir(), "/somewhere/weft/kernels");
  const ScopedEnv own("WEFT_CACHE_DIR", "kernels");
  EXPECT_EQ(error_of([] { cache_dir(); }).code(), ErrorCode::invalid_argument);
}

TEST_F(CacheTest, IsNoConditionForAModuleWithoutAHome) {
  const ScopedEnv unset("WEFT_CACHE_DIR", nullptr), home("HOME", nullptr), xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(error_of([] { cache_dir(); }).code(), ErrorCode::io_error);
  EXPECT_EQ(answer_of(load(request_of(7))), 7);
}

TEST_F(CacheTest, LeavesNothingHalfWrittenWhenAWriteStopsInTheMiddle) {
  Request request = request_of(59);
  request.name.assign(200'000, 'n');  // makes the entry larger than the limit, and nothing else
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100'000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto module = load(request);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(answer_of(module), 59);
  EXPECT_TRUE(names_in(cache_ + "/modules").empty());
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_TRUE(contains(warnings()[0], "cannot be written")) << warnings()[0];
}

// A file system of 64 KiB, full; a read-only folder where this user may not mount one.
TEST_F(CacheTest, GivesTheModuleAndLeavesNothingWhenTheDiskIsFull) {
  mkdir(cache_.c_str(), 0700);
  const bool is_mounted = mount("tmpfs", cache_.c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0;
  if (is_mounted)
    write("cache/filler", std::string(60 << 10, 'x'));
  else
    chmod(cache_.c_str(), 0500);
  EXPECT_EQ(answer_of(load(request_of(60))), 60);
  EXPECT_EQ(origin_, Origin::compiler);
  EXPECT_TRUE(names_in(cache_ + "/modules").empty());
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
  EXPECT_TRUE(names_in(folder_ + "/weft-" + std::to_string(geteuid()) + "/build").empty());
  EXPECT_FALSE(warnings().empty());
  if (is_mounted)
    umount(cache_.c_str());
  else
    chmod(cache_.c_str(), 0700);
}

}  // namespace
}  // namespace weft::jit
