// weft: parses the arguments, runs one verb, and turns what it throws into one line on stderr and an exit code.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "weft/version.h"

namespace weft::cli {

namespace {

int fail_with(ExitCode code, std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "weft: %s\n", one_line(message).c_str());
  return code;
}

int fail_with(const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "weft: %s\n", failure_text(error).c_str());
  return exit_code_of(error);
}

int run_program(const std::vector<std::string>& arguments) {
  Program program(
      "Weft: an attention engine for LLM serving. Results go to stdout, progress and messages to stderr.",
      "weft " WEFT_VERSION_STRING,
      "Exit codes: 0 done, 1 internal error, 2 wrong usage, 3 bad input, 4 the machine lacks something, 130 "
      "interrupted.\n"
      "weft VERB --help shows a verb's options, their defaults and an example.");
  Context context;
  add_run(program, context);
  add_eval(program, context);
  add_tokenize(program, context);
  add_serve(program, context);
  add_plan(program, context);
  add_replay(program, context);
  add_jit(program, context);
  add_sparse(program, context);
  add_bench(program, context);
  add_doctor(program, context);
  const int code = program.run(arguments, context.json);
  flush_out();
  if (interrupted) return kInterrupted;  // it came while the last step ran
  return code != 0 ? code : context.exit_code;
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) {
  using namespace weft::cli;
  weft::log::set_sink([](int level, std::string_view line) {
    constexpr const char* kLevels[] = {"error", "warning", "info", "debug"};
    std::fprintf(stderr, "weft: %s: %.*s\n", kLevels[level & 3], static_cast<int>(line.size()), line.data());
  });
  try {
    secure_standard_streams();
    listen_for_interrupt();
    return run_program({argv + std::min(argc, 1), argv + argc});
  } catch (const Interrupted&) {
    std::fflush(stdout);
    return kInterrupted;
  } catch (const UsageError& error) {
    return fail_with(kUsage, fmt::format("usage: {}", error.what()));
  } catch (const InputError& error) {
    return fail_with(kBadInput, error.what());
  } catch (const weft::Error& error) {
    return fail_with(error);
  } catch (const std::system_error& error) {
    // fmt::print says so where stdout takes no more.
    if (std::ferror(stdout) != 0)
      return fail_with(kBadInput, "io_error: " + stream_failure("standard output", error.code().value()));
    return fail_with(kInternal, fmt::format("internal: {}; please report it", error.what()));
  } catch (const std::bad_alloc&) {
    return fail_with(kMachineLacks, "out_of_memory: the system gave no more memory; use a smaller model or --ctx");
  } catch (const std::exception& error) {
    return fail_with(kInternal, fmt::format("internal: {}; please report it", error.what()));
  }
}
