#include "device/cpu/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A file system as a process would see it, under a folder of its own.
class Cgroup : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const testing::TempFolder folder_;
  const fs::path root_ = folder_.path();
};

class CgroupQuota : public Cgroup {
 protected:
  double quota() const { return cgroup_quota(root_.string()); }
};

class AvailableMemory : public Cgroup {
 protected:
  AvailableMemory() { write("proc/meminfo", "MemTotal:       9000 kB\nMemAvailable:    8000 kB\nCached: 1 kB\n"); }
  uint64_t available() const { return available_memory(root_.string()); }
};

TEST_F(Cgroup, PeakMemoryIsWhatTheSystemSaysOfTheProcess) {
  EXPECT_EQ(peak_memory(root_.string()), 0u);
  write("proc/self/status", "VmPeak:\t 90 kB\nVmHWM:\t     12 kB\nVmRSS:\t 11 kB\n");
  EXPECT_EQ(peak_memory(root_.string()), 12u * 1024);
}

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

TEST_F(CgroupQuota, IsTheInnermostGroupsWhereThatIsTheLeast) {
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/cpu.max", "800000 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 3);
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

TEST_F(AvailableMemory, IsTheMachinesWithoutControlGroups) { EXPECT_EQ(available(), 8000u * 1024); }

// A unit of systemd has its limit in a group of its own, far below the mount.
TEST_F(AvailableMemory, IsWhatTheGroupOfVersion2HasLeft) {
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/system.slice/weft.service\n");
  write("sys/fs/cgroup/system.slice/memory.max", "max\n");
  write("sys/fs/cgroup/system.slice/memory.current", "3000000\n");
  write("sys/fs/cgroup/system.slice/weft.service/memory.max", "5000000\n");
  write("sys/fs/cgroup/system.slice/weft.service/memory.current", "1000000\n");
  EXPECT_EQ(available(), 4000000u);
}

TEST_F(AvailableMemory, IsTheLeastOfAllGroupsAboveAndNeverBelowNothing) {
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "5000000\n");
  write("sys/fs/cgroup/a/b/memory.current", "1000000\n");
  write("sys/fs/cgroup/a/memory.max", "6000000\n");
  write("sys/fs/cgroup/a/memory.current", "3500000\n");
  EXPECT_EQ(available(), 2500000u);
  write("sys/fs/cgroup/memory.max", "7000000\n");  // where a container's mount ends
  write("sys/fs/cgroup/memory.current", "7000001\n");
  EXPECT_EQ(available(), 0u);
}

TEST_F(AvailableMemory, IsWhatTheGroupOfVersion1HasLeft) {
  write("proc/self/mountinfo",
        "34 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("proc/self/cgroup", "5:memory:/job\n4:cpu:/other\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "7000000\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(available(), 2500000u);
}

TEST_F(AvailableMemory, IsKnownOfThisMachine) {
  EXPECT_GT(available_memory(), uint64_t{1} << 20);
  EXPECT_LT(available_memory(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace weft
