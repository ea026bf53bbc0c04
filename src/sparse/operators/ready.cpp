#include "sparse/operators/ready.h"

#include <functional>

#include "base/check.h"
#include "base/format_tensor.h"
#include "base/once_map.h"
#include "sparse/backend.h"

namespace weft::sparse {

Operator kept_operator(const ReadyProgram& ready, Device device) {
  static auto& kept = *new OnceMap<std::string, Operator>;  // outlives every static that runs one
  std::string key = to_string(device) + ready.text + ready.schedule;
  for (const auto& [name, value] : ready.set) key += fmt::format("{}={};", name, value);
  return kept.get(std::hash<std::string>()(key), key,
                  [&] { return compile(parse(ready.text), ready.schedule, device, {.set = ready.set}); });
}

Device device_of(const TensorView& tensor) {
  return tensor.device().kind == DeviceKind::cuda ? tensor.device() : Device::cpu();
}

TensorView kept_array(const Structure::Data& structure, const std::vector<int32_t>& array, Device device) {
  const int32_t* const data = backend_of(device, "run").array_of(structure, array, device);
  return {data, DType::int32, {static_cast<int64_t>(array.size())}, device};
}

int64_t workers_of(Device device, Stream stream) { return device == Device::cpu() ? stream.team().num_workers() : 0; }

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  for (size_t at = 0; (at = text.find(old, at)) != text.npos; at += now.size()) text.replace(at, old.size(), now);
  return text;
}

std::string with_dtype(const std::string& program, DType dtype) {
  return replaced(program, "DTYPE", std::string(to_string(dtype)));
}

DType common_dtype(const std::vector<std::pair<const char*, const TensorView*>>& tensors) {
  const auto& [first, tensor] = tensors[0];
  const DType dtype = tensor->dtype();
  check(dtype == DType::fp32 || dtype == DType::bf16, ErrorCode::invalid_dtype,
        "{}: is of {}; allowed are fp32 and bf16", first, to_string(dtype));
  for (const auto& [name, other] : tensors)
    check(other->dtype() == dtype, ErrorCode::invalid_dtype, "{}: is of {} and {} of {}; both have one type", name,
          to_string(other->dtype()), first, to_string(dtype));
  return dtype;
}

void check_rank(const TensorView& tensor, const char* name, int rank, const char* shape) {
  check(tensor.rank() == rank, ErrorCode::invalid_shape, "{}: has shape {}; {} is expected", name, tensor, shape);
}

}  // namespace weft::sparse
