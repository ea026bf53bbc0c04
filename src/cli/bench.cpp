// `weft bench`: a verb for each bench, its options, and where the rows go; src/bench/ has what is measured.
#include "bench/bench.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/stop.h"
#include "cli/arguments.h"
#include "cli/bench_report.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/model_options.h"
#include "cli/packed_file.h"
#include "weft/sparse_files.h"

namespace weft::cli {
namespace {

struct Chosen {
  bench::BenchOptions options;
  std::string device = "cpu";
};

void add_device(Verb& verb, Chosen& chosen) {
  verb.option("--device", chosen.device, "Where it runs: cpu, cuda:0, ...");
}

void add_attention(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  verb.flag("--numerics", chosen.options.numerics, "Errors against fp64 instead of speeds");
  verb.option("--only", chosen.options.only, "Only the rows whose name holds this text");
}

void add_jit(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  verb.option("--only", chosen.options.only, "On a card: only the kernels whose name holds this text");
}

Option add_weights(Verb& verb, Chosen& chosen, const char* text) {
  return verb.option("--weights", chosen.options.weights, text).one_of({"bf16", "q8_0", "q4_0", "q4_1", "q4_g128"});
}

void add_model(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  const Option file = verb.option("--model", chosen.options.model, "A GGUF file");
  verb.option("--shape", chosen.options.shape, "On a card: random weights of that shape instead: 70b, 8b or 1b")
      .one_of({"", "70b", "8b", "1b"});
  add_weights(verb, chosen, "With --shape: the type of its weights; a file has its own").excludes(file);
  verb.option("--precision", chosen.options.precision, "exact, default or fast").one_of({"exact", "default", "fast"});
  verb.option("--step", chosen.options.step,
              "On a card: steps of few rows as one kernel, operation by operation, or both in turns")
      .one_of({"auto", "layered", "fused", "both"});
  add_step_ctas(verb, chosen.options.step_ctas);
}

void add_decode(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  std::vector<std::string> names;
  std::string text = "What is measured:";
  for (const bench::Study& study : bench::decode_studies()) {
    names.emplace_back(study.name);
    text += fmt::format("\n{}: {}", study.name, study.description);
  }
  verb.option("--study", chosen.options.study, text).one_of(names);
  add_weights(verb, chosen, "The type of weights");
}

void add_matrices(Verb& verb, Chosen& chosen) {
  verb.option("--only", chosen.options.only, "Only the rows whose name holds this text");
  verb.option("--data", chosen.options.data,
              "Also the matrices (.mtx, .smtx, each also .gz) of this folder; on a card its .csr alone")
      .type_name("DIR");
}

void add_sparse(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  add_matrices(verb, chosen);
}

void add_sparse_tune(Verb& verb, Chosen& chosen) {
  add_matrices(verb, chosen);
  verb.option("--seconds", chosen.options.seconds, "For the search over each matrix")
      .allows("above 0", [](double seconds) { return seconds > 0; });
  verb.option("--features", chosen.options.features, "Of a row").range(1, 1 << 16);
}

void add_plan(Verb& verb, Chosen& chosen) {
  add_device(verb, chosen);
  verb.flag("--fit", chosen.options.fit, "Fit the constants of the cost model to timed items instead");
}

void add_serve(Verb& verb, Chosen& chosen) {
  bench::ServeLoad& load = chosen.options.load;
  verb.option("--url", load.url, "The server, http://HOST:PORT");
  verb.option("--api-key", load.api_key, "Its key");
  verb.option("--trace", load.trace,
              "Arrivals, a table, JSON lines or ServeGen's clients, also .gz; default: a Poisson process");
  verb.option("--rate", load.rate, "Requests a second, or how many times as fast as the trace")
      .allows("above 0", [](double rate) { return rate > 0; });
  verb.option("--ramp", load.ramp, "The process's rate grows to this one; 0: it stays")
      .allows("0 and more", [](double rate) { return rate >= 0; });
  verb.option("--requests", load.requests, "The first so many; 0: all of the trace").range(0, 10000000);
  verb.flag("--at-once", load.at_once, "All of them at the start");
  verb.option("--prompt-tokens", load.prompt_tokens, "Of the Poisson process").range(1, 1 << 20);
  verb.option("--output-tokens", load.output_tokens, "Of the Poisson process").range(1, 1 << 20);
  verb.option("--divide", load.divide, "Lengths are divided by it").range(1, 1 << 20);
  verb.option("--most-prompt", load.most_prompt, "Prompts are cut to it; 0: as they are").range(0, 1 << 20);
  verb.option("--most-output", load.most_output, "Answers are cut to it; 0: as they are").range(0, 1 << 20);
  verb.option("--choices", load.choices, "Of each request").range(1, 64);
  verb.flag("--same-prompt", load.same_prompt, "All have the first one's prompt");
  verb.flag("--reproducible", load.reproducible, "All ask for the same bits in any batch");
  verb.option("--temperature", load.temperature, "0 is greedy").range(0, 100);
  verb.option("--top-p", load.top_p, "Of each request").allows("above 0 to 1", [](double top_p) {
    return top_p > 0 && top_p <= 1;
  });
  verb.option("--cancel", load.cancel, "This share of clients leaves, in any phase").allows("0 to 1", [](double share) {
    return share >= 0 && share <= 1;
  });
  verb.option("--time-limit", load.time_limit, "Seconds, after which what is not answered is left; 0: none")
      .allows("0 and more", [](double seconds) { return seconds >= 0; });
  verb.option("--give-up", load.give_up, "Seconds; ends once more than a tenth wait longer for a token; 0: never")
      .allows("0 and more", [](double seconds) { return seconds >= 0; });
  verb.option("--seed", load.seed, "Of arrivals, prompts and cancels").range(1, int64_t{1} << 40);
  verb.option("--vocabulary", load.vocabulary, "Prompts are ids below it").range(4, 1 << 24);
  verb.option("--good-ttft", load.ttft_ms, "Milliseconds to a good first token").range(1, 10000000);
  verb.option("--good-gap", load.gap_ms, "Milliseconds of a good mean gap").range(1, 10000000);
  verb.option("--outcomes", load.outcomes, "A file for what came of each request").type_name("FILE").filled();
  verb.option("--save", load.save, "A file for the requests; without --url nothing is sent").type_name("FILE").filled();
}

// The options of every bench.
void add_common(Verb& verb, Chosen& chosen) {
  verb.flag("--quick", chosen.options.quick, "Fewer cases and repetitions");
  verb.option("--threads", chosen.options.threads, "Worker threads; 0: as many as affinity and quota allow")
      .range(0, 1024);
}

// The options of benches that have some beside those of all.
constexpr struct {
  std::string_view bench;
  void (*add)(Verb& verb, Chosen& chosen);
} kOptions[] = {
    {"ceilings", add_device}, {"attention", add_attention},     {"model", add_model}, {"decode", add_decode},
    {"sparse", add_sparse},   {"sparse-tune", add_sparse_tune}, {"plan", add_plan},   {"jit", add_jit},
    {"serve", add_serve},     {"sampling", add_device}};

void run(const bench::Bench& bench, Chosen& chosen, Context& context) {
  chosen.options.device = require_device(chosen.device);
  bench::stop_when([] { return interrupted.load(); });
  chosen.options.read_file = read_packed_file;
  chosen.options.read_matrix = [](const std::string& path) {
    return sparse::parse_places(path, read_packed_file(path));
  };
  chosen.options.read_tensor = [](const std::string& path) {
    return sparse::parse_tensor(path, read_packed_file(path)).coo;
  };
  PrintedReport report(context.json);
  report.note(bench::machine());
  try {
    bench.run(chosen.options, report);
  } catch (const bench::Stopped&) {
    throw Interrupted();
  }
  if (const std::string& only = chosen.options.only; !only.empty() && report.num_rows() == 0)
    throw UsageError(fmt::format("--only '{}': no row of {} has a name that holds it", only, bench.name));
  context.exit_code = kDone;
}

}  // namespace

void add_bench(Program& program, Context& context) {
  auto chosen = std::make_shared<Chosen>();
  Verb all = program.verb("bench", "Measure speed, beside what the machine can do");
  all.needs_verb();
  add_common(all, *chosen);  // before a bench's name they are understood, too
  all.example("weft bench attention --quick --only decode");
  for (const bench::Bench& bench : bench::benches()) {
    Verb verb = all.verb(bench.name, bench.description);
    add_common(verb, *chosen);
    for (const auto& options : kOptions)
      if (options.bench == bench.name) options.add(verb, *chosen);
    verb.runs([&bench, chosen, &context] { run(bench, *chosen, context); });
  }
}

}  // namespace weft::cli
