#include "device/cpu/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weft {
namespace {

namespace fs = std::filesystem;

// A file system as a process would see it, under a folder of its own.
class CgroupQuota : public testing::Test {
 protected:
  CgroupQuota() : root_(fs::temp_directory_path() / ("weft-cgroup-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~CgroupQuota() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota() const { return cgroup_quota(root_.string()); }

 private:
  fs::path root_;
};

TEST_F(CgroupQuota, IsNoneWithoutControlGroups) { EXPECT_EQ(quota(), 0); }

TEST_F(CgroupQuota, IsReadFromVersion2) {
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
}

TEST_F(CgroupQuota, IsTheLeastOfAllGroupsAbove) {
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/c/cpu.max", "700000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 2);
}

TEST_F(CgroupQuota, IsReadFromVersion1WhereControllersShareAMount) {
  write("proc/self/mountinfo",
        "33 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "34 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("proc/self/cgroup", "5:cpuset:/elsewhere\n4:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota(), 3);
}

TEST_F(CgroupQuota, IsNoneWhenVersion1SaysMinusOne) {
  write("proc/self/mountinfo", "34 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("proc/self/cgroup", "4:cpu:/job\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CgroupQuota, IsFoundInsideAContainerWhoseMountBeginsAtItsOwnGroup) {
  write("proc/self/mountinfo", "34 25 0:30 /docker/77 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("proc/self/cgroup", "4:cpu:/docker/77\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5);
}

}  // namespace
}  // namespace weft
