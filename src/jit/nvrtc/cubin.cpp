#include "jit/nvrtc/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "base/check.h"

namespace weft::jit {
namespace {

constexpr uint16_t kMachineCuda = 190;
// Section .nv.info is a list of (format, attribute, size or value) with what follows by format; these attributes are
// pairs of a symbol and a number.
constexpr uint8_t kSizedValue = 4, kRegisterCount = 0x2f, kFrameSize = 0x11;
constexpr std::string_view kSharedPrefix = ".nv.shared.";
constexpr std::string_view kArgumentsPrefix = ".nv.constant0.";  // what the compiler calls by itself has none
// From sm_90 on the system has so much of each CTA's shared memory, and this section says that it counts as the
// kernel's.
constexpr std::string_view kReserved = ".nv.shared.reserved.0";
constexpr int kReservedBytes = 1024;

class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes) {
    const auto header = at<Elf64_Ehdr>(0);
    require(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
            header.e_machine == kMachineCuda && header.e_shentsize == sizeof(Elf64_Shdr));
    for (uint64_t i = 0; i < header.e_shnum; ++i)
      sections.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    require(header.e_shstrndx < sections.size());
    names_ = content(sections[header.e_shstrndx]);
  }

  template <class T>
  T at(uint64_t offset) const {
    require(offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string_view content(const Elf64_Shdr& section) const {
    require(section.sh_offset <= bytes_.size() && section.sh_size <= bytes_.size() - section.sh_offset);
    return bytes_.substr(section.sh_offset, section.sh_size);
  }
  std::string_view name(const Elf64_Shdr& section) const { return string(names_, section.sh_name); }
  // The name of a symbol, by its number.
  std::string symbol(uint32_t number) const {
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_SYMTAB) continue;
      require(section.sh_link < sections.size() && number < section.sh_size / sizeof(Elf64_Sym));
      const auto entry = at<Elf64_Sym>(section.sh_offset + number * sizeof(Elf64_Sym));
      return std::string(string(content(sections[section.sh_link]), entry.st_name));
    }
    return {};
  }
  static void require(bool holds) {
    check(holds, ErrorCode::invalid_file, "a kernel's module is no cubin, or a damaged one");
  }

  std::vector<Elf64_Shdr> sections;

 private:
  static std::string_view string(std::string_view table, uint64_t offset) {
    require(offset < table.size());
    const std::string_view rest = table.substr(offset);
    require(rest.find('\0') != rest.npos);
    return rest.substr(0, rest.find('\0'));
  }
  std::string_view bytes_, names_;
};

void add_info(const Elf& elf, const Elf64_Shdr& section, std::map<std::string, KernelResources>& kernels) {
  for (uint64_t offset = 0; offset < section.sh_size;) {
    const auto format = elf.at<uint8_t>(section.sh_offset + offset),
               attribute = elf.at<uint8_t>(section.sh_offset + offset + 1);
    const auto size = elf.at<uint16_t>(section.sh_offset + offset + 2);
    if (format == kSizedValue && size == 8 && (attribute == kRegisterCount || attribute == kFrameSize)) {
      KernelResources& kernel = kernels[elf.symbol(elf.at<uint32_t>(section.sh_offset + offset + 4))];
      (attribute == kRegisterCount ? kernel.registers : kernel.stack_bytes) =
          static_cast<int>(elf.at<uint32_t>(section.sh_offset + offset + 8));
    }
    offset += 4 + (format == kSizedValue ? size : 0);
  }
}

}  // namespace

bool is_cubin(std::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == kMachineCuda;
}

std::vector<KernelResources> kernel_resources(std::string_view cubin) {
  const Elf elf(cubin);
  std::map<std::string, KernelResources> kernels;
  for (const Elf64_Shdr& section : elf.sections)
    if (elf.name(section) == ".nv.info") add_info(elf, section, kernels);
  const bool is_reserved = std::any_of(elf.sections.begin(), elf.sections.end(),
                                       [&](const Elf64_Shdr& section) { return elf.name(section) == kReserved; });
  for (const Elf64_Shdr& section : elf.sections) {
    const std::string_view name = elf.name(section);
    if (!name.starts_with(kSharedPrefix)) continue;
    const auto kernel = kernels.find(std::string(name.substr(kSharedPrefix.size())));
    if (kernel != kernels.end())
      kernel->second.static_shared_bytes = static_cast<int>(section.sh_size) - (is_reserved ? kReservedBytes : 0);
  }
  std::vector<KernelResources> all;
  for (auto& [name, kernel] : kernels) {
    const std::string arguments = std::string(kArgumentsPrefix) + name;
    if (std::none_of(elf.sections.begin(), elf.sections.end(),
                     [&](const Elf64_Shdr& section) { return elf.name(section) == arguments; }))
      continue;
    kernel.name = name;
    all.push_back(kernel);
  }
  return all;
}

}  // namespace weft::jit
