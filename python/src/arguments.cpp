#include "arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "objects.h"

namespace weft::python {
namespace {

struct Bytes {
  uintptr_t begin, end;
};

int64_t reach_of(const TensorView& view, int first_axis) {
  int64_t last = 0;
  for (int axis = first_axis; axis < view.rank(); ++axis) last += (view.shape(axis) - 1) * view.stride(axis);
  return ((last + 1) * bits_of(view.dtype()) + 7) / 8;
}

Bytes bytes_of(const TensorView& view) {
  const auto begin = reinterpret_cast<uintptr_t>(view.data());
  return {begin, begin + static_cast<uintptr_t>(reach_of(view, 0))};
}

bool same(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.strides(), b.strides());
}

template <class Int>
Int integer_of(std::string_view name, size_t index, nb::handle item) {
  // Of numpy's integers, too; a float has no index.
  const nb::object whole = nb::steal(PyBool_Check(item.ptr()) ? nullptr : PyNumber_Index(item.ptr()));
  if (!whole.is_valid()) {
    PyErr_Clear();
    throw nb::type_error(fmt::format("{}[{}]: {} is no integer", name, index,
                                     nb::cast<std::string>(nb::object(item.type().attr("__name__"))))
                             .c_str());
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
  check(overflow == 0 && value >= std::numeric_limits<Int>::min() && value <= std::numeric_limits<Int>::max(),
        ErrorCode::invalid_argument, "{}[{}] = {}; allowed are {} to {}", name, index,
        nb::cast<std::string>(nb::str(whole)), std::numeric_limits<Int>::min(), std::numeric_limits<Int>::max());
  return static_cast<Int>(value);
}

}  // namespace

void check_contiguous(std::string_view name, const TensorView& view) {
  check(view.is_contiguous(), ErrorCode::invalid_stride,
        "{}: is not contiguous; copy it first, with numpy.ascontiguousarray(x) or x.contiguous()", name);
}

std::unique_lock<std::mutex> locked(std::mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    const WithoutGil free;
    lock.lock();
  }
  return lock;
}

bool may_overlap(const TensorView& a, const TensorView& b) {
  if (a.size() == 0 || b.size() == 0 || (a.device() != b.device() && a.device().kind == DeviceKind::cuda)) return false;
  const Bytes of_a = bytes_of(a), of_b = bytes_of(b);
  if (of_a.end <= of_b.begin || of_b.end <= of_a.begin) return false;
  // Slices of one array, as q and o of rows that hold both: the same distance from row to row, and parts of a row that
  // do not meet.
  if (a.rank() == 0 || b.rank() == 0) return true;
  const int64_t row = a.stride(0) * bits_of(a.dtype()) / 8;
  if (row <= 0 || row != b.stride(0) * bits_of(b.dtype()) / 8) return true;
  const int64_t part_a = reach_of(a, 1), part_b = reach_of(b, 1);
  const int64_t from_a_to_b = (static_cast<int64_t>(of_b.begin - of_a.begin) % row + row) % row;
  return from_a_to_b < part_a || from_a_to_b + part_b > row;
}

TensorView Arguments::read(std::string_view name, nb::handle array) {
  arrays_.push_back(to_array(name, array, stream_));
  tensors_.push_back({std::string(name), arrays_.back().view});
  return arrays_.back().view;
}

TensorView Arguments::write(std::string_view name, nb::handle array, const TensorView* same_as) {
  arrays_.push_back(to_written_array(name, array, stream_));
  tensors_.push_back({std::string(name), arrays_.back().view, true, same_as == nullptr ? TensorView() : *same_as});
  return arrays_.back().view;
}

template <class Int>
std::span<const Int> Arguments::integers(std::string_view name, const std::optional<IntsLike>& array, DType dtype,
                                         std::deque<std::vector<Int>>& lists) {
  if (!array) return {};
  const nb::handle object = array->object;
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    std::vector<Int>& list = lists.emplace_back();
    const auto count = static_cast<size_t>(nb::len(object));
    list.reserve(count);
    for (size_t i = 0; i < count; ++i) list.push_back(integer_of<Int>(name, i, nb::object(object[i])));
    return list;
  }
  arrays_.push_back(to_array(name, object, stream_));
  const TensorView& view = arrays_.back().view;
  check(view.device().kind != DeviceKind::cuda, ErrorCode::invalid_device,
        "{}: lies on {}; the host reads it: copy it first, with x.cpu()", name, to_string(view.device()));
  check(view.dtype() == dtype, ErrorCode::invalid_dtype,
        "{}: its elements are {}; required are {}: copy it first, with "
        "x.astype('{}') or x.to(torch.{})",
        name, to_string(view.dtype()), to_string(dtype), to_string(dtype), to_string(dtype));
  check_contiguous(name, view);
  return {view.as<const Int>(), static_cast<size_t>(view.size())};
}

std::span<const int32_t> Arguments::ints(std::string_view name, const std::optional<IntsLike>& array) {
  return integers(name, array, DType::int32, ints_);
}
std::span<const int64_t> Arguments::longs(std::string_view name, const std::optional<IntsLike>& array) {
  return integers(name, array, DType::int64, longs_);
}
std::span<const uint8_t> Arguments::bytes(std::string_view name, const std::optional<IntsLike>& array) {
  return integers(name, array, DType::uint8, bytes_);
}

bool Arguments::is_copy(std::span<const int32_t> ids) const {
  return std::ranges::any_of(ints_, [&](const auto& list) { return !list.empty() && list.data() == ids.data(); });
}

bool Arguments::are_longs(std::string_view name, const IntsLike& array) {
  const nb::handle object = array.object;
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) return false;
  return to_array(name, object, stream_).view.dtype() == DType::int64;
}

TensorView Arguments::of_program(std::string_view name, nb::handle array, bool written) {
  arrays_.push_back(written ? to_written_array(name, array, stream_) : to_array(name, array, stream_));
  check_contiguous(name, arrays_.back().view);
  return arrays_.back().view;
}

void Arguments::hold(std::mutex& mutex) {
  const auto held = [&](const std::unique_lock<std::mutex>& lock) { return lock.mutex() == &mutex; };
  if (std::none_of(locks_.begin(), locks_.end(), held)) locks_.push_back(locked(mutex));
}

PageTableView Arguments::pages(std::string_view name, const PyPages& pages) {
  if (pages.table) hold(pages.table->mutex);
  return pages.view(name, *this);
}

Workspace& Arguments::workspace(PyWorkspace& workspace) {
  hold(workspace.mutex);
  return workspace.workspace;
}

void Arguments::check_apart() const {
  for (const Named& written : tensors_) {
    if (!written.written) continue;
    for (const Named& other : tensors_) {
      if (&other == &written || (written.same_as && same(written.view, written.same_as) &&
                                 same(other.view, written.same_as) && !other.written))
        continue;
      check(!may_overlap(written.view, other.view), ErrorCode::invalid_argument,
            "{}: shares memory with {}; give it memory of its own", written.name, other.name);
    }
  }
}

}  // namespace weft::python
