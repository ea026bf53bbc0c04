#include <algorithm>
#include <array>
#include <optional>

#include "attention/plan/planner.h"
#include "bad_calls.h"
#include "tests/attention/kernels/problem.h"
#include "weft/attention.h"

namespace weft::testing {
namespace {

Case random_case(Dice& dice) {
  Case c;
  c.form = dice.pick({KvForm::paged, KvForm::ragged, KvForm::padded, KvForm::latent});
  c.layout = dice.pick({Layout::nhd, Layout::hnd});
  c.page_size = dice.pick({1, 4, 16});
  c.group = dice.between(1, 3);
  c.kv_heads = dice.between(1, 2);
  c.head_dim_qk = c.head_dim_vo = 8;
  if (c.form == KvForm::latent) {
    c.group = dice.pick({2, 12});
    c.kv_heads = 1;
    c.head_dim_qk = 16;
    c.five_d = dice.once_in(2);
  }
  c.mask = dice.pick({Mask::none, Mask::causal, Mask::custom, Mask::custom_packed});
  if (c.mask == Mask::causal && dice.once_in(2)) c.window = dice.between(-1, 20);
  if (c.mask == Mask::none)
    c.variant = dice.pick({variants::plain(), variants::sigmoid(), variants::alibi(), variants::attention_sink()});
  static const std::vector<float> slopes(16, 0.5f);
  for (const TensorDecl& tensor : c.variant.tensors)
    c.tensors = {{tensor.name, TensorView(slopes.data(), DType::fp32, {16})}};
  for (int r = dice.between(1, 4); r > 0; --r) c.lengths.emplace_back(dice.between(0, 3), dice.between(0, 40));
  c.seed = static_cast<unsigned>(dice.below(1000));
  return c;
}

// A plan's input whose arrays may be changed.
struct OwnInput {
  explicit OwnInput(const PlanInput& from)
      : input(from),
        arrays{copy(from.qo_indptr),
               copy(from.pages.kv_page_indptr),
               copy(from.pages.kv_page_indices),
               copy(from.pages.kv_last_page_len),
               copy(from.kv_indptr),
               copy(from.kv_len)},
        mask_indptr(from.mask_indptr.begin(), from.mask_indptr.end()) {
    point();
  }
  OwnInput(const OwnInput&) = delete;
  OwnInput& operator=(const OwnInput&) = delete;

  void spoil(Dice& dice) {
    const auto odd_length = [&] { return dice.once_in(3) ? 1 << dice.below(16) : dice.odd_int(); };
    switch (dice.below(17)) {
      case 0: input.num_qo_heads = dice.odd_int(); break;
      case 1: input.num_kv_heads = dice.odd_int(); break;
      case 2: input.max_kv_len = dice.odd_long(); break;
      case 3: input.num_workers = dice.once_in(8) ? 65537 : dice.odd_int(); break;
      case 4: input.mode = static_cast<PlanMode>(dice.below(6)); break;
      case 5: input.fixed_split_size = dice.pick({64, 128, 63, 1, -64, INT32_MAX}); break;
      case 6: input.pages.page_size = dice.odd_int(); break;
      case 7: input.pages.num_pages = dice.odd_long(); break;
      case 8: input.scalars.push_back({dice.pick({"window_left", "cap", ""}), dice.odd_number()}); break;
      case 9: input.scalars.clear(); break;
      case 10: levels.resize(static_cast<size_t>(dice.below(3))); break;
      case 11: input.borrow_page_ids = !input.borrow_page_ids; break;
      case 12: dice.spoil(mask_indptr, dice.odd_long()); break;
      default: dice.spoil(arrays[static_cast<size_t>(dice.below(6))], odd_length()); break;
    }
    point();
  }

  PlanInput input;

 private:
  static std::vector<int32_t> copy(std::span<const int32_t> from) { return {from.begin(), from.end()}; }
  void point() {
    input.qo_indptr = arrays[0];
    input.pages.kv_page_indptr = arrays[1];
    input.pages.kv_page_indices = arrays[2];
    input.pages.kv_last_page_len = arrays[3];
    input.kv_indptr = arrays[4];
    input.kv_len = arrays[5];
    input.mask_indptr = mask_indptr;
    for (Level& level : levels) level = {input.qo_indptr, input.pages};
    input.levels = levels;
  }
  std::array<std::vector<int32_t>, 6> arrays;
  std::vector<int64_t> mask_indptr;
  std::vector<Level> levels;
};

// Kernels of the built-in leaves: without a compiler, anything else is refused.
class BuildCalls : public CallFamily {
  const char* name() const override { return "build"; }
  std::vector<std::string_view> arguments() const override {
    return {"dtype",  "kv_scale", "head_dim", "kv_form", "layout",   "mask", "variant",  "scalar",
            "tensor", "bound",    "device",   "isa",     "interval", "text", "WEFT_CXX", "window_left"};
  }
  void call(Dice& dice) override {
    AttentionSpec spec;
    spec.variant = dice.pick({variants::plain(), variants::logits_soft_cap(), variants::alibi(), variants::sigmoid(),
                              variants::causal(), variants::sliding_window(), variants::custom_mask(),
                              variants::attention_sink()});
    for (int count = dice.below(4); count > 0; --count) spoil(dice, spec);
    BuildOptions options;
    if (dice.once_in(4)) options.isa = static_cast<Isa>(dice.below(4));
    build(spec, dice.device(), options);
  }
  static void spoil(Dice& dice, AttentionSpec& spec) {
    Variant& v = spec.variant;
    switch (dice.below(17)) {
      case 0: spec.q_dtype = dice.dtype(); break;
      case 1: spec.kv_dtype = dice.dtype(); break;
      case 2: spec.o_dtype = static_cast<DType>(dice.below(20)); break;
      case 3: spec.head_dim_qk = dice.once_in(2) ? dice.between(1, 80) * 8 : dice.odd_int(); break;
      case 4: spec.head_dim_vo = dice.once_in(2) ? dice.between(1, 80) * 8 : dice.odd_int(); break;
      case 5: spec.kv_form = static_cast<KvForm>(dice.below(7)); break;
      case 6: spec.layout = static_cast<Layout>(dice.below(3)); break;
      case 7: spec.mask = static_cast<Mask>(dice.below(6)); break;
      case 8: spec.sliding_window = !spec.sliding_window; break;
      case 9: dice.spoil(v.name); break;
      case 10: dice.spoil(v.text); break;
      case 11:
        v.scalars.push_back({dice.pick({"cap", "", "real", "mask", "window_left"}),
                             dice.pick({ScalarKind::real, ScalarKind::integer}), dice.odd_number()});
        break;
      case 12: v.tensors.push_back({dice.pick({"slopes", "mask", "9"}), dice.dtype(), dice.odd_int()}); break;
      case 13:
        v.intervals.push_back({.lower = {{.constant = dice.odd_int(), .scalar = dice.pick({"", "cap", "window_left"})}},
                               .upper = {{.q_pos = true, .scalar_sign = dice.between(-1, 1)}}});
        break;
      case 14: spec.kv_scales = static_cast<KvScales>(dice.below(6)); break;
      case 15: spec.kv_scale_group = dice.odd_int(); break;
      default: v.use_softmax = !v.use_softmax; break;
    }
  }
};

class PlanCalls : public CallFamily {
  const char* name() const override { return "plan"; }
  std::vector<std::string_view> arguments() const override {
    return {"num_qo_heads", "num_kv_heads", "num_workers",      "mode",      "fixed_split_size",
            "indptr",       "pages",        "page_size",        "num_pages", "kv_page",
            "kv_len",       "max_kv_len",   "scalar",           "levels",    "bounds.",
            "request",      "plan",         "kv_last_page_len", "workspace"};
  }
  void call(Dice& dice) override {
    const Case c = random_case(dice);
    Problem problem(c);
    const AttentionKernel kernel = build(problem.spec(), Device::cpu());
    PlanBounds bounds = random_bounds(dice, c);
    OwnInput own(
        problem.input(dice.between(1, 5), dice.pick({PlanMode::balanced, PlanMode::paper, PlanMode::no_split})));
    if (dice.once_in(3)) own.input.bounds = &bounds;
    for (int count = dice.below(3); count > 0; --count) own.spoil(dice);
    Plan plan = kernel.plan(own.input);
    verify(plan);
    if (own.input.bounds != nullptr && plan.workspace_bytes() > kernel.workspace_bytes(bounds))
      throw InternalError("a plan within the bounds needs more than they say");
    if (dice.once_in(2)) {
      own.spoil(dice);
      const bool covers = plan.covers(own.input);
      plan.update(own.input);
      if (!covers) throw InternalError("updated with what it does not cover");
      verify(plan);
    }
    if (plan.workspace_bytes() > size_t{1} << 24) return;
    // The lengths may be others than the tensors': run says so, or computes.
    Workspace workspace(Device::cpu(), dice.once_in(8) ? 64 : plan.workspace_bytes());
    problem.poison_outputs();
    AttentionTensors tensors = problem.tensors();
    kernel.run(plan, tensors, workspace, Stream::cpu(team_));
  }
  static PlanBounds random_bounds(Dice& dice, const Case& c) {
    PlanBounds bounds{.max_requests = 8,
                      .max_rows = 64,
                      .max_pages = has_page_table(c.form) ? 400 : 0,
                      .max_kv_len = 1000,
                      .page_size = has_page_table(c.form) ? c.page_size : 0,
                      .num_qo_heads = c.group * c.kv_heads,
                      .num_kv_heads = c.kv_heads,
                      .workers = 8};
    switch (dice.below(24)) {
      case 0: bounds.max_requests = dice.odd_int(); break;
      case 1: bounds.max_rows = dice.odd_long(); break;
      case 2: bounds.max_pages = dice.odd_long(); break;
      case 3: bounds.max_levels = dice.odd_int(); break;
      case 4: bounds.max_kv_len = dice.odd_long(); break;
      case 5: bounds.page_size = dice.odd_int(); break;
      case 6: bounds.num_qo_heads = dice.odd_int(); break;
      case 7: bounds.num_kv_heads = dice.odd_int(); break;
      case 8: bounds.workers = dice.odd_int(); break;
      case 9: bounds.mode = static_cast<PlanMode>(dice.below(6)); break;
      case 10: bounds.fixed_split_size = dice.odd_int(); break;
      default: break;
    }
    return bounds;
  }
  WorkerTeam team_{1};
};

class RunCalls : public CallFamily {
  const char* name() const override { return "run"; }
  std::vector<std::string_view> arguments() const override {
    return {"q:",   "k:",     "v:",    "o:",        "lse:",   "sm_scale",     "scalar",  "tensor", "ckv",         "kpe",
            "mask", "slopes", "sinks", "workspace", "kernel", "spec.kv_form", "request", "plan",   "num_qo_heads"};
  }
  void call(Dice& dice) override {
    const Case c = random_case(dice);
    Problem problem(c);
    AttentionTensors tensors = problem.tensors();
    for (int count = dice.below(3); count > 0; --count) spoil(dice, tensors);
    if (dice.once_in(4)) {
      AttentionTensors extra = tensors;
      return attend(problem.spec(), tensors.q, tensors.kv.k, tensors.kv.v, tensors.o, tensors.lse, extra,
                    Stream::cpu(team_));
    }
    const AttentionKernel kernel = build(problem.spec(), Device::cpu());
    const Plan plan = kernel.plan(problem.input(dice.between(1, 4)));
    Workspace workspace;
    if (!dice.once_in(16)) workspace = Workspace(Device::cpu(), plan.workspace_bytes());
    if (!dice.once_in(16)) plan.upload(workspace);
    kernel.run(workspace, tensors, Stream::cpu(team_));
  }
  static void spoil(Dice& dice, AttentionTensors& t) {
    TensorView* const views[] = {&t.q, &t.kv.k, &t.kv.v, &t.o, &t.lse};
    switch (dice.below(8)) {
      case 0: t.sm_scale = static_cast<float>(dice.odd_number()); break;
      case 1: t.scalars.push_back({dice.pick({"bias", "window_left", "mask"}), dice.odd_number()}); break;
      case 2:
        if (!t.tensors.empty()) {
          TensorArg& arg = dice.pick(t.tensors);
          dice.once_in(4) ? arg.name += "_" : arg.name;
          arg.value = dice.spoil(arg.value);
        }
        break;
      case 3: t.tensors.push_back({dice.pick({"mask", "bias"}), t.q}); break;
      default: {
        TensorView& view = *views[dice.below(5)];
        view = dice.spoil(view);
      }
    }
  }
  WorkerTeam team_{1};
};

class StateCalls : public CallFamily {
  const char* name() const override { return "merge_states, pack_mask"; }
  std::vector<std::string_view> arguments() const override {
    return {"o:", "lse:", "o_out:", "lse_out:", "indptr", "mask_indptr"};
  }
  void call(Dice& dice) override {
    if (dice.once_in(4)) {
      std::vector<uint8_t> mask(20, 1);
      std::vector<int64_t> indptr = {0, 3, 3, 20}, bytes;
      if (!dice.once_in(4)) dice.spoil(indptr, dice.odd_long());
      return void(pack_mask(mask, indptr, bytes));
    }
    TensorView o(memory_.data(), DType::fp32, {2, 3, 2, 8}), lse(memory_.data(), DType::fp32, {2, 3, 2});
    TensorView out(memory_.data() + 128, DType::fp32, {3, 2, 8}), lse_out(memory_.data() + 256, DType::fp32, {3, 2});
    const bool listed = dice.once_in(2);
    std::vector<int32_t> indptr = {0, 2, 2, 6};
    if (listed)
      o = TensorView(memory_.data(), DType::fp32, {6, 2, 8}), lse = TensorView(memory_.data(), DType::fp32, {6, 2});
    for (int count = dice.below(3); count > 0; --count) {
      if (listed && dice.once_in(2)) {
        dice.spoil(indptr, static_cast<int32_t>(dice.odd_int()));
        continue;
      }
      TensorView& view = *dice.pick({&o, &lse, &out, &lse_out});
      view = dice.spoil(view);
    }
    listed ? merge_states(o, lse, indptr, out, lse_out, Stream::cpu(team_))
           : merge_states(o, lse, out, lse_out, Stream::cpu(team_));
  }
  std::vector<float> memory_ = std::vector<float>(512);
  WorkerTeam team_{1};
};

class PageTableCalls : public CallFamily {
  const char* name() const override { return "page table"; }
  std::vector<std::string_view> arguments() const override {
    return {"page_size", "num_pages", "request", "tokens", "pool", "handle"};
  }
  void call(Dice& dice) override {
    if (!table_ || dice.once_in(64)) {
      table_.emplace(dice.once_in(4) ? dice.pick({0, -1, INT32_MIN}) : dice.pick({1, 3, 16, INT32_MAX}),
                     dice.once_in(4) ? dice.pick({int64_t{-1}, int64_t{1} << 31, INT64_MIN}) : int64_t{dice.below(40)});
      requests_.clear();
    }
    PageTable& table = *table_;
    int64_t request = dice.once_in(6) || requests_.empty() ? dice.odd_long() : dice.pick(requests_);
    const int64_t tokens = dice.once_in(3) ? dice.odd_long() : dice.below(50);
    switch (dice.below(9)) {
      case 0: requests_.push_back(table.add()); break;
      case 1: requests_.push_back(table.fork(request, tokens).request); break;
      case 2: table.truncate(request, tokens); break;
      case 3: table.release(request); break;
      case 4:
        if (table.length(request) < 0) throw InternalError("a negative length");
        break;
      case 5: table.pages(request); break;
      case 6: {
        const PageTableView view = table.view(requests_);
        for (const int32_t page : view.kv_page_indices)
          if (page < 0 || page >= table.num_pages()) throw InternalError("a page outside the pool");
        break;
      }
      default: table.append(request, tokens); break;
    }
  }
  std::optional<PageTable> table_;
  std::vector<int64_t> requests_;
};

}  // namespace

void add_attention_calls(CallFamilies& families) {
  families.push_back(std::make_unique<BuildCalls>());
  families.push_back(std::make_unique<PlanCalls>());
  families.push_back(std::make_unique<RunCalls>());
  families.push_back(std::make_unique<StateCalls>());
  families.push_back(std::make_unique<PageTableCalls>());
}

}  // namespace weft::testing
