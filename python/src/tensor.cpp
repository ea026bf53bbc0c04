// weft.DType, weft.Device, weft.TensorView, weft.empty.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "base/check.h"
#include "enums.h"
#include "gil.h"
#include "module.h"

namespace weft::python {
namespace {

Device device_from_string(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  int index = 0;
  bool good = kind == "cpu" || kind == "cuda" || kind == "cuda_host";
  if (colon != text.npos) {
    const std::string_view digits = text.substr(colon + 1);
    good = good && !digits.empty() && digits.size() <= 4 && digits.find_first_not_of("0123456789") == digits.npos;
    for (const char digit : digits) index = good ? index * 10 + (digit - '0') : 0;
  }
  check(good && (kind != "cpu" || index == 0), ErrorCode::invalid_device,
        "device '{}'; allowed are 'cpu', 'cuda', 'cuda:N', 'cuda_host' and 'cuda_host:N'", text);
  return kind == "cpu" ? Device::cpu() : kind == "cuda" ? Device::cuda(index) : Device::cuda_host(index);
}

void define_dtype(nb::module_& m) {
  nb::enum_<DType> dtypes(m, "DType", "Types of elements. int4: two a byte along the last axis, the even one low.");
  for (int i = 0; i <= static_cast<int>(DType::fp64); ++i) {
    const auto dtype = static_cast<DType>(i);
    dtypes.value(to_string(dtype).data(), dtype);
  }
  m.def("bits_of", &bits_of, nb::arg("dtype"), "Bits of one element.");
}

void define_device(nb::module_& m) {
  bind_enum<DeviceKind>(m, "DeviceKind", "cuda_host is pinned memory of the host.");
  nb::class_<Device>(m, "Device",
                     "Where memory lies: 'cpu', 'cuda:0', 'cuda_host:0'. Parameters take the name as well.")
      .def(
          "__init__", [](Device* self, std::string_view name) { new (self) Device(device_from_string(name)); },
          nb::arg("name"), "Raises Error(invalid_device) for a name that is none.")
      .def_static("cpu", &Device::cpu, "The host's memory.")
      .def_static("cuda", &Device::cuda, nb::arg("index") = 0, "A card's memory.")
      .def_static("cuda_host", &Device::cuda_host, nb::arg("index") = 0,
                  "Memory of the host that a card reaches: pinned.")
      .def_prop_ro("kind", [](const Device& self) { return self.kind; })
      .def_prop_ro("index", [](const Device& self) { return self.index; })
      .def("__str__", [](const Device& self) { return to_string(self); })
      .def("__repr__", [](const Device& self) { return "Device('" + to_string(self) + "')"; })
      .def(
          "__eq__",
          [](const Device& a, nb::handle b) { return nb::isinstance<Device>(b) && a == *nb::inst_ptr<Device>(b); },
          nb::arg("other").none())
      .def("__hash__", [](const Device& self) { return static_cast<int>(self.kind) * 65536 + self.index; });
}

std::vector<int64_t> list_of(std::span<const int64_t> numbers) { return {numbers.begin(), numbers.end()}; }

nb::tuple tuple_of(std::span<const int64_t> numbers) { return nb::tuple(nb::cast(list_of(numbers))); }

std::pair<int, int> dlpack_device(const PyTensorView& self) {
  constexpr int kTypes[] = {1, 2, 3};  // of cpu, cuda and cuda_host
  return {kTypes[static_cast<int>(self.array.view.device().kind)], self.array.view.device().index};
}

// Weft's calls on the CPU are over when they return, and those on a card go on in its stream: who takes memory of a
// card on another stream synchronises that one first.
nb::any dlpack(const PyTensorView& self, nb::handle stream, std::optional<std::pair<int, int>> max_version,
               std::optional<std::pair<int, int>> dl_device, std::optional<bool> copy) {
  if (copy.value_or(false)) throw nb::buffer_error("copy=True: weft.TensorView never copies; copy what you make of it");
  const auto own = dlpack_device(self);
  if (dl_device && *dl_device != own)
    throw nb::buffer_error("dl_device: this memory lies on another device, and weft.TensorView never copies");
  int64_t number = 0;
  if (!stream.is_none() && own.first != 2 && !(nb::try_cast(stream, number) && number == -1))
    throw nb::buffer_error("stream: memory of the host has none");
  return nb::borrow<nb::any>(to_capsule(self.array, max_version && max_version->first >= 1));
}

// ---------------------------------------------------------------- the buffer protocol, given

const char* letter_of(DType dtype) {
  switch (dtype) {
    case DType::fp32: return "f";
    case DType::fp16: return "e";
    case DType::fp64: return "d";
    case DType::int8: return "b";
    case DType::uint8: return "B";
    case DType::int32: return "i";
    case DType::int64: return "q";
    default: return nullptr;
  }
}

// What a buffer points to besides the memory, which its owner keeps.
struct Given {
  std::array<Py_ssize_t, kMaxRank> shape{}, strides{};
  std::shared_ptr<const void> owner;
};

int give_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  const Array& array = nb::inst_ptr<PyTensorView>(self)->array;
  const TensorView& view = array.view;
  const char* const letter = letter_of(view.dtype());
  const char* refused = nullptr;
  if (view.device().kind == DeviceKind::cuda) refused = "this memory lies on a card: use DLPack";
  if (letter == nullptr) refused = "buffers have no letter for this type: use .numpy()";
  if ((flags & PyBUF_WRITABLE) != 0 && array.read_only) refused = "this array is read-only";
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !view.is_contiguous()) refused = "this array is not contiguous";
  buffer->obj = nullptr;
  if (refused != nullptr) {
    PyErr_SetString(PyExc_BufferError, refused);
    return -1;
  }
  auto* const given = new Given{{}, {}, array.owner};
  const Py_ssize_t bytes = bits_of(view.dtype()) / 8;
  for (int axis = 0; axis < view.rank(); ++axis) {
    given->shape[static_cast<size_t>(axis)] = view.shape(axis);
    given->strides[static_cast<size_t>(axis)] = view.stride(axis) * bytes;
  }
  *buffer = {};
  buffer->buf = view.data();
  buffer->obj = nb::handle(self).inc_ref().ptr();
  buffer->len = view.size() * bytes;
  buffer->itemsize = bytes;
  buffer->readonly = array.read_only ? 1 : 0;
  buffer->ndim = view.rank();
  buffer->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(letter) : nullptr;
  buffer->shape = (flags & PyBUF_ND) != 0 ? given->shape.data() : nullptr;
  buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? given->strides.data() : nullptr;
  buffer->internal = given;
  return 0;
}

void take_buffer_back(PyObject*, Py_buffer* buffer) { delete static_cast<Given*>(buffer->internal); }

PyType_Slot tensor_view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&give_buffer)},
                                   {Py_bf_releasebuffer, reinterpret_cast<void*>(&take_buffer_back)},
                                   {0, nullptr}};

void define_tensor_view(nb::module_& m) {
  nb::class_<PyTensorView>(m, "TensorView",
                           "An array with Weft's type: memory of another library, which it keeps alive, or Weft's own "
                           "(weft.empty).\n\nEvery call takes one where it takes an array, and so does whatever reads "
                           "DLPack, as torch.from_dlpack(x), or buffers, as numpy.asarray(x).",
                           nb::type_slots(tensor_view_slots))
      .def(
          "__init__",
          [](PyTensorView* self, const ArrayLike& array, std::optional<DType> dtype) {
            Array view = to_array("array", array.object);
            if (dtype) view = retyped("array", view, *dtype);
            new (self) PyTensorView{std::move(view), array.object};
          },
          nb::arg("array"), nb::arg("dtype") = nb::none(),
          "A view of an array. `dtype` gives its bits another name: bytes may be fp8, and hold two int4 each along the "
          "last axis, whose extent doubles; 16 bits may be fp16 or bf16. Raises Error(invalid_dtype) for another "
          "number "
          "of bits.")
      .def_prop_ro("shape",
                   [](const PyTensorView& self) {
                     return nb::borrow<nb::typed<nb::tuple, int, nb::ellipsis>>(tuple_of(self.array.view.shape()));
                   })
      .def_prop_ro(
          "strides",
          [](const PyTensorView& self) {
            return nb::borrow<nb::typed<nb::tuple, int, nb::ellipsis>>(tuple_of(self.array.view.strides()));
          },
          "In elements.")
      .def_prop_ro("dtype", [](const PyTensorView& self) { return self.array.view.dtype(); })
      .def_prop_ro("device", [](const PyTensorView& self) { return self.array.view.device(); })
      .def_prop_ro("read_only", [](const PyTensorView& self) { return self.array.read_only; })
      .def(
          "numpy",
          [](nb::handle self) {
            const HoldsExit holds;
            return nb::borrow<nb::any>(nb::module_::import_("weft._arrays").attr("to_numpy")(self));
          },
          "The same memory as a numpy array, with ml_dtypes' types for bf16 and fp8.")
      .def("__dlpack__", &dlpack, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__", &dlpack_device)
      .def("__repr__", [](const PyTensorView& self) {
        const TensorView& view = self.array.view;
        return "TensorView(" + shape_string(view) + ", " + std::string(to_string(view.dtype())) + ", '" +
               to_string(view.device()) + "')";
      });
  m.def(
      "empty",
      [](const std::vector<int64_t>& shape, DType dtype, const DeviceLike& device) {
        return PyTensorView{new_array(shape, dtype, device_of(device)), nb::none()};
      },
      nb::arg("shape"), nb::arg("dtype") = DType::fp32, nb::arg("device") = "cpu",
      "Memory of Weft's own, row-major, 64-byte aligned, zero; in huge pages where it is large. Raises "
      "Error(invalid_shape | out_of_memory | invalid_device).");
}

}  // namespace

Device device_of(const DeviceLike& device) {
  if (nb::isinstance<Device>(device.object)) return nb::cast<Device>(device.object);
  return device_from_string(nb::cast<std::string_view>(device.object));
}

void define_tensors(nb::module_& m) {
  define_dtype(m);
  define_device(m);
  define_tensor_view(m);
}

}  // namespace weft::python
