// `weft bench jit`: from a variant's text to callable code, and where the time goes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

#include "attention/cpu/leaf.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/env.h"
#include "bench/measure.h"
#include "bench/own_cache.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "bench/variants.h"
#include "jit/host/module.h"
#include "jit/host/process.h"
#include "jit/key.h"
#include "weft/attention.h"

namespace weft::bench {
namespace {

AttentionSpec spec_of(int number) { return {.mask = Mask::causal, .variant = new_variant(number)}; }

LeafHandle find(const AttentionSpec& spec) { return find_leaf(spec, current_isa()); }

// The time of `work` in a process that has nothing in memory yet; `origin` is what it must have come from.
double seconds_in_child(const AttentionSpec& spec, std::string_view origin) {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, ErrorCode::io_error, "bench jit: no pipe");
  const pid_t child = fork();
  check(child >= 0, ErrorCode::io_error, "bench jit: no second process");
  if (child == 0) {
    double seconds = -1;
    try {
      LeafHandle leaf;
      const double taken = seconds_of([&] { leaf = find(spec); });
      if (leaf.origin == origin) seconds = taken;
    } catch (const std::exception& error) {
      if (!asked_to_stop()) std::fprintf(stderr, "weft: %s\n", error.what());
    }
    _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
  }
  close(ends[1]);
  double seconds = -1;
  const bool is_read = read(ends[0], &seconds, sizeof seconds) == sizeof seconds;
  close(ends[0]);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  stop_if_asked();  // which the child and its compiler heard, too
  ensure(is_read && seconds >= 0, "bench jit: a leaf did not come from {}", origin);
  return seconds;
}

struct Stage {
  const char* name;
  std::vector<std::string> arguments;  // in place of the flags that make a module
  std::vector<double> seconds;
};

// Runs the compiler as a build does, up to each of its stages in turn.
class Stages {
 public:
  Stages(const jit::Compiler& compiler, const std::string& folder) : compiler_(compiler), folder_(folder) {}

  void run(const std::string& text, const std::vector<std::string>& flags) {
    for (Stage& stage : stages_) {
      const bool is_empty = stage.arguments.front() == "-fsyntax-only";
      const std::string input = folder_ + "/input.cpp";
      std::FILE* file = std::fopen(input.c_str(), "w");
      check(file != nullptr, ErrorCode::io_error, "bench jit: '{}' cannot be written", input);
      if (!is_empty) std::fwrite(text.data(), 1, text.size(), file);
      std::fclose(file);
      jit::ProcessRequest request{.path = compiler_.path, .arguments = flags, .temp_dir = folder_};
      request.arguments.insert(request.arguments.end(), stage.arguments.begin(), stage.arguments.end());
      for (const std::string& argument : {std::string("-o"), folder_ + "/output", input})
        request.arguments.push_back(argument);
      std::filesystem::remove(folder_ + "/output");  // writing over a file costs more than a new one
      stage.seconds.push_back(seconds_of([&] {
        const jit::ProcessResult result = jit::run_process(request);
        stop_if_asked();
        check(result.ok(), ErrorCode::compile_failed, "bench jit: {} failed: {}", compiler_.path, result.errors);
      }));
    }
  }
  double start() const { return median(stages_[0].seconds); }
  double assembly() const { return median(stages_[1].seconds); }
  double object() const { return median(stages_[2].seconds); }
  double module() const { return median(stages_[3].seconds); }

 private:
  const jit::Compiler& compiler_;
  std::string folder_;
  Stage stages_[4] = {
      {"start", {"-fsyntax-only"}, {}}, {"assembly", {"-S"}, {}}, {"object", {"-c"}, {}}, {"module", {"-shared"}, {}}};
};

void add(BenchReport& report, const std::string& name, double seconds, double ceiling_s, const char* unit,
         double scale) {
  report.add({.bench = "jit",
              .name = name,
              .metric = "time",
              .value = seconds * scale,
              .unit = unit,
              .ceiling = std::max(0.0, ceiling_s * scale)});
}

}  // namespace

void measure_jit(const BenchOptions& options, BenchReport& report) {
  if (options.device != Device::cpu()) return measure_jit_on_card(options, report);
  check(options.only.empty(), ErrorCode::invalid_argument,
        "bench jit: only = '{}'; allowed on a card alone, as a CPU has one kernel", options.only);
  const jit::Compiler& compiler = jit::host_compiler();
  check(!compiler.path.empty(), ErrorCode::no_compiler,
        "bench jit needs a C++ compiler: install one with `apt-get install g++`, or name one in WEFT_CXX");
  const OwnCache cache("bench jit");
  const int runs = options.quick ? 5 : 21;
  const Isa isa = current_isa();
  const auto request_of = [&](const AttentionSpec& spec) {
    return jit::Request{.name = "leaf of bench jit",
                        .text = leaf_text(spec, isa),
                        .target = jit::host_target(isa),
                        .flags = leaf_flags()};
  };
  const jit::Request sample = request_of(spec_of(0));
  report.note(
      fmt::format("{}, {} bytes of text for {}. Ceilings: cold, the compiler alone; its stages, the cold build; "
                  "from disk, loading the same module from memory; from memory, comparing the texts",
                  compiler.version, sample.text.size(), to_string(isa)));

  std::vector<double> cold, disk, load, text;
  Stages stages(compiler, cache.folder());
  seconds_in_child(spec_of(-1), "compiler");  // the compiler's files are read, and its identity remembered
  std::shared_ptr<const Module> module;
  for (int i = 0; i < runs; ++i) {
    stop_if_asked();
    const AttentionSpec spec = spec_of(i);
    cold.push_back(seconds_in_child(spec, "compiler"));
    disk.push_back(seconds_in_child(spec, "disk"));
    text.push_back(seconds_of([&] { leaf_text(spec, isa); }));
    stages.run(request_of(spec).text, jit::request_id(request_of(spec)).flags);
    const std::string object =
        jit::object(jit::entry_key(jit::request_id(request_of(spec)), jit::host_compiler().identity));
    load.push_back(seconds_of([&] { module = Module::load(object, "bench"); }));
  }
  const double whole = median(cold);
  add(report, "source to callable: cold", whole, stages.module(), "ms", 1e3);
  add(report, "  text", median(text), whole, "ms", 1e3);
  add(report, "  compiler: start, an empty text", stages.start(), whole, "ms", 1e3);
  add(report, "  compiler: text to assembly", stages.assembly() - stages.start(), whole, "ms", 1e3);
  add(report, "  assembler", stages.object() - stages.assembly(), whole, "ms", 1e3);
  add(report, "  linker", stages.module() - stages.object(), whole, "ms", 1e3);
  add(report, "  check, load, store", whole - stages.module(), whole, "ms", 1e3);
  add(report, "source to callable: from disk", median(disk), median(load), "us", 1e6);

  constexpr int kLookups = 1000;
  const AttentionSpec known = spec_of(0);
  const jit::Request request = request_of(known);
  jit::host_module(request);
  build(known, Device::cpu());
  const std::string copy = request.text;
  const Timing compare = time_runs([&] {
    for (int i = 0; i < kLookups; ++i) {
      const bool same = std::memcmp(copy.data(), request.text.data(), copy.size()) == 0;
      asm volatile("" : : "r"(same) : "memory");
    }
  });
  const Timing by_text = time_runs([&] {
    for (int i = 0; i < kLookups; ++i) jit::host_module(request);
  });
  const Timing by_spec = time_runs([&] {
    for (int i = 0; i < kLookups; ++i) build(known, Device::cpu());
  });
  add(report, "source to callable: from memory, by text", by_text.median_s / kLookups, compare.median_s / kLookups,
      "us", 1e6);
  add(report, "source to callable: from memory, by spec", by_spec.median_s / kLookups, compare.median_s / kLookups,
      "us", 1e6);
}

}  // namespace weft::bench
