// Python's enums, whose names are those of to_string.
#pragma once

#include <nanobind/nanobind.h>

#include "base/enum_names.h"

namespace weft::python {

// Of an enum that counts up from 0 and whose to_string says kNoEnumerator behind the last one.
template <class Enum>
void bind_enum(nanobind::handle scope, const char* name, const char* doc) {
  nanobind::enum_<Enum> made(scope, name, doc);
  for (int i = 0; to_string(static_cast<Enum>(i)) != kNoEnumerator; ++i)
    made.value(to_string(static_cast<Enum>(i)).data(), static_cast<Enum>(i));
}

}  // namespace weft::python
