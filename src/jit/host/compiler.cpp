#include "jit/host/compiler.h"

#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/env.h"
#include "jit/host/process.h"
#include "jit/identity.h"

namespace weft::jit {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string describe(const ProcessResult& result) {
  using End = ProcessResult::End;
  switch (result.end) {
    case End::not_started: return std::generic_category().message(result.code);
    case End::timed_out: return "it does not answer";
    case End::signalled: return fmt::format("it ends by signal {}", result.code);
    case End::exited: return fmt::format("it ends with status {} {}", result.code, first_line(result.errors));
  }
  return {};
}

// Asks the compiler for its version, its target and the program that does the work. Sets `why` when it is none.
std::optional<KnownCompiler> examine(const std::string& path, std::string& why) {
  KnownCompiler known;
  auto ask = [&](const char* question) -> std::optional<std::string> {
    const ProcessResult answer =
        run_process({.path = path, .arguments = {question}, .temp_dir = {}, .timeout = std::chrono::seconds{30}});
    if (!answer.ok()) {
      why = describe(answer);
      return std::nullopt;
    }
    return first_line(answer.output);
  };
  const auto version = ask("--version"), target = version ? ask("-dumpmachine") : std::nullopt;
  const auto worker = target ? ask("-print-prog-name=cc1plus") : std::nullopt;
  if (!worker) return std::nullopt;
#if defined(__x86_64__)
  constexpr std::string_view kTarget = "x86_64";
#else
  constexpr std::string_view kTarget = "aarch64";
#endif
  if (!target->starts_with(kTarget)) {
    why = "it makes code for " + *target;
    return std::nullopt;
  }
  Sha256 hash;
  hash.update(fmt::format("{}:{}{}:{}", version->size(), *version, target->size(), *target));
  for (const std::string& file : {path, *worker}) {
    // clang does the work in its driver's own libraries, which its version tells apart, and names no program.
    if (!file.starts_with('/')) continue;
    if (!add_file(known, hash, file, why)) return std::nullopt;
  }
  known.compiler = {path, *version, hash.hex_digest()};
  return known;
}

}  // namespace

CompilerSearch find_compiler(const Cache* cache) {
  const auto wanted = env::compiler();
  constexpr const char* kRemedy = "install one with `apt-get install g++`, or name one in WEFT_CXX";
  if (wanted == "none") return {nullptr, "WEFT_CXX=none switches compiling off", kRemedy};
  std::vector<std::string> names = {"g++", "c++", "clang++"};
  if (wanted) names = {*wanted};
  std::string tried;
  for (const std::string& name : names) {
    std::string why = name.find('/') != name.npos ? "no such program" : "not on PATH";
    if (const auto path = env::find_program(name))
      if (const Compiler* compiler = identify(cache, *path, examine, why)) return {compiler};
    tried += fmt::format("{}{}{} ({})", tried.empty() ? "tried " : ", ", wanted ? "WEFT_CXX=" : "", name, why);
  }
  return {nullptr, tried, kRemedy};
}

const Compiler& host_compiler() {
  static const Compiler none;
  const auto cache = open_cache(true);
  const CompilerSearch search = find_compiler(cache ? &*cache : nullptr);
  return search.compiler != nullptr ? *search.compiler : none;
}

}  // namespace weft::jit
