// A function of Python's that C++ calls, from whatever thread.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

#include "gil.h"

namespace weft::python {

namespace nb = nanobind;

// Copies share the function; the last one lets it go with the GIL.
class Callback {
 public:
  explicit Callback(nb::object function) {
    held_ = std::shared_ptr<Held>(new Held{std::move(function), {}}, [](Held* held) {
      const WithGil gil;
      if (gil) delete held;  // else the interpreter ends, and with it what is held
    });
  }

  // Takes the GIL. An exception ends the calls, and is kept.
  template <class... Args>
  void operator()(Args&&... args) const {
    const WithGil gil;
    if (!gil || held_->error) return;
    try {
      held_->function(std::forward<Args>(args)...);
    } catch (nb::python_error& error) {
      held_->error.emplace(std::move(error));
    } catch (const abi::__forced_unwind&) {
      sleep_for_good();
    }
  }
  // The same, where nobody will ask for what was thrown: it goes to sys.unraisablehook.
  template <class... Args>
  void call_unasked(Args&&... args) const {
    const WithGil gil;
    if (!gil) return;
    try {
      held_->function(std::forward<Args>(args)...);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(held_->function);
    } catch (const abi::__forced_unwind&) {
      sleep_for_good();
    }
  }
  // With the GIL.
  void rethrow() const {
    if (!held_->error) return;
    nb::python_error error = std::move(*held_->error);
    held_->error.reset();
    throw error;
  }

 private:
  struct Held {
    nb::object function;
    std::optional<nb::python_error> error;
  };
  std::shared_ptr<Held> held_;
};

}  // namespace weft::python
