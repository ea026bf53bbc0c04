#include "device/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace weft {
namespace {

// Where a hierarchy with a controller is mounted, and which part of it that mount shows.
struct Mount {
  bool v2 = false;
  std::string root, point;
};

bool lists(const std::string& comma_separated, std::string_view word) {
  std::istringstream in(comma_separated);
  for (std::string entry; std::getline(in, entry, ',');)
    if (entry == word) return true;
  return false;
}

// Lines: id parent major:minor root mount-point options [tags...] - type source super-options
std::vector<Mount> mounts_of(const std::string& controller, const std::string& file) {
  std::vector<Mount> mounts;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, type, source, options;
    Mount mount;
    left >> id >> parent >> device >> mount.root >> mount.point;
    right >> type >> source >> options;
    mount.v2 = type == "cgroup2";
    if (mount.v2 || (type == "cgroup" && lists(options, controller))) mounts.push_back(mount);
  }
  return mounts;
}

// The group's path in the hierarchy. Lines: id:controllers:path, version 2 with id 0 and no controllers.
std::string group_path(const std::string& controller, const std::string& file, bool v2) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : lists(controllers, controller)) return line.substr(second + 1);
  }
  return "/";
}

// Calls visit(folder, v2) for the process's group and those above it, as far as mounts show them.
template <class Visit>
void for_each_group(const std::string& root, const std::string& controller, const Visit& visit) {
  for (const Mount& mount : mounts_of(controller, root + "/proc/self/mountinfo")) {
    std::string path = group_path(controller, root + "/proc/self/cgroup", mount.v2);
    // Inside a container the mount may begin at the container's own group.
    if (mount.root != "/" && path.starts_with(mount.root)) path.erase(0, mount.root.size());
    while (path.ends_with('/')) path.pop_back();
    for (;;) {
      visit(root + mount.point + path, mount.v2);
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
}

double limit_of(const std::string& folder, bool v2) {
  double quota = 0, period = 0;
  if (v2) {
    if (!(std::ifstream(folder + "/cpu.max") >> quota >> period)) return 0;  // "max 100000", or no such file
  } else {
    if (!(std::ifstream(folder + "/cpu.cfs_quota_us") >> quota)) return 0;
    if (!(std::ifstream(folder + "/cpu.cfs_period_us") >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

double cgroup_quota(const std::string& root) {
  double quota = 0;
  for_each_group(root, "cpu", [&](const std::string& folder, bool v2) {
    const double limit = limit_of(folder, v2);
    if (limit > 0) quota = quota > 0 ? std::min(quota, limit) : limit;
  });
  return quota;
}

uint64_t available_memory(const std::string& root) {
  uint64_t available = UINT64_MAX;
  std::ifstream machine(root + "/proc/meminfo");
  uint64_t number = 0;
  for (std::string word; machine >> word;)  // "MemAvailable:  123 kB"
    if (word == "MemAvailable:" && machine >> number) available = number * 1024;
  for_each_group(root, "memory", [&](const std::string& folder, bool v2) {
    uint64_t limit = 0, used = 0;
    std::ifstream limit_in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    std::ifstream used_in(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (limit_in >> limit && used_in >> used)
      available = std::min(available, limit - std::min(limit, used));  // not "max"
  });
  return available;
}

uint64_t peak_memory(const std::string& root) {
  std::ifstream status(root + "/proc/self/status");
  for (std::string word; status >> word;)  // "VmHWM:  123 kB"
    if (uint64_t number = 0; word == "VmHWM:" && status >> number) return number * 1024;
  return 0;
}

}  // namespace weft
