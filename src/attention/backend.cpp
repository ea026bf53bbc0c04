#include "attention/backend.h"

#include <atomic>

#include "attention/kernel.h"
#include "base/check.h"
#include "base/device_checks.h"

namespace weft::attention {

const Backend& cpu_backend();  // of attention/cpu: the one that is always there
const Backend& cuda_backend();

namespace {
std::atomic<const Backend*>& of_kind(DeviceKind kind) {
  static std::atomic<const Backend*> backends[3] = {&cpu_backend(), &cuda_backend(), nullptr};
  return backends[static_cast<int>(kind)];
}
}  // namespace

DType Backend::query_type(const AttentionSpec& spec, const std::string& target) const {
  if (bits_of(spec.kv_dtype) > 16) return DType::fp32;
  AttentionSpec alike = spec;
  alike.q_dtype = bits_of(spec.kv_dtype) == 16 ? spec.kv_dtype : DType::bf16;
  return compute_type(alike, target) == alike.q_dtype ? alike.q_dtype : DType::fp32;
}

void Backend::plan_even(const AttentionKernel::Impl& kernel, const PlanHeader&, const EvenBatch&, Workspace&,
                        Stream) const {
  fail(ErrorCode::unsupported,
       "plan_on_device: required plans made on {}; supported on cards; missing: a kernel that plans; use "
       "AttentionKernel::plan",
       to_string(kernel.device));
}

void Backend::locate_rows(const AttentionKernel::Impl& kernel, const Workspace&, int*, int*, Stream) const {
  fail(ErrorCode::unsupported,
       "locate_rows: required the rows of a plan on {}; supported on cards; missing: a kernel; positions and pages are "
       "the caller's",
       to_string(kernel.device));
}

void add_backend(DeviceKind kind, const Backend& backend) { of_kind(kind) = &backend; }

const Backend& backend_of(Device device, std::string_view name) {
  const Backend* backend = of_kind(device.kind);
  if (backend == nullptr) refuse_device(name, device);
  backend->require(device, name);
  return *backend;
}

}  // namespace weft::attention
