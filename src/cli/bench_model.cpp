// `weft bench model`: a model file from process start to tokens. Decode's ceiling is reading every weight once a step
// and the keys and values of every request, at the bandwidth of this run; prefill's is the arithmetic of its weights,
// which bounds many requests as well.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/bench.h"
#include "weft/model.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Runs this program for one token, its output thrown away. Seconds from fork to exit, and the most memory it held.
struct Child {
  double seconds = 0;
  int64_t peak_bytes = 0;
};
Child run_one_token(const BenchOptions& options) {
  std::vector<std::string> words = {"weft", "run",    options.model, "-p",          "Hello",          "-n",
                                    "1",    "--temp", "0",           "--precision", options.precision};
  if (options.threads > 0) words.insert(words.end(), {"--threads", std::to_string(options.threads)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto start = Clock::now();
  const pid_t child = fork();
  check(child >= 0, ErrorCode::io_error, "bench model: a process could not be started");
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  check(wait4(child, &status, 0, &usage) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, ErrorCode::io_error,
        "bench model: `weft run {} -n 1` did not end well; run it by itself to see why", options.model);
  return {seconds_since(start), int64_t{usage.ru_maxrss} << 10};
}

// Multiply-adds of the layers' matrices for one token.
double layer_weights(const ModelFile& file) {
  double count = 0;
  for (const WeightInfo& weight : file.weights())
    if (weight.rows > 1 && weight.name.starts_with("blk.")) count += static_cast<double>(weight.rows * weight.cols);
  return count;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Requests of `prompt` tokens each, then `steps` tokens more of all together, one of each a step.
struct Decode {
  int requests = 0, steps = 0;
  int64_t prompt = 0;
  double prefill_s = 0, step_s = 0;  // the median step
  double mean_length() const { return static_cast<double>(prompt) + steps / 2.; }
};
Decode measure_decode(ForwardPass& forward, std::span<const int32_t> ids, int requests, int64_t prompt, int steps) {
  std::vector<ForwardPass::Input> inputs;
  for (int i = 0; i < requests; ++i)
    inputs.push_back({.sequence = forward.add_sequence(), .tokens = ids.first(static_cast<size_t>(prompt))});
  const auto prefill_start = Clock::now();
  forward.run(inputs);
  Decode result{.requests = requests, .steps = steps, .prompt = prompt, .prefill_s = seconds_since(prefill_start)};
  std::vector<double> step_s;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < requests; ++i)
      inputs[static_cast<size_t>(i)].tokens = ids.subspan(static_cast<size_t>(step + i) % ids.size(), 1);
    const auto start = Clock::now();
    forward.run(inputs);
    step_s.push_back(seconds_since(start));
  }
  result.step_s = median(step_s);
  for (const auto& input : inputs) forward.release(input.sequence);
  return result;
}

// Sixteen requests that share nothing, with a short and a long prompt.
std::vector<Decode> measure_many(const ModelFile& file, const BenchOptions& options, WorkerTeam& team,
                                 std::span<const int32_t> ids) {
  constexpr int kRequests = 16;
  const int steps = static_cast<int>(std::min<int64_t>(options.quick ? 16 : 64, static_cast<int64_t>(ids.size()) / 4));
  const int64_t longest = std::min<int64_t>(1024, static_cast<int64_t>(ids.size()) - steps - kRequests);
  if (longest < 1) return {};  // a context too short to tell anything
  ForwardPass forward(file, {.precision = precision_from_string(options.precision),
                             .max_tokens = kRequests * (longest + steps),
                             .max_sequences = kRequests,
                             .team = &team});
  std::vector<Decode> results;
  for (const int64_t prompt : {std::min<int64_t>(128, longest), longest}) {
    if (!results.empty() && (options.quick || longest <= 128)) break;
    results.push_back(measure_decode(forward, ids, kRequests, prompt, steps));
  }
  return results;
}

}  // namespace

void bench_model(const BenchOptions& options, BenchReport& report) {
  check(!options.model.empty(), ErrorCode::invalid_argument, "bench model: --model is not given; name a GGUF file");
  const ModelFile file(options.model);
  const int64_t prompt = std::min<int64_t>(512, file.config().context_length / 4);
  const int64_t context = std::min<int64_t>(2048, file.config().context_length);
  const int decoded = options.quick ? 32 : 128, repeats = options.quick ? 3 : 7;

  std::vector<Child> starts;
  for (int i = 0; i < repeats; ++i) starts.push_back(run_one_token(options));
  std::vector<double> start_s;
  for (const Child& start : starts) start_s.push_back(start.seconds);

  WorkerTeam team(options.threads);
  const int threads = team.num_workers();
  const auto load_start = Clock::now();
  auto loaded = std::make_optional<ForwardPass>(
      file,
      ForwardOptions{.precision = precision_from_string(options.precision), .max_tokens = context, .team = &team});
  ForwardPass& forward = *loaded;
  const double load_s = seconds_since(load_start);
  std::vector<int32_t> ids(static_cast<size_t>(context));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(file.config().vocab_size));

  std::vector<double> prefill_s;
  const auto sequence = forward.add_sequence();
  for (int i = 0; i <= repeats; ++i) {
    forward.truncate(sequence, 0);
    const auto start = Clock::now();
    forward.run({{.sequence = sequence, .tokens = std::span(ids).first(static_cast<size_t>(prompt))}});
    if (i > 0) prefill_s.push_back(seconds_since(start));  // the first run makes the buffers
  }
  forward.release(sequence);
  std::vector<Decode> decodes;
  for (const int64_t length : {std::min<int64_t>(16, prompt), prompt})
    decodes.push_back(measure_decode(forward, ids, 1, length, std::min(decoded, static_cast<int>(context - length))));
  const auto full = forward.add_sequence();
  forward.run({{.sequence = full, .tokens = ids}});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  // Many requests and ceilings last: what they allocate is no part of one request's memory.
  const size_t weight_bytes = forward.weight_bytes(), kv_bytes = forward.kv_bytes_per_token();
  loaded.reset();
  for (const Decode& decode : measure_many(file, options, team, ids)) decodes.push_back(decode);
  const double bandwidth = measure_read_bandwidth(threads, std::max(weight_bytes, size_t{64} << 20));
  const bool fast = options.precision == "fast";
  const double dots = options.precision == "exact" ? 0 : fast ? measure_int8_ops(threads) : measure_int16_ops(threads);
  const double flops = dots > 0 ? dots : measure_fp32_flops(threads);
  const double prefill_ceiling = flops / (2 * layer_weights(file));
  report.note(fmt::format(
      "{}, precision {}, {} threads, {:.1f} MB of weights a token, {} bytes of keys and values a token of context; "
      "decode's ceiling: {:.1f} GB/s read in this run; prefill's: {:.0f} GOP/s of {}",
      file.config().architecture, options.precision, threads, static_cast<double>(weight_bytes) / 1e6, kv_bytes,
      bandwidth / 1e9, flops / 1e9,
      dots <= 0 ? "fp32 multiply-add"
      : fast    ? "int8 dots"
                : "int16 dots"));
  const auto add = [&](std::string name, std::string metric, double value, std::string unit, double ceiling = 0) {
    report.add({.bench = "model",
                .name = std::move(name),
                .metric = std::move(metric),
                .value = value,
                .unit = std::move(unit),
                .ceiling = ceiling});
  };
  add(fmt::format("prefill {}", prompt), "rate", static_cast<double>(prompt) / median(prefill_s), "tok/s",
      prefill_ceiling);
  for (const Decode& decode : decodes) {
    const double read =
        static_cast<double>(weight_bytes) + decode.requests * decode.mean_length() * static_cast<double>(kv_bytes);
    const double ceiling = std::min(decode.requests * bandwidth / read, prefill_ceiling);
    const auto name = decode.requests == 1
                          ? fmt::format("decode {} after {}", decode.steps, decode.prompt)
                          : fmt::format("{} requests, {} after {}", decode.requests, decode.steps, decode.prompt);
    add(name, "rate", decode.requests / decode.step_s, "tok/s", ceiling);
    if (decode.requests > 1)
      add(name, "prefill", static_cast<double>(decode.requests * decode.prompt) / decode.prefill_s, "tok/s",
          prefill_ceiling);
  }
  add("load and pack", "time", load_s * 1e3, "ms");
  add("one token from process start", "time", median(start_s) * 1e3, "ms");
  add("one token from process start", "peak memory", static_cast<double>(starts[0].peak_bytes) / 1e6, "MB");
  add(fmt::format("context {}", context), "peak memory", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6, "MB");
}

}  // namespace weft::cli
