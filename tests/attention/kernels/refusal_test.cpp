// Each check of run, merge_states, attend and pack_mask refuses with its code and names the argument.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "problem.h"
#include "weft/attention.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;

void expect_refusal(ErrorCode code, const std::string& word, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing refused; expected " << to_string(code) << " about " << word;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

class RunRefusal : public ::testing::Test {
 protected:
  static Case make_case() {
    Case c;
    c.group = 2;
    c.lengths = {{2, 20}, {1, 9}};
    return c;
  }
  RunRefusal()
      : problem_(make_case()),
        kernel_(build(problem_.spec(), Device::cpu())),
        plan_(kernel_.plan(problem_.input(2))),
        workspace_(Device::cpu(), plan_.workspace_bytes()),
        good_(problem_.tensors()) {
    plan_.upload(workspace_);
  }
  void refuses(ErrorCode code, const std::string& word, const std::function<void(AttentionTensors&)>& spoil) {
    AttentionTensors t = good_;
    spoil(t);
    const std::string before = problem_.outputs();
    expect_refusal(code, word, [&] { kernel_.run(workspace_, t); });
    EXPECT_EQ(problem_.outputs(), before) << "memory was touched";
  }
  // The same memory under another type or shape.
  static TensorView as(const TensorView& t, DType dtype) {
    return {t.data(), dtype, t.shape(), t.strides(), t.device()};
  }
  static TensorView on(const TensorView& t, Device device) {
    return {t.data(), t.dtype(), t.shape(), t.strides(), device};
  }
  static TensorView spread(const TensorView& t, int axis, int64_t stride) {
    std::vector<int64_t> strides(t.strides().begin(), t.strides().end());
    strides[static_cast<size_t>(axis)] = stride;
    return {t.data(), t.dtype(), t.shape(), strides, t.device()};
  }
  static TensorView at(const TensorView& t, const void* data) {
    return {data, t.dtype(), t.shape(), t.strides(), t.device()};
  }

  Problem problem_;
  AttentionKernel kernel_;
  Plan plan_;
  Workspace workspace_;
  AttentionTensors good_;
};

TEST_F(RunRefusal, MissingTensors) {
  refuses(ErrorCode::invalid_argument, "q:", [](auto& t) { t.q = {}; });
  refuses(ErrorCode::invalid_argument, "o:", [](auto& t) { t.o = {}; });
  refuses(ErrorCode::invalid_argument, "k:", [](auto& t) { t.kv.k = {}; });
  refuses(ErrorCode::invalid_argument, "v:", [](auto& t) { t.kv.v = {}; });
  refuses(ErrorCode::invalid_argument, "no data", [](auto& t) { t.q = at(t.q, nullptr); });
}

TEST_F(RunRefusal, WrongTypes) {
  refuses(ErrorCode::invalid_dtype, "q:", [](auto& t) { t.q = as(t.q, DType::bf16); });
  refuses(ErrorCode::invalid_dtype, "o:", [](auto& t) { t.o = as(t.o, DType::fp16); });
  refuses(ErrorCode::invalid_dtype, "k:", [](auto& t) { t.kv.k = as(t.kv.k, DType::int8); });
  refuses(ErrorCode::invalid_dtype, "v:", [](auto& t) { t.kv.v = as(t.kv.v, DType::bf16); });
  refuses(ErrorCode::invalid_dtype, "lse:", [](auto& t) { t.lse = as(t.lse, DType::int32); });
}

TEST_F(RunRefusal, WrongDevices) {
  refuses(ErrorCode::invalid_device, "q:", [](auto& t) { t.q = on(t.q, Device::cuda()); });
  refuses(ErrorCode::invalid_device, "v:", [](auto& t) { t.kv.v = on(t.kv.v, Device::cuda(1)); });
  refuses(ErrorCode::invalid_device, "lse:", [](auto& t) { t.lse = on(t.lse, Device::cuda()); });
  refuses(ErrorCode::invalid_device, "q: lies on cpu:5; there is one CPU device, index 0", [](auto& t) {
    t.q = on(t.q, {DeviceKind::cpu, 5});
  });
}

TEST_F(RunRefusal, WrongShapes) {
  refuses(ErrorCode::invalid_shape, "q:", [](auto& t) { t.q = t.q.slice(0, 0, 2); });
  refuses(ErrorCode::invalid_shape, "num_qo_heads", [](auto& t) { t.q = t.q.slice(1, 0, 1); });
  refuses(ErrorCode::invalid_shape, "head dim", [](auto& t) { t.q = t.q.slice(2, 0, 32); });
  refuses(ErrorCode::invalid_shape, "rank", [](auto& t) { t.q = t.q.select(0, 0); });
  refuses(ErrorCode::invalid_shape, "o:", [](auto& t) { t.o = t.o.slice(0, 0, 1); });
  refuses(ErrorCode::invalid_shape, "pages", [](auto& t) { t.kv.k = t.kv.k.slice(0, 0, 2); });
  refuses(ErrorCode::invalid_shape, "page_size", [](auto& t) { t.kv.v = t.kv.v.slice(1, 0, 8); });
  refuses(ErrorCode::invalid_shape, "num_kv_heads", [](auto& t) { t.kv.v = t.kv.v.slice(2, 0, 0); });
  refuses(ErrorCode::invalid_shape, "lse:", [](auto& t) { t.lse = t.lse.slice(0, 0, 1); });
  refuses(ErrorCode::invalid_shape, "lse:", [](auto& t) { t.lse = t.lse.slice(1, 0, 1); });
}

TEST_F(RunRefusal, WrongStrides) {
  refuses(ErrorCode::invalid_stride, "q:", [](auto& t) { t.q = spread(t.q, 2, 2); });
  refuses(ErrorCode::invalid_stride, "k:", [](auto& t) { t.kv.k = spread(t.kv.k, 3, 2); });
  refuses(ErrorCode::invalid_stride, "o:", [](auto& t) { t.o = spread(t.o, 2, 2); });
  refuses(ErrorCode::invalid_stride, "overlap", [](auto& t) { t.o = spread(t.o, 0, 0); });
  refuses(ErrorCode::invalid_stride, "overlap", [](auto& t) { t.lse = spread(t.lse, 1, 0); });
  // Heads, rows and lse one element short of apart.
  refuses(ErrorCode::invalid_stride, "o: ", [](auto& t) { t.o = spread(t.o, 1, t.o.stride(1) - 1); });
  refuses(ErrorCode::invalid_stride, "o: ", [](auto& t) { t.o = spread(t.o, 0, t.o.stride(0) - 1); });
  refuses(ErrorCode::invalid_stride, "lse: ", [](auto& t) { t.lse = spread(t.lse, 0, t.lse.stride(0) - 1); });
  refuses(ErrorCode::invalid_stride, "aligned",
          [](auto& t) { t.kv.k = at(t.kv.k, static_cast<char*>(t.kv.k.data()) + 1); });
}

TEST_F(RunRefusal, WrongParameters) {
  refuses(ErrorCode::invalid_argument, "sm_scale", [](auto& t) { t.sm_scale = __builtin_inff(); });
  refuses(ErrorCode::invalid_argument, "cap", [](auto& t) { t.scalars = {{"cap", 1}}; });
  refuses(ErrorCode::invalid_argument, "bias", [](auto& t) { t.tensors = {{"bias", t.q}}; });
}

// What plan was given holds: run may leave it out or say the same.
TEST(RunScalars, OfIntervalsAreThePlans) {
  Case c;
  c.mask = Mask::causal;
  c.window = 7;
  c.lengths = {{2, 40}};
  Problem problem(c);
  problem.reference();
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(1));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  AttentionTensors t = problem.tensors();
  kernel.run(plan, t, workspace);
  EXPECT_EQ(problem.compare(kernel.impl().compute), "");
  t.scalars = {{"window_left", 7}};
  kernel.run(plan, t, workspace);
  t.scalars = {{"window_left", 8}};
  expect_refusal(ErrorCode::plan_mismatch, "'window_left' = 8, the plan was made with 7",
                 [&] { kernel.run(plan, t, workspace); });
  t.scalars = {{"window_left", -1}};  // switched off
  expect_refusal(ErrorCode::plan_mismatch, "'window_left' = -1, the plan was made with 7",
                 [&] { kernel.run(plan, t, workspace); });
}

TEST(RunScalars, OfIntervalsWithADefaultAreThePlansToo) {
  Case c;
  c.variant.scalars = {{"first", ScalarKind::integer, 3.0}, {"last", ScalarKind::integer}};
  c.variant.intervals = {{.upper = {{.scalar = "first"}}},
                         {.lower = {{.q_pos = true, .scalar = "last", .scalar_sign = -1}}}};
  c.lengths = {{2, 40}};
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  PlanInput input = problem.input(1);
  input.scalars = {{"last", 5}};
  Plan plan = kernel.plan(input);
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  AttentionTensors t = problem.tensors();
  for (const double first : {3., 4.}) {
    t.scalars = {{"last", 5}, {"first", first}};
    if (first == 3)
      kernel.run(plan, t, workspace);
    else
      expect_refusal(ErrorCode::plan_mismatch, "'first' = 4, the plan was made with 3",
                     [&] { kernel.run(plan, t, workspace); });
  }
  t.scalars = {{"last", 6}};
  expect_refusal(ErrorCode::plan_mismatch, "'last' = 6, the plan was made with 5",
                 [&] { kernel.run(plan, t, workspace); });
  // Both bounds off or on: the numbers count, not only what becomes of them.
  input.scalars = {{"last", 5}, {"first", -1}};
  EXPECT_FALSE(plan.covers(input));
  t.scalars = {{"first", -1}};
  kernel.run(kernel.plan(input), t, workspace);
}

TEST_F(RunRefusal, WorkspaceWithoutThisKernelsPlan) {
  Workspace none, fresh(Device::cpu(), plan_.workspace_bytes()), small(Device::cpu(), 16);
  expect_refusal(ErrorCode::plan_mismatch, "upload", [&] { kernel_.run(none, good_); });
  expect_refusal(ErrorCode::plan_mismatch, "upload", [&] { kernel_.run(fresh, good_); });
  expect_refusal(ErrorCode::plan_mismatch, "upload", [&] { kernel_.run(small, good_); });
  AttentionSpec other = problem_.spec();
  other.mask = Mask::causal;
  expect_refusal(ErrorCode::plan_mismatch, "signature", [&] { build(other, Device::cpu()).run(workspace_, good_); });
  expect_refusal(ErrorCode::invalid_argument, "build", [&] { AttentionKernel().run(workspace_, good_); });
  expect_refusal(ErrorCode::invalid_argument, "build", [&] { AttentionKernel().plan({}); });
}

TEST_F(RunRefusal, CustomMasksThatEndBeforeTheirRows) {
  const bool as_variant[] = {false, true};
  for (const Mask mask : {Mask::custom, Mask::custom_packed})
    for (const bool variant : as_variant) {
      Case c = make_case();
      c.mask = mask;
      Problem problem(c);
      AttentionSpec spec = problem.spec();
      if (variant) {
        spec.variant = mask == Mask::custom ? variants::custom_mask() : variants::custom_mask_packed();
        spec.mask = Mask::none;
      }
      const AttentionKernel kernel = build(spec, Device::cpu());
      const Plan plan = kernel.plan(problem.input(1));
      Workspace workspace(Device::cpu(), plan.workspace_bytes());
      AttentionTensors t = problem.tensors();
      TensorView& bytes = t.tensors.at(0).value;
      bytes = bytes.slice(0, 0, bytes.shape(0) - 1);
      expect_refusal(ErrorCode::invalid_shape, "mask", [&] { kernel.run(plan, t, workspace); });
      t = problem.tensors();
      const std::vector<int64_t> again(3);
      t.tensors.push_back({"mask_indptr", TensorView(again.data(), DType::int64, {3})});
      expect_refusal(ErrorCode::invalid_argument, "mask_indptr", [&] { kernel.run(plan, t, workspace); });
    }
}

TEST_F(RunRefusal, MaskIndptrsThatDoNotHoldEveryElement) {
  Case c = make_case();
  c.mask = Mask::custom;
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const PlanInput right = problem.input(1);
  const auto refused = [&](ErrorCode code, const std::function<void(std::vector<int64_t>&)>& change) {
    std::vector<int64_t> indptr(right.mask_indptr.begin(), right.mask_indptr.end());
    change(indptr);
    PlanInput input = right;
    input.mask_indptr = indptr;
    expect_refusal(code, "mask_indptr", [&] { (void)kernel.plan(input); });
  };
  refused(ErrorCode::invalid_indptr, [](auto& indptr) { indptr.clear(); });
  refused(ErrorCode::invalid_indptr, [](auto& indptr) { indptr.push_back(indptr.back()); });
  refused(ErrorCode::invalid_indptr, [](auto& indptr) { indptr[0] = 1; });
  refused(ErrorCode::invalid_indptr, [](auto& indptr) { indptr[1] = -1; });
  refused(ErrorCode::invalid_indptr, [](auto& indptr) { --indptr.back(); });
  const AttentionKernel causal = build({.mask = Mask::causal}, Device::cpu());
  expect_refusal(ErrorCode::invalid_argument, "mask_indptr", [&] { (void)causal.plan(right); });
}

// A mask is as long as the keys are, so it moves from step to step.
TEST_F(RunRefusal, UpdatedPlansHoldTheMaskOfTheirLengths) {
  const AttentionKernel kernel = build({.mask = Mask::custom}, Device::cpu());
  const std::vector<int32_t> qo_indptr{0, 1, 2}, page_indptr{0, 2, 3}, ids{0, 1, 2};
  std::vector<int32_t> last_page_len{4, 9};
  std::vector<int64_t> mask_indptr{0, 20, 29};
  PlanInput input{.num_qo_heads = 1, .num_kv_heads = 1, .qo_indptr = qo_indptr, .mask_indptr = mask_indptr};
  input.pages = {16, 3, page_indptr, ids, last_page_len};
  Plan plan = kernel.plan(input);
  EXPECT_EQ(plan.impl().header().mask_bytes, 29);
  last_page_len = {5, 10};
  expect_refusal(ErrorCode::invalid_indptr, "mask_indptr", [&] { plan.update(input); });
  mask_indptr = {0, 21, 31};
  plan.update(input);
  verify(plan);
  const attention::PlanHeader& header = plan.impl().header();
  EXPECT_EQ(header.mask_bytes, 31);
  const auto* begins = attention::section<int64_t>(&header, header.mask_indptr);
  EXPECT_EQ(std::vector(begins, begins + header.mask_indptr.count), mask_indptr);
}

TEST_F(RunRefusal, FewerSlopesThanHeads) {
  const std::vector<float> slopes(2);
  Case c = make_case();
  c.variant = variants::alibi();
  c.tensors = {{"slopes", TensorView(slopes.data(), DType::fp32, {2})}};
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(1));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  kernel.run(plan, problem.tensors(), workspace);
  AttentionTensors t = problem.tensors();
  t.tensors[0].value = t.tensors[0].value.slice(0, 0, 1);
  expect_refusal(ErrorCode::invalid_shape, "slopes", [&] { kernel.run(plan, t, workspace); });
}

TEST_F(RunRefusal, LseWithoutSoftmax) {
  Case c = make_case();
  c.variant = variants::sigmoid();
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(1));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  AttentionTensors t = problem.tensors();
  t.lse = good_.lse;
  expect_refusal(ErrorCode::invalid_argument, "lse", [&] { kernel.run(plan, t, workspace); });
}

TEST(BuildRefusal, WhatIsNotThere) {
  expect_refusal(ErrorCode::unsupported, "cuda:0", [] { build({}, Device::cuda()); });
  for (const int index : {5, -1}) {
    const std::string name = "cpu:" + std::to_string(index);
    expect_refusal(ErrorCode::unsupported, "device: required " + name + ", supported cpu, missing " + name, [&] {
      build({}, {DeviceKind::cpu, index});
    });
    expect_refusal(ErrorCode::unsupported, "there is one CPU device, index 0", [&] {
      build({}, {DeviceKind::cpu, index});
    });
  }
  expect_refusal(ErrorCode::unsupported, "head_dim_qk", [] { build({.head_dim_qk = 12}, Device::cpu()); });
  expect_refusal(ErrorCode::invalid_argument, "kv_form", [] { build({.kv_form = KvForm{9}}, Device::cpu()); });
}

TEST(KvCacheRefusal, OtherThanFiveAxesWithTwoSides) {
  float x[16] = {};
  expect_refusal(ErrorCode::invalid_shape, "kv:", [&] { KvCache(TensorView(x, DType::fp32, {1, 1, 2, 8})); });
  expect_refusal(ErrorCode::invalid_shape, "kv:", [&] { KvCache(TensorView(x, DType::fp32, {1, 1, 1, 2, 8})); });
}

TEST(AttendRefusal, OtherFormsAndRanks) {
  float x[64] = {};
  const TensorView v(x, DType::fp32, {1, 1, 64});
  expect_refusal(ErrorCode::invalid_argument, "ragged", [&] { attend({}, v, v, v, v); });
  const AttentionSpec spec{.kv_form = KvForm::ragged};
  expect_refusal(ErrorCode::invalid_shape, "q:", [&] { attend(spec, v.select(0, 0), v, v, v); });
  expect_refusal(ErrorCode::invalid_shape, "k:", [&] { attend(spec, v, v.select(0, 0), v, v); });
}

// What `extra` has besides must be what the call has.
TEST(AttendRefusal, TensorsGivenTwice) {
  Case c;
  c.form = KvForm::ragged;
  c.lengths = {{1, 20}};
  Problem problem(c);
  const AttentionTensors t = problem.tensors();
  const auto call = [&](const AttentionTensors& extra) {
    attend(problem.spec(), t.q, t.kv.k.slice(0, 0, 20), t.kv.v.slice(0, 0, 20), t.o, t.lse, extra);
  };
  AttentionTensors same;
  same.q = t.q;
  same.kv = {t.kv.k.slice(0, 0, 20), t.kv.v.slice(0, 0, 20)};
  same.o = t.o;
  same.lse = t.lse;
  call(same);
  const auto refuses = [&](const std::string& word, const std::function<void(AttentionTensors&)>& change) {
    AttentionTensors extra = same;
    change(extra);
    problem.poison_outputs();
    const std::string before = problem.outputs();
    expect_refusal(ErrorCode::invalid_argument, word, [&] { call(extra); });
    EXPECT_TRUE(problem.outputs() == before) << "memory was touched";
  };
  refuses("extra.kv.k:", [](auto& e) { e.kv.k = e.kv.v; });
  refuses("extra.kv.v:", [](auto& e) { e.kv.v = e.kv.v.slice(0, 0, 10); });
  refuses("extra.q:", [](auto& e) { e.q = TensorView(e.q.data(), DType::int32, e.q.shape()); });
  refuses("extra.o:", [](auto& e) { e.o = e.q; });
  refuses("extra.lse:", [](auto& e) { e.lse = TensorView(e.lse.data(), DType::fp32, {1, 1, 1}); });
  AttentionTensors with_lse;
  with_lse.lse = t.lse;
  expect_refusal(ErrorCode::invalid_argument, "extra.lse:", [&] {
    attend(problem.spec(), t.q, t.kv.k.slice(0, 0, 20), t.kv.v.slice(0, 0, 20), t.o, {}, with_lse);
  });
}

TEST(MergeStatesRefusal, ShapesTypesAndIndptr) {
  std::vector<float> memory(512, 0.f);
  const TensorView o(memory.data(), DType::fp32, {2, 3, 2, 8}), lse(memory.data(), DType::fp32, {2, 3, 2});
  const TensorView out(memory.data() + 256, DType::fp32, {3, 2, 8}), lse_out(memory.data() + 400, DType::fp32, {3, 2});
  merge_states(o, lse, out, lse_out);
  expect_refusal(ErrorCode::invalid_shape, "o:", [&] { merge_states(out, lse, out, lse_out); });
  expect_refusal(ErrorCode::invalid_shape, "lse", [&] { merge_states(o, lse.slice(1, 0, 2), out, lse_out); });
  expect_refusal(ErrorCode::invalid_shape, "o_out",
                 [&] { merge_states(o, lse, out.slice(0, 0, 2), lse_out.slice(0, 0, 2)); });
  expect_refusal(ErrorCode::invalid_shape, "lse_out", [&] { merge_states(o, lse, out, lse_out.slice(0, 0, 2)); });
  expect_refusal(ErrorCode::invalid_device, "o: lies on cpu:1; there is one CPU device, index 0", [&] {
    merge_states(TensorView(memory.data(), DType::fp32, {2, 3, 2, 8}, {DeviceKind::cpu, 1}), lse, out, lse_out);
  });
  expect_refusal(ErrorCode::invalid_dtype, "lse", [&] {
    merge_states(o, TensorView(memory.data(), DType::int32, {2, 3, 2}), out, lse_out);
  });
  expect_refusal(ErrorCode::invalid_dtype, "lse", [&] {
    merge_states(o, TensorView(memory.data(), DType::int4, {2, 3, 2}), out, lse_out);
  });
  expect_refusal(ErrorCode::invalid_dtype, "o:", [&] {
    merge_states(TensorView(memory.data(), DType::int32, {2, 3, 2, 8}), lse, out, lse_out);
  });
  expect_refusal(ErrorCode::unsupported, "steps of 8",
                 [&] { merge_states(o.slice(3, 0, 4), lse, out.slice(2, 0, 4), lse_out); });
  const auto short_by_one = [](const TensorView& t) {
    std::vector<int64_t> strides(t.strides().begin(), t.strides().end());
    --strides[0];
    return TensorView(t.data(), t.dtype(), t.shape(), strides);
  };
  expect_refusal(ErrorCode::invalid_stride, "o_out: ", [&] { merge_states(o, lse, short_by_one(out), lse_out); });
  expect_refusal(ErrorCode::invalid_stride, "lse_out: ", [&] { merge_states(o, lse, out, short_by_one(lse_out)); });
  const TensorView list(memory.data(), DType::fp32, {6, 2, 8}), list_lse(memory.data(), DType::fp32, {6, 2});
  const auto with = [&](std::vector<int32_t> indptr) { merge_states(list, list_lse, indptr, out, lse_out); };
  with({0, 2, 2, 6});
  expect_refusal(ErrorCode::invalid_indptr, "entries", [&] { with({0, 6}); });
  expect_refusal(ErrorCode::invalid_indptr, "starts at 0", [&] { with({1, 2, 2, 6}); });
  expect_refusal(ErrorCode::invalid_indptr, "never decreases", [&] { with({0, 4, 2, 6}); });
  expect_refusal(ErrorCode::invalid_indptr, "6 states", [&] { with({0, 2, 2, 5}); });
}

TEST(PackMaskRefusal, BadIndptr) {
  const std::vector<uint8_t> mask(10, 1);
  std::vector<int64_t> bytes;
  expect_refusal(ErrorCode::invalid_indptr, "empty", [&] { pack_mask(mask, {}, bytes); });
  const auto with = [&](std::vector<int64_t> indptr) { pack_mask(mask, indptr, bytes); };
  expect_refusal(ErrorCode::invalid_indptr, "starts at 0", [&] { with({1, 10}); });
  expect_refusal(ErrorCode::invalid_indptr, "never decreases", [&] { with({0, 11, 10}); });
  expect_refusal(ErrorCode::invalid_indptr, "10 elements", [&] { with({0, 9}); });
}

}  // namespace
}  // namespace weft
