#include "jit/host/compile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/check.h"
#include "jit/diagnostics.h"
#include "jit/files.h"
#include "jit/host/elf.h"
#include "jit/host/process.h"

namespace weft::jit {
namespace {

// Compilers make calls of these four out of loops and assignments, whatever the text says; the C library that
// carries this process has them.
constexpr std::string_view kCompilersOwn[] = {"memcpy", "memmove", "memset", "memcmp"};
constexpr std::string_view kSanitizers[] = {"__asan_", "__ubsan_", "__tsan_", "__sanitizer_"};

bool may_stay_undefined(std::string_view symbol) {
  if (std::find(std::begin(kCompilersOwn), std::end(kCompilersOwn), symbol) != std::end(kCompilersOwn)) return true;
  if (std::string_view(WEFT_SANITIZE).empty()) return false;
  return std::any_of(std::begin(kSanitizers), std::end(kSanitizers),
                     [&](std::string_view prefix) { return symbol.starts_with(prefix); });
}

Fd text_as_input(const std::string& text) {
  Fd input(memfd_create("weft-text", MFD_CLOEXEC));
  if (!input || !write_all(input.get(), text) || lseek(input.get(), 0, SEEK_SET) != 0)
    fail(ErrorCode::io_error, "the text of a variant ({} bytes) cannot be handed to the compiler: {}", text.size(),
         std::generic_category().message(errno));
  return input;
}

bool says_disk_is_full(const std::string& messages) {
  return messages.find("No space left on device") != messages.npos ||
         messages.find("Disk quota exceeded") != messages.npos;
}

// What g++, its linker driver and clang++ say when a program that they call is not there.
bool says_program_is_missing(const std::string& messages) {
  for (const char* words : {"fatal error: cannot execute '", "fatal error: cannot find 'ld'",
                            "error: unable to execute command: Executable"})
    if (messages.find(words) != messages.npos) return true;
  return false;
}

void require_complete(const std::string& module, const Request& request) {
  const auto undefined = undefined_symbols(module);
  check(undefined.has_value(), ErrorCode::compile_failed, "'{}': the compiler made no 64-bit shared object ({} bytes)",
        request.name, module.size());
  std::string missing;
  for (const std::string& symbol : *undefined)
    if (!may_stay_undefined(symbol)) missing += (missing.empty() ? "" : ", ") + symbol;
  check(missing.empty(), ErrorCode::compile_failed,
        "'{}' uses what its text does not define: {}; a variant calls only functions of Weft's vocabulary and its own, "
        "none of a library (docs/variants.md lists the vocabulary)",
        request.name, missing);
}

}  // namespace

std::string compile_host(const Compiler& compiler, const Request& request, const std::vector<std::string>& flags,
                         const std::string& folder, std::chrono::milliseconds timeout) {
  const Fd input = text_as_input(request.text);
  // A name that no compiler of a killed builder can be writing to.
  std::string workplace = folder + "/XXXXXX";
  check(mkdtemp(workplace.data()) != nullptr, ErrorCode::io_error, "no folder can be made in '{}': {}", folder,
        std::generic_category().message(errno));
  const std::string output = workplace + "/module.so";
  ProcessRequest process{
      .path = compiler.path, .arguments = flags, .input = input.get(), .temp_dir = workplace, .timeout = timeout};
  for (const char* argument : {"-x", "c++", "-", "-o"}) process.arguments.emplace_back(argument);
  process.arguments.push_back(output);

  const ProcessResult result = run_process(process);
  using End = ProcessResult::End;
  check(result.end != End::not_started, ErrorCode::io_error, "compiler '{}' cannot be started: {}", compiler.path,
        std::generic_category().message(result.code));
  check(result.end != End::timed_out, ErrorCode::compile_failed,
        "'{}' is not compiled after {:.1f} s, and {} was stopped: make the variant's text simpler", request.name,
        std::chrono::duration<double>(timeout).count(), compiler.path);
  check(result.end != End::signalled, ErrorCode::compile_failed, "'{}': {} was ended by signal {}", request.name,
        compiler.path, result.code);
  check(result.ok() || !says_disk_is_full(result.errors), ErrorCode::io_error,
        "'{}' cannot be compiled: no space left in '{}'; make room, or set TMPDIR and WEFT_CACHE_DIR elsewhere",
        request.name, folder);
  check(result.ok() || !says_program_is_missing(result.errors), ErrorCode::no_compiler,
        "'{}' cannot be compiled: {} does not find a program that it calls, its assembler or linker for one; looked in "
        "{} (PATH, then the compiler's folder): install what is missing with `apt-get install g++ binutils`, or add "
        "its folder to PATH. It says:\n{}",
        request.name, compiler.path, search_path_of(compiler.path), explain_errors(request.text, result.errors));
  check(result.ok(), ErrorCode::compile_failed, "'{}' does not compile with {}:\n{}", request.name, compiler.version,
        explain_errors(request.text, result.errors));
  const auto module = read_file(AT_FDCWD, output);
  check(module.has_value(), ErrorCode::compile_failed, "'{}': {} reports success and made no module: {}\n{}",
        request.name, compiler.path, std::generic_category().message(errno),
        explain_errors(request.text, result.errors));
  require_complete(*module, request);
  return *module;
}

}  // namespace weft::jit
