// What the control groups of this process allow: CPUs and memory, versions 1 and 2. `root` stands before every path
// that is read.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// The least quota of the process's group and those above it, in CPUs; 0: no limit.
double cgroup_quota(const std::string& root = "");

// Bytes that this process may still take: what the machine has left, or less where its group or one above it has;
// UINT64_MAX: nothing says.
uint64_t available_memory(const std::string& root = "");

// Bytes that this process has held at most; 0: nothing says. getrusage's peak outlives exec: it may be that of the
// program that started this one.
uint64_t peak_memory(const std::string& root = "");

}  // namespace weft
