// `weft bench model`: a model file from process start to tokens. Decode's ceiling is reading every weight once a step
// and the keys and values of every request, at the bandwidth of this run; prefill's is the arithmetic of its weights,
// which bounds many requests as well.
#include "weft/model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/model_steps.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "device/cpu/cgroup.h"

namespace weft::bench {
namespace {

// Runs this program for one token. Seconds from fork to exit, and the most memory it held, as it says itself: what
// wait4 knows counts the memory of the process that was forked, too.
struct Child {
  double seconds = 0;
  uint64_t peak_bytes = 0;
};

uint64_t peak_of(std::string_view output) {
  constexpr std::string_view kKey = "\"peak_rss_bytes\":";
  const size_t at = output.find(kKey);
  return at == output.npos ? 0 : std::strtoull(output.data() + at + kKey.size(), nullptr, 10);
}

Child run_one_token(const BenchOptions& options) {
  std::vector<std::string> words = {"weft", "run",    options.model, "-p",          "Hello",           "-n",
                                    "1",    "--temp", "0",           "--precision", options.precision, "--json"};
  if (options.threads > 0) words.insert(words.end(), {"--threads", std::to_string(options.threads)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int output[2];
  check(pipe2(output, O_CLOEXEC) == 0, ErrorCode::io_error, "bench model: a pipe could not be made");
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {0, 2}) dup2(null, fd);
    dup2(output[1], 1);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  close(output[1]);
  std::string printed;
  char buffer[4096];
  for (ssize_t count = 1; child > 0 && count != 0;) {
    count = read(output[0], buffer, sizeof buffer);
    if (count > 0) printed.append(buffer, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  close(output[0]);
  check(child > 0, ErrorCode::io_error, "bench model: a process could not be started");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  stop_if_asked();  // which the child heard, too
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, ErrorCode::io_error,
        "bench model: `weft run {} -n 1` did not end well; run it by itself to see why", options.model);
  return {seconds_since(start), peak_of(printed)};
}

// Multiply-adds of the layers' matrices for one token.
double layer_weights(const ModelFile& file) {
  double count = 0;
  for (const WeightInfo& weight : file.weights())
    if (weight.rows > 1 && weight.name.starts_with("blk.")) count += static_cast<double>(weight.rows * weight.cols);
  return count;
}

constexpr int kRequests = 16;

// Sixteen requests that share nothing, with a short and a long prompt.
std::vector<Decode> measure_many(const ModelFile& file, const BenchOptions& options, WorkerTeam& team,
                                 const Machine& machine, std::span<const int32_t> ids) {
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
    results.push_back(machine.beside([&] { return measure_decode(forward, ids, kRequests, prompt, steps); }));
  }
  return results;
}

// Contexts near the model's own: prefill, one request at its end, sixteen that share most of it.
struct Long {
  std::optional<Prefill> prefill;
  std::vector<Decode> decodes;
};
Long measure_long(const ModelFile& file, const BenchOptions& options, WorkerTeam& team, const Machine& machine,
                  std::span<const int32_t> ids) {
  constexpr int kSteps = 32;
  constexpr int64_t kLong = 4106, kShared = 4096;
  const auto context = static_cast<int64_t>(ids.size());
  const Precision precision = precision_from_string(options.precision);
  Long result;
  if (options.quick || context < kLong + kSteps) return result;
  {
    ForwardPass forward(
        file,
        {.precision = precision, .max_tokens = kLong + kRequests * kSteps, .max_sequences = kRequests, .team = &team});
    result.prefill = measure_prefill(machine, forward, ids, kLong, 2);
    result.decodes.push_back(
        machine.beside([&] { return measure_decode(forward, ids, kRequests, kShared, kSteps, true); }));
  }
  const bool narrow = precision == Precision::fast;
  ForwardPass forward(file, {.precision = precision,
                             .max_tokens = context,
                             .kv_dtype = narrow ? std::optional(DType::int8) : std::nullopt,
                             .team = &team});
  result.decodes.push_back(machine.beside([&] { return measure_decode(forward, ids, 1, context - kSteps, kSteps); }));
  if (narrow) result.decodes.back().kv_dtype = "int8";
  return result;
}

}  // namespace

void measure_model(const BenchOptions& options, BenchReport& report) {
  if (options.device != Device::cpu()) return measure_model_on_card(options, report);
  check(options.shape.empty(), ErrorCode::unsupported,
        "bench model --shape {}: required is a card, supported on the CPU is --model FILE, missing random weights",
        options.shape);
  check(options.step == "layered" || options.step == "auto", ErrorCode::unsupported,
        "bench model --step {}: required is a card, supported on the CPU are layered steps, missing fused ones",
        options.step);
  check(
      options.step_ctas == 0, ErrorCode::unsupported,
      "bench model --step-ctas {}: required is a card, supported on the CPU is no number of CTAs, missing fused steps",
      options.step_ctas);
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
  const auto load_start = Clock::now();
  auto loaded = std::make_optional<ForwardPass>(
      file,
      ForwardOptions{.precision = precision_from_string(options.precision), .max_tokens = context, .team = &team});
  ForwardPass& forward = *loaded;
  const double load_s = seconds_since(load_start);
  std::vector<int32_t> many_ids(static_cast<size_t>(std::min<int64_t>(8192, file.config().context_length)));
  for (size_t i = 0; i < many_ids.size(); ++i)
    many_ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(file.config().vocab_size));
  const std::span<const int32_t> ids = std::span(many_ids).first(static_cast<size_t>(context));

  // Before anything else takes memory: what a whole context of one request needs.
  const auto full = forward.add_sequence();
  const ForwardPass::Input whole[] = {{.sequence = full, .tokens = ids}};
  run_prompts(forward, whole);
  forward.release(full);
  const uint64_t context_bytes = peak_memory();

  const size_t weight_bytes = forward.weight_bytes(), kv_bytes = forward.kv_bytes_per_token();
  const Machine machine(team, weight_bytes, options.precision);
  std::vector<Prefill> prefills;
  for (const int64_t tokens : {prompt, std::min<int64_t>(486, prompt)})  // 486 fills no whole number of tiles
    if (prefills.empty() || tokens != prompt)
      prefills.push_back(measure_prefill(machine, forward, ids, tokens, repeats));
  std::vector<Decode> decodes;
  for (const int64_t length : {std::min<int64_t>(16, prompt), prompt}) {
    const int steps = std::min(decoded, static_cast<int>(context - length));
    decodes.push_back(machine.beside([&] { return measure_decode(forward, ids, 1, length, steps); }));
  }
  loaded.reset();
  for (const Decode& decode : measure_many(file, options, team, machine, ids)) decodes.push_back(decode);
  const Long longest = measure_long(file, options, team, machine, many_ids);
  if (longest.prefill) prefills.push_back(*longest.prefill);
  decodes.insert(decodes.end(), longest.decodes.begin(), longest.decodes.end());
  const Ceilings last = machine.now();
  report.note(fmt::format(
      "{}, precision {}, {} threads, {:.1f} MB of weights a token, {} bytes of keys and values a token of context; "
      "decode's ceiling: reading, at last {:.1f} GB/s; prefill's: {}, at last {:.0f} GOP/s",
      file.config().architecture, options.precision, team.num_workers(), static_cast<double>(weight_bytes) / 1e6,
      kv_bytes, last.bandwidth / 1e9, machine.products(), last.ops / 1e9));
  const double ops_a_token = 2 * layer_weights(file);
  const auto add = [&](std::string name, std::string metric, double value, std::string unit, double ceiling = 0) {
    report.add({.bench = "model",
                .name = std::move(name),
                .metric = std::move(metric),
                .value = value,
                .unit = std::move(unit),
                .ceiling = ceiling});
  };
  for (const Prefill& prefill : prefills)
    add(fmt::format("prefill {}", prefill.tokens), "rate", static_cast<double>(prefill.tokens) / prefill.seconds,
        "tok/s", prefill.ops / ops_a_token);
  for (const Decode& decode : decodes) {
    const double read = static_cast<double>(weight_bytes) + decode.bytes_read();
    const double most = decode.ceilings.ops / ops_a_token;
    add(decode.name(), "rate", decode.requests / decode.step_s, "tok/s",
        std::min(decode.requests * decode.ceilings.bandwidth / read, most));
    if (decode.requests > 1 && !decode.shared)
      add(decode.name(), "prefill", static_cast<double>(decode.requests * decode.prompt) / decode.prefill_s, "tok/s",
          most);
  }
  add("load and pack", "time", load_s * 1e3, "ms");
  add("one token from process start", "time", median(start_s) * 1e3, "ms");
  add("one token from process start", "peak memory", static_cast<double>(starts[0].peak_bytes) / 1e6, "MB");
  add(fmt::format("context {}", context), "peak memory", static_cast<double>(context_bytes) / 1e6, "MB");
}

}  // namespace weft::bench
