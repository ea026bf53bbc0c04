#include "array.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error_message.h"
#include "dlpack_abi.h"
#include "gil.h"
#include "weft/dlpack.h"

namespace weft::python {
namespace {

using nb::detail::cleanup_guard;

// ---------------------------------------------------------------- types of objects

enum class Form : uint8_t { none, buffer, dlpack };

// How objects of a type are read. The reference is weak: a class of somebody's own, and what it names, may end.
struct KnownType {
  PyTypeObject* type;
  Form form;
  bool takes_version;  // __dlpack__ has a parameter max_version
  bool is_immutable = false;
  bool is_masked = false;       // numpy's, whose buffer says nothing of the mask
  bool may_be_negated = false;  // torch's, whose DLPack says nothing of a view's lazy minus
  const DlExchange* exchange = nullptr;
  nb::object reference = {};

  bool is(const PyTypeObject* other) const {
    return type == other && PyWeakref_GetObject(reference.ptr()) == reinterpret_cast<const PyObject*>(other);
  }
};
constexpr size_t kMostTypes = 64;
std::vector<KnownType>& known_types() {
  static auto* const types = new std::vector<KnownType>();  // never freed: the interpreter ends first
  return *types;
}

std::string text_of(const nb::object& object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(text);
}

// Whether the type is `name` of a module that begins so, or derives from it.
bool is_of(PyTypeObject* type, std::string_view module, std::string_view name) {
  const nb::object classes = nb::handle(reinterpret_cast<PyObject*>(type)).attr("__mro__");
  for (nb::handle base : nb::borrow<nb::tuple>(classes))
    if (text_of(base.attr("__module__")).starts_with(module) && text_of(base.attr("__name__")) == name) return true;
  return false;
}

// Of libraries whose arrays nobody may write, and whose capsules have no version that could say so.
bool is_immutable(PyTypeObject* type) {
  const std::string module = text_of(nb::handle(reinterpret_cast<PyObject*>(type)).attr("__module__"));
  const std::string library = module.substr(0, module.find('.'));
  return library == "jax" || library == "jaxlib" || library == "tensorflow";
}

// Of the very type: what derives from it, as torch's fake tensors do, may have no memory at all.
const DlExchange* exchange_of(PyTypeObject* type) {
  const nb::object own = nb::handle(reinterpret_cast<PyObject*>(type)).attr("__dict__");
  if (!nb::cast<bool>(own.attr("__contains__")("__dlpack_c_exchange_api__"))) return nullptr;
  const nb::object capsule = own["__dlpack_c_exchange_api__"];
  const auto* const exchange =
      static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (exchange == nullptr) PyErr_Clear();
  return exchange != nullptr && exchange->version.major == 1 ? exchange : nullptr;
}

KnownType look_at(PyTypeObject* type, nb::handle object) {
  if (PyType_Check(object.ptr())) return {type, Form::none, false};  // a class has the methods of its objects
  if (PyObject_CheckBuffer(object.ptr()) && is_of(type, "numpy", "ndarray"))
    return {.type = type,
            .form = Form::buffer,
            .takes_version = false,
            .is_masked = is_of(type, "numpy.ma", "MaskedArray")};
  if (nb::hasattr(object, "__dlpack__"))
    return {.type = type,
            .form = Form::dlpack,
            .takes_version = true,
            .is_immutable = is_immutable(type),
            .may_be_negated = is_of(type, "torch", "Tensor"),
            .exchange = exchange_of(type)};
  if (PyObject_CheckBuffer(object.ptr())) return {type, Form::buffer, false};
  return {type, Form::none, false};
}

bool is_own(nb::handle object) {
  return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(nb::type<PyTensorView>().ptr()) &&
         nb::inst_ready(object);
}

// Valid until the next call.
KnownType& known(nb::handle object) {
  PyTypeObject* const type = Py_TYPE(object.ptr());
  std::vector<KnownType>& types = known_types();
  for (KnownType& known : types)
    if (known.is(type)) return known;
  KnownType found = look_at(type, object);
  found.reference = nb::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), nullptr));
  if (!found.reference.is_valid()) throw nb::python_error();
  std::erase_if(types, [&](const KnownType& known) { return known.type == type; });  // one that has ended
  if (types.size() == kMostTypes) types.erase(types.begin());
  return types.emplace_back(std::move(found));
}

// ---------------------------------------------------------------- checks

std::string class_name(nb::handle object) { return text_of(object.type().attr("__name__")); }

void check_strides(std::string_view name, const TensorView& view) {
  if (view.size() == 0) return;
  for (int axis = 0; axis < view.rank(); ++axis)
    check(
        view.shape(axis) <= 1 || view.stride(axis) > 0, ErrorCode::invalid_stride,
        "{}: has stride {} along axis {} of {} elements; negative and broadcast ones are not read: copy it first, with "
        "numpy.ascontiguousarray(x) or x.contiguous()",
        name, view.stride(axis), axis, view.shape(axis));
}

constexpr std::string_view kAllowedTypes =
    "allowed are float16, float32, float64, bfloat16, float8_e4m3fn, float8_e5m2, int8, int32, int64, uint8 and bool";

// ---------------------------------------------------------------- the buffer protocol

struct BufferOwner {
  Py_buffer buffer = {};
  BufferOwner() = default;
  BufferOwner(const BufferOwner&) = delete;
  BufferOwner& operator=(const BufferOwner&) = delete;
  ~BufferOwner() {
    if (buffer.obj == nullptr) return;
    if (cleanup_guard guard{}) PyBuffer_Release(&buffer);
  }
};

// Of a letter of the struct module; numpy says int64 as 'l'.
std::optional<DType> type_of(char letter, Py_ssize_t bytes) {
  switch (letter) {
    case 'f': return DType::fp32;
    case 'e': return DType::fp16;
    case 'd': return DType::fp64;
    case 'b': return DType::int8;
    case 'B':
    case '?': return DType::uint8;
    case 'i':
    case 'l':
    case 'q':
      if (bytes == 4) return DType::int32;
      if (bytes == 8) return DType::int64;
      return {};
    default: return {};
  }
}

DType type_of(std::string_view name, nb::handle object, const Py_buffer& buffer) {
  std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  check(format.empty() || (format[0] != '>' && format[0] != '!'), ErrorCode::invalid_dtype,
        "{}: its elements are in big-endian byte order; copy the array first, with x.astype(x.dtype.newbyteorder('='))",
        name);
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.remove_prefix(1);
  const std::optional<DType> dtype = format.size() == 1 ? type_of(format[0], buffer.itemsize) : std::optional<DType>();
  if (!dtype) {
    const std::string called =
        nb::hasattr(object, "dtype") ? text_of(object.attr("dtype")) : "'" + std::string(format) + "'";
    fail(ErrorCode::invalid_dtype, "{}: its elements are {}; {}: copy the array first, with x.astype", name, called,
         kAllowedTypes);
  }
  return *dtype;
}

Array from_buffer(std::string_view name, nb::handle object, std::shared_ptr<BufferOwner> owner,
                  std::optional<DType> dtype) {
  const Py_buffer& buffer = owner->buffer;
  check(buffer.ndim <= kMaxRank, ErrorCode::invalid_shape, "{}: has {} axes; at most {} are read", name, buffer.ndim,
        kMaxRank);
  const DType element = dtype ? *dtype : type_of(name, object, buffer);
  std::array<int64_t, kMaxRank> shape{}, strides{};
  for (int axis = 0; axis < buffer.ndim; ++axis) {
    const auto at = static_cast<size_t>(axis);
    shape[at] = buffer.shape[axis];
    check(shape[at] <= 1 || buffer.strides[axis] % buffer.itemsize == 0, ErrorCode::invalid_stride,
          "{}: has a stride of {} bytes along axis {}, and elements of {}; strides are whole elements: copy the array "
          "first",
          name, buffer.strides[axis], axis, buffer.itemsize);
    strides[at] = buffer.strides[axis] / buffer.itemsize;
  }
  const auto rank = static_cast<size_t>(buffer.ndim);
  Array array{TensorView(buffer.buf, element, std::span<const int64_t>(shape.data(), rank),
                         std::span<const int64_t>(strides.data(), rank)),
              buffer.readonly != 0, owner};
  check(array.view.size() == 0 || reinterpret_cast<uintptr_t>(buffer.buf) % static_cast<size_t>(buffer.itemsize) == 0,
        ErrorCode::invalid_stride, "{}: its data is not aligned to its elements of {} bytes; copy the array first",
        name, buffer.itemsize);
  return array;
}

// numpy arrays of ml_dtypes' types, which have no letter: their bytes under another name.
Array from_other_type(std::string_view name, nb::handle object) {
  const std::string called = nb::hasattr(object, "dtype") ? text_of(object.attr("dtype")) : "";
  check(called != "int4", ErrorCode::invalid_dtype,
        "{}: its elements are int4 in a byte each; Weft reads two a byte, the even one low: pack them into uint8 and "
        "pass weft.TensorView(x, weft.DType.int4)",
        name);
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"bfloat16", DType::bf16}, {"float8_e4m3fn", DType::fp8_e4m3}, {"float8_e5m2", DType::fp8_e5m2}};
  for (const auto& [known_name, dtype] : kTypes) {
    if (called != known_name) continue;
    const nb::object bits = object.attr("view")(dtype == DType::bf16 ? "uint16" : "uint8");
    auto owner = std::make_shared<BufferOwner>();
    if (PyObject_GetBuffer(bits.ptr(), &owner->buffer, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
    return from_buffer(name, object, std::move(owner), dtype);
  }
  fail(ErrorCode::invalid_dtype, "{}: its elements are {}; {}", name, called.empty() ? "of no known type" : called,
       kAllowedTypes);
}

Array from_buffer(std::string_view name, nb::handle object) {
  auto owner = std::make_shared<BufferOwner>();
  if (PyObject_GetBuffer(object.ptr(), &owner->buffer, PyBUF_RECORDS_RO) == 0)
    return from_buffer(name, object, std::move(owner), {});
  if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError)) throw nb::python_error();
  PyErr_Clear();
  return from_other_type(name, object);
}

// ---------------------------------------------------------------- DLPack

template <class Managed>
struct ManagedOwner {
  explicit ManagedOwner(Managed* given) : managed(given) {}
  ManagedOwner(const ManagedOwner&) = delete;
  ManagedOwner& operator=(const ManagedOwner&) = delete;
  ~ManagedOwner() {
    if (managed->deleter == nullptr) return;
    if (cleanup_guard guard{}) managed->deleter(managed);
  }
  Managed* managed;
};

// Without what from_dlpack calls its tensor.
std::string detail_of(const Error& error) {
  constexpr std::string_view kTensor = "DLPack tensor: ";
  const std::string text = message_of(error);
  return text.starts_with(kTensor) ? text.substr(kTensor.size()) : text;
}

constexpr const char* kCapsule = "dltensor";
constexpr const char* kVersionedCapsule = "dltensor_versioned";

template <class Managed>
Array owned(std::string_view name, Managed* managed) {
  Array array;
  array.owner = std::make_shared<ManagedOwner<Managed>>(managed);
  try {
    array.view = from_dlpack(*managed);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", name, detail_of(error));
  }
  if constexpr (requires { managed->flags; }) array.read_only = (managed->flags & kReadOnly) != 0;
  return array;
}

template <class Managed>
Array take(std::string_view name, nb::handle capsule, const char* called, const char* used) {
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), called));
  if (managed == nullptr) throw nb::python_error();
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw nb::python_error();
  return owned(name, managed);
}

// Whether __dlpack__ would refuse an array that the short way gives.
bool needs_gradient(nb::handle object) {
  static PyObject* const kName = PyUnicode_InternFromString("requires_grad");
  const nb::object wanted = nb::steal(PyObject_GetAttr(object.ptr(), kName));
  if (!wanted.is_valid()) PyErr_Clear();
  return wanted.is_valid() && wanted.ptr() == Py_True;
}

// Lazily negated are parts of complex numbers, which torch has in three types.
bool is_negated(nb::handle object, DType dtype) {
  if (dtype != DType::fp16 && dtype != DType::fp32 && dtype != DType::fp64) return false;
  static PyObject* const kName = PyUnicode_InternFromString("is_neg");
  const nb::object negated = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), kName));  // makes no bound method
  if (!negated.is_valid()) PyErr_Clear();
  return negated.is_valid() && negated.ptr() == Py_True;
}

// The stream of a card on which a call works; calls that are given none take the legacy default stream.
void* handle_of(const Stream& stream) { return stream.device().kind == DeviceKind::cuda ? stream.handle() : nullptr; }

// Memory of the host, and of a card where its library works on the call's stream itself; none where __dlpack__ has to
// be asked, which brings two streams in order.
std::optional<Array> from_exchange(std::string_view name, nb::handle object, const DlExchange& exchange,
                                   const Stream& stream) {
  DlManagedVersioned* managed = nullptr;
  if (needs_gradient(object)) return {};
  if (exchange.managed_of(object.ptr(), &managed) != 0 || managed == nullptr) {
    PyErr_Clear();
    return {};
  }
  const DlDevice device = managed->dl_tensor.device;
  void* current = nullptr;
  if (device.device_type != dlpack::kCuda) return owned(name, managed);
  if (exchange.current_stream(device.device_type, device.device_id, &current) == 0 && current == handle_of(stream))
    return owned(name, managed);
  PyErr_Clear();
  managed->deleter(managed);
  return {};
}

// Arrays of the host have no stream, and some libraries refuse one of them.
bool lies_on_card(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return false;
  const nb::object device = object.attr("__dlpack_device__")();
  return nb::cast<int>(nb::int_(nb::object(device[0]))) == dlpack::kCuda;
}

nb::object call_dlpack(nb::handle object, bool with_version, const Stream& stream) {
  const HoldsExit holds;
  const nb::object method = object.attr("__dlpack__");
  nb::dict named;
  if (with_version) named["max_version"] = nb::make_tuple(1, 1);
  if (lies_on_card(object)) {  // 1 is DLPack's name of the legacy default stream
    void* const handle = handle_of(stream);
    named["stream"] = handle == nullptr ? intptr_t{1} : reinterpret_cast<intptr_t>(handle);
  }
  try {
    return method(**named);
  } catch (const abi::__forced_unwind&) {
    sleep_for_good();
  }
}

Array from_dlpack_object(std::string_view name, nb::handle object, const Stream& stream) {
  if (const DlExchange* const exchange = known(object).exchange)
    if (const std::optional<Array> array = from_exchange(name, object, *exchange, stream)) return *array;
  nb::object capsule;
  if (known(object).takes_version) {
    try {
      capsule = call_dlpack(object, true, stream);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      known(object).takes_version = false;  // of before version 1
    }
  }
  if (!capsule.is_valid()) capsule = call_dlpack(object, false, stream);
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedCapsule))
    return take<DlManagedVersioned>(name, capsule, kVersionedCapsule, "used_dltensor_versioned");
  if (PyCapsule_IsValid(capsule.ptr(), kCapsule)) return take<DlManaged>(name, capsule, kCapsule, "used_dltensor");
  throw nb::type_error(fmt::format("{}: __dlpack__ of {} gave no capsule of DLPack", name, class_name(object)).c_str());
}

template <class Managed>
nb::object make_capsule(const Array& array, const char* called) {
  Managed* const managed = to_dlpack<Managed>(array.view, array.owner);
  if constexpr (requires { managed->flags; }) managed->flags = array.read_only ? kReadOnly : 0;
  PyObject* const capsule = PyCapsule_New(managed, called, [](PyObject* self) {
    // Still under the name it was given: nobody has taken it.
    const char* const own = PyCapsule_GetName(self);
    if (own == nullptr || !(std::string_view(own) == kCapsule || std::string_view(own) == kVersionedCapsule)) return;
    auto* const unused = static_cast<Managed*>(PyCapsule_GetPointer(self, own));
    unused->deleter(unused);
  });
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

// The same memory as when the view was made: its owner was neither freed nor resized.
Array unchanged(std::string_view name, const PyTensorView& tensor, const Stream& stream) {
  if (!tensor.source.is_valid() || tensor.source.is_none()) return tensor.array;
  const TensorView now = to_array(name, tensor.source, stream).view, &then = tensor.array.view;
  check(now.data() == then.data() && now.size() * bits_of(now.dtype()) == then.size() * bits_of(then.dtype()),
        ErrorCode::invalid_argument,
        "{}: the array that this view was made of has moved or changed its size since; make a new weft.TensorView",
        name);
  return tensor.array;
}

}  // namespace

bool is_array(nb::handle object) noexcept {
  try {
    return is_own(object) || known(object).form != Form::none;
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

Array to_array(std::string_view name, nb::handle object, const Stream& stream) {
  if (is_own(object)) return unchanged(name, *nb::inst_ptr<PyTensorView>(object), stream);
  Array array;
  switch (known(object).form) {
    case Form::buffer:
      check(!known(object).is_masked, ErrorCode::invalid_argument,
            "{}: is a masked array, and no call reads masks: give x.data, or a copy by x.filled(number)", name);
      array = from_buffer(name, object);
      break;
    case Form::dlpack:
      array = from_dlpack_object(name, object, stream);
      check(!known(object).may_be_negated || !is_negated(object, array.view.dtype()), ErrorCode::invalid_argument,
            "{}: is a view whose elements are negated when they are read, which its memory does not say: copy it "
            "first, with x.resolve_neg()",
            name);
      array.read_only |= known(object).is_immutable;
      break;
    case Form::none:
      throw nb::type_error(fmt::format("{}: {} is no array; give one with __dlpack__ or the buffer protocol, such as "
                                       "numpy's or torch's",
                                       name, class_name(object))
                               .c_str());
  }
  check_strides(name, array.view);
  return array;
}

Array to_written_array(std::string_view name, nb::handle object, const Stream& stream) {
  Array array = to_array(name, object, stream);
  check(!array.read_only, ErrorCode::invalid_argument, "{}: is read-only; give an array that may be written", name);
  return array;
}

Array retyped(std::string_view name, const Array& array, DType dtype) {
  const TensorView& view = array.view;
  const int from = bits_of(view.dtype()), to = bits_of(dtype);
  const bool bytes = view.dtype() == DType::uint8 || view.dtype() == DType::int8;
  check(
      from == to || (bytes && dtype == DType::int4), ErrorCode::invalid_dtype,
      "{}: its elements are {} of {} bits; {} has {}: only the same number of bits may be called otherwise, and bytes "
      "int4, two a byte",
      name, to_string(view.dtype()), from, to_string(dtype), to);
  std::array<int64_t, kMaxRank> shape{}, strides{};
  std::copy(view.shape().begin(), view.shape().end(), shape.begin());
  std::copy(view.strides().begin(), view.strides().end(), strides.begin());
  const auto rank = static_cast<size_t>(view.rank());
  if (from != to) {
    check(rank > 0 && (shape[rank - 1] <= 1 || strides[rank - 1] == 1), ErrorCode::invalid_stride,
          "{}: bytes that hold two int4 each lie side by side along the last axis; this array's have stride {}", name,
          rank > 0 ? strides[rank - 1] : 0);
    for (size_t axis = 0; axis + 1 < rank; ++axis) strides[axis] *= 2;
    shape[rank - 1] *= 2;
    strides[rank - 1] = 1;
  }
  return {TensorView(view.data(), dtype, std::span<const int64_t>(shape.data(), rank),
                     std::span<const int64_t>(strides.data(), rank), view.device()),
          array.read_only, array.owner};
}

Array new_array(std::span<const int64_t> shape, DType dtype, Device device) {
  const TensorView form(nullptr, dtype, shape, device);  // checks the shape
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    check(elements == 0 || extent <= (int64_t{1} << 48) / elements, ErrorCode::out_of_memory,
          "shape {}: more elements than memory has room for", shape_string(form));
    elements *= extent;
  }
  const auto bytes = static_cast<size_t>((elements * bits_of(dtype) + 7) / 8);
  auto memory = std::make_shared<Workspace>(device, std::max<size_t>(bytes, 1));
  return {TensorView(memory->data(), dtype, shape, device), false, memory};
}

nb::any new_like(nb::handle like, std::span<const int64_t> shape, DType dtype, Device device) {
  const HoldsExit holds;
  nb::list extents;
  for (const int64_t extent : shape) extents.append(extent);
  const std::string_view type = to_string(dtype);
  const nb::object made =
      nb::module_::import_("weft._arrays")
          .attr("empty")(like, nb::tuple(extents), nb::str(type.data(), type.size()), to_string(device).c_str());
  return nb::borrow<nb::any>(made);
}

nb::object to_capsule(const Array& array, bool versioned) {
  if (versioned) return make_capsule<DlManagedVersioned>(array, kVersionedCapsule);
  if (array.read_only)
    throw nb::buffer_error("this array is read-only, which DLPack says from version 1 on: ask for max_version=(1, 0)");
  return make_capsule<DlManaged>(array, kCapsule);
}

}  // namespace weft::python
