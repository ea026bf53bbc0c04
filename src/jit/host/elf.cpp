#include "jit/host/elf.h"

#include <elf.h>

#include <cstring>

namespace weft::jit {
namespace {

// A T at `offset`, if it lies inside.
template <class T>
std::optional<T> read_at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<std::string_view> section_bytes(std::string_view elf, const Elf64_Shdr& section) {
  if (section.sh_offset > elf.size() || section.sh_size > elf.size() - section.sh_offset) return std::nullopt;
  return elf.substr(section.sh_offset, section.sh_size);
}

}  // namespace

std::optional<std::vector<std::string>> undefined_symbols(std::string_view elf) {
  const auto header = read_at<Elf64_Ehdr>(elf, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_type != ET_DYN || header->e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  std::vector<Elf64_Shdr> sections;
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    if (header->e_shoff > elf.size()) return std::nullopt;
    const auto section = read_at<Elf64_Shdr>(elf, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return std::nullopt;
    sections.push_back(*section);
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM) continue;
    if (section.sh_link >= sections.size()) return std::nullopt;
    const auto symbols = section_bytes(elf, section), names = section_bytes(elf, sections[section.sh_link]);
    if (!symbols || !names || symbols->size() % sizeof(Elf64_Sym) != 0) return std::nullopt;
    std::vector<std::string> result;
    for (uint64_t offset = sizeof(Elf64_Sym); offset < symbols->size(); offset += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(*symbols, offset);
      if (symbol->st_name >= names->size()) return std::nullopt;
      const std::string_view rest = names->substr(symbol->st_name);
      const size_t end = rest.find('\0');
      if (end == rest.npos) return std::nullopt;
      if (symbol->st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_WEAK)
        result.emplace_back(rest.substr(0, end));
    }
    return result;
  }
  return std::nullopt;
}

}  // namespace weft::jit
