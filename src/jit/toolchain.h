// What makes machine code of a text: one toolchain for each kind of target.
//
//   const Target target = host_target(Isa::avx2);          // jit/host/module.h
//   CompilerSearch search = target.toolchain->find(cache);
//   std::string bytes = target.toolchain->compile(*search.compiler, request, flags, folder);
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

class Cache;
class Toolchain;

// What code is made for: a toolchain, and what it calls the machine ("avx2").
struct Target {
  const Toolchain* toolchain = nullptr;
  std::string name = {};
  friend bool operator==(const Target&, const Target&) = default;
};

struct Request {
  std::string name;  // for people: shown by `weft jit list`
  std::string text;  // complete: it includes nothing
  Target target = {};
  std::vector<std::string> flags = {};  // beside those of every build for the target
};

// Who compiles. Its identity is part of a key, so that another compiler's code is never taken for its own.
struct Compiler {
  std::string path = {};      // empty: none
  std::string version = {};   // for people
  std::string identity = {};  // of its content
};
struct CompilerSearch {
  const Compiler* compiler = nullptr;  // null: none; lives as long as the program
  std::string tried = {};              // what was looked for, why each was not it
  std::string remedy = {};             // and how to get one
};

class Toolchain {
 public:
  virtual ~Toolchain() = default;
  // Names the machine in keys and lists, e.g. "x86_64-linux avx2".
  virtual std::string machine(std::string_view target) const = 0;
  // Of every build for the target.
  virtual std::vector<std::string> flags(std::string_view target) const = 0;
  // The compiler; what is found out about it is remembered in the cache, where there is one.
  virtual CompilerSearch find(const Cache* cache) const = 0;
  // The text's code, verified. `flags` are all of them; `folder` is private and empty. Throws Error(compile_failed),
  // with the compiler's messages in lines of the text's own parts, Error(no_compiler) or Error(io_error).
  virtual std::string compile(const Compiler& compiler, const Request& request, const std::vector<std::string>& flags,
                              const std::string& folder) const = 0;
};

}  // namespace weft::jit
