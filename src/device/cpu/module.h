// Machine code loaded into this process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace weft {

// A shared object, loaded from exactly these bytes (through a sealed memfd): what was verified is what runs.
// It stays loaded as long as a copy of the handle lives. Throws Error(io_error).
class Module {
 public:
  static std::shared_ptr<const Module> load(std::string_view elf_bytes, const std::string& name);
  ~Module();
  // Null when there is no such symbol.
  void* symbol(const char* name) const;

 private:
  explicit Module(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace weft
