// weft._weft: the headers of include/weft in Python, under their own names.
#include "module.h"

#include "gil.h"
#include "weft/version.h"

namespace {

// What `from weft._weft import *` gives: the package has files of its own for submodules.
void define_all(nanobind::module_& m) {
  nanobind::list names;
  for (const auto& [name, value] : nanobind::cast<nanobind::dict>(m.attr("__dict__")))
    if (nanobind::cast<std::string>(name)[0] != '_' && !PyModule_Check(value.ptr())) names.append(name);
  m.attr("__all__") = names;
}

}  // namespace

NB_MODULE(_weft, m) {
  using namespace weft::python;
  m.doc() = "Weft's C++ library. Import weft, which gives these names.";
  m.attr("VERSION") = WEFT_VERSION_STRING;
  watch_exit();
  // At exit threads may still hold what they work with. The tests have them.
  nanobind::set_leak_warnings(false);
  m.def("_warn_of_leaks", [] { nanobind::set_leak_warnings(true); });
  define_errors(m);
  define_tensors(m);
  define_devices(m);
  define_specs(m);
  define_pages(m);
  define_plans(m);
  define_kernels(m);
  define_operators(m);
  define_sampling(m);
  define_quest(m);
  define_models(m);
  define_jit(m);
  define_sparse(m);
  define_serving(m);
  define_all(m);
}
