#include "objects.h"

#include <nanobind/nanobind.h>

namespace nanobind::detail {

using weft::python::ArrayLike;
using weft::python::is_array;

bool type_caster<weft::python::Scalars>::from_python(handle source, uint32_t, cleanup_list*) noexcept {
  if (!PyDict_Check(source.ptr())) return false;
  value.list.clear();
  PyObject *key = nullptr, *item = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(source.ptr(), &at, &key, &item);) {
    const char* const name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, nullptr) : nullptr;
    const double number = PyFloat_AsDouble(item);
    if (name == nullptr || PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    value.list.push_back({name, number});
  }
  return true;
}

handle type_caster<weft::python::Scalars>::from_cpp(const weft::python::Scalars& scalars, rv_policy,
                                                    cleanup_list*) noexcept {
  dict made;
  for (const weft::ScalarArg& scalar : scalars.list) made[scalar.name.c_str()] = scalar.value;
  return made.release();
}

bool type_caster<weft::python::Tensors>::from_python(handle source, uint32_t, cleanup_list*) noexcept {
  if (!PyDict_Check(source.ptr())) return false;
  value.list.clear();
  PyObject *key = nullptr, *item = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(source.ptr(), &at, &key, &item);) {
    const char* const name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, nullptr) : nullptr;
    if (name == nullptr || !is_array(item)) {
      PyErr_Clear();
      return false;
    }
    value.list.push_back({name, ArrayLike{borrow(item)}});
  }
  return true;
}

handle type_caster<weft::python::Tensors>::from_cpp(const weft::python::Tensors& tensors, rv_policy,
                                                    cleanup_list*) noexcept {
  dict made;
  for (const auto& [name, array] : tensors.list) made[name.c_str()] = array.object;
  return made.release();
}

bool type_caster<weft::python::KvLike>::from_python(handle source, uint32_t, cleanup_list*) noexcept {
  if (isinstance<weft::python::PyKvCache>(source)) {
    value.cache = *inst_ptr<weft::python::PyKvCache>(source);
    return true;
  }
  value.cache = {};
  if (!PyTuple_Check(source.ptr()) && !PyList_Check(source.ptr())) {
    if (!is_array(source)) return false;
    value.cache.k = {borrow(source)};
    return true;
  }
  const object items = steal(PySequence_Tuple(source.ptr()));
  if (!items.is_valid() || PyTuple_Size(items.ptr()) != 2) return PyErr_Clear(), false;
  const handle k = PyTuple_GetItem(items.ptr(), 0), v = PyTuple_GetItem(items.ptr(), 1);
  if (!is_array(k) || !is_array(v)) return false;
  value.cache.k = {borrow(k)};
  value.cache.v = ArrayLike{borrow(v)};
  return true;
}

handle type_caster<weft::python::KvLike>::from_cpp(const weft::python::KvLike& kv, rv_policy,
                                                   cleanup_list* cleanup) noexcept {
  return make_caster<weft::python::PyKvCache>::from_cpp(kv.cache, rv_policy::copy, cleanup);
}

}  // namespace nanobind::detail
