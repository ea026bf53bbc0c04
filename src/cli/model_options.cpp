#include "cli/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "cli/device.h"
#include "cli/progress.h"
#include "decode/forward.h"

namespace weft::cli {

void add_model_options(Verb& verb, ModelOptions& options, const char* context_help) {
  verb.option("model", options.model, "The model, a GGUF file").required().type_name("MODEL");
  verb.option("--threads", options.threads, "Worker threads; 0: WEFT_NUM_THREADS, or what affinity and quota allow")
      .range(0, 1024);
  verb.option("--ctx", options.ctx, std::string("Tokens of context; 0: ") + context_help)
      .allows("0 (automatic) and more", [](double tokens) { return tokens >= 0; });
  verb.option("--kv-dtype", options.kv_dtype, "Type of the KV cache; auto: fp32 for exact, else bf16; int8 needs fast")
      .one_of({"auto", "fp32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "int4"});
  verb.option("--device", options.device, "Where it runs: cpu, cuda:0, ...");
  verb.option("--precision", options.precision, "Precision of activations and KV").one_of({"exact", "default", "fast"});
  verb.option("--step", options.step,
              "On a card, steps of up to 8 rows as one kernel or operation by operation; auto: as one where it can")
      .one_of({"auto", "layered", "fused"});
  add_step_ctas(verb, options.step_ctas);
  verb.flag("--invariant", options.invariant,
            "The same tokens whatever else is in the batch and however many workers there are (slower)");
}

void add_step_ctas(Verb& verb, int& ctas) {
  verb.option("--step-ctas", ctas, "CTAs of a step as one kernel, up to one on each multiprocessor; 0: on all")
      .allows("0 (one on each multiprocessor) and more", [](double count) { return count >= 0; });
}

void check_model_options(const ModelOptions& options) {
  require_device(options.device);
  check(options.step_ctas == 0 || step_form_from_string(options.step) != StepForm::layered, ErrorCode::invalid_argument,
        "--step-ctas {} with --step layered: kernels of layered steps have as many CTAs as each needs; give --step "
        "fused or auto",
        options.step_ctas);
  check(!options.invariant || step_form_from_string(options.step) != StepForm::fused, ErrorCode::invalid_argument,
        "--step fused with --invariant: a fused step has other bits on another number of multiprocessors; allowed are "
        "layered and auto, which goes layered then");
}

void say_step_form(std::string_view form) {
  if (form != decode::kLayeredAsAsked) std::fputs(fmt::format("weft: steps: {}\n", form).c_str(), stderr);
}

int64_t choose_context(const ModelConfig& config, const ModelOptions& options, int64_t wanted) {
  check(options.ctx <= config.context_length, ErrorCode::invalid_argument,
        "--ctx = {}; allowed are 0 to {}, the model's own context", options.ctx, config.context_length);
  if (options.ctx > 0) return options.ctx;
  return std::min<int64_t>(config.context_length, std::max<int64_t>(wanted, 2048));
}

Engine load_engine(const ModelFile& file, const ModelOptions& options, int64_t tokens) {
  Engine engine;
  if (options.threads > 0) engine.team = std::make_unique<WorkerTeam>(options.threads);
  Progress progress("loading " + file.path());
  ForwardOptions forward;
  forward.precision = precision_from_string(options.precision);
  forward.device = device_of(options.device);
  forward.step = step_form_from_string(options.step);
  forward.step_ctas = options.step_ctas;
  forward.max_tokens = tokens;
  if (options.kv_dtype != "auto") forward.kv_dtype = dtype_from_string(options.kv_dtype);
  if (options.invariant) {
    forward.plan_mode = PlanMode::fixed_split;
    forward.fixed_split_size = ForwardPass::kInvariantSplit;
  }
  forward.team = engine.team.get();
  forward.on_load = [&](double fraction) { progress.set(fraction); };
  engine.forward = std::make_unique<ForwardPass>(file, forward);
  progress.done();
  say_step_form(engine.forward->step_form());
  return engine;
}

}  // namespace weft::cli
