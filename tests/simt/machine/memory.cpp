#include <sys/mman.h>

#include <cstring>
#include <new>

#include "tests/simt/machine/machine.h"

namespace weft::simt {
namespace {

constexpr size_t kRoom = size_t{32} << 30, kRedZone = 64 << 10, kAlignment = 256;

char* behind(const Memory::Buffer& buffer) {
  return buffer.begin + (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment + kRedZone;
}

}  // namespace

Memory::Memory() {
  void* room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<char*>(room);
  next_ = begin_ + kRedZone;
}

Memory::~Memory() { munmap(begin_, kRoom); }

void* Memory::make_bytes(std::string name, size_t bytes) {
  if (bytes > kRoom - kRedZone - static_cast<size_t>(next_ - begin_)) throw std::bad_alloc();
  char* begin = next_;
  std::memset(begin, 0xff, bytes);
  buffers_.push_back({std::move(name), begin, bytes});
  next_ = behind(buffers_.back());
  return begin;
}

void Memory::release(const void* begin) {
  std::erase_if(buffers_, [&](const Buffer& buffer) { return buffer.begin == begin; });
  next_ = buffers_.empty() ? begin_ + kRedZone : behind(buffers_.back());
}

std::string Memory::content() const {
  std::string all;
  for (const Buffer& buffer : buffers_) all.append(buffer.begin, buffer.bytes);
  return all;
}

void Memory::restore(const std::string& content) {
  const char* from = content.data();
  for (const Buffer& buffer : buffers_) {
    std::memcpy(buffer.begin, from, buffer.bytes);
    from += buffer.bytes;
  }
}

}  // namespace weft::simt
