#include "jit/entry.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/hash.h"

namespace weft::jit {
namespace {

constexpr std::string_view kMagic = "WEFTJIT1";
constexpr size_t kHeaderBytes = kMagic.size() + 32;

constexpr std::string StoredModule::*kFields[] = {
    &StoredModule::key,    &StoredModule::name,  &StoredModule::compiler, &StoredModule::identity,
    &StoredModule::target, &StoredModule::flags, &StoredModule::text,     &StoredModule::module};

std::string digest_of(std::string_view bytes) {
  const auto digest = Sha256().update(bytes).digest();
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string encode(const StoredModule& stored) {
  std::string body;
  for (const auto field : kFields) {
    const std::string& value = stored.*field;
    for (int shift = 0; shift < 64; shift += 8) body += static_cast<char>(uint64_t{value.size()} >> shift);
    body += value;
  }
  return std::string(kMagic) + digest_of(body) + body;
}

std::optional<StoredModule> decode(std::string_view file, std::string_view key) {
  if (file.size() < kHeaderBytes || !file.starts_with(kMagic)) return std::nullopt;
  std::string_view body = file.substr(kHeaderBytes);
  if (digest_of(body) != file.substr(kMagic.size(), 32)) return std::nullopt;
  StoredModule stored;
  for (const auto field : kFields) {
    if (body.size() < 8) return std::nullopt;
    uint64_t size = 0;
    for (size_t i = 0; i < 8; ++i) size |= uint64_t{static_cast<uint8_t>(body[i])} << (8 * i);
    body.remove_prefix(8);
    if (size > body.size()) return std::nullopt;
    stored.*field = body.substr(0, size);
    body.remove_prefix(size);
  }
  if (!body.empty() || stored.key != key) return std::nullopt;
  return stored;
}

}  // namespace weft::jit
