// Cards as what runs kernels.
#include "attention/cuda/runtime.h"

#include "base/check.h"
#include "device/cuda/clamped.h"
#include "device/cuda/graph.h"
#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/cuda/stream_order.h"
#include "device/cuda/upload_ring.h"
#include "jit/nvrtc/module.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::attention::cuda {
namespace {

using weft::cuda::Card;

struct OnCard : Loaded {
  jit::CudaModule module;
  weft::cuda::Kernel kernel;
};

weft::cuda::api::Stream handle_of(Stream stream) {
  return static_cast<weft::cuda::api::Stream>(stream.is_default() ? nullptr : stream.handle());
}

class OrderOnCard : public Runtime::Order {
 public:
  explicit OrderOnCard(Device device) : card_(Card::at(device.index)) {}
  void enqueue(Stream stream, const std::function<void()>& work) override {
    const weft::cuda::Current current(card_);
    order_.begin(card_, handle_of(stream));
    work();
    order_.end(card_, handle_of(stream));
  }
  void write(void* to, std::span<const Bytes> pieces, Stream stream) override {
    const weft::cuda::Current current(card_);
    order_.begin(card_, handle_of(stream));
    order_.end(handle_of(stream), weft::cuda::UploadRing::of(card_).write(to, pieces, handle_of(stream)));
  }

 private:
  Card& card_;
  weft::cuda::StreamOrder order_;
};

class Cards : public Runtime {
 public:
  void require(Device device, std::string_view name) const override { weft::cuda::require_card(device, name); }
  std::string architecture(Device device) const override {
    const Card& card = Card::at(device.index);
    const std::string_view found = jit::architecture_of(card.capability_major(), card.capability_minor());
    check(!found.empty(), ErrorCode::unsupported,
          "device: required code for compute capability {}.{} of cuda:{} ({}), supported are 7.5, 8.x and 9.x, missing "
          "it",
          card.capability_major(), card.capability_minor(), card.index(), card.name());
    return std::string(found);
  }
  int num_multiprocessors(Device device) const override { return Card::at(device.index).num_multiprocessors(); }

  std::shared_ptr<const Loaded> load(Device device, const std::string& name, const KernelText& text) const override {
    auto loaded = std::make_shared<OnCard>();
    loaded->module = jit::cuda_module(Card::at(device.index), name, text.head + text.instances, text.flags);
    loaded->kernel =
        weft::cuda::find_kernel(*loaded->module.module, text.symbol, static_cast<size_t>(text.shared_bytes));
    return loaded;
  }
  void launch(const Loaded& kernel, const Grid& grid, const void* args, size_t, Stream stream) const override {
    weft::cuda::launch_with(
        static_cast<const OnCard&>(kernel).kernel,
        {.ctas = grid.ctas, .threads = grid.threads, .programmatic_launch = grid.programmatic_launch},
        handle_of(stream), args);
  }

  std::optional<double> seconds_of(Device device, const std::function<void()>& work, Stream stream) const override {
    Card& card = Card::at(device.index);
    const weft::cuda::api::Stream handle = handle_of(stream);
    if (weft::cuda::is_capturing(card, handle)) return work(), std::nullopt;
    const weft::cuda::Event begin = weft::cuda::make_event(card, true), end = weft::cuda::make_event(card, true);
    weft::cuda::record(begin, handle);
    work();
    weft::cuda::record(end, handle);
    weft::cuda::synchronize(card, handle);
    return weft::cuda::milliseconds_between(begin, end) * 1e-3;
  }

  void write(Device device, void* to, std::span<const Bytes> pieces, Stream stream) const override {
    weft::cuda::UploadRing::of(Card::at(device.index)).write(to, pieces, handle_of(stream));
  }
  void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const override {
    Card& card = Card::at(device.index);
    check(!weft::cuda::is_capturing(card, handle_of(stream)), ErrorCode::unsupported,
          "stream: required what lies on {}, supported in a stream that is not being captured, missing that: "
          "WEFT_RECORD and WEFT_CHECK read at every run; run once outside of the capture",
          to_string(device));
    weft::cuda::copy_to_host(card, to, from, static_cast<size_t>(bytes), handle_of(stream));
    weft::cuda::synchronize(card, handle_of(stream));
  }

  bool is_capturing(Device device, Stream stream) const override {
    return weft::cuda::is_capturing(Card::at(device.index), handle_of(stream));
  }
  unsigned* clamped_flag(Device device) const override { return weft::cuda::clamped_flag(Card::at(device.index)); }
  std::unique_ptr<Order> make_order(Device device) const override { return std::make_unique<OrderOnCard>(device); }
};

}  // namespace

const Runtime& cards() {
  static const Cards all;
  return all;
}

}  // namespace weft::attention::cuda
