// What DLPack's capsules point to, as the format fixes it (https://dmlc.github.io/dlpack), versions 0 and 1.
#pragma once

#include <cstdint>

namespace weft::python {

struct DlDevice {
  int32_t device_type = 0, device_id = 0;
};
struct DlDataType {
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 0;
};
struct DlTensor {
  void* data = nullptr;
  DlDevice device = {};
  int32_t ndim = 0;
  DlDataType dtype = {};
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;
  uint64_t byte_offset = 0;
};

// Of capsules called "dltensor".
struct DlManaged {
  DlTensor dl_tensor = {};
  void* manager_ctx = nullptr;
  void (*deleter)(DlManaged*) = nullptr;
};

// Of capsules called "dltensor_versioned".
struct DlVersion {
  uint32_t major = 0, minor = 0;
};
struct DlManagedVersioned {
  DlVersion version = {};
  void* manager_ctx = nullptr;
  void (*deleter)(DlManagedVersioned*) = nullptr;
  uint64_t flags = 0;
  DlTensor dl_tensor = {};
};
inline constexpr uint64_t kReadOnly = 1;

// The beginning of what a type's capsule __dlpack_c_exchange_api__ points to: the same without a call of Python's.
struct DlExchange {
  DlVersion version = {};
  void* previous = nullptr;
  void* allocate = nullptr;
  // 0 and a tensor that the caller owns, or an exception of Python's. Streams are the caller's concern.
  int (*managed_of)(void* object, DlManagedVersioned** tensor) = nullptr;
  void* object_of = nullptr;
  void* tensor_of = nullptr;
  // 0 and the stream that the library works on now, of the card with this index.
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream) = nullptr;
};

}  // namespace weft::python
