// `weft bench model`: a model file from process start to tokens. Decode's ceiling is reading every weight once a step
// and the keys and values of every request, at the bandwidth of this run; prefill's is the arithmetic of its weights,
// which bounds many requests as well.
#include "weft/model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "bench/stop.h"
#include "bench/timing.h"

namespace weft::bench {
namespace {

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
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  stop_if_asked();  // which the child heard, too
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, ErrorCode::io_error,
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

// What the machine can do at most.
struct Ceilings {
  double bandwidth = 0, ops = 0;
};
class Machine {
 public:
  // Reads of the weights' size; arithmetic of the precision's products.
  Machine(WorkerTeam& team, size_t weight_bytes, const std::string& precision)
      : memory_(memory_to_read(team, std::max(weight_bytes, size_t{64} << 20))),
        read_(probe_read(team, static_cast<const char*>(memory_.data()), memory_.bytes(), memory_.bytes())) {
    const Arithmetic arithmetic = arithmetic_of(team, precision == "exact"  ? Instruction::fp32_multiply_add
                                                      : precision == "fast" ? Instruction::int8_dot
                                                                            : Instruction::int16_dot);
    ops_ = arithmetic.ops;
    products_ = arithmetic.instruction == Instruction::fp32_multiply_add ? "fp32 multiply-add"
                : arithmetic.instruction == Instruction::int8_dot        ? "int8 dots"
                                                                         : "int16 dots";
  }
  const char* products() const { return products_; }

  const Probe& ops() const { return ops_; }

  // What `measure` gives, with the ceilings around it: reads between its steps would cost it its caches.
  template <class Measure>
  auto beside(const Measure& measure) const {
    const Ceilings before = now();
    auto row = measure();
    const Ceilings after = now();
    row.ceilings = {(before.bandwidth + after.bandwidth) / 2, (before.ops + after.ops) / 2};
    return row;
  }
  Ceilings now() const { return {median_of(read_), median_of(ops_)}; }

 private:
  Workspace memory_;
  Probe read_, ops_;
  const char* products_ = nullptr;
};

struct Prefill {
  int64_t tokens = 0;
  double seconds = 0, ops = 0;  // medians: of the runs, and of readings in between
};
Prefill measure_prefill(const Machine& machine, ForwardPass& forward, std::span<const int32_t> ids, int64_t tokens,
                        int repeats) {
  const auto sequence = forward.add_sequence();
  const auto run = [&] {
    forward.truncate(sequence, 0);
    forward.run({{.sequence = sequence, .tokens = ids.first(static_cast<size_t>(tokens))}});
  };
  const TimedBeside timed = time_beside(run, {&machine.ops(), 1}, repeats, 0);
  forward.release(sequence);
  return {tokens, timed.median_s, timed.ceilings[0]};
}

// Requests of `prompt` tokens each, then `steps` tokens more of all together, one of each a step.
struct Decode {
  int requests = 0, steps = 0;
  int64_t prompt = 0;
  bool shared = false;               // the prompt, by all requests
  double kv_bytes = 0;               // of a token of context
  std::string kv_dtype{};            // where it is not the precision's own
  double prefill_s = 0, step_s = 0;  // the median step
  Ceilings ceilings{};

  double bytes_read() const {  // of keys and values, a step
    return kv_bytes * (requests * steps / 2. + static_cast<double>(prompt) * (shared ? 1 : requests));
  }
  std::string name() const {
    std::string name = requests == 1 ? fmt::format("decode {} after {}", steps, prompt)
                       : shared      ? fmt::format("{} requests, {} after {} shared", requests, steps, prompt)
                                     : fmt::format("{} requests, {} after {}", requests, steps, prompt);
    return kv_dtype.empty() ? name : name + ", " + kv_dtype;
  }
};
Decode measure_decode(ForwardPass& forward, std::span<const int32_t> ids, int requests, int64_t prompt, int steps,
                      bool shared = false) {
  std::vector<ForwardPass::Input> inputs;
  for (int i = 0; i < requests && !(shared && i > 0); ++i)
    inputs.push_back({.sequence = forward.add_sequence(), .tokens = ids.first(static_cast<size_t>(prompt))});
  const auto prefill_start = Clock::now();
  forward.run(inputs);
  Decode result{.requests = requests,
                .steps = steps,
                .prompt = prompt,
                .shared = shared,
                .kv_bytes = static_cast<double>(forward.kv_bytes_per_token()),
                .prefill_s = seconds_since(prefill_start)};
  while (static_cast<int>(inputs.size()) < requests)
    inputs.push_back({.sequence = forward.fork(inputs[0].sequence, prompt), .tokens = {}});
  std::vector<double> step_s;
  for (int step = 0; step < steps; ++step) {
    stop_if_asked();
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
  forward.run({{.sequence = full, .tokens = ids}});
  forward.release(full);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

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
  add(fmt::format("context {}", context), "peak memory", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6, "MB");
}

}  // namespace weft::bench
