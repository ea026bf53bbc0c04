#include "base/log.h"

#include <atomic>

#include "base/env.h"

namespace weft::log {
namespace {
std::atomic<Sink> g_sink{nullptr};
}

void set_sink(Sink sink) { g_sink = sink; }

bool enabled(int level) {
  static const int max_level = env::log_level();
  return level <= max_level && g_sink.load() != nullptr;
}

void write(int level, std::string_view line) {
  if (const Sink sink = g_sink.load()) sink(level, line);
}

}  // namespace weft::log
