#include "tests/simt/machine/places.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <vector>

namespace weft::simt {
namespace {

// "/any/where/src/tile/cuda/reduce.h:34 (discriminator 2)" -> "tile/cuda/reduce.h:34"
std::string shortened(std::string line) {
  line = line.substr(0, line.find_first_of("\n("));
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  if (const size_t at = line.rfind("/tests/simt/"); at != line.npos) return line.substr(at + 1);
  if (const size_t at = line.rfind("/src/"); at != line.npos) return line.substr(at + 5);
  return line;
}

std::string look_up(const void* return_address) {
  Dl_info found = {};
  link_map* module = nullptr;
  if (dladdr1(return_address, &found, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0)
    return "an unknown line";
  const auto address = reinterpret_cast<uintptr_t>(return_address) - module->l_addr - 1;
  const std::string program =  // the program's own name is empty
      *module->l_name != '\0' ? module->l_name : std::filesystem::read_symlink("/proc/self/exe").string();
  std::FILE* pipe = popen(fmt::format("addr2line -i -e '{}' {:#x}", program, address).c_str(), "r");
  if (pipe == nullptr) return "an unknown line";
  std::vector<std::string> frames;  // innermost first
  for (char line[4096]; std::fgets(line, sizeof line, pipe) != nullptr;)
    if (std::string frame = shortened(line); frame.find("tests/simt/twins/") == frame.npos) frames.push_back(frame);
  pclose(pipe);
  if (frames.empty()) return "an unknown line";
  std::string text = frames[0];
  const auto file_of = [](const std::string& frame) { return frame.substr(0, frame.rfind(':')); };
  std::string file = file_of(frames[0]);
  for (const std::string& frame : frames) {
    if (file_of(frame) == file) continue;
    file = file_of(frame);
    text += ", called at " + frame;
  }
  return text;
}

}  // namespace

const std::string& place(const void* return_address) {
  static std::map<const void*, std::string> known;
  const auto [entry, is_new] = known.try_emplace(return_address);
  if (is_new) entry->second = look_up(return_address);
  return entry->second;
}

}  // namespace weft::simt
