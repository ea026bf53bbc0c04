// The first card with the text's forms for sm_75: copies that land at once, products of half the depth, no dependent
// launch. A card that is newer runs them as well.
#include <map>
#include <mutex>

#include "card_target.h"
#include "jit/cuda/runtime.h"

namespace weft::testing {
namespace {

class OlderCards : public cuda::Runtime {
 public:
  void require(Device device, std::string_view name) const override { cards().require(device, name); }
  std::string architecture(Device) const override { return "sm_75"; }
  int num_multiprocessors(Device device) const override { return cards().num_multiprocessors(device); }
  const cuda::LoadedKernel& load(Device device, const cuda::KernelText& text) const override {
    cuda::KernelText older = text;
    older.head = older_head(text.head);
    return cards().load(device, older);
  }
  int ctas_per_multiprocessor(const cuda::LoadedKernel& kernel, const cuda::Grid& grid) const override {
    return cards().ctas_per_multiprocessor(kernel, grid);
  }
  // The text waits for no kernel before it.
  using Runtime::launch;
  void launch(const cuda::LoadedKernel& kernel, const cuda::Grid& grid, const void* args, size_t bytes,
              Stream stream) const override {
    cuda::Grid older = grid;
    older.programmatic_launch = false;
    cards().launch(kernel, older, args, bytes, stream);
  }
  std::optional<double> seconds_of(Device device, const std::function<void()>& work, Stream stream) const override {
    return cards().seconds_of(device, work, stream);
  }
  void write(Device device, void* to, std::span<const Bytes> pieces, Stream stream) const override {
    cards().write(device, to, pieces, stream);
  }
  void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const override {
    cards().read(device, from, to, bytes, stream);
  }
  bool is_capturing(Device device, Stream stream) const override { return cards().is_capturing(device, stream); }
  std::unique_ptr<Order> make_order(Device device) const override { return cards().make_order(device); }
  unsigned* clamped_flag(Device device) const override { return cards().clamped_flag(device); }

 private:
  static const Runtime& cards() { return cuda::cards(); }
  static const char* older_head(const char* head) {
    static std::mutex mutex;
    static std::map<const char*, std::string> heads;
    const std::lock_guard lock(mutex);
    return heads.try_emplace(head, std::string("#define WEFT_SM 75\n") + head).first->second.c_str();
  }
};

class OlderCardTarget : public CardTarget {
 public:
  OlderCardTarget() { cuda::set_runtime(runtime_); }
  std::string name() const override { return "older_card"; }

 protected:
  std::string architecture() const override { return "sm_75"; }

 private:
  OlderCards runtime_;
};

}  // namespace

std::span<const Target* const> targets() {
  static const OlderCardTarget card;
  static const Target* const all[] = {&card};
  return all;
}

}  // namespace weft::testing
