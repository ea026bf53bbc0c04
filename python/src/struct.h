// A Python class for a struct of named fields, from the one list of them (base/fields.h).
//
//   bind_struct<AttentionSpec>(m, "AttentionSpec", "What is fixed when a kernel is compiled. ...");
//
// Its objects are made with keywords, the defaults being the struct's own, and do not change: replace() makes another.
#pragma once

#include <nanobind/nanobind.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace weft::python {

namespace nb = nanobind;

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

// A field as an attribute: lists are tuples there, which nobody takes for a way to change them.
template <class T>
auto attribute_of(const T& value) {
  if constexpr (is_vector<T>) {
    nb::list items;
    for (const auto& item : value) items.append(nb::cast(item, nb::rv_policy::copy));
    return nb::borrow<nb::typed<nb::tuple, typename T::value_type, nb::ellipsis>>(nb::tuple(items));
  } else {
    return nb::cast(value, nb::rv_policy::copy);
  }
}

template <class Struct, class Value>
void define_attribute(nb::class_<Struct>& cls, const Field<Struct, Value>& field) {
  const auto member = field.member;
  if constexpr (is_vector<Value>)
    cls.def_prop_ro(field.name.data(), [member](const Struct& self) { return attribute_of(self.*member); });
  else
    cls.def_prop_ro(
        field.name.data(), [member](const Struct& self) -> const Value& { return self.*member; }, nb::rv_policy::copy);
}

template <class Struct>
std::string repr_of(const Struct& self) {
  const Struct plain{};
  std::string text = nb::cast<std::string>(nb::type<Struct>().attr("__name__")) + "(";
  bool first = true;
  std::apply(
      [&](const auto&... field) {
        const auto show = [&](std::string_view name, const nb::object& value, const nb::object& usual) {
          const std::string shown = nb::cast<std::string>(nb::repr(value));
          if (shown == nb::cast<std::string>(nb::repr(usual))) return;
          text += (first ? "" : ", ") + std::string(name) + "=" + shown;
          first = false;
        };
        (show(field.name, attribute_of(self.*field.member), attribute_of(plain.*field.member)), ...);
      },
      Fields<Struct>::list);
  return text + ")";
}

// What makes the same again, for pickle and copy: the class and its fields, in the constructor's order.
template <class Struct>
nb::typed<nb::tuple, nb::any, nb::typed<nb::tuple, nb::any, nb::ellipsis>> reduced(const Struct& self) {
  nb::list fields;
  for_each_field(self, [&](std::string_view, const auto& value) { fields.append(attribute_of(value)); });
  return nb::make_tuple(nb::type<Struct>(), nb::tuple(fields));
}

template <class Struct>
nb::object replaced(const Struct& self, const nb::kwargs& changes) {
  nb::dict fields;
  for_each_field(self,
                 [&](std::string_view name, const auto& value) { fields[nb::str(name.data())] = attribute_of(value); });
  for (const auto& [name, value] : changes) fields[name] = value;
  return nb::type<Struct>()(**fields);
}

template <class Struct, class... Values>
void define_constructor(nb::class_<Struct>& cls, const std::tuple<Field<Struct, Values>...>& list) {
  const Struct plain{};
  std::apply(
      [&](const auto&... field) {
        cls.def(
            "__init__",
            [](Struct* self, Values... values) {
              auto* const made = new (self) Struct{};
              auto given = std::forward_as_tuple(std::move(values)...);
              [&]<size_t... I>(std::index_sequence<I...>) {
                ((made->*std::get<I>(Fields<Struct>::list).member = std::move(std::get<I>(given))), ...);
              }
              (std::index_sequence_for<Values...>());
            },
            (nb::arg(field.name.data()) = attribute_of(plain.*field.member))...);
      },
      list);
}

template <class Struct>
nb::class_<Struct> bind_struct(nb::handle scope, const char* name, const char* doc) {
  nb::class_<Struct> cls(scope, name, doc);
  cls.def("__repr__", &repr_of<Struct>);
  define_constructor(cls, Fields<Struct>::list);
  std::apply([&](const auto&... field) { (define_attribute(cls, field), ...); }, Fields<Struct>::list);
  cls.def("replace", &replaced<Struct>, "The same with other values for the fields that are named.",
          nb::sig((std::string("def replace(self, **changes: typing.Any) -> ") + name).c_str()));
  cls.def("__reduce__", &reduced<Struct>);
  if constexpr (std::equality_comparable<Struct>) {
    cls.def(
        "__eq__",
        [](const Struct& a, nb::handle b) { return nb::isinstance<Struct>(b) && a == *nb::inst_ptr<Struct>(b); },
        nb::arg("other").none());
    cls.def("__hash__", [](const Struct& self) { return PyObject_Hash(nb::str(repr_of(self).c_str()).ptr()); });
  }
  return cls;
}

}  // namespace weft::python
