// `weft bench`: options, and where the rows go; src/bench/ has what is measured.
#include "bench/bench.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/stop.h"
#include "cli/arguments.h"
#include "cli/bench_report.h"
#include "cli/cli.h"
#include "cli/sparse_input.h"
#include "device/cuda/card.h"

namespace weft::cli {
namespace {

Device device_of(const std::string& name) {
  if (name == "cpu") return Device::cpu();
  const std::string index = name.starts_with("cuda:") ? name.substr(5) : "";
  check(!index.empty() && index.size() < 4 && index.find_first_not_of("0123456789") == index.npos,
        ErrorCode::invalid_argument, "--device = {}; allowed are cpu and cuda:N", name);
  const Device device = Device::cuda(std::stoi(index));
  cuda::require_card(device, "--device");
  return device;
}

}  // namespace

void add_bench(Program& program, Context& context) {
  auto options = std::make_shared<bench::BenchOptions>();
  auto name = std::make_shared<std::string>();
  auto device = std::make_shared<std::string>("cpu");
  Verb verb = program.verb("bench", "Measure speed, beside what the machine can do");
  std::vector<std::string> names;
  std::string list;
  for (const bench::Bench& bench : bench::benches()) {
    names.emplace_back(bench.name);
    list += fmt::format("\n  {:<10} {}", bench.name, bench.description);
  }
  verb.option("NAME", *name, "What to measure:" + list).required().one_of(names).type_name("");
  verb.flag("--quick", options->quick, "Fewer cases and repetitions");
  verb.flag("--numerics", options->numerics, "attention: errors against fp64 instead of speeds");
  verb.option("--only", options->only, "attention, sparse: only the rows whose name holds this text");
  verb.option("--device", *device, "attention: where it runs: cpu, cuda:0, ...");
  verb.flag("--fit", options->fit, "plan: fit the constants of the cost model to timed items instead");
  verb.option("--threads", options->threads, "Worker threads; 0: as many as affinity and quota allow").range(0, 1024);
  verb.option("--model", options->model, "model: a GGUF file");
  verb.option("--precision", options->precision, "model: exact, default or fast").one_of({"exact", "default", "fast"});
  verb.option("--data", options->data, "sparse: also the matrices (.mtx, .smtx, each also .gz) of this folder")
      .type_name("DIR");
  verb.runs([&context, options, name, device] {
    options->device = device_of(*device);
    check(options->device == Device::cpu() || *name == "attention", ErrorCode::unsupported,
          "bench {} --device {}: required is a bench of that device, supported is attention, missing {}", *name,
          *device, *name);
    bench::stop_when([] { return interrupted.load(); });
    options->read_matrix = read_matrix;
    PrintedReport report(context.json);
    report.note(bench::machine());
    try {
      for (const bench::Bench& bench : bench::benches())
        if (*name == bench.name) bench.run(*options, report);
    } catch (const bench::Stopped&) {
      throw Interrupted();
    }
    context.exit_code = kDone;
  });
}

}  // namespace weft::cli
