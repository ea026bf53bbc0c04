// build: spec -> leaf, core and traits -> kernel, remembered by spec.
#include "attention/kernel.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "base/check.h"
#include "base/device_checks.h"
#include "base/env.h"
#include "base/once_map.h"
#include "device/cpu/cpuid.h"

namespace weft {
namespace {

// What a kernel is looked for by. Kernels of this process are small and stay.
struct KernelKey {
  AttentionSpec spec;
  Isa isa;
  bool check_masks;  // WEFT_CHECK=1
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};
// The same without a copy of the spec.
struct KernelQuery {
  const AttentionSpec& spec;
  Isa isa;
  bool check_masks;
  operator KernelKey() const { return {spec, isa, check_masks}; }
  friend bool operator==(const KernelKey& key, const KernelQuery& query) {
    return key.isa == query.isa && key.check_masks == query.check_masks && key.spec == query.spec;
  }
};
using Kernels = OnceMap<KernelKey, std::shared_ptr<const AttentionKernel::Impl>>;

Kernels& kernels() {
  static Kernels instance;
  return instance;
}

// Cheap, not perfect: equal specs have equal hashes, and few others share them.
size_t hash_of(const AttentionSpec& spec, Isa isa) {
  size_t hash = std::hash<std::string_view>()(spec.variant.name) ^ spec.variant.text.size() * 0x9e3779b97f4a7c15ull;
  for (const int field :
       {static_cast<int>(spec.q_dtype), static_cast<int>(spec.kv_dtype), static_cast<int>(spec.o_dtype),
        spec.compute ? static_cast<int>(*spec.compute) : -1, spec.head_dim_qk, spec.head_dim_vo,
        static_cast<int>(spec.kv_form), static_cast<int>(spec.layout), static_cast<int>(spec.mask),
        static_cast<int>(spec.sliding_window), static_cast<int>(spec.kv_scales), spec.kv_scale_group,
        static_cast<int>(isa)})
    hash = (hash ^ static_cast<size_t>(field)) * 0x100000001b3ull;
  return hash;
}

int lanes_of(Isa isa) {
  switch (isa) {
    case Isa::plain: return 4;
    case Isa::avx2: return 8;
    case Isa::avx512:
    case Isa::avx512_bf16: return 16;
  }
  return 4;
}

// Fused rows up to which keys and values are multiplied as they are stored. That converts them anew for each 8 rows (6
// where there are 16 registers), which bf16 and fp32 bear longest; bytes are packed either way, for all heads at once.
int direct_rows(const AttentionSpec& spec, Isa isa) {
  const bool wide = lanes_of(isa) == 16;
  if (spec.kv_form == KvForm::latent) return 8;           // packed, a latent row is read once
  if (compute_type(spec, isa) == DType::bf16) return 16;  // packed, both products are in bf16
  switch (spec.kv_dtype) {
    case DType::fp32:
    case DType::bf16: return wide ? 24 : 16;
    case DType::fp16:
    case DType::int8:
    case DType::int4: return wide ? 16 : 8;
    default: return 8;
  }
}

}  // namespace

KernelTraits cpu_traits(const AttentionSpec& spec, Isa isa) {
  KernelTraits traits;
  const int dims = spec.head_dim_qk + spec.head_dim_vo;
  // Costs in nanoseconds of a core at 3 GHz, as `weft bench plan --fit` finds them: products at two thirds of two
  // multiply-adds of `lanes` a cycle (bf16 pairs: one of twice as many), 12 bytes a nanosecond, one exponential a score.
  // Products with keys and values as stored add the lanes of their sums up; bf16 is widened for them where it is not
  // multiplied as such.
  const double product = dims / (2. * lanes_of(isa) * 3.);
  const double softmax = 6. / lanes_of(isa);
  // Of latent rows keys and values are one, read once and packed without a transpose.
  const bool latent = spec.kv_form == KvForm::latent;
  const double pack = (latent ? spec.head_dim_qk * 0.6 : dims * 1.2) / lanes_of(isa);
  const double stream = (latent ? spec.head_dim_qk : dims) * bits_of(spec.kv_dtype) / 8. / 12.;
  const TileClass direct = {.rows = direct_rows(spec, isa),
                            .all_kv_heads = true,
                            .row = dims * 0.4,
                            .token = stream,
                            .row_token = compute_type(spec, isa) == DType::bf16 ? product + 0.5 : product * 1.4 + 1.5,
                            .item = 400};
  const auto packed = [&](int rows) {
    TileClass tile_class = direct;
    tile_class.rows = rows;
    tile_class.all_kv_heads = false;
    tile_class.token = pack + stream;
    tile_class.row_token = product * 1.5 + softmax;
    return tile_class;
  };
  // The rows of queries and outputs and a tile of keys and values fit the second-level cache. A latent row serves all
  // heads, 128 of them in large models.
  if (latent) {
    traits.classes = {direct, packed(24), packed(128)};
  } else {
    const int most_rows = dims > 512 ? 48 : 96;
    TileClass streamed = packed(most_rows);
    streamed.all_kv_heads = true;
    streamed.most_states = (lanes_of(isa) == 16 ? 512 << 10 : 256 << 10) / (dims * static_cast<int>(sizeof(float)));
    traits.classes = {direct, streamed, packed(most_rows)};
  }
  traits.granule = abi::kColumnStep;
  traits.head_dim_vo = spec.head_dim_vo;
  traits.use_softmax = spec.variant.use_softmax;
  traits.kv_form = spec.kv_form;
  traits.intervals = combined_intervals(spec);
  const std::vector<std::string_view> named = interval_scalars(traits.intervals);
  for (const ScalarDecl& scalar : spec.variant.scalars)
    if (scalar.default_value && std::find(named.begin(), named.end(), scalar.name) != named.end())
      traits.defaults.push_back({scalar.name, *scalar.default_value});
  return traits;
}

namespace {

std::shared_ptr<const AttentionKernel::Impl> make_kernel(const AttentionSpec& spec, Isa isa, bool check_masks) {
  validate(spec);
  auto impl = std::make_shared<AttentionKernel::Impl>();
  impl->spec = spec;
  impl->isa = isa;
  impl->compute = compute_type(spec, isa);
  impl->params = Params(spec);
  impl->leaf = find_leaf(spec, isa);
  impl->core = &attention::cpu::core_for(isa);
  impl->traits = cpu_traits(spec, isa);
  impl->signature = impl->traits.signature();
  for (const Mask mask : {Mask::custom, Mask::custom_packed})
    if (spec.mask == mask ||
        spec.variant == (mask == Mask::custom ? variants::custom_mask() : variants::custom_mask_packed()))
      impl->custom_mask = mask;
  if (spec.variant == variants::alibi()) impl->per_head = "slopes";
  if (spec.variant == variants::attention_sink()) impl->per_head = "sinks";
  impl->check_masks = check_masks;
  check((impl->leaf.leaf->use_softmax != 0) == spec.variant.use_softmax, ErrorCode::invalid_argument,
        "variant '{}': use_softmax is {} in its text and {} in the spec; make them agree", spec.variant.name,
        impl->leaf.leaf->use_softmax != 0, spec.variant.use_softmax);
  return impl;
}

}  // namespace

AttentionKernel build(const AttentionSpec& spec, Device device, const BuildOptions& options) {
  check_is_cpu("device", device);
  const Isa isa = options.isa.value_or(current_isa());
  check_supported(isa, "isa");
  const bool check_masks = env::check_masks();
  AttentionKernel kernel;
  kernel.impl_ = kernels().get(hash_of(spec, isa), KernelQuery{spec, isa, check_masks},
                               [&] { return make_kernel(spec, isa, check_masks); });
  return kernel;
}

const AttentionKernel::Impl& AttentionKernel::impl() const { return held(impl_, "kernel", "build"); }

const AttentionSpec& AttentionKernel::spec() const { return impl().spec; }

Plan AttentionKernel::plan(const PlanInput& input) const { return Planner::plan(impl().traits, input); }

size_t AttentionKernel::workspace_bytes(const PlanBounds& bounds) const {
  return Planner::workspace_bytes(impl().traits, bounds);
}

void AttentionKernel::run(const Plan& plan, const AttentionTensors& tensors, Workspace& workspace,
                          Stream stream) const {
  impl();  // before the workspace is changed
  plan.upload(workspace, stream);
  run(workspace, tensors, stream);
}

}  // namespace weft
