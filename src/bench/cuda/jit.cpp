// `weft bench jit --device cuda:0`: from the text of a variant, or of a sparse program, to a kernel that a card can
// launch.
#include <fmt/format.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention/cuda/text.h"
#include "base/check.h"
#include "bench/cuda/shapes.h"
#include "bench/cuda/sparse_jit.h"
#include "bench/measure.h"
#include "bench/own_cache.h"
#include "bench/random_weights.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "bench/variants.h"
#include "decode/fused/cuda/fused_layers.h"
#include "decode/fused/cuda/model_text.h"
#include "device/cuda/stream.h"
#include "jit/build.h"
#include "jit/key.h"
#include "jit/nvrtc/module.h"
#include "jit/nvrtc/toolchain.h"
#include "weft/attention.h"

namespace weft::bench {
namespace {

using attention::cuda::Architecture;
using attention::cuda::Form;
using cuda::KernelText;
using MakeText = std::function<KernelText(int number)>;  // another kernel of each number

// A variant that no process has compiled: NVRTC 13 keeps what it made, too, and finds it by its text in 70 to 100 ms.
// Numbers below kNumbers; floats can tell all that there are apart.
constexpr int kNumbers = 64;
AttentionSpec spec_of(int number) {
  static const int process = static_cast<int>(std::random_device()() % 100000);
  return {.q_dtype = DType::bf16,
          .kv_dtype = DType::bf16,
          .o_dtype = DType::bf16,
          .head_dim_qk = 128,
          .head_dim_vo = 128,
          .mask = Mask::causal,
          .variant = new_variant(process * kNumbers + number)};
}

const Architecture& architecture_of(const cuda::Card& card) {
  return attention::cuda::find_architecture(jit::architecture_of(card.capability_major(), card.capability_minor()));
}

struct Seconds {
  std::vector<double> text, cold, compiler, disk, load;
};

// Each way to one kernel, in the order in which the next way finds what it needs; the compiler alone makes another one.
void time_kernel(cuda::Card& card, int number, const MakeText& make_text, Seconds& seconds) {
  const Architecture& architecture = architecture_of(card);
  const auto make = [&] { return make_text(2 * number); };
  KernelText text;
  const auto callable = [&](const cuda::Module& module) {
    (void)cuda::find_kernel(module, text.symbol.c_str(), text.shared_bytes);
  };
  seconds.text.push_back(seconds_of([&] { text = make(); }));
  jit::Origin origin = jit::Origin::memory;
  seconds.cold.push_back(seconds_of([&] {
    text = make();
    const jit::CudaModule made = jit::cuda_module(card, "bench jit", text.text(), text.flags);
    origin = made.origin;
    callable(*made.module);
  }));
  ensure(origin == jit::Origin::compiler, "bench jit: a kernel came from {}", to_string(origin));

  jit::Built built;
  const auto request = [&] {
    return jit::Request{
        .name = "bench jit", .text = text.text(), .target = jit::nvrtc_target(architecture.name), .flags = text.flags};
  };
  seconds.disk.push_back(seconds_of([&] {
    text = make();
    built = jit::build(request());
    callable(cuda::load_module(card, built.bytes, "bench jit"));
  }));
  ensure(built.origin == jit::Origin::disk, "bench jit: a kernel came from {}", to_string(built.origin));
  seconds.load.push_back(seconds_of([&] { callable(cuda::load_module(card, built.bytes, "bench jit")); }));
  const jit::Toolchain& toolchain = jit::nvrtc_toolchain();
  const jit::Compiler& compiler = *toolchain.find(nullptr).compiler;
  text = make_text(2 * number + 1);
  seconds.compiler.push_back(
      seconds_of([&] { (void)toolchain.compile(compiler, request(), jit::request_id(request()).flags, ""); }));
}

// What each way took in the median, below the name of the kernel.
void measure_kernel(const std::string& name, const MakeText& make_text, const BenchOptions& options, cuda::Card& card,
                    BenchReport& report, double first_s = 0) {
  if (name.find(options.only) == name.npos) return;
  Seconds seconds;
  for (int i = 0; i < (options.quick ? 3 : 5); ++i) {
    stop_if_asked();
    time_kernel(card, i, make_text, seconds);
  }
  const auto add = [&](const std::string& way, double taken_s, double ceiling_s) {
    report.add({"jit", fmt::format("{}: {}", name, way), "time", taken_s * 1e3, "ms", ceiling_s * 1e3});
  };
  if (first_s > 0) add("cold, first of the process with its compiler found", first_s, median(seconds.compiler));
  add("cold, next", median(seconds.cold), median(seconds.compiler));
  add("from disk", median(seconds.disk), median(seconds.load));
  add("text alone", median(seconds.text), 0);
}

// The kernel of a whole step, for one row: bf16 weights of the 8B shape, of which none is read.
void measure_fused_step(const BenchOptions& options, cuda::Card& card, BenchReport& report) {
  const ModelConfig config = config_of("8b");
  const decode::ModelSources sources = random_sources(config, WeightType::bf16);
  const ForwardOptions forward{.device = options.device, .max_tokens = 8192, .step = StepForm::automatic};
  decode::fused::StepChoice choice;
  const Timing partition = time_runs([&] { choice = decode::fused::choose_step(config, sources, forward); });
  if (!choice.partition) return report.note(fmt::format("a step in one kernel: {}", choice.layered));
  report.add({"jit", "a step in one kernel, 8b: partition", "time", partition.median_s * 1e3, "ms"});
  static const auto process = std::random_device()();
  const auto make_text = [&](int number) {
    KernelText text =
        decode::fused::model_text(*choice.partition, decode::fused::shape_of(*choice.partition, 1, DType::bf16));
    text.instances += fmt::format("\nconstexpr unsigned weft_bench[] = {{{}u, {}u}};\n", process, number);
    return text;
  };
  measure_kernel("source to callable, a step in one kernel, 8b", make_text, options, card, report);
}

}  // namespace

void measure_jit_on_card(const BenchOptions& options, BenchReport& report) {
  const OwnCache cache("bench jit");
  cuda::Card& card = cuda::Card::at(options.device.index);
  const cuda::OwnedStream context = cuda::make_stream(card);  // is there before anything is timed
  const double first = seconds_of([&] { build(spec_of(kNumbers - 1), options.device); });
  report.note(
      fmt::format("{}: {}, {}; a soft cap with a bias over bf16, head dim 128. Ceilings: of a cold build, the compiler "
                  "alone with another text; from disk, loading the same cubin from memory; from memory, none",
                  to_string(options.device), card.name(), jit::nvrtc_toolchain().find(nullptr).compiler->version));
  std::vector<Form> forms = attention::cuda::forms_of(spec_of(0), architecture_of(card));
  if (forms.size() > 1) forms.pop_back();  // which is of tensors in other strides
  for (const Form& form : forms) {
    const auto make_text = [&](int number) {
      return attention::cuda::attend_text(spec_of(number), architecture_of(card), form);
    };
    measure_kernel(fmt::format("source to callable, {}", form.name), make_text, options, card, report,
                   &form == &forms.front() ? first : 0);
  }
  measure_fused_step(options, card, report);
  measure_sparse_jit(options, report);
  const AttentionSpec known = spec_of(kNumbers - 1);
  constexpr int kLookups = 1000;
  const Timing lookups = time_runs([&] {
    for (int i = 0; i < kLookups; ++i) build(known, options.device);
  });
  report.add({"jit", "source to callable: from memory, by spec", "time", lookups.median_s / kLookups * 1e3, "ms"});
}

}  // namespace weft::bench
