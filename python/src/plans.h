// Plans from Python's inputs, given as weft.PlanInput or by its names.
#pragma once

#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "fields.h"
#include "objects.h"
#include "struct.h"

namespace weft::python {

// The ids of an input's pages, which lie below num_pages.
struct PageIds {
  std::span<const int32_t> ids;
  int64_t num_pages;
};
// What PyPlan::borrowed_memory holds.
struct BorrowedIds {
  std::vector<PageIds> all;
  std::vector<Array> arrays;
};
std::vector<PageIds> page_ids_of(const PlanInput& input);

// Throws Error(invalid_argument) where page ids that the plan has still to read are no longer where they were, and
// Error(invalid_page) where one has become none of the pool's.
void check_borrowed(const PyPlan& plan);

std::unique_ptr<PyPlan> make_plan(const AttentionKernel& kernel, const PyPlanInput& input);

// Defines a method of (self, input), and the same of (self, *, num_qo_heads=..., ...).
template <class Class, class Call>
void define_with_input(Class& cls, const char* name, const char* doc, const Call& call) {
  cls.def(name, call, nb::arg("input"), doc);
  const auto by_names = [&]<class... Values>(const std::tuple<Field<PyPlanInput, Values>...>& list) {
    const PyPlanInput plain{};
    std::apply(
        [&](const auto&... field) {
          cls.def(
              name,
              [call](typename Class::Type& self, Values... values) {
                return call(self, PyPlanInput{std::move(values)...});
              },
              nb::kw_only(), (nb::arg(field.name.data()) = attribute_of(plain.*field.member))..., doc);
        },
        list);
  };
  by_names(Fields<PyPlanInput>::list);
}

}  // namespace weft::python
