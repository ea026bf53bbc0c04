#include "cli/jit_compile.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attention/cuda/text.h"
#include "attention/spec.h"
#include "base/check.h"
#include "base/enum_names.h"
#include "cli/output.h"
#include "jit/build.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::cli {
namespace {

constexpr int kRope = 64;  // elements of a latent key that are no value

struct Options {
  std::string architecture = "sm_90a", variant = "plain", dtype = "bf16", kv_dtype, mask = "none", loader;
  int head_dim = 128;
  bool window = false, latent = false, blocks = false;
};

const std::vector<std::pair<std::string, Variant>>& known_variants() {
  static const std::vector<std::pair<std::string, Variant>> all = {{"plain", variants::plain()},
                                                                   {"logits_soft_cap", variants::logits_soft_cap()},
                                                                   {"alibi", variants::alibi()},
                                                                   {"sigmoid", variants::sigmoid()},
                                                                   {"attention_sink", variants::attention_sink()}};
  return all;
}

AttentionSpec spec_of(const Options& options) {
  const DType dtype = dtype_from_string(options.dtype);
  AttentionSpec spec{.q_dtype = dtype,
                     .kv_dtype = options.kv_dtype.empty() ? dtype : dtype_from_string(options.kv_dtype),
                     .o_dtype = dtype,
                     .head_dim_qk = options.head_dim,
                     .head_dim_vo = options.head_dim - (options.latent ? kRope : 0),
                     .kv_form = options.latent   ? KvForm::latent
                                : options.blocks ? KvForm::block_sparse
                                                 : KvForm::paged,
                     .mask = *enum_from_string<Mask>(options.mask),
                     .sliding_window = options.window};
  if (spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4) spec.kv_scales = KvScales::head;
  for (const auto& [name, variant] : known_variants())
    if (name == options.variant) spec.variant = variant;
  if (!options.loader.empty()) spec.loader = enum_from_string<Loader>(options.loader);
  validate(spec);
  return spec;
}

void compile(const Options& options, const Context& context) {
  const AttentionSpec spec = spec_of(options);
  const jit::Target target = jit::nvrtc_target(options.architecture);
  const attention::cuda::Architecture& architecture = attention::cuda::find_architecture(options.architecture);
  std::vector<cuda::KernelText> texts;
  for (const attention::cuda::Form& form : attention::cuda::forms_of(spec, architecture)) {
    texts.push_back(attention::cuda::attend_text(spec, architecture, form));
    if (form.merges_apart) texts.push_back(attention::cuda::merge_apart_text(spec, architecture, form));
  }
  for (const cuda::KernelText& text : texts) {
    stop_if_interrupted();
    const jit::Request request{.name = text.name, .text = text.text(), .target = target, .flags = text.flags};
    const jit::Built built = jit::build(request);
    const jit::KernelResources kernel = jit::kernel_resources(built.bytes).at(0);
    if (context.json)
      print_json({{"key", built.key},
                  {"name", request.name},
                  {"from", to_string(built.origin)},
                  {"registers", kernel.registers},
                  {"stack_bytes", kernel.stack_bytes},
                  {"shared_bytes", kernel.static_shared_bytes + text.shared_bytes}});
    else
      print_out("{}  {}: {} registers, {} bytes of stack, {} bytes of shared memory; from {}\n",
                built.key.substr(0, 16), request.name, kernel.registers, kernel.stack_bytes,
                kernel.static_shared_bytes + text.shared_bytes, to_string(built.origin));
  }
  if (context.json) return;
  const attention::cuda::Family& family = attention::cuda::family_of(spec, architecture);
  print_out("by {}", family.name());
  for (const attention::cuda::Family* faster : attention::cuda::families()) {
    if (faster == &family) break;
    print_out("; not by {}: {}", faster->name(), faster->ability(spec, architecture).why_not);
  }
  print_out("\n");
}

}  // namespace

void add_jit_compile(Verb& jit, Context& context) {
  Verb verb = jit.verb("compile", "Make the kernels of attention for a card, which need not be here");
  auto options = std::make_shared<Options>();
  std::vector<std::string> architectures(jit::nvrtc_architectures().begin(), jit::nvrtc_architectures().end()), names;
  for (const auto& [name, variant] : known_variants()) names.push_back(name);
  verb.option("--arch", options->architecture, "What they are for").one_of(architectures);
  verb.option("--variant", options->variant, "One that is built in").one_of(names);
  verb.option("--head-dim", options->head_dim, "Elements of a head");
  verb.option("--dtype", options->dtype, "Of queries and outputs: bf16, fp16 or fp32");
  verb.option("--kv-dtype", options->kv_dtype, "Of keys and values; default: that of queries");
  verb.option("--mask", options->mask, "none, causal, custom or custom_packed")
      .one_of({"none", "causal", "custom", "custom_packed"});
  verb.flag("--window", options->window, "A row sees a window of keys");
  const Option latent =
      verb.flag("--latent", options->latent,
                "One row a token is key and, but for its last 64 elements, value of all heads (MLA: --head-dim 576)");
  verb.flag("--blocks", options->blocks, "Keys are lists of blocks").excludes(latent);
  verb.option("--loader", options->loader, "How keys and values come: elements, cp_async or tma; default: the fastest")
      .one_of({"elements", "cp_async", "tma"});
  verb.example("weft jit compile --arch sm_90a --mask causal && weft jit export /srv/weft-kernels");
  verb.runs([options, &context] { compile(*options, context); });
}

}  // namespace weft::cli
