// The scratch memory of a work item.
#pragma once

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Cuts memory into arrays, each on its own cache line. With a null base it only counts: what allocates may then neither
// read nor write.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* allocate(long long n) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (n * static_cast<long long>(sizeof(T)) + 63) / 64 * 64;
    return p;
  }
  long long bytes() const { return bytes_; }

 private:
  char* base_;
  long long bytes_ = 0;
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
