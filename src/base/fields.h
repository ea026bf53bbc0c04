// The fields of a struct as one list, for all code that treats them alike: records, hashes, bindings.
//
//   template <>
//   struct Fields<Point> {
//     static constexpr auto list = field_list(Field{"x", &Point::x}, Field{"y", &Point::y});
//   };
//   for_each_field(point, [](std::string_view name, auto& value) { ... });
//
// A list that misses a field of its struct does not compile.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {

template <class Struct, class Value>
struct Field {
  using StructType = Struct;
  using ValueType = Value;
  std::string_view name;
  Value Struct::*member;
};
template <class Struct, class Value>
Field(const char*, Value Struct::*) -> Field<Struct, Value>;

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

namespace fields {

// Stands for a value of any type. An optional takes it as a value: its other constructors would be as good.
struct AnyValue {
  template <class T>
  requires(!is_optional<T>) operator T() const;  // NOLINT: never defined
};

template <class Struct, size_t... I>
consteval bool takes(std::index_sequence<I...>) {
  return requires { Struct{(static_cast<void>(I), AnyValue{})...}; };
}

}  // namespace fields

// In the order in which the struct declares them.
template <class Struct, class... Values>
consteval auto field_list(Field<Struct, Values>... list) {
  static_assert(fields::takes<Struct>(std::make_index_sequence<sizeof...(Values)>()), "no such aggregate");
  static_assert(!fields::takes<Struct>(std::make_index_sequence<sizeof...(Values) + 1>()), "a field is missing");
  return std::tuple{list...};
}

template <class Struct>
struct Fields;

template <class T>
concept HasFields = requires {
  Fields<std::remove_const_t<T>>::list;
};

template <HasFields Struct, class Visit>
void for_each_field(Struct& object, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field.name, object.*field.member), ...); },
             Fields<std::remove_const_t<Struct>>::list);
}

}  // namespace weft
