// Reads the dynamic symbols of a shared object, without trusting a byte of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

// The symbols that must come from elsewhere, weak ones excepted. Nothing when the bytes are no well-formed 64-bit
// little-endian ELF shared object.
std::optional<std::vector<std::string>> undefined_symbols(std::string_view elf);

}  // namespace weft::jit
