// Kernels of attention compile for every architecture, without a card: of every type and form, with every hook, and
// with the registers that the table says.
#include "attention/cuda/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/cuda/mma.h"
#include "attention/cuda/traits.h"
#include "jit/build.h"
#include "jit/key.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/support/cubins.h"
#include "tests/support/sanitizers.h"

namespace weft::attention::cuda {
namespace {

class CudaKernelText : public ::testing::Test {
 protected:
  void SetUp() override {
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
  static std::string compile(const KernelText& text, std::string_view architecture) {
    const jit::Request request{
        .name = "kernel", .text = text.text(), .target = jit::nvrtc_target(architecture), .flags = text.flags};
    weft::testing::count_cubin();
    const jit::CompilerSearch search = request.target.toolchain->find(nullptr);
    return request.target.toolchain->compile(*search.compiler, request, jit::request_id(request).flags, "");
  }
};

KernelText text_of(const AttentionSpec& spec, std::string_view architecture, std::string_view form) {
  const Architecture& found = find_architecture(architecture);
  for (const Family* family : families()) {
    if (!family->ability(spec, found).type) continue;
    for (const Form& of_spec : family->forms(spec, found))
      if (of_spec.name == form) return attend_text(spec, found, of_spec);
  }
  throw std::logic_error(fmt::format("{} has no kernel of form {}", architecture, form));
}

// Compiled where what it takes is not another row's: sm_86 and sm_89 differ from sm_80 in shared memory alone, which
// tiles of products see. A kernel takes seconds.
struct Row {
  const char* name;
  AttentionSpec spec;
  std::vector<std::string_view> architectures;
  std::string_view form = "plain";
};
AttentionSpec halves(DType type, int dim, Mask mask = Mask::none) {
  return {.q_dtype = type, .kv_dtype = type, .o_dtype = type, .head_dim_qk = dim, .head_dim_vo = dim, .mask = mask};
}
AttentionSpec few_bits(DType type, KvScales scales, int dim = 128) {
  AttentionSpec spec = halves(DType::bf16, dim);
  spec.kv_dtype = type;
  spec.kv_scales = scales;
  return spec;
}
AttentionSpec soft_capped(AttentionSpec spec) {
  spec.variant = variants::logits_soft_cap();
  return spec;
}
// Queries and keys by a table of angles.
AttentionSpec turned(AttentionSpec spec) {
  spec.variant = {.name = "Turned",
                  .text = R"(struct Turned {
  static real turned(P p, Vec x, int i, Row r) {
    return x[i] * p.cos(r.pos, i) + weft::pair_halves(x, i) * p.sin(r.pos, i);
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
};)",
                  .tensors = {{"cos", DType::fp32, 2}, {"sin", DType::fp32, 2}}};
  return spec;
}
AttentionSpec in_boxes(AttentionSpec spec) {
  spec.loader = Loader::tma;
  return spec;
}
AttentionSpec of_blocks(AttentionSpec spec) {
  spec.kv_form = KvForm::block_sparse;
  return spec;
}
AttentionSpec latent(int dim_vo, Mask mask = Mask::none) {
  AttentionSpec spec = halves(DType::bf16, dim_vo, mask);
  spec.head_dim_qk = dim_vo + 64;
  spec.kv_form = KvForm::latent;
  return spec;
}
const Row kRows[] = {
    {"fp32 hd64", {.head_dim_qk = 64, .head_dim_vo = 64, .mask = Mask::causal}, {"sm_75", "sm_80", "sm_90a"}},
    {"int4 hd128",
     {.q_dtype = DType::bf16,
      .kv_dtype = DType::int4,
      .o_dtype = DType::bf16,
      .head_dim_qk = 128,
      .head_dim_vo = 128,
      .kv_scales = KvScales::token},
     {"sm_75", "sm_90a"}},
    {"latent 576", latent(512), {"sm_80", "sm_90a"}},
    {"latent 576 tiles", latent(512), {"sm_90a"}, "latent_tiles"},
    {"latent 576 pairs soft cap", soft_capped(latent(512, Mask::causal)), {"sm_90a"}, "latent_pairs"},
    {"bf16 hd128 small tiles", halves(DType::bf16, 128), {"sm_80", "sm_90a"}, "small_tiles"},
    {"bf16 hd64 small tiles", halves(DType::bf16, 64), {"sm_90a"}, "small_tiles"},
    {"bf16 hd128 all tiles", halves(DType::bf16, 128), {"sm_80", "sm_86", "sm_89", "sm_90a"}, "all_tiles"},
    {"bf16 hd160 all tiles", halves(DType::bf16, 160), {"sm_90a"}, "all_tiles"},
    {"bf16 hd192 all tiles", halves(DType::bf16, 192), {"sm_90a"}, "all_tiles"},
    {"fp16 hd64 all tiles", halves(DType::fp16, 64, Mask::custom), {"sm_75", "sm_90a"}, "all_tiles"},
    {"fp8 hd128 small tiles", few_bits(DType::fp8_e4m3, KvScales::none), {"sm_90a"}, "small_tiles"},
    {"int8 hd128 small tiles", few_bits(DType::int8, KvScales::token), {"sm_90a"}, "small_tiles"},
    {"int4 hd128 small tiles", few_bits(DType::int4, KvScales::token), {"sm_90a"}, "small_tiles"},
    {"fp8 hd128 all tiles", few_bits(DType::fp8_e4m3, KvScales::token), {"sm_90a"}, "all_tiles"},
    {"int8 hd128 all tiles", few_bits(DType::int8, KvScales::head), {"sm_80"}, "all_tiles"},
    {"int4 hd256 all tiles", few_bits(DType::int4, KvScales::token, 256), {"sm_90a"}, "all_tiles"},
    {"bf16 hd64 warpgroup tiles", halves(DType::bf16, 64), {"sm_90a"}, "warpgroup_tiles"},
    {"bf16 hd128 warpgroup tiles", halves(DType::bf16, 128, Mask::causal), {"sm_90a"}, "warpgroup_tiles"},
    {"bf16 hd192 warpgroup tiles", halves(DType::bf16, 192), {"sm_90a"}, "warpgroup_tiles"},
    {"bf16 hd256 warpgroup tiles", halves(DType::bf16, 256), {"sm_90a"}, "warpgroup_tiles"},
    {"fp16 hd128 soft cap warpgroup tiles", soft_capped(halves(DType::fp16, 128)), {"sm_90a"}, "warpgroup_tiles"},
    {"bf16 hd64 producer rows", halves(DType::bf16, 64), {"sm_90a"}, "producer_rows"},
    {"bf16 hd128 producer boxes", in_boxes(halves(DType::bf16, 128, Mask::causal)), {"sm_90a"}, "producer_boxes"},
    {"bf16 hd128 producer rows", halves(DType::bf16, 128, Mask::causal), {"sm_90a"}, "producer_rows"},
    {"bf16 hd128 blocks producer rows", of_blocks(halves(DType::bf16, 128, Mask::causal)), {"sm_90a"}, "producer_rows"},
    {"fp16 hd128 mask producer rows", halves(DType::fp16, 128, Mask::custom_packed), {"sm_90a"}, "producer_rows"},
    {"fp8 hd128 producer rows", few_bits(DType::fp8_e4m3, KvScales::token), {"sm_90a"}, "producer_rows"},
    {"bf16 hd128 hooks producer rows", turned(halves(DType::bf16, 128, Mask::causal)), {"sm_90a"}, "producer_rows"},
    {"bf16 hd256 producer boxes", in_boxes(soft_capped(halves(DType::bf16, 256))), {"sm_90a"}, "producer_boxes"},
};

class CudaKernelTextFor : public CudaKernelText, public ::testing::WithParamInterface<std::string_view> {};

TEST_P(CudaKernelTextFor, TakesTheResourcesOfTheTable) {
  const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
  if (search.compiler->version != "NVRTC 12.9")
    GTEST_SKIP() << "the table is of NVRTC 12.9; here is " << search.compiler->version;
  std::string taken, expected;
  bool first = true;
  const auto take = [&](const std::string& name, const KernelText& text) {
    for (const jit::KernelResources& kernel : jit::kernel_resources(compile(text, GetParam()))) {
      EXPECT_EQ(kernel.static_shared_bytes, 0) << name;
      EXPECT_EQ(kernel.stack_bytes, 0) << name << " keeps registers in memory";
      taken += fmt::format("{} {} {} {}\n", GetParam(), name, kernel.registers, kernel.stack_bytes);
    }
  };
  for (const Row& row : kRows) {
    if (std::find(row.architectures.begin(), row.architectures.end(), GetParam()) == row.architectures.end()) continue;
    const KernelText text = text_of(row.spec, GetParam(), row.form);
    if (!std::exchange(first, false) && weft::testing::kUnderSanitizer) continue;
    take(row.name, text);
  }
  if (GetParam() == "sm_90a") {
    const Architecture& architecture = find_architecture(GetParam());
    take("latent 576 merge", merge_apart_text(latent(512), architecture, forms_of(latent(512), architecture).front()));
  }
  std::ifstream table(WEFT_KERNEL_RESOURCES);
  for (std::string line; std::getline(table, line);)
    if (line.starts_with(GetParam())) expected += line + "\n";
  if (weft::testing::kUnderSanitizer) return;
  EXPECT_EQ(taken, expected) << "the table's lines:\n" << taken;
}
// Sanitizers watch who makes the texts, and not the compiler, which takes most of the time: one kernel of the shortest
// list will do.
INSTANTIATE_TEST_SUITE_P(Architecture, CudaKernelTextFor,
                         ::testing::ValuesIn(jit::nvrtc_architectures().first(weft::testing::kUnderSanitizer
                                                                                  ? 1
                                                                                  : jit::nvrtc_architectures().size())),
                         [](const auto& architecture) { return std::string(architecture.param); });

// Shared memory of a multiprocessor, and workers of each, for q and KV of this type and head dim: of plans of small
// tiles alone, or of the plain path, and of others, whose tiles have so many keys.
struct Workers {
  const char* architecture;
  int kilobytes;
  DType type;
  int dim, of_small, of_all, keys;
};
constexpr Workers kWorkers[] = {
    {"sm_90a", 228, DType::bf16, 64, 2, 2, 64},  {"sm_90a", 228, DType::bf16, 128, 2, 2, 64},
    {"sm_90a", 228, DType::bf16, 192, 2, 2, 32}, {"sm_90a", 228, DType::bf16, 256, 1, 1, 64},
    {"sm_86", 100, DType::bf16, 64, 2, 2, 32},   {"sm_86", 100, DType::bf16, 128, 1, 1, 64},
    {"sm_80", 164, DType::bf16, 64, 2, 2, 64},   {"sm_80", 164, DType::bf16, 128, 2, 2, 32},
    {"sm_80", 164, DType::bf16, 136, 1, 1, 64},  {"sm_75", 64, DType::fp16, 32, 2, 2, 32},
    {"sm_75", 64, DType::fp16, 64, 1, 1, 64},    {"sm_90a", 228, DType::fp32, 256, 2, 0, 0},
    {"sm_75", 64, DType::fp32, 64, 2, 0, 0},     {"sm_75", 64, DType::fp32, 128, 1, 0, 0}};

TEST(CudaArchitecture, IsKnownOfEachThatCompilersMakeCodeFor) {
  for (const std::string_view name : jit::nvrtc_architectures()) EXPECT_EQ(find_architecture(name).name, name);
  EXPECT_THROW(find_architecture("sm_70"), Error);
}

TEST(CudaTraits, HaveTheWorkersThatAMultiprocessorHoldsAtOnce) {
  for (const Workers& w : kWorkers) {
    const AttentionSpec spec = halves(w.type, w.dim);
    SCOPED_TRACE(fmt::format("{} {} hd{}", w.architecture, to_string(w.type), w.dim));
    const auto held = [&](std::string_view form) {
      const int of_cta = text_of(spec, w.architecture, form).shared_bytes + 1024;  // a kilobyte is the system's
      return std::min(2, w.kilobytes * 1024 / of_cta);
    };
    const KernelTraits of_kernel = traits(spec, find_architecture(w.architecture), 10);
    EXPECT_EQ(w.of_small, held(w.type == DType::fp32 ? "plain" : "small_tiles"));
    EXPECT_EQ(of_kernel.classes[0].default_workers, 10 * w.of_small);
    if (w.type == DType::fp32) continue;
    EXPECT_EQ(w.of_all, held("all_tiles"));
    EXPECT_EQ(w.keys, mma_tiles(spec, find_architecture(w.architecture)).keys);
    // The largest tiles of sm_90a are a producer's, of which a multiprocessor holds one CTA.
    const bool has_producer = std::string_view(w.architecture) == "sm_90a";
    for (size_t c = 1; c < of_kernel.classes.size(); ++c) {
      const int kind = bit_of(of_kernel.classes[c].kind);
      EXPECT_EQ(of_kernel.default_workers(kind, PlanMode::balanced),
                10 * (has_producer && c + 1 == of_kernel.classes.size() ? 1 : w.of_all));
      EXPECT_EQ(of_kernel.default_workers(kind, PlanMode::fixed_split), 10 * w.of_all);  // which wgmma runs
    }
  }
}

// Boxes of keys and values are for who names them; else rows come one by one in every form.
TEST(CudaForms, OfAProducerTakeBoxesWhereTheseAreNamed) {
  const Architecture& sm_90a = find_architecture("sm_90a");
  for (const KvForm form : {KvForm::paged, KvForm::ragged, KvForm::padded}) {
    AttentionSpec spec = halves(DType::bf16, 128);
    spec.kv_form = form;
    const std::vector<Form> forms = forms_of(spec, sm_90a), named = forms_of(in_boxes(spec), sm_90a);
    EXPECT_TRUE(std::none_of(forms.begin(), forms.end(), [](const Form& f) { return f.loader == Loader::tma; }));
    EXPECT_TRUE(std::any_of(forms.begin(), forms.end(), [](const Form& f) { return f.name == "producer_rows"; }));
    EXPECT_EQ(named.front().name, "producer_boxes");
  }
}

// Three CTAs of small tiles over 4 bits, whose kernel is told so; two where something takes more registers or bytes.
TEST(CudaTraits, HaveThreeCtasBesideFourBits) {
  const auto held = [](const AttentionSpec& spec, std::string_view architecture) {
    const KernelText text = text_of(spec, architecture, "small_tiles");
    const bool three = text.text().find("WEFT_KERNEL(128, 3)") != text.text().npos;
    const int workers = traits(spec, find_architecture(architecture), 10).classes[0].default_workers;
    EXPECT_EQ(workers == 30, three);
    if (three) {
      EXPECT_LE(3 * (text.shared_bytes + 1024), (architecture == "sm_80" ? 164 : 228) * 1024);
    }
    return workers / 10;
  };
  AttentionSpec spec = few_bits(DType::int4, KvScales::token);
  EXPECT_EQ(held(spec, "sm_90a"), 3);
  EXPECT_EQ(held(spec, "sm_80"), 3);
  EXPECT_EQ(held(spec, "sm_86"), 2);
  EXPECT_EQ(held(few_bits(DType::int4, KvScales::token, 256), "sm_90a"), 2);
  EXPECT_EQ(held(few_bits(DType::int8, KvScales::token), "sm_90a"), 2);
  spec.mask = Mask::custom;
  EXPECT_EQ(held(spec, "sm_90a"), 2);
}

TEST_F(CudaKernelText, OfEveryHookAndTypeCompiles) {
  AttentionSpec spec;
  spec.variant = {.name = "All",
                  .text = R"(struct All {
  real first = 0;
  void init(P p, Request r) { first = real(r.batch); }
  real query_transform(P p, Vec x, int i, Row r) {
    return x[i] * weft::rsqrt(weft::dot(x, x) + p.eps) + weft::pair(x, i);
  }
  real key_transform(P p, Vec x, int i, Row r) { return weft::pair_halves(x, i) * p.table(r.pos, i) + weft::sum(x); }
  real value_transform(P p, Vec x, int i, Row r) { return weft::dot(x, p.table.row(i)) + weft::pair_halves(x, i, 2); }
  real logits_transform(P p, Score c, real s) { return weft::tanh(s) + first; }
  bool logits_mask(P p, Score c) { return weft::mod_const(c.kv_idx, 3) != weft::div_const(c.qo_idx, 5); }
  real output_transform(P p, Vec x, int i, Row r) { return weft::min(x[i], r.lse); }
  real lse_transform(P p, Row r) { return r.lse + 1; }
};)",
                  .scalars = {{"eps"}},
                  .tensors = {{"table", DType::fp32, 2}}};
  spec.mask = Mask::custom_packed;
  for (const std::string_view architecture : {"sm_75", "sm_90a"}) {
    const KernelText text = text_of(spec, architecture, "plain");
    if (weft::testing::kUnderSanitizer) continue;  // as above
    EXPECT_NO_THROW(compile(text, architecture));
  }
  if (weft::testing::kUnderSanitizer) return;
  for (const DType kv : {DType::fp8_e4m3, DType::fp8_e5m2, DType::int8}) {
    spec = {.kv_dtype = kv, .kv_scales = KvScales::head};
    EXPECT_NO_THROW(compile(text_of(spec, "sm_80", "plain"), "sm_80")) << to_string(kv);
  }
  EXPECT_NO_THROW(compile(merge_states_text(DType::bf16, DType::fp32, find_architecture("sm_80")), "sm_80"));
  EXPECT_NO_THROW(compile(plan_even_text(find_architecture("sm_75")), "sm_75"));
  EXPECT_NO_THROW(compile(locate_rows_text(find_architecture("sm_75")), "sm_75"));
}

TEST_F(CudaKernelText, RefusesMoreParametersThanALaunchTakes) {
  AttentionSpec spec;
  spec.variant = {.name = "Many", .text = "struct Many {};"};
  for (int i = 0; i < 500; ++i) spec.variant.scalars.push_back({.name = fmt::format("s{}", i)});
  try {
    text_of(spec, "sm_80", "plain");
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace weft::attention::cuda
