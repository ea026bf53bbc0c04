// The two files of weft.sparse.
#pragma once

#include <nanobind/nanobind.h>

namespace weft::python {

void define_sparse_operators(nanobind::module_& m);

}  // namespace weft::python
