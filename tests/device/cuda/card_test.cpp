// What Weft asks of the driver, and what it makes of the answers: with a driver that is none (fake_driver.h).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/cuda/clamped.h"
#include "device/cuda/graph.h"
#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/cuda/stream_order.h"
#include "device/memory.h"
#include "tests/device/cuda/fake_driver.h"
#include "weft/device.h"

namespace weft::cuda {
namespace {

// Before anything asks for the driver, which is looked for once a process.
const int kFake = setenv("WEFT_CUDA_LIBS", WEFT_FAKE_DRIVER_FOLDER, 1);

fake::State& state() {
  void* library = dlopen(WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1", RTLD_NOW);
  return *reinterpret_cast<decltype(&weft_fake_driver)>(dlsym(library, "weft_fake_driver"))();
}

long count(const char* call) { return std::count(state().calls.begin(), state().calls.end(), call); }

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::invalid_argument, "nothing was thrown");
}
bool contains(const Error& error, const char* part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

class CudaCard : public testing::Test {
 protected:
  CudaCard() { state() = {}; }
  ~CudaCard() override { EXPECT_EQ(state().context_depth, 0); }
};

TEST_F(CudaCard, KnowsWhatItIs) {
  const Card& card = Card::at(1);
  EXPECT_EQ(&card, &Card::at(1));
  EXPECT_EQ(card.name(), "Fake H100");
  EXPECT_EQ(card.capability_major(), 9);
  EXPECT_EQ(card.num_multiprocessors(), 132);
  EXPECT_EQ(card.shared_bytes(), size_t{227} << 10);
  EXPECT_EQ(num_cards(), 2);
}

TEST_F(CudaCard, RefusesAnIndexBeyondAndListsThoseThere) {
  const Error error = error_of([] { Workspace(Device::cuda(7), 64); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_device);
  EXPECT_TRUE(contains(error, "workspace: cuda:7 is not there; allowed: cuda:0 (Fake H100), cuda:1 (Fake H100)"))
      << error.what();
}

TEST_F(CudaCard, HoldsAWorkspaceThatIsZero) {
  {
    Workspace workspace(Device::cuda(1), 1000);
    EXPECT_EQ(workspace.device(), Device::cuda(1));
    const auto* data = static_cast<const char*>(workspace.data());
    EXPECT_TRUE(std::all_of(data, data + 1000, [](char c) { return c == 0; }));
    EXPECT_EQ(Card::at(1).ledger().device_bytes, 1000u);
    const Workspace moved(std::move(workspace));
    EXPECT_EQ(moved.data(), data);
  }
  EXPECT_EQ(count("cuMemFree"), 1);
  EXPECT_EQ(Card::at(1).ledger().device_bytes, 0u);
  EXPECT_EQ(Card::at(1).ledger().num_allocations, 0);
}

TEST_F(CudaCard, HoldsPinnedMemoryApart) {
  const Workspace workspace(Device::cuda_host(), 100);
  EXPECT_EQ(count("cuMemHostAlloc"), 1);
  EXPECT_EQ(static_cast<const char*>(workspace.data())[99], 0);
  EXPECT_EQ(Card::at(0).ledger().pinned_bytes, 100u);
  EXPECT_EQ(to_string(workspace.device()), "cuda_host:0");
}

TEST_F(CudaCard, KnowsHowMuchOfItsMemoryIsLeft) {
  state().free_bytes = 5000;
  EXPECT_EQ(device::available_memory(Device::cuda(1)), 5000u);
  const Workspace workspace(Device::cuda(1), 1000);
  EXPECT_EQ(device::available_memory(Device::cuda(1)), 4000u);
  EXPECT_EQ(device::available_memory(Device::cuda_host()), std::nullopt);
  EXPECT_EQ(error_of([] { device::available_memory(Device::cuda(7)); }).code(), ErrorCode::invalid_device);
}

TEST_F(CudaCard, SaysThatItsMemoryIsOut) {
  state().free_bytes = 100;
  const Error error = error_of([] { Workspace(Device::cuda(0), 1000); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_TRUE(contains(error, "1000 bytes")) << error.what();
}

TEST_F(CudaCard, CopiesBothWays) {
  Card& card = Card::at(0);
  const Workspace a(Device::cuda(0), 8), b(Device::cuda(0), 8);
  char text[8] = "forth", back[8] = "";
  copy_to_card(card, a.data(), text, 8, nullptr);
  copy_on_card(card, b.data(), a.data(), 8, nullptr);
  copy_to_host(card, back, b.data(), 8, nullptr);
  EXPECT_STREQ(back, "forth");
  fill_zero(card, b.data(), 8, nullptr);
  copy_to_host(card, back, b.data(), 8, nullptr);
  EXPECT_STREQ(back, "");
}

TEST_F(CudaCard, StreamsOfOthersAreWaitedFor) {
  const Stream stream = Stream::cuda(reinterpret_cast<void*>(0x1234), 1);
  EXPECT_EQ(stream.device(), Device::cuda(1));
  EXPECT_FALSE(stream.is_default());
  EXPECT_FALSE(Stream::cuda(nullptr).is_default());
  stream.synchronize();
  EXPECT_EQ(count("cuStreamSynchronize"), 1);
  Stream().synchronize();  // the CPU's has nothing to wait for
  EXPECT_EQ(count("cuStreamSynchronize"), 1);
  const Error error = error_of([&] { stream.team(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_device);
  EXPECT_TRUE(contains(error, "stream: lies on cuda:1; supported is cpu")) << error.what();
}

TEST_F(CudaCard, AStreamThatIsNoneIsTheCallersMistake) {
  state().fails = "cuStreamSynchronize";
  state().result = api::kInvalidHandle;
  const Error error = error_of([] { Stream::cuda(reinterpret_cast<void*>(0x1234)).synchronize(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(contains(error, "give a stream of this card that is there still")) << error.what();
}

TEST_F(CudaCard, WorkOnOneMemoryWaitsForThatOfAnotherStream) {
  Card& card = Card::at(0);
  auto* const one = reinterpret_cast<api::Stream>(0x1000);
  auto* const two = reinterpret_cast<api::Stream>(0x2000);
  StreamOrder order;
  const auto waits = [&](api::Stream stream) {
    const long before = count("cuStreamWaitEvent");
    order.begin(card, stream);
    order.end(card, stream);
    return count("cuStreamWaitEvent") - before;
  };
  EXPECT_EQ(waits(one), 0);
  EXPECT_EQ(waits(one), 0);
  EXPECT_EQ(waits(two), 1);
  EXPECT_EQ(waits(two), 0);
  EXPECT_EQ(waits(one), 1);
  state().is_capturing = true;
  EXPECT_EQ(waits(two), 0);  // whoever launches the graph orders it
  state().is_capturing = false;
  EXPECT_EQ(waits(one), 0);
  EXPECT_EQ(waits(nullptr), 1);
}

TEST_F(CudaCard, ClampedNumbersAreRefusedByTheNextSynchronisation) {
  Card& card = Card::at(0);
  Stream::cuda(nullptr).synchronize();
  unsigned* const flag = clamped_flag(card);
  EXPECT_EQ(flag, clamped_flag(card));
  Stream::cuda(nullptr).synchronize();
  *flag = 1;  // a kernel did that
  const Error error = error_of([] { Stream::cuda(nullptr).synchronize(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_page);
  EXPECT_TRUE(contains(error, "it was clamped")) << error.what();
  Stream::cuda(nullptr).synchronize();
  *flag = kNothingToDraw;
  EXPECT_EQ(error_of([] { Stream::cuda(nullptr).synchronize(); }).code(), ErrorCode::invalid_argument);
  *flag = kClamped | kNothingToDraw;
  EXPECT_EQ(error_of([] { Stream::cuda(nullptr).synchronize(); }).code(), ErrorCode::invalid_page);
  Stream::cuda(nullptr).synchronize();
}

TEST_F(CudaCard, StreamsEventsAndGraphsEndWithTheirOwners) {
  Card& card = Card::at(0);
  {
    const OwnedStream stream = make_stream(card);
    const Event begin = make_event(card, true), end = make_event(card, true);
    record(begin, stream.get());
    wait(stream.get(), begin);
    wait(begin);
    EXPECT_TRUE(is_done(begin));
    EXPECT_DOUBLE_EQ(milliseconds_between(begin, end), 1.5);
    const Graph graph = capture(card, stream.get(), [] {});
    EXPECT_EQ(count("cuGraphDestroy"), 1);
    launch(graph, stream.get());
    EXPECT_EQ(count("cuGraphLaunch"), 1);
  }
  EXPECT_EQ(count("cuStreamDestroy"), 1);
  EXPECT_EQ(count("cuEventDestroy"), 2);
  EXPECT_EQ(count("cuGraphExecDestroy"), 1);
}

TEST_F(CudaCard, ACaptureEndsWhereItsWorkThrows) {
  const OwnedStream stream = make_stream(Card::at(0));
  EXPECT_THROW(capture(Card::at(0), stream.get(), [] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(count("cuStreamEndCapture"), 1);
  EXPECT_EQ(count("cuGraphDestroy"), 1);
  const Error error = error_of([] { capture(Card::at(0), nullptr, [] {}); });
  EXPECT_TRUE(contains(error, "the legacy default stream cannot be captured")) << error.what();
}

TEST_F(CudaCard, LaunchesWithWhatTheGridAsksFor) {
  Card& card = Card::at(0);
  const Module module = load_module(card, "cubin bytes", "attend");
  EXPECT_EQ(state().image, "cubin bytes");
  const Kernel kernel = find_kernel(module, "weft_attend", 100 << 10);
  EXPECT_EQ(kernel.registers, 104);
  EXPECT_EQ(kernel.local_bytes, 16);
  EXPECT_EQ(ctas_per_multiprocessor(kernel, {.threads = 128}), 4);
  const struct { int n; } args{1};
  const int64_t before = card.num_launches();
  launch(kernel, {.ctas = 264, .threads = 128, .shared_bytes = 90 << 10}, nullptr, args);
  EXPECT_EQ(card.num_launches(), before + 1);
  EXPECT_EQ(state().config.grid_x, 264u);
  EXPECT_EQ(state().config.block_x, 128u);
  EXPECT_EQ(state().config.grid_y * state().config.grid_z * state().config.block_y * state().config.block_z, 1u);
  EXPECT_EQ(state().config.shared_bytes, 90u << 10);
  EXPECT_TRUE(state().attributes.empty());
  EXPECT_THROW(launch(kernel, {.shared_bytes = 101 << 10}, nullptr, args), InternalError);
  launch(kernel, {.ctas = 4, .threads = 128, .cluster = 2, .cooperative = true, .programmatic_launch = true}, nullptr,
         args);
  ASSERT_EQ(state().attributes.size(), 3u);
  EXPECT_EQ(state().attributes[0].id, api::kCooperative);
  EXPECT_EQ(state().attributes[1].id, api::kClusterDimension);
  EXPECT_EQ(state().attributes[1].value.cluster_dim.x, 2u);
  EXPECT_EQ(state().attributes[2].id, api::kProgrammaticStreamSerialization);
}

TEST_F(CudaCard, RefusesMoreSharedMemoryThanThereIs) {
  const Module module = load_module(Card::at(0), "cubin", "attend");
  const Error error = error_of([&] { find_kernel(module, "weft_attend", 300 << 10); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(contains(error, "required 307200 bytes of shared memory a CTA, supported on cuda:0 (Fake H100) 232448"))
      << error.what();
}

TEST_F(CudaCard, RefusesACubinOfAnotherArchitecture) {
  state().fails = "cuModuleLoadData";
  state().result = api::kNoBinaryForGpu;
  const Error error = error_of([] { load_module(Card::at(0), "cubin", "attend"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(contains(error, "'attend': its code does not load on cuda:0 (Fake H100, compute capability 9.0)"))
      << error.what();
}

// What ends a card or the search for a driver ends it for the process: each of these has one of its own.
using CudaProcess = testing::Test;

template <class Call>
[[noreturn]] void say(const Call& call) {
  try {
    call();
    std::fprintf(stderr, "nothing was thrown\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(0);
}
#define EXPECT_SAYS(statements, ...)                                               \
  do {                                                                             \
    GTEST_FLAG_SET(death_test_style, "threadsafe");                                \
    EXPECT_EXIT(say([] { statements; }), testing::ExitedWithCode(0), __VA_ARGS__); \
  } while (false)

TEST(CudaProcess, WithoutADriverSaysWhatWasTried) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr)
    GTEST_SKIP() << "this machine has a driver, on the loader's own path";
  EXPECT_SAYS(
      setenv("WEFT_CUDA_LIBS", "/nowhere", 1);
      Workspace(Device::cuda(0), 64),
      "unsupported: workspace: required cuda:0, supported cpu, missing NVIDIA's driver: tried libcuda.so.1 .*"
      "install NVIDIA's driver, version 525 or newer, or name the folder of its libcuda.so.1 in WEFT_CUDA_LIBS, or "
      "give Device::cpu");
}
TEST(CudaProcess, WithCudaSwitchedOffSaysSo) {
  EXPECT_SAYS(
      setenv("WEFT_CUDA_LIBS", "none", 1);
      Stream::cuda(nullptr).synchronize(),
      "unsupported: stream: required cuda:0, supported cpu, missing CUDA: WEFT_CUDA_LIBS=none switches CUDA off; "
      "unset WEFT_CUDA_LIBS");
}
TEST(CudaProcess, WithAnOldDriverSaysItsVersion) {
  EXPECT_SAYS(setenv("FAKE_CUDA_VERSION", "11040", 1);
              Workspace(Device::cuda(0), 64),
              "missing a driver for CUDA 12.0 or newer: .*libcuda.so.1 is for CUDA 11.4; install");
}
TEST(CudaProcess, WithADriverThatLacksAFunctionNamesIt) {
  EXPECT_SAYS(setenv("WEFT_CUDA_LIBS", WEFT_FAKE_DRIVER_FOLDER "/old", 1);
              Workspace(Device::cuda(0), 64), "is for CUDA 12.4 and has no cuLaunchKernelEx");
}
TEST(CudaProcess, WithoutACardSaysSo) {
  EXPECT_SAYS(setenv("FAKE_CUDA_CARDS", "0", 1);
              Workspace(Device::cuda_host(), 64),
              "missing a card: .*libcuda.so.1 finds none; see whether `nvidia-smi` lists one");
}
TEST(CudaProcess, WithADriverThatDoesNotStartSaysWhy) {
  EXPECT_SAYS(setenv("FAKE_CUDA_INIT", "803", 1); setenv("FAKE_CUDA_CARDS", "0", 1);
              Workspace(Device::cuda(0), 64),
              "missing a card: .*does not start: CUDA_ERROR_FAKE \\(as the test asked\\)");
}

void break_card() {
  const Module module = load_module(Card::at(0), "cubin", "attend hd128");
  const Kernel kernel = find_kernel(module, "weft_attend", 0);
  launch(kernel, {}, nullptr, 1);
  state().fails = "cuStreamSynchronize";
  state().result = api::kIllegalAddress;
  EXPECT_THROW(Stream::cuda(nullptr).synchronize(), Error);
}

TEST(CudaProcess, AnIllegalAddressIsTheFirstCauseOfEveryLaterCall) {
  EXPECT_SAYS(
      break_card();
      Workspace(Device::cuda(0), 64),
      "device_failed: cuda:0 \\(Fake H100\\): waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS \\(an illegal memory "
      "access was encountered\\); since the last synchronisation that went well Weft ran 'attend hd128'. Its context "
      "is lost, and every later call of this card fails alike: start the process anew");
}
TEST(CudaProcess, ALostCardLeavesTheOthersAlone) {
  EXPECT_SAYS(break_card(); state() = {}; Workspace(Device::cuda(1), 64), "nothing was thrown");
}
TEST(CudaProcess, DestructorsOnALostCardThrowNothing) {
  EXPECT_SAYS(const Workspace workspace(Device::cuda(0), 64); const OwnedStream stream = make_stream(Card::at(0));
              break_card(), "nothing was thrown");
}
TEST(CudaProcess, ALaunchThatFailsNamesItsKernel) {
  EXPECT_SAYS(const Module module = load_module(Card::at(0), "cubin", "attend hd128");
              const Kernel kernel = find_kernel(module, "weft_attend", 0); state().fails = "cuLaunchKernelEx";
              state().result = api::kLaunchOutOfResources;
              launch(kernel, {}, nullptr, 1),
              "device_failed: cuda:0 \\(Fake H100\\): launching 'attend hd128': CUDA_ERROR_FAKE");
}
TEST(CudaProcess, ClustersNeedCapability90) {
  EXPECT_SAYS(setenv("FAKE_CUDA_CAPABILITY", "80", 1);
              const Module module = load_module(Card::at(0), "cubin", "attend");
              launch(find_kernel(module, "weft_attend", 0), {.cluster = 2}, nullptr, 1),
              "unsupported: 'attend': required clusters of CTAs, supported from compute capability 9.0 on");
}
TEST(CudaProcess, AForkedChildIsRefused) {
  EXPECT_SAYS(
      const Workspace workspace(Device::cuda(0), 64);
      if (fork() != 0) {
        int status = 0;
        ::wait(&status);
        std::_Exit(0);
      } Workspace(Device::cuda(0), 64),
      "unsupported: cuda:0: this process was forked from one that used CUDA");
}

}  // namespace
}  // namespace weft::cuda
