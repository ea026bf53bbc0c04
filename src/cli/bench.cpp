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
#include "cli/device.h"
#include "cli/sparse_input.h"

namespace weft::cli {
namespace {

void add_load(Verb& verb, bench::ServeLoad& load) {
  verb.option("--url", load.url, "serve: the server, http://HOST:PORT");
  verb.option("--api-key", load.api_key, "serve: its key");
  verb.option("--trace", load.trace,
              "serve: arrivals, a table, JSON lines or ServeGen's clients; default: a Poisson process");
  verb.option("--rate", load.rate, "serve: requests a second, or how many times as fast as the trace")
      .allows("above 0", [](double rate) { return rate > 0; });
  verb.option("--ramp", load.ramp, "serve: the process's rate grows to this one; 0: it stays")
      .allows("0 and more", [](double rate) { return rate >= 0; });
  verb.option("--requests", load.requests, "serve: the first so many; 0: all of the trace").range(0, 10000000);
  verb.flag("--at-once", load.at_once, "serve: all of them at the start");
  verb.option("--prompt-tokens", load.prompt_tokens, "serve: of the Poisson process").range(1, 1 << 20);
  verb.option("--output-tokens", load.output_tokens, "serve: of the Poisson process").range(1, 1 << 20);
  verb.option("--divide", load.divide, "serve: lengths are divided by it").range(1, 1 << 20);
  verb.option("--most-prompt", load.most_prompt, "serve: prompts are cut to it; 0: as they are").range(0, 1 << 20);
  verb.option("--most-output", load.most_output, "serve: answers are cut to it; 0: as they are").range(0, 1 << 20);
  verb.option("--choices", load.choices, "serve: of each request").range(1, 64);
  verb.flag("--same-prompt", load.same_prompt, "serve: all have the first one's prompt");
  verb.flag("--reproducible", load.reproducible, "serve: all ask for the same bits in any batch");
  verb.option("--temperature", load.temperature, "serve: 0 is greedy").range(0, 100);
  verb.option("--top-p", load.top_p, "serve: of each request").allows("above 0 to 1", [](double top_p) {
    return top_p > 0 && top_p <= 1;
  });
  verb.option("--cancel", load.cancel, "serve: this share of clients leaves, in any phase")
      .allows("0 to 1", [](double share) { return share >= 0 && share <= 1; });
  verb.option("--seed", load.seed, "serve: of arrivals, prompts and cancels").range(1, int64_t{1} << 40);
  verb.option("--vocabulary", load.vocabulary, "serve: prompts are ids below it").range(4, 1 << 24);
  verb.option("--good-ttft", load.ttft_ms, "serve: milliseconds to a good first token").range(1, 10000000);
  verb.option("--good-gap", load.gap_ms, "serve: milliseconds of a good mean gap").range(1, 10000000);
  verb.option("--outcomes", load.outcomes, "serve: a file for what came of each request").type_name("FILE");
  verb.option("--save", load.save, "serve: a file for the requests; without --url nothing is sent").type_name("FILE");
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
  verb.option("--device", *device, "attention, model: where it runs: cpu, cuda:0, ...");
  verb.flag("--fit", options->fit, "plan: fit the constants of the cost model to timed items instead");
  verb.option("--threads", options->threads, "Worker threads; 0: as many as affinity and quota allow").range(0, 1024);
  verb.option("--model", options->model, "model: a GGUF file");
  verb.option("--shape", options->shape, "model on a card: random weights of that shape instead: 8b or 1b")
      .one_of({"", "8b", "1b"});
  verb.option("--precision", options->precision, "model: exact, default or fast").one_of({"exact", "default", "fast"});
  verb.option("--data", options->data, "sparse: also the matrices (.mtx, .smtx, each also .gz) of this folder")
      .type_name("DIR");
  add_load(verb, options->load);
  verb.runs([&context, options, name, device] {
    options->device = require_device(*device);
    check(options->device == Device::cpu() || *name == "attention" || *name == "model", ErrorCode::unsupported,
          "bench {} --device {}: required is a bench of that device, supported are attention and model, missing {}",
          *name, *device, *name);
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
