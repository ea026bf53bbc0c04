#include "jit/nvrtc/module.h"

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/once_map.h"
#include "jit/key.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::jit {
namespace {

struct Wanted {
  const Request& request;
  int card;
};
struct Key {
  MemoryKey request;
  int card;
  explicit Key(const Wanted& of) : request(of.request), card(of.card) {}
  friend bool operator==(const Key& key, const Wanted& wanted) {
    return key.card == wanted.card && key.request == wanted.request;
  }
};
using Modules = OnceMap<Key, std::shared_ptr<const cuda::Module>>;

Modules& modules() {
  static Modules* instance = new Modules;  // outlives every static kernel
  return *instance;
}

}  // namespace

CudaModule cuda_module(cuda::Card& card, const std::string& name, const std::string& text,
                       const std::vector<std::string>& flags) {
  const std::string_view architecture = architecture_of(card.capability_major(), card.capability_minor());
  check(!architecture.empty(), ErrorCode::unsupported,
        "'{}': required compute capability {}.{} of cuda:{} ({}), supported are cubins for {}, missing one for it",
        name, card.capability_major(), card.capability_minor(), card.index(), card.name(),
        fmt::join(nvrtc_architectures(), ", "));
  const Request request{.name = name, .text = text, .target = nvrtc_target(architecture), .flags = flags};
  CudaModule loaded;
  loaded.module =
      modules().get(memory_hash(request) + static_cast<uint64_t>(card.index()), Wanted{request, card.index()}, [&] {
        Built built = build(request);
        loaded.origin = built.origin;
        return std::make_shared<const cuda::Module>(cuda::load_module(card, built.bytes, name));
      });
  return loaded;
}

}  // namespace weft::jit
