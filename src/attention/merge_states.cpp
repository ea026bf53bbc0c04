// Public merging of attention states: checks, and what the backend is given.
#include <utility>

#include "attention/backend.h"
#include "base/check.h"
#include "base/device_checks.h"
#include "base/format_tensor.h"
#include "base/tensor_checks.h"
#include "weft/attention.h"
#include "weft/device.h"

namespace weft {
namespace {

using attention::Element;
using attention::MergeStatesArgs;

Element checked_element(const char* name, const TensorView& t) {
  switch (t.dtype()) {
    case DType::fp32: return Element::fp32;
    case DType::fp16: return Element::fp16;
    case DType::bf16: return Element::bf16;
    default: fail(ErrorCode::invalid_dtype, "{}: is {}; allowed are fp32, fp16 and bf16", name, to_string(t.dtype()));
  }
}

void check_tensor(const char* name, const TensorView& t, int rank, const char* form) {
  check(static_cast<bool>(t), ErrorCode::invalid_argument, "{}: is missing; give {}", name, form);
  check(t.rank() == rank, ErrorCode::invalid_shape, "{}: {} has rank {}; required is {}", name, t, t.rank(), form);
  check(t.data() != nullptr || t.size() == 0, ErrorCode::invalid_argument, "{}: {} has no data", name, t);
  check(reinterpret_cast<uintptr_t>(t.data()) % static_cast<uintptr_t>(bits_of(t.dtype()) / 8) == 0,
        ErrorCode::invalid_stride, "{}: its data is not aligned to its elements", name);
}

void check_lse(const char* name, const TensorView& t, int rank, const char* form) {
  check(!t || t.dtype() == DType::fp32, ErrorCode::invalid_dtype, "{}: is {}; required is fp32", name,
        to_string(t.dtype()));
  check_tensor(name, t, rank, form);
}

void check_vectors(const char* name, const TensorView& t, int rank, const char* form) {
  checked_element(name, t);
  check_tensor(name, t, rank, form);
  const int64_t dim = t.shape(rank - 1);
  check(dim >= 8 && dim <= attention::kMaxHeadDim && dim % 8 == 0, ErrorCode::unsupported,
        "{}: {} has vectors of {}; supported are 8 to {} in steps of 8", name, t, dim, attention::kMaxHeadDim);
  check(t.stride(rank - 1) == 1, ErrorCode::invalid_stride,
        "{}: has stride {} along its last axis; it must be 1: copy the tensor", name, t.stride(rank - 1));
}

void check_same(const char* name, const TensorView& t, int axis, const char* other_name, const TensorView& other,
                int other_axis) {
  check(t.shape(axis) == other.shape(other_axis), ErrorCode::invalid_shape,
        "{}: {} has {} along axis {}, {} {} has {} along axis {}; they must agree", name, t, t.shape(axis), axis,
        other_name, other, other.shape(other_axis), other_axis);
}

void check_outputs(const TensorView& o_out, const TensorView& lse_out) {
  check_vectors("o_out", o_out, 3, "[rows, heads, dim]");
  check_lse("lse_out", lse_out, 2, "[rows, heads]");
  check_same("lse_out", lse_out, 0, "o_out", o_out, 0);
  check_same("lse_out", lse_out, 1, "o_out", o_out, 1);
  check_written("", "o_out", o_out);
  check_written("", "lse_out", lse_out);
}

// The backend of the device that all of them lie on.
const attention::Backend& backend_for(const TensorView& o, const TensorView& lse, const TensorView& o_out,
                                      const TensorView& lse_out, Stream stream) {
  const Device device = stream.is_default() ? o_out.device() : stream.device();
  const attention::Backend& backend = attention::backend_of(device, "o_out");
  const std::pair<const char*, const TensorView&> all[] = {
      {"o", o}, {"lse", lse}, {"o_out", o_out}, {"lse_out", lse_out}};
  for (const auto& [name, tensor] : all) check_on("", name, tensor.device(), device);
  return backend;
}

int64_t bytes_of(const TensorView& t) { return bits_of(t.dtype()) / 8; }

// Strides of axes `row` and `row + 1`, and of the states.
MergeStatesArgs make_args(const TensorView& o, const TensorView& lse, int row, const TensorView& o_out,
                          const TensorView& lse_out) {
  MergeStatesArgs args = {};
  args.o = static_cast<const char*>(o.data());
  args.lse = static_cast<const float*>(lse.data());
  args.o_state_stride = o.stride(0) * bytes_of(o);
  args.lse_state_stride = lse.stride(0);
  args.o_row_stride = row == 0 ? 0 : o.stride(row) * bytes_of(o);
  args.lse_row_stride = row == 0 ? 0 : lse.stride(row);
  args.o_head_stride = o.stride(row + 1) * bytes_of(o);
  args.lse_head_stride = lse.stride(row + 1);
  args.element = checked_element("o", o);
  args.o_out = {static_cast<char*>(o_out.data()), o_out.stride(0) * bytes_of(o_out), o_out.stride(1) * bytes_of(o_out),
                checked_element("o_out", o_out)};
  args.lse_out = lse_out.as<float>();
  args.lse_out_row_stride = lse_out.stride(0);
  args.lse_out_head_stride = lse_out.stride(1);
  args.num_heads = static_cast<int>(o_out.shape(1));
  args.dim = static_cast<int>(o_out.shape(2));
  return args;
}

}  // namespace

void merge_states(const TensorView& o, const TensorView& lse, const TensorView& o_out, const TensorView& lse_out,
                  Stream stream) {
  const attention::Backend& backend = backend_for(o, lse, o_out, lse_out, stream);
  check_vectors("o", o, 4, "[n, rows, heads, dim]");
  check_lse("lse", lse, 3, "[n, rows, heads]");
  check_outputs(o_out, lse_out);
  for (int axis = 0; axis < 3; ++axis) check_same("lse", lse, axis, "o", o, axis);
  for (int axis = 0; axis < 3; ++axis) check_same("o_out", o_out, axis, "o", o, axis + 1);
  MergeStatesArgs args = make_args(o, lse, 1, o_out, lse_out);
  args.num_states = o.shape(0);
  backend.merge_states(args, o_out.shape(0), o.size(), o_out.device(), stream);
}

void merge_states(const TensorView& o, const TensorView& lse, std::span<const int32_t> indptr, const TensorView& o_out,
                  const TensorView& lse_out, Stream stream) {
  const attention::Backend& backend = backend_for(o, lse, o_out, lse_out, stream);
  check_vectors("o", o, 3, "[nnz, heads, dim]");
  check_lse("lse", lse, 2, "[nnz, heads]");
  check_outputs(o_out, lse_out);
  check_same("lse", lse, 0, "o", o, 0);
  check_same("lse", lse, 1, "o", o, 1);
  check_same("o_out", o_out, 1, "o", o, 1);
  check_same("o_out", o_out, 2, "o", o, 2);
  const auto rows = static_cast<size_t>(o_out.shape(0));
  check(indptr.size() == rows + 1, ErrorCode::invalid_indptr,
        "indptr: has {} entries; o_out has {} rows, so {} are needed", indptr.size(), rows, rows + 1);
  check(indptr[0] == 0, ErrorCode::invalid_indptr, "indptr[0] = {}; an indptr starts at 0", indptr[0]);
  for (size_t i = 1; i <= rows; ++i)
    check(indptr[i] >= indptr[i - 1], ErrorCode::invalid_indptr, "indptr[{}] = {} after {}; an indptr never decreases",
          i, indptr[i], indptr[i - 1]);
  check(indptr[rows] == o.shape(0), ErrorCode::invalid_indptr, "indptr[{}] = {}; o has {} states", rows, indptr[rows],
        o.shape(0));
  MergeStatesArgs args = make_args(o, lse, 0, o_out, lse_out);
  args.indptr = indptr.data();
  backend.merge_states(args, o_out.shape(0), o.size(), o_out.device(), stream);
}

}  // namespace weft
