// jit_builder FILE: builds the text in FILE, calls its answer(), prints "ORIGIN ANSWER"; an error goes to stderr.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "jit/host/module.h"
#include "weft/error.h"

int main(int argc, char** argv) {
  using namespace weft;
  if (argc != 2) return 2;
  log::set_sink([](int, std::string_view line) {
    std::fprintf(stderr, "log: %.*s\n", static_cast<int>(line.size()), line.data());
  });
  try {
    std::ifstream file(argv[1]);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const jit::Loaded loaded =
        jit::host_module({.name = "built elsewhere", .text = text, .target = jit::host_target(Isa::plain)});
    const auto answer = reinterpret_cast<int (*)()>(loaded.module->symbol("answer"));
    std::printf("%s %d\n", std::string(to_string(loaded.origin)).c_str(), answer());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
