#include "jit/key.h"

#include <cstring>

#include "base/hash.h"

namespace weft::jit {
namespace {

// A field that cannot run into the next one.
void add_field(Sha256& hash, std::string_view field) {
  hash.update(std::to_string(field.size())).update(":").update(field);
}

__extension__ using Wide = unsigned __int128;

uint64_t mix(uint64_t a, uint64_t b) {
  const Wide product = Wide{a} * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Sixteen bytes a multiplication in four independent chains: about twice the time of comparing the text.
uint64_t fast_hash(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kOdd[] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0xd6e8feb86659fd93};
  const auto load = [](const char* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
  };
  uint64_t lanes[4] = {seed ^ kOdd[0], seed ^ kOdd[1], seed ^ kOdd[2], seed ^ kOdd[3]};
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 64; p += 64, left -= 64)
    for (size_t i = 0; i < 4; ++i) lanes[i] = mix(lanes[i] ^ load(p + 16 * i), kOdd[i] ^ load(p + 16 * i + 8));
  char tail[64] = {};
  if (left != 0) std::memcpy(tail, p, left);
  for (size_t i = 0; i < 4; ++i) lanes[i] = mix(lanes[i] ^ load(tail + 16 * i), kOdd[i] ^ load(tail + 16 * i + 8));
  return mix(mix(lanes[0] ^ bytes.size(), lanes[1] ^ kOdd[0]), mix(lanes[2] ^ kOdd[1], lanes[3] ^ kOdd[2]));
}

}  // namespace

RequestId request_id(const Request& request) {
  const auto& [toolchain, target] = request.target;
  RequestId id{toolchain->machine(target), toolchain->flags(target), {}};
  id.flags.insert(id.flags.end(), request.flags.begin(), request.flags.end());
  Sha256 hash;
  add_field(hash, request.text);
  add_field(hash, id.target);
  for (const std::string& flag : id.flags) add_field(hash, flag);
  id.digest = hash.hex_digest();
  return id;
}

std::string entry_key(const RequestId& id, std::string_view compiler_identity) {
  Sha256 hash;
  add_field(hash, std::to_string(kFormatVersion));
  add_field(hash, id.digest);
  add_field(hash, compiler_identity);
  return hash.hex_digest();
}

bool is_key(std::string_view name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == name.npos;
}

uint64_t memory_hash(const Request& request) {
  uint64_t hash = fast_hash(request.text, fast_hash(request.target.name, 1));
  for (const std::string& flag : request.flags) hash = fast_hash(flag, hash);
  return hash;
}

}  // namespace weft::jit
