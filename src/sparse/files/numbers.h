// Numbers of a tensor, whatever its type.
#pragma once

#include <cstdint>
#include <string>

#include "weft/sparse_files.h"

namespace weft::sparse {

// Integers up to here are numbers of a double, each its own.
inline constexpr int64_t kMaxInteger = int64_t{1} << 53;

// Elements of a contiguous tensor of the host, of fp32, fp64, fp16, bf16, int32 or int64; it has to stay. Throws
// Error(invalid_dtype), Error(invalid_stride) or Error(invalid_device) that begins with the name.
class NumbersOf {
 public:
  NumbersOf(const TensorView& tensor, std::string_view name);
  bool is_integer() const;
  const char* field() const { return is_integer() ? "integer" : "real"; }  // Matrix Market's word
  double real(int64_t element) const;                                      // a large integer is rounded
  int64_t integer(int64_t element) const;                                  // of a tensor of integers
  // In the shortest digits that read back as it was, and the end of the line.
  void append(int64_t element, std::string& text) const;

 private:
  TensorView tensor_;
};

// Sets elements of an array, which are rounded to its type.
class NumbersTo {
 public:
  explicit NumbersTo(Array& array) : array_(array) {}
  void set(int64_t element, double value);
  void set_integer(int64_t element, int64_t value);

 private:
  template <class T>
  T& at(int64_t element) {
    return reinterpret_cast<T*>(array_.bytes().data())[element];
  }
  Array& array_;
};

bool is_of_programs(DType dtype);  // fp32, fp64, fp16, bf16, int32 or int64

}  // namespace weft::sparse
