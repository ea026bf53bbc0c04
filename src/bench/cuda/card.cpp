#include "bench/cuda/card.h"

#include <algorithm>

#include "bench/batch.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "device/cuda/memory.h"

namespace weft::text {
extern const char* const k_cuda_ceilings;
}  // namespace weft::text

namespace weft::bench {
namespace {

constexpr size_t kPool = size_t{2} << 30, kPiece = size_t{64} << 20;
constexpr int kRepeats = 9;

struct CeilingArgs {  // kernels/ceilings.h
  const void* from;
  void* to;
  long long count;
};

}  // namespace

CardBench::CardBench(Device device)
    : device_(device),
      card_(cuda::Card::at(device.index)),
      stream_(cuda::make_stream(card_)),
      pool_(device, kPool),
      word_(device, 256),
      kernels_(jit::cuda_module(card_, "ceilings", text::k_cuda_ceilings)),
      read_(cuda::find_kernel(*kernels_.module, "weft_read", 0)),
      multiply_(cuda::find_kernel(*kernels_.module, "weft_multiply", 0)) {
  std::vector<char> piece(kPiece);
  fill_random(piece.data(), DType::bf16, kPiece / 2, 1);
  cuda::copy_to_card(card_, pool_.data(), piece.data(), kPiece, stream_.get());
  for (size_t at = kPiece; at < kPool; at += kPiece)
    cuda::copy_on_card(card_, pool() + at, pool_.data(), kPiece, stream_.get());
  cuda::synchronize(card_, stream_.get());
}

double CardBench::time(int count, const std::function<void(int run)>& run) {
  for (int i = 0; i < count; ++i) run(i);  // kernels are made with the first run
  const cuda::Graph graph = cuda::capture(card_, stream_.get(), [&] {
    for (int i = 0; i < count; ++i) run(i);
  });
  const cuda::Event begin = cuda::make_event(card_, true), end = cuda::make_event(card_, true);
  cuda::launch(graph, stream_.get());
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    stop_if_asked();
    cuda::record(begin, stream_.get());
    cuda::launch(graph, stream_.get());
    cuda::record(end, stream_.get());
    cuda::synchronize(card_, stream_.get());
    seconds.push_back(cuda::milliseconds_between(begin, end) / 1e3 / count);
  }
  return median(seconds);
}

double CardBench::host_seconds(const std::function<void()>& work) {
  constexpr int kHostRepeats = 101;
  work();
  std::vector<double> seconds;
  for (int i = 0; i < kHostRepeats; ++i) {
    stop_if_asked();
    cuda::synchronize(card_, stream_.get());
    seconds.push_back(weft::seconds_of(work));
  }
  cuda::synchronize(card_, stream_.get());
  return median(seconds);
}

double CardBench::host_launch_seconds() {
  const CeilingArgs nothing{pool(), word_.data(), 0};
  return host_seconds([&] { cuda::launch(read_, {.ctas = 1, .threads = 32}, stream_.get(), nothing); });
}

double CardBench::read_rate(size_t bytes) {
  const size_t places = std::max<size_t>(pool_bytes() / bytes, 1), n = std::min(bytes, pool_bytes());
  const int runs = static_cast<int>(std::min<size_t>(places, 16));
  const double seconds = time(runs, [&](int i) {
    const CeilingArgs args{pool() + static_cast<size_t>(i) % places * n, word_.data(), static_cast<long long>(n / 16)};
    cuda::launch(read_, {.ctas = 4 * card_.num_multiprocessors(), .threads = 512}, stream_.get(), args);
  });
  return static_cast<double>(n) / seconds;
}

double CardBench::product_rate() {
  constexpr int kRounds = 2000, kWarps = 8;
  const int ctas = 2 * card_.num_multiprocessors();
  const double seconds = time(4, [&](int) {
    const CeilingArgs args{pool(), word_.data(), kRounds};
    cuda::launch(multiply_, {.ctas = ctas, .threads = 32 * kWarps}, stream_.get(), args);
  });
  return 2. * 16 * 8 * 16 * 16 * kRounds * kWarps * ctas / seconds;
}

double CardBench::copy_rate() {
  const size_t half = pool_bytes() / 2;
  const double seconds = time(2, [&](int) { cuda::copy_on_card(card_, pool(), pool() + half, half, stream_.get()); });
  return 2. * static_cast<double>(half) / seconds;
}

double CardBench::node_seconds(bool dependent_launch) {
  const CeilingArgs nothing{pool(), word_.data(), 0};
  return time(256, [&](int) {
    cuda::launch(read_, {.ctas = 1, .threads = 32, .after_previous = !dependent_launch}, stream_.get(), nothing);
  });
}

}  // namespace weft::bench
