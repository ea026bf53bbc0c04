#include "sparse/tune/results.h"

#include <sstream>

#include "base/check.h"
#include "base/hash.h"
#include "jit/cache.h"
#include "sparse/backend.h"

namespace weft::sparse {
namespace {

constexpr const char* kFolder = "tuned";
constexpr const char* kVersion = "5";  // of the schedules that choices stand for

// Of millions of indices in a moment. Structures that meet would share results, which are then not the best ones.
uint64_t hash_of(const std::vector<int32_t>& numbers) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const int32_t number : numbers) {
    hash = (hash ^ static_cast<uint32_t>(number)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

Sha256 hash_of_calls(const std::string& call, Device device) {
  const Backend& backend = backend_of(device, "tune");
  Sha256 hash;
  hash.update(
      fmt::format("{}\n{}\n{}\n{}\n", kVersion, backend.machine(device).model, backend.architecture(device), call));
  return hash;
}

}  // namespace

std::string likeness_key(const std::string& likeness, const std::string& call, Device device) {
  Sha256 hash = hash_of_calls(call, device);
  hash.update(likeness);
  return hash.hex_digest();
}

std::string results_key(const Structure::Data& structure, const std::string& call, Device device) {
  Sha256 hash = hash_of_calls(call, device);
  for (const Level& level : structure.levels) {
    hash.update(fmt::format("{} {} {:x} {:x}\n", level.length, level.num_positions, hash_of(level.indptr),
                            hash_of(level.indices)));
  }
  return hash.hex_digest();
}

std::vector<Measured> read_results(const std::string& key) {
  std::vector<Measured> results;
  const std::optional<jit::Cache> cache = jit::open_cache(/*create=*/false);
  const std::optional<std::string> text = cache ? cache->read_file(kFolder, key) : std::nullopt;
  if (!text) return results;
  std::istringstream lines(*text);
  double nanoseconds = 0;
  std::string choice;
  while (lines >> nanoseconds && lines.get() == ' ' && std::getline(lines, choice))
    results.push_back({choice, nanoseconds / 1e9});
  return results;
}

bool keep_results(const std::string& key, const std::vector<Measured>& results) {
  const std::optional<jit::Cache> cache = jit::open_cache(/*create=*/true);
  if (!cache) return false;
  std::string text;
  for (const Measured& measured : results) text += fmt::format("{:.0f} {}\n", measured.seconds * 1e9, measured.choice);
  const std::optional<jit::BuildFolder> build = cache->lock("tuned-" + key.substr(0, 16));
  return build && cache->publish(*build, kFolder, key, text);
}

}  // namespace weft::sparse
