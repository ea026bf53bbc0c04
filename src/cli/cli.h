// The verbs of `weft`. Each lives in a file of its name, adds its options to the program, and sets what runs.
//
// Results go to stdout (one JSON object a line with --json), progress and logs to stderr.
// Exit codes: 0 done, 1 internal error, 2 wrong usage, 3 bad input, 4 the machine lacks something, 130 Ctrl-C.
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "weft/error.h"

namespace weft::cli {

class Program;

enum ExitCode : int { kDone = 0, kInternal = 1, kUsage = 2, kBadInput = 3, kMachineLacks = 4, kInterrupted = 130 };

struct Context {
  bool json = false;      // --json, on every verb
  int exit_code = kDone;  // set by the verb that ran
};

// One function a verb: creates the subcommand, its options and its callback.
void add_run(Program& program, Context& context);
void add_eval(Program& program, Context& context);
void add_tokenize(Program& program, Context& context);
void add_serve(Program& program, Context& context);
void add_plan(Program& program, Context& context);
void add_replay(Program& program, Context& context);
void add_jit(Program& program, Context& context);
void add_sparse(Program& program, Context& context);
void add_bench(Program& program, Context& context);
void add_doctor(Program& program, Context& context);

// 3 for bad input, 4 for what the machine lacks.
ExitCode exit_code_of(const Error& error);
// Without its line breaks.
std::string one_line(std::string_view message);
// An error as stderr shows it: one line, and below it the excerpt of a variant's text that does not compile.
std::string failure_text(const Error& error);
// One JSON object on a line of stdout.
void print_json(const nlohmann::json& object);
// Set by Ctrl-C; long work looks at it between steps and ends cleanly.
extern std::atomic<bool> interrupted;
// Thrown where Ctrl-C ends a verb that has nothing more to say; the program ends with kInterrupted.
struct Interrupted {};
// Between the steps of long work.
void stop_if_interrupted();
// Until there is something to read, its end or an error; or ends the verb when Ctrl-C is pressed.
void wait_for_input(int fd);
// The same; false where another signal came first.
bool wait_for_input_or_signal(int fd);
// Clears it and listens for the next Ctrl-C; after one that nobody cleared, the next ends the process at once.
void listen_for_interrupt();

}  // namespace weft::cli
