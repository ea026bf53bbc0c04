// `weft bench jit --device cuda:0`: from a variant's text to a kernel that a card can launch.
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "attention/cuda/text.h"
#include "base/check.h"
#include "bench/measure.h"
#include "bench/own_cache.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "bench/variants.h"
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
void time_kernel(cuda::Card& card, int number, const Form& form, Seconds& seconds) {
  const Architecture& architecture = architecture_of(card);
  const auto make = [&] { return attention::cuda::attend_text(spec_of(2 * number), architecture, form); };
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
  text = attention::cuda::attend_text(spec_of(2 * number + 1), architecture, form);
  seconds.compiler.push_back(
      seconds_of([&] { (void)toolchain.compile(compiler, request(), jit::request_id(request()).flags, ""); }));
}

}  // namespace

void measure_jit_on_card(const BenchOptions& options, BenchReport& report) {
  const OwnCache cache("bench jit");
  cuda::Card& card = cuda::Card::at(options.device.index);
  const cuda::OwnedStream context = cuda::make_stream(card);  // is there before anything is timed
  const auto add = [&](const std::string& name, double seconds, double ceiling_s) {
    report.add({"jit", name, "time", seconds * 1e3, "ms", ceiling_s * 1e3});
  };
  const double first = seconds_of([&] { build(spec_of(kNumbers - 1), options.device); });
  report.note(
      fmt::format("{}: {}, {}; a soft cap with a bias over bf16, head dim 128. Ceilings: of a cold build, the compiler "
                  "alone with another text; from disk, loading the same cubin from memory; from memory, none",
                  to_string(options.device), card.name(), jit::nvrtc_toolchain().find(nullptr).compiler->version));
  std::vector<Form> forms = attention::cuda::forms_of(spec_of(0), architecture_of(card));
  if (forms.size() > 1) forms.pop_back();  // which is of tensors in other strides
  for (const Form& form : forms) {
    Seconds seconds;
    for (int i = 0; i < (options.quick ? 3 : 9); ++i) {
      stop_if_asked();
      time_kernel(card, i, form, seconds);
    }
    const std::string name = fmt::format("source to callable, {}", form.name);
    if (&form == &forms.front())
      add(name + ": cold, first of the process with its compiler found", first, median(seconds.compiler));
    add(name + ": cold, next", median(seconds.cold), median(seconds.compiler));
    add(name + ": from disk", median(seconds.disk), median(seconds.load));
    add(name + ": text alone", median(seconds.text), 0);
  }
  const AttentionSpec known = spec_of(kNumbers - 1);
  constexpr int kLookups = 1000;
  const Timing lookups = time_runs([&] {
    for (int i = 0; i < kLookups; ++i) build(known, options.device);
  });
  add("source to callable: from memory, by spec", lookups.median_s / kLookups, 0);
}

}  // namespace weft::bench
