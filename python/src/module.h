// What each file defines in the module, in the order in which module.cpp calls them: a default value of a parameter
// needs its type.
#pragma once

#include <nanobind/nanobind.h>

namespace weft::python {

void define_errors(nanobind::module_& m);
void define_tensors(nanobind::module_& m);
void define_devices(nanobind::module_& m);
void define_specs(nanobind::module_& m);
void define_pages(nanobind::module_& m);
void define_plans(nanobind::module_& m);
void define_kernels(nanobind::module_& m);
void define_operators(nanobind::module_& m);
void define_sampling(nanobind::module_& m);
void define_quest(nanobind::module_& m);
void define_models(nanobind::module_& m);
void define_jit(nanobind::module_& m);
void define_sparse(nanobind::module_& m);
void define_serving(nanobind::module_& m);

}  // namespace weft::python
