// Cards as what runs kernels.
#include "base/check.h"
#include "base/once_map.h"
#include "device/cuda/clamped.h"
#include "device/cuda/graph.h"
#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/cuda/stream_order.h"
#include "device/cuda/upload_ring.h"
#include "jit/cuda/runtime.h"
#include "jit/cuda/tensor_map.h"
#include "jit/nvrtc/module.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::cuda {
namespace {

struct OnCard : LoadedKernel {
  std::shared_ptr<const Module> module;
  Kernel kernel;
};

// A text on a card.
struct Wanted {
  int card;
  const KernelText& text;
};
struct OfCard {
  int card;
  KernelText text;
  explicit OfCard(const Wanted& of) : card(of.card), text(of.text) {}
  friend bool operator==(const OfCard& key, const Wanted& wanted) {
    return key.card == wanted.card && key.text == wanted.text;
  }
};

api::Stream handle_of(Stream stream) {
  return static_cast<api::Stream>(stream.is_default() ? nullptr : stream.handle());
}

// Of elements that are copied as they are.
api::TensorDataType tensor_data_type(int bytes) {
  return bytes == 1 ? api::kUint8 : bytes == 2 ? api::kUint16 : bytes == 4 ? api::kUint32 : api::kUint64;
}

class OrderOnCard : public Runtime::Order {
 public:
  explicit OrderOnCard(Device device) : card_(Card::at(device.index)) {}
  void enqueue(Stream stream, const std::function<void()>& work) override {
    const Current current(card_);
    order_.begin(card_, handle_of(stream));
    work();
    order_.end(card_, handle_of(stream));
  }
  void write(void* to, std::span<const Bytes> pieces, Stream stream) override {
    const Current current(card_);
    order_.begin(card_, handle_of(stream));
    order_.end(handle_of(stream), UploadRing::of(card_).write(to, pieces, handle_of(stream)));
  }

 private:
  Card& card_;
  StreamOrder order_;
};

class Cards : public Runtime {
 public:
  void require(Device device, std::string_view name) const override { require_card(device, name); }
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

  const LoadedKernel& load(Device device, const KernelText& text) const override {
    Card& card = Card::at(device.index);
    const size_t hash = text.hash() + static_cast<size_t>(device.index);
    return *loaded_.get(hash, Wanted{device.index, text}, [&] {
      auto made = std::make_unique<OnCard>();
      made->module = jit::cuda_module(card, text.name, text.text(), text.flags).module;
      made->kernel = find_kernel(*made->module, text.symbol.c_str(), text.shared_bytes, text.carveout);
      made->kernel.num_arguments = text.num_arguments;
      return made;
    });
  }
  int ctas_per_multiprocessor(const LoadedKernel& kernel, const Grid& grid) const override {
    return cuda::ctas_per_multiprocessor(static_cast<const OnCard&>(kernel).kernel, grid);
  }
  using Runtime::launch;
  void launch(const LoadedKernel& kernel, const Grid& grid, const void* args, size_t, Stream stream) const override {
    launch_with(static_cast<const OnCard&>(kernel).kernel, grid, handle_of(stream), args);
  }

  std::optional<double> seconds_of(Device device, const std::function<void()>& work, Stream stream) const override {
    Card& card = Card::at(device.index);
    const api::Stream handle = handle_of(stream);
    if (cuda::is_capturing(card, handle)) return work(), std::nullopt;
    const Event begin = make_event(card, true), end = make_event(card, true);
    record(begin, handle);
    work();
    record(end, handle);
    synchronize(card, handle);
    return milliseconds_between(begin, end) * 1e-3;
  }

  void write(Device device, void* to, std::span<const Bytes> pieces, Stream stream) const override {
    UploadRing::of(Card::at(device.index)).write(to, pieces, handle_of(stream));
  }
  void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const override {
    Card& card = Card::at(device.index);
    check(!cuda::is_capturing(card, handle_of(stream)), ErrorCode::unsupported,
          "stream: required what lies on {}, supported in a stream that is not being captured, missing that: "
          "WEFT_RECORD and WEFT_CHECK read at every run; run once outside of the capture",
          to_string(device));
    copy_to_host(card, to, from, static_cast<size_t>(bytes), handle_of(stream));
    synchronize(card, handle_of(stream));
  }

  bool is_capturing(Device device, Stream stream) const override {
    return cuda::is_capturing(Card::at(device.index), handle_of(stream));
  }
  void encode(Device device, abi::TensorMap& map) const override {
    static_assert(sizeof map.encoded == api::kTensorMapBytes && alignof(abi::TensorMap) >= api::kTensorMapAlignment);
    Card& card = Card::at(device.index);
    const abi::TensorLayout& layout = map.layout;
    unsigned box[abi::TensorLayout::kMostDims], steps[abi::TensorLayout::kMostDims];
    for (int i = 0; i < layout.dims; ++i) box[i] = static_cast<unsigned>(layout.box[i]), steps[i] = 1;
    const Current current(card);
    card.check(card.driver().tensor_map_encode_tiled(
                   reinterpret_cast<api::TensorMap*>(map.encoded), tensor_data_type(layout.element_bytes),
                   static_cast<unsigned>(layout.dims), layout.data, layout.sizes, layout.strides + 1, box, steps,
                   api::kInterleaveNone, static_cast<int>(layout.swizzle), api::kPromoteTo128Bytes, api::kZerosOutside),
               "encoding a tensor map");
  }
  unsigned* clamped_flag(Device device) const override { return cuda::clamped_flag(Card::at(device.index)); }
  std::unique_ptr<Order> make_order(Device device) const override { return std::make_unique<OrderOnCard>(device); }

 private:
  mutable OnceMap<OfCard, std::unique_ptr<const OnCard>> loaded_;
};

}  // namespace

const Runtime& cards() {
  static const auto* all = new Cards;  // outlives every static kernel
  return *all;
}

}  // namespace weft::cuda
