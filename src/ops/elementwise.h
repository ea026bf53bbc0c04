// What the operators share: the row loops of this machine, rows dealt over a team, checks of arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/device_checks.h"
#include "base/format_tensor.h"
#include "base/tensor_checks.h"
#include "ops/kernels/elementwise.h"
#include "weft/device.h"
#include "weft/tensor.h"

namespace weft::ops {

const ElementwiseTable& elementwise();  // of current_isa()

// n numbers of fp32, fp16 or bf16 as floats: themselves, or in `scratch`.
const float* as_floats(DType dtype, const void* from, int64_t n, float* scratch);

// Calls work(begin, end) for parts of [0, rows); on the calling thread alone where the rows are too few to share.
template <class Work>
void for_rows(WorkerTeam& team, int64_t rows, int64_t elements_of_a_row, const Work& work) {
  constexpr int64_t kWorthSharing = 32768;  // elements: some microseconds of work
  const int workers = team.num_workers();
  if (workers == 1 || rows * elements_of_a_row < kWorthSharing) {
    if (rows > 0) work(int64_t{0}, rows);
    return;
  }
  team.run([&](int worker) {
    const int64_t begin = rows * worker / workers, end = rows * (worker + 1) / workers;
    if (begin < end) work(begin, end);
  });
}

// A given tensor in a device's memory, of elements of whole bytes.
inline void check_memory(std::string_view op, std::string_view name, const TensorView& tensor,
                         Device device = Device::cpu()) {
  check(static_cast<bool>(tensor), ErrorCode::invalid_argument, "{}: {} is not given", op, name);
  check_on(op, name, tensor.device(), device);
  check(tensor.data() != nullptr || tensor.size() == 0, ErrorCode::invalid_argument, "{}: {} {} has no data", op, name,
        tensor);
  check(reinterpret_cast<uintptr_t>(tensor.data()) % static_cast<uintptr_t>((bits_of(tensor.dtype()) + 7) / 8) == 0,
        ErrorCode::invalid_stride, "{}: the data of {} is not aligned to its elements; copy it", op, name);
}

// A given fp32 tensor in a device's memory whose last axis is contiguous.
inline void check_fp32(std::string_view op, std::string_view name, const TensorView& tensor, int min_rank, int max_rank,
                       Device device = Device::cpu()) {
  check(!tensor || tensor.dtype() == DType::fp32, ErrorCode::invalid_dtype, "{}: {} has dtype {}; fp32 is needed", op,
        name, to_string(tensor.dtype()));
  check_memory(op, name, tensor, device);
  check(tensor.rank() >= min_rank && tensor.rank() <= max_rank, ErrorCode::invalid_shape,
        "{}: {} {} has rank {}; {} is needed", op, name, tensor, tensor.rank(), max_rank);
  check(tensor.shape(tensor.rank() - 1) <= 1 || tensor.stride(tensor.rank() - 1) == 1, ErrorCode::invalid_stride,
        "{}: the last axis of {} has stride {}; 1 is needed: copy it to contiguous memory first", op, name,
        tensor.stride(tensor.rank() - 1));
}

inline void check_same_shape(std::string_view op, std::string_view name, const TensorView& tensor,
                             std::string_view other_name, const TensorView& other) {
  bool same = tensor.rank() == other.rank();
  for (int axis = 0; same && axis < tensor.rank(); ++axis) same = tensor.shape(axis) == other.shape(axis);
  check(same, ErrorCode::invalid_shape, "{}: {} is {}, {} is {}; they must be equal", op, name, tensor, other_name,
        other);
}

}  // namespace weft::ops
