// `weft bench model`: a model file from process start to tokens. Decode's ceiling is reading every weight and the
// keys and values once a token at the bandwidth of this run; prefill's is the arithmetic of its weights.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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
  ForwardPass forward(file,
                      {.precision = precision_from_string(options.precision), .max_tokens = context, .team = &team});
  const double load_s = seconds_since(load_start);
  const auto sequence = forward.add_sequence();
  std::vector<int32_t> ids(static_cast<size_t>(context));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(file.config().vocab_size));

  std::vector<double> prefill_s;
  for (int i = 0; i <= repeats; ++i) {
    forward.truncate(sequence, 0);
    const auto start = Clock::now();
    forward.run({{.sequence = sequence, .tokens = std::span(ids).first(static_cast<size_t>(prompt))}});
    if (i > 0) prefill_s.push_back(seconds_since(start));  // the first run makes the buffers
  }
  std::vector<double> decode_s;
  for (int i = 0; i < decoded && forward.length(sequence) < context; ++i) {
    const auto start = Clock::now();
    forward.run({{.sequence = sequence, .tokens = std::span(ids).subspan(static_cast<size_t>(i), 1)}});
    decode_s.push_back(seconds_since(start));
  }
  const double mean_length = static_cast<double>(prompt) + static_cast<double>(decode_s.size()) / 2;
  const int64_t rest = context - forward.length(sequence);
  if (rest > 0) forward.run({{.sequence = sequence, .tokens = std::span(ids).first(static_cast<size_t>(rest))}});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  // Ceilings last: what they allocate is no part of the model's memory.
  const double token_bytes =
      static_cast<double>(forward.weight_bytes()) + mean_length * static_cast<double>(forward.kv_bytes_per_token());
  const double bandwidth = measure_read_bandwidth(threads, std::max(forward.weight_bytes(), size_t{64} << 20));
  const bool exact = options.precision == "exact";
  const double int8 = exact ? 0 : measure_int8_ops(threads), flops = int8 > 0 ? int8 : measure_fp32_flops(threads);
  const double prefill_ceiling = flops / (2 * layer_weights(file));
  report.note(fmt::format(
      "{}, precision {}, {} threads, {:.1f} MB of weights a token, {} bytes of keys and values a token of context; "
      "decode's ceiling: {:.1f} GB/s read in this run; prefill's: {:.0f} GOP/s of {}",
      file.config().architecture, options.precision, threads, static_cast<double>(forward.weight_bytes()) / 1e6,
      forward.kv_bytes_per_token(), bandwidth / 1e9, flops / 1e9, int8 > 0 ? "int8 dots" : "fp32 multiply-add"));
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
  add(fmt::format("decode {} after {}", decode_s.size(), prompt), "rate", 1 / median(decode_s), "tok/s",
      bandwidth / token_bytes);
  add("load and pack", "time", load_s * 1e3, "ms");
  add("one token from process start", "time", median(start_s) * 1e3, "ms");
  add("one token from process start", "peak memory", static_cast<double>(starts[0].peak_bytes) / 1e6, "MB");
  add(fmt::format("context {}", context), "peak memory", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6, "MB");
}

}  // namespace weft::cli
