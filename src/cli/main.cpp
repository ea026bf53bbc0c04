// weft: parses the arguments, runs one verb, and turns what it throws into one line on stderr and an exit code.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/text_input.h"

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

void add_json_flags(CLI::App& app, Context& context) {
  for (CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_option_no_throw("--json") == nullptr)
      verb->add_flag("--json", context.json, "Print one JSON object per line on stdout");
    for (CLI::App* inner : verb->get_subcommands({}))
      if (inner->get_option_no_throw("--json") == nullptr)
        inner->add_flag("--json", context.json, "Print one JSON object per line on stdout");
    if (verb->get_footer().empty()) verb->footer(help_footer(fmt::format("weft {} --help", verb->get_name())));
  }
}

int run_program(int argc, char** argv) {
  CLI::App app("Weft: an attention engine for LLM serving. Results go to stdout, progress and messages to stderr.",
               "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 internal error, 2 wrong usage, 3 bad input, 4 the machine lacks something, 130 "
      "interrupted.\n"
      "weft VERB --help shows a verb's options, their defaults and an example.");
  Context context;
  add_run(app, context);
  add_eval(app, context);
  add_tokenize(app, context);
  add_plan(app, context);
  add_replay(app, context);
  add_jit(app, context);
  add_bench(app, context);
  add_doctor(app, context);
  add_json_flags(app, context);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail_with(kUsage, "usage: " + usage_message(app, error, {argv + 1, argv + argc}));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return fail_with(kBadInput, "io_error: stdout: what was printed could not be written");
  return context.exit_code;
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) {
  using namespace weft::cli;
  listen_for_interrupt();
  // A reader that went away ends us quietly, whatever our parent set.
  std::signal(SIGPIPE, SIG_DFL);
  weft::log::set_sink([](int level, std::string_view line) {
    constexpr const char* kLevels[] = {"error", "warning", "info", "debug"};
    std::fprintf(stderr, "weft: %s: %.*s\n", kLevels[level & 3], static_cast<int>(line.size()), line.data());
  });
  try {
    return run_program(argc, argv);
  } catch (const InputError& error) {
    return fail_with(kBadInput, error.what());
  } catch (const weft::Error& error) {
    return fail_with(error);
  } catch (const std::bad_alloc&) {
    return fail_with(kMachineLacks, "out_of_memory: the system gave no more memory; use a smaller model or --ctx");
  } catch (const std::exception& error) {
    return fail_with(kInternal, fmt::format("internal: {}; please report it", error.what()));
  }
}
