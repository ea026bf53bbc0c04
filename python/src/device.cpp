// weft.Isa, weft.WorkerTeam, weft.Stream, weft.Workspace.
#include "weft/device.h"

#include "enums.h"
#include "module.h"
#include "objects.h"

namespace weft::python {

void define_devices(nb::module_& m) {
  bind_enum<Isa>(m, "Isa", "Instruction sets that the CPU's core is built for, lowest first.");
  m.def("current_isa", &current_isa,
        "The best one that this machine runs, or the lower one that WEFT_ISA names. Raises Error(unsupported) where "
        "that one is not here.");

  nb::class_<WorkerTeam>(m, "WorkerTeam",
                         "Threads that run one call at a time, together with the calling thread. Made anew in a forked "
                         "child on first use. Calls of several threads queue.")
      .def(nb::init<int>(), nb::arg("num_workers") = 0,
           "0: as many as affinity and quota allow. Raises Error(invalid_argument) outside [0, 1024].")
      .def_static(
          "on",
          [](int num_workers, uintptr_t fork) {
            return std::make_shared<WorkerTeam>(num_workers, reinterpret_cast<WorkerTeam::Fork>(fork));
          },
          nb::arg("num_workers"), nb::arg("fork"),
          "A team on threads that another library lends, so that the two do not spin for the same CPUs. fork: the "
          "address of its GOMP_parallel (device.h). Raises Error(invalid_argument) for 0, and for num_workers outside "
          "[1, 1024].")
      .def_prop_ro("num_workers", &WorkerTeam::num_workers);

  nb::class_<PyStream>(m, "Stream", "Where work runs, in order: a team of threads, or a stream of a card.")
      .def_static(
          "cpu",
          [](std::shared_ptr<WorkerTeam> team) {
            return PyStream{Stream::cpu(*team), std::move(team)};
          },
          nb::arg("team"), "Calls on it return when they are done.")
      .def_static(
          "cuda",
          [](intptr_t handle, int index) {
            return PyStream{Stream::cuda(reinterpret_cast<void*>(handle), index), nullptr};
          },
          nb::arg("handle") = 0, nb::arg("index") = 0,
          "A stream of the driver's, such as torch.cuda.current_stream().cuda_stream; 0: the card's legacy "
          "default stream. Calls on it return at once.")
      .def_prop_ro("device", [](const PyStream& self) { return self.stream.device(); })
      .def_prop_ro("handle", [](const PyStream& self) { return reinterpret_cast<intptr_t>(self.stream.handle()); })
      .def(
          "synchronize",
          [](const PyStream& self) {
            const WithoutGil free;
            self.stream.synchronize();
          },
          "Waits for all of its work. Raises Error(device_failed | invalid_page) for what went wrong on the card since "
          "the "
          "last time.");

  nb::class_<PyWorkspace>(m, "Workspace",
                          "Memory of a device for plans and partial results, zero at first. One run at a time uses it: "
                          "another one waits.")
      .def(
          "__init__",
          [](PyWorkspace* self, const DeviceLike& device, size_t bytes) {
            new (self) PyWorkspace(device_of(device), bytes);
          },
          nb::arg("device"), nb::arg("bytes"),
          "Raises Error(out_of_memory), and Error(unsupported | invalid_device) where there is no such device.")
      .def_prop_ro("bytes", [](const PyWorkspace& self) { return self.workspace.bytes(); })
      .def_prop_ro("device", [](const PyWorkspace& self) { return self.workspace.device(); });
}

}  // namespace weft::python
