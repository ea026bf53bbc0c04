// What one call reads and writes: views of its arrays, which it holds until it ends.
//
//   Arguments call(stream);
//   const TensorView x = call.read("x", x_array), y = call.write("out", out_array);
//   call.check_apart();
//   call.run([&] { rms_norm(x, weight, eps, y, call.stream()); });    // without the GIL
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array.h"
#include "gil.h"
#include "weft/device.h"
#include "weft/plan.h"

namespace weft::python {

struct PyPages;
struct PyWorkspace;

class Arguments {
 public:
  explicit Arguments(const Stream& stream = {}) : stream_(stream) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const Stream& stream() const { return stream_; }

  TensorView read(std::string_view name, nb::handle array);
  // `same_as`: it may be this tensor, as a whole, though that is read.
  TensorView write(std::string_view name, nb::handle array, const TensorView* same_as = nullptr);
  TensorView read(std::string_view name, const ArrayLike& array) { return read(name, array.object); }
  TensorView read(std::string_view name, const std::optional<ArrayLike>& array) {
    return array ? read(name, array->object) : TensorView();
  }

  // Integers of an array of that type, or of a sequence of Python's. Throws TypeError and Error(invalid_dtype |
  // invalid_shape | invalid_stride | invalid_device | invalid_argument).
  std::span<const int32_t> ints(std::string_view name, const std::optional<IntsLike>& array);
  std::span<const int64_t> longs(std::string_view name, const std::optional<IntsLike>& array);
  std::span<const uint8_t> bytes(std::string_view name, const std::optional<IntsLike>& array);
  // Whether `longs` takes it, and not `ints`.
  bool are_longs(std::string_view name, const IntsLike& array);

  // A tensor of a sparse program, which checks for itself what overlaps.
  TensorView of_program(std::string_view name, nb::handle array, bool written);

  // Whether these came from a list of Python's, and what holds the call's other arrays.
  bool is_copy(std::span<const int32_t> ids) const;
  const std::vector<Array>& arrays() const { return arrays_; }

  // Nobody changes the table, or uses the workspace, until the call ends.
  PageTableView pages(std::string_view name, const PyPages& pages);
  Workspace& workspace(PyWorkspace& workspace);
  void hold(std::mutex& mutex);

  // Throws Error(invalid_argument) where what is written shares memory with anything else of the call.
  void check_apart() const;

  // Without the GIL.
  template <class Work>
  auto run(const Work& work) {
    const WithoutGil free;
    return work();
  }

 private:
  struct Named {
    std::string name;
    TensorView view;
    bool written = false;
    TensorView same_as = {};
  };
  template <class Int>
  std::span<const Int> integers(std::string_view name, const std::optional<IntsLike>& array, DType dtype,
                                std::deque<std::vector<Int>>& lists);

  HoldsExit holds_;  // around what frees the arrays
  Stream stream_;
  std::vector<Array> arrays_;
  std::vector<Named> tensors_;
  std::deque<std::vector<int32_t>> ints_;
  std::deque<std::vector<int64_t>> longs_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

// Throws Error(invalid_stride), and says which call makes the copy.
void check_contiguous(std::string_view name, const TensorView& view);

// Waits for a mutex without the GIL, which its holder may need.
std::unique_lock<std::mutex> locked(std::mutex& mutex);

// Whether two tensors may have an element's memory in common: false where it is sure that they have not.
bool may_overlap(const TensorView& a, const TensorView& b);

}  // namespace weft::python
