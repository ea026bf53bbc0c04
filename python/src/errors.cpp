// weft.Error with its code, weft.InternalError, and what becomes them.
#include <nanobind/nanobind.h>

#include <exception>

#include "module.h"
#include "weft/error.h"

namespace weft::python {
namespace {

namespace nb = nanobind;

// Classes, which live as long as the process.
struct Classes {
  PyObject *error, *internal_error;
};

void translate(const std::exception_ptr& thrown, void* payload) {
  const auto& classes = *static_cast<const Classes*>(payload);
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object made = nb::handle(classes.error)(error.what());
    made.attr("code") = nb::cast(error.code());
    PyErr_SetObject(classes.error, made.ptr());
  } catch (const InternalError& error) {
    PyErr_SetString(classes.internal_error, error.what());
  }
}

PyObject* new_class(nb::module_& m, const char* name, const char* doc) {
  const std::string full = std::string("weft.") + name;
  PyObject* const made = PyErr_NewExceptionWithDoc(full.c_str(), doc, PyExc_RuntimeError, nullptr);
  if (made == nullptr) throw nb::python_error();
  m.attr(name) = nb::borrow(made);
  return made;
}

}  // namespace

void define_errors(nb::module_& m) {
  nb::enum_<ErrorCode> codes(m, "ErrorCode", "What went wrong, for programs: docs/errors.md has an example of each.");
  for (int i = 0; i <= static_cast<int>(ErrorCode::queue_full); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    codes.value(to_string(code).data(), code);
  }
  static Classes classes;
  classes.error = new_class(m, "Error",
                            "A call that Weft refuses: what, which argument, its value, what is allowed, and how to "
                            "mend it.\n\n`code`, a weft.ErrorCode, says the kind.");
  classes.internal_error = new_class(m, "InternalError", "A broken promise of Weft's own: please report it.");
  nb::register_exception_translator(&translate, &classes);
}

}  // namespace weft::python
