// What the words say that workers of a fused kernel leave where a wait gave up (kernels/stuck.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace weft::decode::fused {

// "": nobody gave up. `words`: of each worker; name_of(phase): as the text names it.
std::string stuck_text(std::span<const uint64_t> words, const std::function<std::string(uint32_t)>& name_of);

}  // namespace weft::decode::fused
