// Machine code loaded into this process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace weft {

// A shared object, loaded from exactly these bytes: what was verified is what runs.
// It stays loaded as long as a copy of the handle lives. Throws Error(io_error).
class Module {
 public:
  // Through a sealed memory file, or load_from_file where the system has no /proc or no memory files.
  static std::shared_ptr<const Module> load(std::string_view elf_bytes, const std::string& name);
  // Through a temporary file that only this user can open, removed at once.
  static std::shared_ptr<const Module> load_from_file(std::string_view elf_bytes, const std::string& name);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  // Null when there is no such symbol.
  void* symbol(const char* name) const;

 private:
  explicit Module(void* handle) : handle_(handle) {}
  static std::shared_ptr<const Module> open(const std::string& path, const std::string& name);
  void* handle_;
};

}  // namespace weft
