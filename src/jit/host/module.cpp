#include "jit/host/module.h"

#include <utility>

#include "base/once_map.h"
#include "jit/key.h"

namespace weft::jit {
namespace {

using Modules = OnceMap<MemoryKey, std::shared_ptr<const Module>>;

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
