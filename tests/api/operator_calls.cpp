#include <cmath>
#include <numeric>

#include "bad_calls.h"
#include "weft/device.h"
#include "weft/jit.h"
#include "weft/ops.h"
#include "weft/quest.h"

namespace weft::testing {
namespace {

class TensorCalls : public CallFamily {
  const char* name() const override { return "tensors, workspaces, teams"; }
  std::vector<std::string_view> arguments() const override {
    return {"shape",   "strides", "rank",      "dtype",       "slice", "select",
            "permute", "bytes",   "workspace", "num_workers", "kv:",   "device"};
  }
  void call(Dice& dice) override {
    const TensorView view(memory_.data(), DType::fp32, {2, 2, 2, 2, 8});
    switch (dice.below(9)) {
      case 0: {
        std::vector<int64_t> shape(static_cast<size_t>(dice.below(9))), strides(static_cast<size_t>(dice.below(4)));
        for (int64_t& extent : shape) extent = dice.odd_long();
        TensorView(memory_.data(), static_cast<DType>(dice.below(20)), shape, strides).is_contiguous();
        break;
      }
      case 1: view.slice(dice.odd_int(), dice.odd_long(), dice.odd_long()); break;
      case 2: view.select(dice.below(6), dice.once_in(2) ? dice.odd_long() : dice.below(3)); break;
      case 3: view.permute({dice.below(5), dice.below(5), 2, dice.odd_int(), 4}); break;
      case 4: dtype_from_string(dice.bytes(6)); break;
      case 5: KvCache(dice.spoil(view)); break;
      case 6:
        Workspace(dice.device(), dice.once_in(3) ? SIZE_MAX >> dice.below(18) : static_cast<size_t>(dice.below(9999)));
        break;
      case 7: WorkerTeam(dice.once_in(2) ? dice.odd_int() : dice.below(4)); break;
      default: bits_of(static_cast<DType>(dice.below(20))); break;
    }
  }
  std::vector<float> memory_ = std::vector<float>(128);
};

class OperatorCalls : public CallFamily {
  const char* name() const override { return "append, quantize, absorbed weights, page choice, RoPE, norms, gates"; }
  std::vector<std::string_view> arguments() const override {
    return {"append_paged_kv: ",
            "quantize: ",
            "dequantize: ",
            "apply_rope: ",
            "rms_norm: ",
            "add_rms_norm: ",
            "silu_and_mul: ",
            "gelu_tanh_and_mul: ",
            "soft_cap: ",
            "absorb_query_weights: ",
            "absorb_output_weights: ",
            "update_page_summaries: ",
            "choose_pages: "};
  }
  void call(Dice& dice) override {
    switch (dice.below(9)) {
      case 0: return rope(dice);
      case 1:
      case 2: return norm(dice);
      case 3: return absorb(dice);
      case 4:
      case 5: return quest(dice);
      case 6: return narrow(dice);
      default: return append(dice);
    }
  }
  TensorView fresh(std::initializer_list<int64_t> shape) {
    used_ = (used_ + 256) % static_cast<int>(memory_.size());
    return {memory_.data() + used_, DType::fp32, shape};
  }
  void rope(Dice& dice) {
    TensorView x = fresh({3, 2, 8});
    std::vector<int32_t> positions = {0, 1, 5};
    RopeParams params;
    for (int count = dice.below(3); count > 0; --count) switch (dice.below(11)) {
        case 0: dice.spoil(positions, static_cast<int32_t>(dice.odd_int())); break;
        case 1: params.rotary_dim = dice.odd_int(); break;
        case 2: params.theta = static_cast<float>(dice.odd_number()); break;
        case 3: params.linear_scale = static_cast<float>(dice.odd_number()); break;
        case 4: params.factor = static_cast<float>(dice.odd_number()); break;
        case 5: params.scaling = static_cast<RopeScaling>(dice.below(3)); break;
        case 6: params.original_context = dice.odd_int(); break;
        case 7: params.low_freq_factor = static_cast<float>(dice.odd_number()); break;
        case 8: params.attention_factor = static_cast<float>(dice.odd_number()); break;
        case 9: params.pairs = static_cast<RopePairs>(dice.below(4)); break;
        default: x = dice.spoil(x);
      }
    apply_rope(x, positions, params, Stream::cpu(team_));
  }
  void norm(Dice& dice) {
    TensorView x = fresh({3, 8}), y = fresh({3, 8}), residual = fresh({3, 8}), weight = fresh({8});
    float eps = 1e-5f;
    for (int count = dice.below(3); count > 0; --count) {
      if (dice.once_in(6)) eps = static_cast<float>(dice.odd_number());
      TensorView& view = *dice.pick({&x, &y, &residual, &weight});
      view = dice.spoil(view);
    }
    switch (dice.below(5)) {
      case 0: return rms_norm(x, weight, eps, y, Stream::cpu(team_));
      case 1: return add_rms_norm(x, residual, weight, eps, y, Stream::cpu(team_));
      case 2: return gelu_tanh_and_mul(x, residual, y, Stream::cpu(team_));
      case 3: return soft_cap(x, static_cast<float>(dice.odd_number()), Stream::cpu(team_));
      default: return silu_and_mul(x, residual, y, Stream::cpu(team_));
    }
  }
  void append(Dice& dice) {
    TensorView k = fresh({3, 2, 8}), v = fresh({3, 2, 8});
    KvCache cache(fresh({4, 2, 2, 8}), fresh({4, 2, 2, 8}));
    std::vector<int32_t> append_indptr = {0, 1, 3}, page_indptr = {0, 2, 3}, ids = {3, 0, 1}, last = {1, 2};
    int page_size = 2;
    int64_t num_pages = 4;
    auto scales = KvScales::none;
    if (dice.once_in(2)) {
      scales = static_cast<KvScales>(dice.below(6));
      const int64_t slots = scales == KvScales::token_group ? 1 : 2;
      const DType dtype = dice.pick({DType::int8, DType::int4, DType::fp8_e4m3});
      cache = {TensorView(fresh({1}).data(), dtype, {4, 2, 2, 8}), TensorView(fresh({1}).data(), dtype, {4, 2, 2, 8}),
               fresh({4, slots, 2, 1}), fresh({4, slots, 2, 1})};
    }
    for (int count = dice.below(3); count > 0; --count) switch (dice.below(8)) {
        case 0: dice.spoil(append_indptr, static_cast<int32_t>(dice.odd_int())); break;
        case 1: dice.spoil(page_indptr, static_cast<int32_t>(dice.odd_int())); break;
        case 2: dice.spoil(ids, static_cast<int32_t>(dice.odd_int())); break;
        case 3: dice.spoil(last, static_cast<int32_t>(dice.odd_int())); break;
        case 4: page_size = dice.odd_int(); break;
        case 5: num_pages = dice.odd_long(); break;
        default: {
          TensorView& view = *dice.pick({&k, &v, &cache.k, &cache.v, &cache.k_scale, &cache.v_scale});
          view = dice.spoil(view);
        }
      }
    append_paged_kv(k, v, append_indptr, {page_size, num_pages, page_indptr, ids, last},
                    static_cast<Layout>(dice.below(3)), cache, scales, Stream::cpu(team_));
  }
  void narrow(Dice& dice) {
    TensorView x = fresh({4, 2, 8}), scales = fresh({2, 2, 1});
    TensorView q(fresh({1}).data(), dice.pick({DType::int8, DType::int4, DType::fp8_e5m2}), {4, 2, 8});
    for (int count = dice.below(3); count > 0; --count) {
      TensorView& view = *dice.pick({&x, &q, &scales});
      view = dice.spoil(view);
    }
    if (dice.once_in(2)) return quantize(x, q, scales, Stream::cpu(team_));
    dequantize(q, scales, x, Stream::cpu(team_));
  }
  void absorb(Dice& dice) {
    TensorView up = fresh({2, 3, 8}), latent = fresh({2, 3, 4}), o = fresh({5, 2, 3}), query = fresh({2, 4, 8}),
               output = fresh({5, 2, 4});
    for (int count = dice.below(3); count > 0; --count) {
      TensorView& view = *dice.pick({&up, &latent, &o, &query, &output});
      view = dice.spoil(view);
    }
    if (dice.once_in(2)) return absorb_query_weights(up, latent, query, Stream::cpu(team_));
    absorb_output_weights(latent, o, output, Stream::cpu(team_));
  }
  void quest(Dice& dice) {
    TensorView keys = fresh({4, 2, 2, 8}), q = fresh({3, 4, 8});
    PageSummaries summaries{fresh({4, 2, 8}), fresh({4, 2, 8})};
    std::vector<int32_t> indptr = {0, 1, 3}, page_indptr = {0, 3, 4}, ids = {3, 0, 2, 1}, last = {1, 2};
    int page_size = 2, heads = 2, budget = 2;
    for (int count = dice.below(3); count > 0; --count) switch (dice.below(10)) {
        case 0: dice.spoil(indptr, static_cast<int32_t>(dice.odd_int())); break;
        case 1: dice.spoil(page_indptr, static_cast<int32_t>(dice.odd_int())); break;
        case 2: dice.spoil(ids, static_cast<int32_t>(dice.odd_int())); break;
        case 3: dice.spoil(last, static_cast<int32_t>(dice.odd_int())); break;
        case 4: page_size = dice.odd_int(); break;
        case 5: heads = dice.odd_int(); break;
        case 6: budget = dice.odd_int(); break;
        default: {
          TensorView& view = *dice.pick({&keys, &q, &summaries.min, &summaries.max});
          view = dice.spoil(view);
        }
      }
    const PageTableView pages{page_size, 4, page_indptr, ids, last};
    if (dice.once_in(2))
      return update_page_summaries(keys, indptr, pages, dice.pick({Layout::nhd, Layout::hnd}), summaries,
                                   Stream::cpu(team_));
    choose_pages(q, summaries, indptr, pages, heads, budget, Stream::cpu(team_));
  }
  std::vector<float> memory_ = std::vector<float>(256 * 16);
  int used_ = 0;
  WorkerTeam team_{1};
};

class SamplingCalls : public CallFamily {
  const char* name() const override { return "sampling"; }
  std::vector<std::string_view> arguments() const override {
    return {"temperature",  "top_k",      "top_p", "min_p",    "logits",    "token",       "k =",
            "filter_order", "repetition", "bias",  "presence", "frequency", "sample_rows", "mask"};
  }
  void call(Dice& dice) override {
    std::vector<float> logits(static_cast<size_t>(dice.below(20)));
    for (float& logit : logits)
      logit = static_cast<float>(dice.once_in(8) ? dice.odd_number() : dice.below(100) * 0.1 - 5);
    SamplingParams params;
    if (dice.once_in(2)) params.temperature = static_cast<float>(dice.odd_number());
    if (dice.once_in(3)) params.top_k = dice.odd_int();
    if (dice.once_in(3)) params.top_p = static_cast<float>(dice.odd_number());
    if (dice.once_in(3)) params.min_p = static_cast<float>(dice.odd_number());
    if (dice.once_in(6)) params.filter_order = static_cast<FilterOrder>(dice.below(4));
    Philox generator{1};
    if (dice.once_in(3)) return process(dice, logits);
    switch (dice.below(4)) {
      case 0: {
        const int32_t id = sample(logits, params, generator);
        if (id < 0 || static_cast<size_t>(id) >= logits.size() || !(logits[static_cast<size_t>(id)] > -INFINITY))
          throw InternalError("drew what cannot be drawn");
        break;
      }
      case 1: log_probability(logits, dice.odd_int()); break;
      case 2: {
        const int64_t vocab = dice.between(1, 5), rows = static_cast<int64_t>(logits.size()) / vocab;
        TensorView batch(logits.data(), DType::fp32, {rows, vocab});
        if (dice.once_in(3)) batch = dice.spoil(batch);
        std::vector<SamplingParams> all(static_cast<size_t>(rows), params);
        std::vector<Philox> generators(static_cast<size_t>(rows));
        if (dice.once_in(6)) generators.emplace_back();
        sample_rows(batch, all, generators, Stream::cpu(team_));
        break;
      }
      default: top_log_probabilities(logits, dice.odd_int()); break;
    }
  }
  static void process(Dice& dice, std::vector<float>& logits) {
    std::vector<int32_t> ids(static_cast<size_t>(dice.below(6)));
    for (int32_t& id : ids) id = dice.once_in(6) ? dice.odd_int() : dice.below(20);
    switch (dice.below(3)) {
      case 0: {
        std::vector<uint32_t> mask((logits.size() + 31) / 32, dice.once_in(3) ? 0 : 0x55555u);
        if (dice.once_in(3)) dice.spoil(mask, 1u);
        return apply_token_mask(logits, mask);
      }
      case 1: {
        std::vector<std::pair<int32_t, float>> bias;
        for (const int32_t id : ids) bias.emplace_back(id, static_cast<float>(dice.odd_number()));
        return apply_logit_bias(logits, bias);
      }
      default: {
        Penalties penalties{.repetition = static_cast<float>(dice.once_in(2) ? 1.2 : dice.odd_number())};
        if (dice.once_in(3)) penalties.presence = static_cast<float>(dice.odd_number());
        if (dice.once_in(3)) penalties.frequency = static_cast<float>(dice.odd_number());
        return apply_penalties(logits, penalties, ids, ids);
      }
    }
  }
  WorkerTeam team_{1};
};

class KernelCacheCalls : public CallFamily {
  const char* name() const override { return "kernel cache"; }
  std::vector<std::string_view> arguments() const override { return {"key", "folder", "max_bytes", "max_age_s"}; }
  void call(Dice& dice) override {
    std::string key = dice.pick({"", "0123", "zz", "../../etc/passwd", "00000000000000000000"});
    if (dice.once_in(2)) dice.spoil(key);
    switch (dice.below(4)) {
      case 0: jit::source(key); break;
      case 1: jit::object(key); break;
      case 2: jit::list(); break;
      default: jit::prune({.max_bytes = dice.odd_long(), .max_age_s = dice.odd_long()}); break;
    }
  }
};

}  // namespace

void add_operator_calls(CallFamilies& families) {
  families.push_back(std::make_unique<TensorCalls>());
  families.push_back(std::make_unique<OperatorCalls>());
  families.push_back(std::make_unique<SamplingCalls>());
  families.push_back(std::make_unique<KernelCacheCalls>());
}

}  // namespace weft::testing
