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
constexpr int kRepeats = 9, kFewestRuns = 8;
constexpr int kRounds = 2000, kWarps = 8;  // of products

struct CeilingArgs {  // kernels/ceilings.h
  const void* from;
  void* to;
  long long count;
};

struct GatherCeilingArgs {
  const int* indices;
  const void* rows;
  void* to;
  long long count;
  int pieces;
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
      multiply_(cuda::find_kernel(*kernels_.module, "weft_multiply", 0)),
      gather_(cuda::find_kernel(*kernels_.module, "weft_gather", 0, cuda::Carveout::cache)),
      begin_(cuda::make_event(card_, true)),
      end_(cuda::make_event(card_, true)) {
  std::vector<char> piece(kPiece);
  fill_random(piece.data(), DType::bf16, kPiece / 2, 1);
  for (char& byte : piece) byte = static_cast<char>(byte & 0xbf);  // no byte is NaN as fp8, either
  cuda::copy_to_card(card_, pool_.data(), piece.data(), kPiece, stream_.get());
  for (size_t at = kPiece; at < kPool; at += kPiece)
    cuda::copy_on_card(card_, pool() + at, pool_.data(), kPiece, stream_.get());
  cuda::synchronize(card_, stream_.get());
}

cuda::Graph CardBench::graph_of(const Runs& runs) {
  const auto all = [&] {
    for (int i = 0; i < runs.count; ++i) runs.run(i);
  };
  all();
  return cuda::capture(card_, stream_.get(), all);
}

double CardBench::seconds_of(const cuda::Graph& graph) {
  stop_if_asked();
  cuda::record(begin_, stream_.get());
  cuda::launch(graph, stream_.get());
  cuda::record(end_, stream_.get());
  cuda::synchronize(card_, stream_.get());
  return cuda::milliseconds_between(begin_, end_) / 1e3;
}

double CardBench::time(int count, const std::function<void(int run)>& run) {
  const cuda::Graph graph = graph_of({count, run});
  cuda::launch(graph, stream_.get());
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) seconds.push_back(seconds_of(graph));
  return median(seconds) / count;
}

CardBench::Turns CardBench::time_in_turns(const Runs& first, const Runs& second) {
  const cuda::Graph graphs[] = {graph_of(first), graph_of(second)};
  std::vector<double> seconds[2];
  for (int i = -1; i < kRepeats; ++i)
    for (int side = 0; side < 2; ++side) {
      const double taken = seconds_of(graphs[side]);
      if (i >= 0) seconds[side].push_back(taken);  // the first launch of a graph brings it to the card
    }
  return {median(seconds[0]) / first.count, median(seconds[1]) / second.count};
}

CardBench::Beside CardBench::time_beside_read(const Runs& runs, size_t bytes) {
  const Turns turns = time_in_turns(runs, reads(bytes));
  return {turns.first, static_cast<double>(piece_bytes(bytes)) / turns.second};
}

CardBench::Beside CardBench::time_beside_products(const Runs& runs) {
  const Turns turns = time_in_turns(runs, products());
  return {turns.first, operations_of_products() / turns.second};
}

int CardBench::pieces(size_t bytes) const {
  return static_cast<int>(std::clamp<size_t>(pool_bytes() / bytes, 1, kMostPieces));
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

// Pieces begin at multiples of their size.
size_t CardBench::piece_bytes(size_t bytes) const { return std::min(bytes, pool_bytes()) / 256 * 256; }

CardBench::Runs CardBench::reads(size_t bytes) {
  const size_t n = piece_bytes(bytes);
  const int places = pieces(n);
  return {std::max(places, kFewestRuns), [this, n, places](int i) {
            const CeilingArgs args{pool() + static_cast<size_t>(i % places) * n, word_.data(),
                                   static_cast<long long>(n / 16)};
            cuda::launch(read_, {.ctas = 4 * card_.num_multiprocessors(), .threads = 512}, stream_.get(), args);
          }};
}

CardBench::Runs CardBench::gathers(const Gather& gather, int count) {
  const GatherCeilingArgs args{gather.indices, gather.rows, word_.data(), gather.count, gather.row_bytes / 16};
  return {count, [this, args](int) {
            cuda::launch(gather_, {.ctas = 8 * card_.num_multiprocessors(), .threads = 256}, stream_.get(), args);
          }};
}

CardBench::Runs CardBench::products() {
  return {4, [this](int) {
            const CeilingArgs args{pool(), word_.data(), kRounds};
            cuda::launch(multiply_, {.ctas = 2 * card_.num_multiprocessors(), .threads = 32 * kWarps}, stream_.get(),
                         args);
          }};
}

double CardBench::operations_of_products() const {
  return 2. * 16 * 8 * 16 * 16 * kRounds * kWarps * 2 * card_.num_multiprocessors();
}

double CardBench::read_rate(size_t bytes) {
  const Runs runs = reads(bytes);
  return static_cast<double>(piece_bytes(bytes)) / time(runs.count, runs.run);
}

double CardBench::product_rate() {
  const Runs runs = products();
  return operations_of_products() / time(runs.count, runs.run);
}

double CardBench::copy_rate() {
  const size_t half = pool_bytes() / 2;
  const double seconds = time(2, [&](int) { cuda::copy_on_card(card_, pool(), pool() + half, half, stream_.get()); });
  return 2. * static_cast<double>(half) / seconds;
}

double CardBench::node_seconds(bool dependent_launch) {
  const CeilingArgs nothing{pool(), word_.data(), 0};
  return time(256, [&](int) {
    cuda::launch(read_, {.ctas = 1, .threads = 32, .programmatic_launch = dependent_launch}, stream_.get(), nothing);
  });
}

}  // namespace weft::bench
