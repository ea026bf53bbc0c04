// Where a model file's bytes come from: a file (read, never mapped, so that a file truncated under us is an error
// and no signal), or memory (tests and fuzzers).
//
//   auto source = open_file("model.gguf");       // Error(io_error) when it cannot be read
//   source->read(0, magic, sizeof magic);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace weft {

class ModelFile;

// Safe to read from several threads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;
  virtual uint64_t size() const = 0;  // when it was opened
  // Fills `to` with exactly `bytes` bytes from `offset`. Throws Error(io_error) when the system refuses,
  // Error(invalid_file) when the source is no longer what was opened.
  virtual void read(uint64_t offset, void* to, uint64_t bytes) const = 0;
};

// Throws Error(io_error) for a path that is missing, unreadable or no regular file.
std::unique_ptr<ByteSource> open_file(const std::string& path);
// Does not copy: the bytes must outlive the source.
std::unique_ptr<ByteSource> open_memory(std::string name, std::string_view bytes);

using OpenSource = std::function<std::unique_ptr<ByteSource>(const std::string& name)>;

// The same as ModelFile(path), from any source, and from sources by name: a model that is split has several.
ModelFile open_model(std::unique_ptr<ByteSource> source);
ModelFile open_model(const std::string& name, const OpenSource& open);

}  // namespace weft
