#include "cli/bench.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "device/cpu/cpuid.h"

namespace weft::cli {
namespace {

struct Benchmark {
  const char* name;
  const char* what;
  void (*run)(const BenchOptions&, BenchReport&);
};
constexpr Benchmark kBenchmarks[] = {
    {"ceilings", "what this machine can read and multiply at most", bench_ceilings},
    {"attention", "decode, prefill and append against the machine's ceilings; --numerics: errors against fp64",
     bench_attention},
    {"model", "prefill and decode of a model file", bench_model},
    {"gemm", "matrix products of every weight type and precision", bench_gemm},
    {"plan", "planning time and balance", bench_plan},
    {"jit", "from a variant's text to callable code", bench_jit},
    {"threads", "fork, join and barrier of the worker team, quiet and with a busy neighbour", bench_threads},
};

std::string first_value(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

// What every result must name to mean anything.
std::string machine() {
  const CpuInfo& cpu = cpu_info();
  const double memory_kib = std::atof(first_value("/proc/meminfo", "MemTotal:").c_str());
  std::string system = first_value("/etc/os-release", "PRETTY_NAME=");
  std::erase(system, '"');
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  const std::string compiler = fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  return fmt::format("{}, {} CPU{} ({}), L1d {} KiB, L2 {} KiB, L3 {} KiB, {:.1f} GiB memory, {}, {}", cpu.model,
                     cpu.num_cpus, cpu.num_cpus == 1 ? "" : "s", to_string(current_isa()), cpu.l1d_bytes >> 10,
                     cpu.l2_bytes >> 10, cpu.l3_bytes >> 10, memory_kib / (1 << 20),
                     system.empty() ? "unknown system" : system, compiler);
}

// Four digits that matter, no exponent.
std::string number(double value) {
  const double size = value < 0 ? -value : value;
  if (size == 0) return "0";
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return fmt::format("{:.{}f}", value, decimals);
}

void print_line(const nlohmann::json& json) {
  print_out("{}\n", json.dump());
  flush_out();
}

}  // namespace

void BenchReport::note(const std::string& line) {
  stop_if_interrupted();
  if (json_) {
    print_line({{"note", line}});
  } else {
    print_out("# {}\n", line);
    flush_out();
  }
}

void BenchReport::add(const BenchRow& row) {
  stop_if_interrupted();
  const bool has_ceiling = row.ceiling > 0;
  if (json_) {
    nlohmann::json line = {{"bench", row.bench}, {"case", row.name},   {"metric", row.metric}, {"value", row.value},
                           {"unit", row.unit},   {"ceiling", nullptr}, {"share", nullptr}};
    if (has_ceiling) {
      line["ceiling"] = row.ceiling;
      line["share"] = row.value / row.ceiling;
    }
    print_line(line);
    return;
  }
  constexpr const char* kColumns = "{:<52} {:<18} {:>10} {:<8} {:>10} {:>7}\n";
  if (row.bench != last_bench_) {
    last_bench_ = row.bench;
    print_out(fmt::runtime(kColumns), row.bench, "metric", "value", "unit", "ceiling", "share");
  }
  print_out(fmt::runtime(kColumns), row.name, row.metric, number(row.value), row.unit,
            has_ceiling ? number(row.ceiling) : "", has_ceiling ? fmt::format("{:.3f}", row.value / row.ceiling) : "");
  flush_out();
}

void add_bench(Program& program, Context& context) {
  auto options = std::make_shared<BenchOptions>();
  auto name = std::make_shared<std::string>();
  Verb verb = program.verb("bench", "Measure speed, beside what the machine can do");
  std::vector<std::string> names;
  std::string list;
  for (const Benchmark& benchmark : kBenchmarks) {
    names.emplace_back(benchmark.name);
    list += fmt::format("\n  {:<10} {}", benchmark.name, benchmark.what);
  }
  verb.option("NAME", *name, "What to measure:" + list).required().one_of(names).type_name("");
  verb.flag("--quick", options->quick, "Fewer cases and repetitions");
  verb.flag("--numerics", options->numerics, "attention: errors against fp64 instead of speeds");
  verb.option("--only", options->only, "attention: only the rows whose name holds this text");
  verb.flag("--fit", options->fit, "plan: fit the constants of the cost model to timed items instead");
  verb.option("--threads", options->threads, "Worker threads; 0: as many as affinity and quota allow").range(0, 1024);
  verb.option("--model", options->model, "model: a GGUF file");
  verb.option("--precision", options->precision, "model: exact, default or fast").one_of({"exact", "default", "fast"});
  verb.runs([&context, options, name] {
    BenchReport report(context.json);
    report.note(machine());
    for (const Benchmark& benchmark : kBenchmarks)
      if (*name == benchmark.name) benchmark.run(*options, report);
    context.exit_code = kDone;
  });
}

}  // namespace weft::cli
