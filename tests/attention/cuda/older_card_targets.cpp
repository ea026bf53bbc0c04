// The first card with the text's forms for sm_75: copies that land at once, products of half the depth, no dependent
// launch. A card that is newer runs them as well.
#include <map>
#include <mutex>

#include "attention/cuda/backend.h"
#include "card_target.h"

namespace weft::testing {
namespace {

class OlderCards : public attention::cuda::Runtime {
 public:
  void require(Device device, std::string_view name) const override { cards().require(device, name); }
  std::string architecture(Device) const override { return "sm_75"; }
  int num_multiprocessors(Device device) const override { return cards().num_multiprocessors(device); }
  std::shared_ptr<const attention::cuda::Loaded> load(Device device, const std::string& name,
                                                      const attention::cuda::KernelText& text) const override {
    attention::cuda::KernelText older = text;
    older.head = older_head(text.head);
    return cards().load(device, name, older);
  }
  // The text waits for no kernel before it.
  void launch(const attention::cuda::Loaded& kernel, const attention::cuda::Grid& grid, const void* args, size_t bytes,
              Stream stream) const override {
    cards().launch(kernel, {.ctas = grid.ctas, .threads = grid.threads}, args, bytes, stream);
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
  static const Runtime& cards() { return attention::cuda::cards(); }
  static const char* older_head(const char* head) {
    static std::mutex mutex;
    static std::map<const char*, std::string> heads;
    const std::lock_guard lock(mutex);
    return heads.try_emplace(head, std::string("#define WEFT_SM 75\n") + head).first->second.c_str();
  }
};

class OlderCardTarget : public CardTarget {
 public:
  OlderCardTarget() : backend_(runtime_) { attention::add_backend(DeviceKind::cuda, backend_); }
  std::string name() const override { return "older_card"; }

 protected:
  std::string architecture() const override { return "sm_75"; }

 private:
  OlderCards runtime_;
  attention::CudaBackend backend_;
};

}  // namespace

std::span<const Target* const> targets() {
  static const OlderCardTarget card;
  static const Target* const all[] = {&card};
  return all;
}

}  // namespace weft::testing
