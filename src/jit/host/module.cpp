#include "jit/host/module.h"

#include <utility>

#include "base/once_map.h"
#include "jit/key.h"

namespace weft::jit {
namespace {

// A request but for its name, which is for people.
struct Key {
  std::string text;
  Target target;
  std::vector<std::string> flags;
  explicit Key(const Request& of) : text(of.text), target(of.target), flags(of.flags) {}
  friend bool operator==(const Key& key, const Request& request) {
    return key.target == request.target && key.text == request.text && key.flags == request.flags;
  }
};
using Modules = OnceMap<Key, std::shared_ptr<const Module>>;

Modules& modules() {
  static Modules* instance = new Modules;  // outlives every static kernel
  return *instance;
}

}  // namespace

Loaded host_module(const Request& request) {
  Loaded loaded;
  loaded.module = modules().get(memory_hash(request), request, [&] {
    Built built = build(request);
    loaded.origin = built.origin;
    return Module::load(built.bytes, request.name);
  });
  return loaded;
}

}  // namespace weft::jit
