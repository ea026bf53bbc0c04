// jit_builder FILE: builds the text in FILE, calls its answer(), prints "ORIGIN ANSWER"; an error goes to stderr.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "jit/build.h"
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
    const auto module = jit::build({.name = "built elsewhere", .text = text, .isa = Isa::plain, .flags = {}});
    const auto answer = reinterpret_cast<int (*)()>(module->symbol("answer"));
    constexpr const char* kOrigins[] = {"memory", "disk", "compiler"};
    std::printf("%s %d\n", kOrigins[static_cast<int>(jit::last_origin())], answer());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
