// What calls of attention ask of a card's driver: a run enqueues its launch, and waits for nothing.
#include <numeric>
#include <vector>

#include "attention/kernel.h"
#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "tests/device/cuda/fake_card.h"

namespace weft {
namespace {

constexpr Device kCard = Device::cuda(0);
constexpr int kHeads = 4, kDim = 64, kTokens = 48;

// Two requests of one query over three pages, in bf16.
struct Call {
  std::vector<int32_t> qo_indptr{0, 1, 2}, page_indptr{0, 2, 3}, page_ids{2, 0, 1}, last_page_len{9, 16};
  std::vector<int64_t> mask_indptr{0, 25, 41};
  Workspace memory{kCard, 1 << 16};
  PlanInput input;
  AttentionTensors tensors;

  explicit Call(const AttentionSpec& spec) {
    input = {.num_qo_heads = kHeads, .num_kv_heads = kHeads, .qo_indptr = qo_indptr};
    input.pages = {16, 3, page_indptr, page_ids, last_page_len};
    if (spec.mask == Mask::custom) input.mask_indptr = mask_indptr;
    char* at = static_cast<char*>(memory.data());
    const auto view = [&](DType dtype, std::initializer_list<int64_t> shape) {
      const TensorView made(at, dtype, shape, kCard);
      at += made.size() * bits_of(dtype) / 8;
      return made;
    };
    tensors.q = view(DType::bf16, {2, kHeads, kDim});
    tensors.o = view(DType::bf16, {2, kHeads, kDim});
    tensors.kv = {view(DType::bf16, {3, 16, kHeads, kDim}), view(DType::bf16, {3, 16, kHeads, kDim})};
    if (spec.mask == Mask::custom) tensors.tensors = {{"mask", view(DType::uint8, {41})}};
  }
};

class CardCalls : public testing::FakeCard {
 protected:
  CardCalls() : card_(cuda::Card::at(0)), stream_(cuda::make_stream(card_)) {}
  Stream stream() const { return Stream::cuda(stream_.get()); }
  static AttentionSpec spec_of(Mask mask) {
    return {.q_dtype = DType::bf16, .kv_dtype = DType::bf16, .o_dtype = DType::bf16, .mask = mask};
  }
  static int64_t waits_and_copies() {
    int64_t count = 0;
    for (const char* name : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuStreamSynchronize",
                             "cuEventSynchronize", "cuMemAlloc", "cuMemFree"})
      count += driver_calls(name);
    return count;
  }
  cuda::Card& card_;
  cuda::OwnedStream stream_;
};

TEST_F(CardCalls, OfARunAreOneLaunchWhateverTheMask) {
  for (const Mask mask : {Mask::none, Mask::causal, Mask::custom}) {
    const AttentionKernel kernel = build(spec_of(mask), kCard);
    const Call call(kernel.spec());
    const Plan plan = kernel.plan(call.input);
    Workspace workspace(kCard, plan.workspace_bytes());
    plan.upload(workspace, stream());
    kernel.run(workspace, call.tensors, stream());
    forget_driver_calls();
    kernel.run(workspace, call.tensors, stream());
    EXPECT_EQ(driver_calls("cuLaunchKernelEx"), 1) << to_string(mask);
    EXPECT_EQ(waits_and_copies(), 0) << to_string(mask);
  }
}

TEST_F(CardCalls, OfAnUploadAreOneCopy) {
  const AttentionKernel kernel = build(spec_of(Mask::custom), kCard);
  const Call call(kernel.spec());
  const Plan plan = kernel.plan(call.input);
  Workspace workspace(kCard, plan.workspace_bytes());
  plan.upload(workspace, stream());
  forget_driver_calls();
  plan.upload(workspace, stream());
  EXPECT_EQ(driver_calls("cuMemcpyHtoDAsync"), 1);
  EXPECT_EQ(waits_and_copies(), 1);
}

// All of them but those that only ask: each is a trip to the driver. The ring of pinned slots has come round.
TEST_F(CardCalls, AreFew) {
  using Calls = std::vector<std::string>;
  const AttentionKernel kernel = build(spec_of(Mask::none), kCard);
  Call call(kernel.spec());
  call.input.borrow_page_ids = true;
  const Plan plan = kernel.plan(call.input);
  Workspace workspace(kCard, plan.workspace_bytes());
  for (int i = 0; i < 8; ++i) plan.upload(workspace, stream());
  kernel.run(workspace, call.tensors, stream());
  forget_driver_calls();
  plan.upload(workspace, stream());
  EXPECT_EQ(driver().calls, (Calls{"cuEventSynchronize", "cuMemcpyHtoDAsync", "cuEventRecord"}));
  forget_driver_calls();
  kernel.run(workspace, call.tensors, stream());
  EXPECT_EQ(driver().calls, (Calls{"cuLaunchKernelEx", "cuEventRecord"}));
}

// The event that guards the slot of a copy is that which other streams wait for.
TEST_F(CardCalls, InAnotherStreamWaitForTheCopyOfAnUpload) {
  const AttentionKernel kernel = build(spec_of(Mask::none), kCard);
  const Call call(kernel.spec());
  const Plan plan = kernel.plan(call.input);
  Workspace workspace(kCard, plan.workspace_bytes());
  const Stream other = Stream::cuda(reinterpret_cast<void*>(0x1234));
  for (int i = 0; i < 2; ++i) {
    plan.upload(workspace, stream());
    forget_driver_calls();
    kernel.run(workspace, call.tensors, other);
    EXPECT_EQ(driver_calls("cuStreamWaitEvent"), 1);
  }
}

// Of what a graph may be given.
constexpr PlanBounds kBounds{.max_requests = 2,
                             .max_rows = 2,
                             .max_pages = 3,
                             .max_kv_len = kTokens,
                             .page_size = 16,
                             .num_qo_heads = kHeads,
                             .num_kv_heads = kHeads,
                             .workers = 2};
// The same of plans that are made there.
constexpr PlanBounds kEvenBounds = [] {
  PlanBounds bounds = kBounds;
  bounds.max_pages = 6;
  bounds.mode = PlanMode::even;
  return bounds;
}();

TEST_F(CardCalls, ACustomMaskMayBeCaptured) {
  const AttentionKernel kernel = build(spec_of(Mask::custom), kCard);
  Call call(kernel.spec());
  call.input.num_workers = kBounds.workers;
  call.input.bounds = &kBounds;
  const Plan plan = kernel.plan(call.input);
  Workspace workspace(kCard, kernel.workspace_bytes(kBounds));
  plan.upload(workspace, stream());
  kernel.run(workspace, call.tensors, stream());
  const cuda::Graph graph = cuda::capture(card_, stream_.get(), [&] { kernel.run(workspace, call.tensors, stream()); });
  forget_driver_calls();
  cuda::launch(graph, stream_.get());
  EXPECT_EQ(waits_and_copies(), 0);
  EXPECT_EQ(workspace.bytes(), plan.workspace_bytes());
}

// Maps of keys and values are encoded with the first run, and lie in a graph's launches by value: a replay asks for
// none.
TEST_F(CardCalls, BoxesMayBeCaptured) {
  AttentionSpec spec = spec_of(Mask::causal);
  spec.loader = Loader::tma;
  const AttentionKernel kernel = build(spec, kCard);
  Call call(kernel.spec());
  call.input.num_workers = kBounds.workers;
  call.input.bounds = &kBounds;
  const Plan plan = kernel.plan(call.input);
  Workspace workspace(kCard, kernel.workspace_bytes(kBounds));
  plan.upload(workspace, stream());
  forget_driver_calls();
  kernel.run(workspace, call.tensors, stream());
  EXPECT_EQ(driver_calls("cuTensorMapEncodeTiled"), 2);
  forget_driver_calls();
  const cuda::Graph graph = cuda::capture(card_, stream_.get(), [&] { kernel.run(workspace, call.tensors, stream()); });
  EXPECT_EQ(driver_calls("cuLaunchKernelEx"), 1);
  EXPECT_EQ(driver_calls("cuTensorMapEncodeTiled"), 0);
  EXPECT_EQ(waits_and_copies(), 0);
  forget_driver_calls();
  cuda::launch(graph, stream_.get());
  EXPECT_EQ(driver_calls("cuTensorMapEncodeTiled"), 0);
  EXPECT_EQ(waits_and_copies(), 0);
  // Of other keys, also while a stream is captured.
  call.tensors.kv.k =
      TensorView(static_cast<char*>(call.memory.data()) + 32768, DType::bf16, {3, 16, kHeads, kDim}, kCard);
  (void)cuda::capture(card_, stream_.get(), [&] { kernel.run(workspace, call.tensors, stream()); });
  EXPECT_EQ(driver_calls("cuTensorMapEncodeTiled"), 1);
  EXPECT_EQ(waits_and_copies(), 0);
}

// Of lengths that the card alone knows, nobody can say where masks begin.
TEST_F(CardCalls, APlanMadeOnTheCardHasNoCustomMask) {
  const AttentionKernel kernel = build(spec_of(Mask::custom), kCard);
  const Call call(kernel.spec());
  Workspace workspace(kCard, kernel.workspace_bytes(kEvenBounds));
  const DeviceBatch batch{.kv_len = TensorView(call.memory.data(), DType::int32, {2}, kCard),
                          .page_table = TensorView(call.memory.data(), DType::int32, {2, 3}, kCard),
                          .num_pages = 3};
  forget_driver_calls();
  try {
    kernel.plan_on_device(batch, kEvenBounds, workspace, stream());
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
  EXPECT_TRUE(driver().calls.empty());
}

// A run reads its plan while the kernel before it ends, unless that may have made the plan.
TEST_F(CardCalls, ARunOverlapsWithWhatMakesNoPlan) {
  const AttentionKernel kernel = build(spec_of(Mask::none), kCard);
  Call call(kernel.spec());
  call.input.num_workers = 2;
  call.input.mode = PlanMode::even;
  call.input.bounds = &kEvenBounds;
  Workspace workspace(kCard, kernel.workspace_bytes(kEvenBounds));
  const auto overlaps = [&] {
    kernel.run(workspace, call.tensors, stream());
    return driver().attributes.size() == 1 && driver().attributes[0].id == cuda::api::kProgrammaticStreamSerialization;
  };
  const Plan plan = kernel.plan(call.input);
  plan.upload(workspace, stream());
  EXPECT_TRUE(overlaps());
  const DeviceBatch batch{.kv_len = TensorView(call.memory.data(), DType::int32, {2}, kCard),
                          .page_table = TensorView(call.memory.data(), DType::int32, {2, 3}, kCard),
                          .num_pages = 3};
  kernel.plan_on_device(batch, kEvenBounds, workspace, stream());
  EXPECT_FALSE(overlaps());
  plan.upload(workspace, stream());
  EXPECT_TRUE(overlaps());
}

}  // namespace
}  // namespace weft
