// Code for this machine's CPU, made by a C++ compiler and loaded into this process.
//
//   const HostModule& leaf = host_module({.name = "leaf", .text = text, .target = host_target(Isa::avx2)}).module;
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cpu/module.h"
#include "jit/build.h"
#include "weft/device.h"

namespace weft::jit {

// The C++ compiler of this machine: WEFT_CXX, or the first of g++, c++ and clang++ on PATH that runs.
const Toolchain& host_toolchain();
Target host_target(Isa isa);
// The one in use, looked for at each call; its path is empty where there is none.
const Compiler& host_compiler();
bool is_clang(const Compiler& compiler);
// For texts with loops that the compiler would make calls of memcpy or memset, which a module cannot link.
std::vector<std::string> standalone_flags(const Compiler& compiler);

struct Loaded {
  std::shared_ptr<const Module> module;
  Origin origin = Origin::memory;
};
// The module of a text, built and loaded once a process: modules stay, as a kernel may hold the address of their code.
// Throws like build.
Loaded host_module(const Request& request);

}  // namespace weft::jit
