// weft.jit: the kernel cache.
#include "weft/jit.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "module.h"

namespace weft::python {

namespace nb = nanobind;

void define_jit(nb::module_& m) {
  nb::module_ all = m.def_submodule("jit", "The kernel cache: text and flags -> key -> disk -> loaded module.");
  nb::class_<jit::Entry>(all, "Entry", "A kernel of the cache.")
      .def_ro("key", &jit::Entry::key)
      .def_ro("name", &jit::Entry::name)
      .def_ro("compiler", &jit::Entry::compiler)
      .def_ro("bytes", &jit::Entry::bytes)
      .def_ro("modified_s", &jit::Entry::modified_s)
      .def_ro("intact", &jit::Entry::intact)
      .def("__repr__", [](const jit::Entry& self) { return "<weft.jit.Entry '" + self.name + "'>"; });
  all.def("cache_dir", &jit::cache_dir, "The folder: WEFT_CACHE_DIR, or that of the user's caches.");
  all.def("list", &jit::list, nb::sig("def list() -> collections.abc.Sequence[Entry]"), "Every kernel of the cache.");
  all.def("source", &jit::source, nb::arg("key"),
          "The text that a module was made from; a unique prefix of at least 4 digits of the key is enough.");
  all.def("find", &jit::find, nb::arg("key"),
          "What `list` says of a kernel. Raises Error(invalid_argument) for a key that is not there, or is ambiguous.");
  all.def(
      "object",
      [](std::string_view key) {
        const std::string bytes = jit::object(key);
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("key"), "The module itself, a shared object or a cubin.");
  all.def("verify", &jit::verify, nb::sig("def verify() -> collections.abc.Sequence[Entry]"),
          "Removes entries whose checksum does not agree, and returns them.");
  all.def(
      "prune",
      [](int64_t max_bytes, int64_t max_age_s) {
        return jit::prune({max_bytes, max_age_s});
      },
      nb::sig("def prune(*, max_bytes: int = -1, max_age_s: int = -1) -> collections.abc.Sequence[Entry]"),
      nb::kw_only(), nb::arg("max_bytes") = -1, nb::arg("max_age_s") = -1, "-1: any size, any age.");
  all.def("export_to", &jit::export_to, nb::arg("folder"), nb::arg("keys") = std::vector<std::string>(),
          "Copies the given entries, or all, to a folder that can serve as WEFT_CACHE_DIR elsewhere.");
}

}  // namespace weft::python
