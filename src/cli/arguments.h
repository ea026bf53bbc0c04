// The program's verbs and options. CLI11 stands behind arguments.cpp: its header costs seconds of compiling a file.
//
//   Verb verb = program.verb("eval", "Perplexity of a text");
//   verb.option("--top", options->top, "Also the K most probable tokens");
//   verb.example("weft eval model.gguf -f text.txt");
//   verb.runs([options, &context] { eval(*options, context); });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::cli {

struct Allowed;

// What is wrong with the arguments, in a sentence that names the right option or verb where one is close.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option, std::shared_ptr<Allowed> allowed = nullptr)
      : option_(option), allowed_(std::move(allowed)) {}
  Option& required();
  Option& type_name(const std::string& name);  // what the help shows for the value
  Option& one_of(const std::vector<std::string>& values);
  // What the numbers of the option may be, as the message has it after "allowed are"; others throw
  // Error(invalid_argument) when the arguments are read.
  Option& allows(const std::string& words, std::function<bool(double)> holds);
  Option& range(int64_t lowest, int64_t highest);
  Option& filled();                                // "" throws Error(invalid_argument): a script's empty variable
  Option& shown_default(const std::string& text);  // in the help, for a default that the variable does not hold
  Option& excludes(const Option& other);
  bool given() const;

 private:
  CLI::Option* option_ = nullptr;
  std::shared_ptr<Allowed> allowed_;  // of an option with numbers
};

// Numbers are read as cli/number.h says, lists of them with commas or spaces between.
// A handle. Names are "-n,--num-tokens", or "model" for a place. The variable holds the default, which the help shows,
// and has to live until the verb has run.
class Verb {
 public:
  Verb verb(const std::string& name, const std::string& description);  // below this one
  Option option(const std::string& names, int& value, const std::string& help);
  Option option(const std::string& names, int64_t& value, const std::string& help);
  Option option(const std::string& names, uint64_t& value, const std::string& help);
  Option option(const std::string& names, float& value, const std::string& help);
  Option option(const std::string& names, std::string& value, const std::string& help);
  Option option(const std::string& names, std::vector<int>& values, const std::string& help);
  Option option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Option bytes(const std::string& names, int64_t& value, const std::string& help);    // 64MB, 1GB
  Option seconds(const std::string& names, int64_t& value, const std::string& help);  // 90m, 12h, 30d
  Option flag(const std::string& names, bool& value, const std::string& help);
  void needs_verb();                                         // one of those below
  void needs_options();                                      // at least one
  void example(const std::string& command);                  // for the end of the help
  void runs(std::function<void()> work);                     // once the environment is found to be right
  void runs_in_any_environment(std::function<void()> work);  // it says itself what is wrong there

 protected:
  explicit Verb(CLI::App* app) : app_(app) {}
  CLI::App* app_;
};

class Program : public Verb {
 public:
  Program(const std::string& description, const std::string& version, const std::string& footer);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  // Runs the verb that the arguments choose, with --json on every verb; or prints the help that they ask for. Returns
  // the exit code of that. Throws UsageError, and what the verb throws.
  int run(const std::vector<std::string>& arguments, bool& json);

 private:
  std::unique_ptr<CLI::App> own_;
};

}  // namespace weft::cli
