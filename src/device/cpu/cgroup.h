// How many CPUs the control groups of this process allow.
#pragma once

#include <string>

namespace weft {

// The least quota of the process's group and those above it, in CPUs, versions 1 and 2; 0: no limit. `root` stands
// before every path that is read.
double cgroup_quota(const std::string& root = "");

}  // namespace weft
