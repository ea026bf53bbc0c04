// What reaches the disk, in which order, and what is left when a folder disappears meanwhile. The calls of this program
// that write, sync and rename go through the functions below, which note them while a test asks for it.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "jit/cache.h"
#include "support.h"

namespace {

struct Event {
  enum class Kind { write, sync, rename };
  Kind kind;
  ino_t file;  // by inode: names change
  std::string name = {};
  size_t bytes = 0;
};
std::vector<Event>* g_events = nullptr;  // of the thread that asked
thread_local bool t_is_noted = false;
bool g_sync_fails = false;

ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

extern "C" {
ssize_t write(int fd, const void* bytes, size_t count) {
  const ssize_t written = syscall(SYS_write, fd, bytes, count);
  if (t_is_noted && written > 0)
    g_events->push_back({Event::Kind::write, inode_of(fd), {}, static_cast<size_t>(written)});
  return written;
}
int fsync(int fd) {
  if (t_is_noted) g_events->push_back({Event::Kind::sync, inode_of(fd)});
  if (t_is_noted && g_sync_fails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  if (t_is_noted) {
    struct stat status {};
    fstatat(from_folder, from, &status, AT_SYMLINK_NOFOLLOW);
    g_events->push_back({Event::Kind::rename, status.st_ino, to});
  }
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}
}

namespace weft::jit {
namespace {

class DurabilityTest : public JitTest {
 protected:
  ~DurabilityTest() override { stop(); }
  void start(bool sync_fails = false) {
    g_events = &events_;
    g_sync_fails = sync_fails;
    t_is_noted = true;
  }
  void stop() { t_is_noted = g_sync_fails = false; }
  size_t place_of_rename(const std::string& name) const {
    const auto found = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
      return event.kind == Event::Kind::rename && event.name == name;
    });
    return static_cast<size_t>(found - events_.begin());
  }
  std::vector<Event> events_;
};

TEST_F(DurabilityTest, SyncsEveryByteOfAFileBeforeItsNameIsThere) {
  start();
  load(request_of(110));
  stop();
  size_t num_renamed = 0;
  for (const char* subfolder : {"stamps", "compilers", "modules"})
    for (const std::string& name : names_in(cache_ + "/" + subfolder)) {
      const size_t renamed = place_of_rename(name);
      ASSERT_LT(renamed, events_.size()) << subfolder << "/" << name << " was not renamed into its place";
      size_t written = 0, synced = 0;
      for (size_t i = 0; i < events_.size(); ++i) {
        if (events_[i].file != events_[renamed].file) continue;
        EXPECT_TRUE(i <= renamed) << subfolder << "/" << name << " changes after it was renamed";
        if (events_[i].kind == Event::Kind::write) written += events_[i].bytes;
        if (events_[i].kind == Event::Kind::sync) synced = written;
      }
      EXPECT_EQ(synced, std::filesystem::file_size(cache_ + "/" + subfolder + "/" + name)) << subfolder << "/" << name;
      ++num_renamed;
    }
  EXPECT_EQ(num_renamed, 3u);
}

TEST_F(DurabilityTest, PublishesTheCompilersIdentityBeforeTheModuleThatNeedsIt) {
  start();
  load(request_of(111));
  stop();
  const auto modules = names_in(cache_ + "/modules"), compilers = names_in(cache_ + "/compilers");
  ASSERT_EQ(modules.size(), 1u);
  ASSERT_EQ(compilers.size(), 1u);
  EXPECT_LT(place_of_rename(compilers[0]), place_of_rename(modules[0]));
  EXPECT_LT(place_of_rename(modules[0]), events_.size());
}

TEST_F(DurabilityTest, PublishesNothingThatCouldNotBeSynced) {
  start(true);
  const auto module = load(request_of(112));
  stop();
  EXPECT_EQ(answer_of(module), 112);
  for (const char* subfolder : {"stamps", "compilers", "modules", "build"})
    EXPECT_TRUE(names_in(cache_ + "/" + subfolder).empty()) << subfolder;
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_TRUE(contains(warnings()[0], "Input/output error")) << warnings()[0];
}

TEST_F(DurabilityTest, GivesTheModuleWhenTheCacheIsRemovedBetweenLookUpAndLock) {
  // The compiler is asked who it is when the cache has been opened and nothing in it locked for the module yet.
  const std::string remover = write("remover", "#!/bin/sh\ncase \"$*\" in\n  -print-prog-name*) rm -rf " + cache_ +
                                                   "; echo cc1plus; exit 0;;\nesac\nexec " WEFT_TEST_CXX " \"$@\"\n");
  chmod(remover.c_str(), 0700);
  {
    const ScopedEnv wanted("WEFT_CXX", remover.c_str());
    EXPECT_EQ(answer_of(load(request_of(113))), 113);
    EXPECT_EQ(origin_, Origin::compiler);
  }
  EXPECT_FALSE(std::filesystem::exists(cache_));
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_TRUE(contains(warnings()[0], "cannot be written")) << warnings()[0];
  EXPECT_TRUE(names_in(folder_ + "/weft-" + std::to_string(geteuid()) + "/build").empty());
  EXPECT_EQ(answer_of(load(request_of(114))), 114);  // makes it again
  EXPECT_EQ(names_in(cache_ + "/modules").size(), 1u);
}

TEST_F(DurabilityTest, GivesTheModuleWhenTheCacheIsRemovedWhileItCompiles) {
  const ScopedEnv wanted("WEFT_CXX", make_compiler("remover", "rm -rf " + cache_).c_str());
  EXPECT_EQ(answer_of(load(request_of(115))), 115);
  EXPECT_FALSE(std::filesystem::exists(cache_));
  ASSERT_FALSE(warnings().empty());
  EXPECT_TRUE(contains(warnings()[0], "cannot be written")) << warnings()[0];
}

TEST_F(DurabilityTest, WhoeverWaitedForALockHoldsAFolderThatIsThere) {
  const auto cache = Cache::open(cache_, true);
  ASSERT_TRUE(cache);
  auto held = cache->lock("name");
  ASSERT_TRUE(held);
  std::atomic<bool> has_it = false;
  std::optional<BuildFolder> waited;
  std::thread waiter([&] {
    if (auto folder = cache->lock("name")) waited.emplace(std::move(*folder));
    has_it = true;
  });
  usleep(50'000);
  EXPECT_FALSE(has_it);
  held.reset();  // removes the folder that the other waits for
  waiter.join();
  ASSERT_TRUE(waited);
  EXPECT_EQ(names_in(cache_ + "/build"), std::vector<std::string>{"name"});
  struct stat named {
  }, opened{};
  ASSERT_EQ(stat(waited->path().c_str(), &named), 0);
  ASSERT_EQ(fstat(waited->fd(), &opened), 0);
  EXPECT_EQ(named.st_ino, opened.st_ino);
}

}  // namespace
}  // namespace weft::jit
