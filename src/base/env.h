// Every environment variable that Weft reads, in one table (docs/env.md lists the same). A set variable with a
// value that is not allowed is an error, never ignored: of who reads it, or, for a program that checks all of them
// first, of its start.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::env {

struct Variable {
  std::string_view name;    // "WEFT_ISA"
  std::string_view values;  // "plain|avx2|avx512|avx512_bf16"
  std::string_view effect;  // one sentence
  void (*check)();          // throws where the value is not allowed, or names a file that cannot be what it is for
};
std::span<const Variable> variables();

std::optional<std::string> isa();        // WEFT_ISA
std::optional<int> num_threads();        // WEFT_NUM_THREADS, 1..1024
std::optional<std::string> cache_dir();  // WEFT_CACHE_DIR, an absolute path
std::optional<std::string> compiler();   // WEFT_CXX: the C++ compiler of variants; "none" switches it off
// WEFT_CUDA_LIBS: folders where CUDA's libraries are looked for before all others; "none" switches CUDA off, as an
// empty list.
std::optional<std::vector<std::string>> cuda_libs();
bool check_masks();                       // WEFT_CHECK=1: every mask is evaluated everywhere
std::optional<std::string> record_dir();  // WEFT_RECORD
std::optional<std::string> trace_file();  // WEFT_TRACE
int step_limit_ms();                      // WEFT_STEP_LIMIT_MS, 0 (no limit) to 600000, default 2000
int log_level();                          // WEFT_LOG=error|warn|info|debug: 0..3, default warn

// Variables that belong to the system. A relative folder is ignored, as the XDG specification asks.
std::optional<std::string> user_cache_dir();  // XDG_CACHE_HOME, or .cache in HOME
std::optional<std::string> user_state_dir();  // XDG_STATE_HOME, or .local/state in HOME
bool terminal_moves_cursor();                 // TERM is set, and not to dumb
std::string temp_dir();                       // TMPDIR, or /tmp
// The absolute folders of PATH, or of /usr/local/bin:/usr/bin:/bin, in its order: a relative one is another folder for
// every program that is started elsewhere.
std::vector<std::string> search_folders();

// The absolute folders of LD_LIBRARY_PATH, and of a CUDA toolkit that CUDA_HOME or CUDA_PATH names.
std::vector<std::string> loader_folders();
std::vector<std::string> cuda_toolkits();

// The absolute path of a program, by name along PATH or by its absolute path. Relative folders on PATH are not looked
// into.
std::optional<std::string> find_program(std::string_view name);

}  // namespace weft::env
