// weft.PlanInput, weft.Plan, weft.PlanBounds, weft.Level, weft.SharedLevels.
#include "plans.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fields.h"
#include "module.h"
#include "struct.h"

namespace weft::python {
namespace {

void keep_borrowed(PyPlan& plan, const PyPlanInput& input, const PlanInput& view, Arguments& call) {
  plan.borrowed.reset();
  plan.borrowed_memory.reset();
  if (!view.borrow_page_ids) return;
  for (const PageIds& pages : page_ids_of(view))
    check(!call.is_copy(pages.ids), ErrorCode::invalid_argument,
          "borrow_page_ids: pages of a list of Python's lie in no memory that a plan could borrow; give int32 arrays");
  plan.borrowed = input;
  plan.borrowed_memory = std::make_shared<const BorrowedIds>(BorrowedIds{page_ids_of(view), call.arrays()});
}

void define_input(nb::module_& m) {
  bind_struct<PlanBounds>(
      m, "PlanBounds",
      "The largest plans that a workspace is made for: every plan made with them needs as many bytes, and a graph that "
      "captured the run of one runs whichever was uploaded last. max_rows counts query tokens of a step, max_pages "
      "entries of kv_page_indices; `workers` is the most that a plan has.");
  bind_struct<PyLevel>(
      m, "Level",
      "Composable formats: entry g is query tokens [qo_indptr[g], qo_indptr[g + 1]) of one request, or of several that "
      "share the entry's pages. Level 0 is the most shared.");
  nb::class_<PySharedLevels>(m, "SharedLevels", "Levels of requests that share leading pages, with their own arrays.")
      .def_prop_ro("empty", [](const PySharedLevels& self) { return self.levels.empty(); })
      .def_prop_ro("num_levels", [](const PySharedLevels& self) { return self.levels.num_levels(); })
      .def(
          "apply",
          [](std::shared_ptr<PySharedLevels> self, const PyPlanInput& input) {
            PyPlanInput made = input;
            made.levels = PyLevels{{}, std::move(self)};
            return made;
          },
          nb::arg("input"), "The input with these levels instead of its pages; as it is when empty.")
      .def(
          "follow",
          [](PySharedLevels& self, const PyPlanInput& input) {
            Arguments call;
            PyPlanInput::Views views;
            input.view(call, views);
            return self.levels.follow(views.input);
          },
          nb::arg("input"),
          "The same levels for a later step: True where `input` has as many requests with the same shared pages; their "
          "own pages are brought up to date then.");
  bind_struct<PyPlanInput>(
      m, "PlanInput",
      "What a plan is made from; kernel.plan takes these names too. num_kv_heads divides num_qo_heads; qo_indptr int32 "
      "[batch + 1]. As the spec's kv_form says: `pages`, `blocks`, kv_indptr int32 [batch + 1] (ragged), or kv_len "
      "int32 "
      "[batch] with max_kv_len (padded). num_workers 0: as many as run at once. fixed_split_size: tokens of a chunk, "
      "with "
      "PlanMode.fixed_split. `levels` instead of pages; request_order int32 [batch] with levels. mask_indptr int64 "
      "[batch + 1] of a custom mask. `scalars`: integer scalars that intervals name, as {'window_left': 128}. "
      "`bounds`: "
      "the plan needs the bytes of these. spare_pages: room for so many page ids more. borrow_page_ids: they are not "
      "copied; the plan keeps their array alive, which must stay as it is until the plan was uploaded.");
}

void define_plan(nb::module_& m) {
  nb::class_<PyPlan> plan(m, "Plan", "Who computes what: a pure function of lengths, made by kernel.plan once a step.");
  plan.def_prop_ro(
          "workspace_bytes", [](const PyPlan& self) { return self.plan.workspace_bytes(); }, "Exact.")
      .def(
          "upload",
          [](PyPlan& self, PyWorkspace& workspace, const std::optional<PyStream>& stream) {
            Arguments call(stream_of(stream));
            call.hold(self.mutex);
            check_borrowed(self);
            Workspace& to = call.workspace(workspace);
            call.run([&] { self.plan.upload(to, call.stream()); });
          },
          nb::arg("workspace"), nb::arg("stream") = nb::none(),
          "Copies the plan into the workspace. Raises Error(workspace_too_small), and leaves it as it was.")
      .def_prop_ro("num_workers", [](const PyPlan& self) { return self.plan.num_workers(); })
      .def_prop_ro("num_items", [](const PyPlan& self) { return self.plan.num_items(); })
      .def_prop_ro("num_partials", [](const PyPlan& self) { return self.plan.num_partials(); })
      .def_prop_ro(
          "makespan", [](const PyPlan& self) { return self.plan.makespan(); }, "Cost of the busiest worker.")
      .def_prop_ro("lower_bound", [](const PyPlan& self) { return self.plan.lower_bound(); })
      .def_prop_ro("signature", [](const PyPlan& self) { return self.plan.signature(); })
      .def(
          "to_svg", [](const PyPlan& self) { return self.plan.to_svg(); }, "A figure of workers and work items.")
      .def("__str__", [](const PyPlan& self) { return self.plan.to_string(); })
      .def("__repr__", [](const PyPlan& self) {
        return fmt::format("<weft.Plan of {} items for {} workers>", self.plan.num_items(), self.plan.num_workers());
      });
  define_with_input(
      plan, "covers",
      "True while the plan is right for these lengths too: the same requests and pages as far as they were "
      "listed, every length within its last chunk.",
      [](PyPlan& self, const PyPlanInput& input) {
        Arguments call;
        PyPlanInput::Views views;
        input.view(call, views);
        call.hold(self.mutex);
        return call.run([&] { return self.plan.covers(views.input); });
      });
  define_with_input(plan, "update",
                    "Brings lengths and page ids up to date. Raises Error(plan_mismatch) unless covered.",
                    [](PyPlan& self, const PyPlanInput& input) {
                      Arguments call;
                      PyPlanInput::Views views;
                      input.view(call, views);
                      call.hold(self.mutex);
                      call.run([&] { self.plan.update(views.input); });
                      self.uploaded = false;
                      keep_borrowed(self, input, views.input, call);
                    });
}

}  // namespace

std::vector<PageIds> page_ids_of(const PlanInput& input) {
  std::vector<PageIds> all{{input.pages.kv_page_indices, input.pages.num_pages}};
  for (const Level& level : input.levels) all.push_back({level.pages.kv_page_indices, level.pages.num_pages});
  if (input.blocks != nullptr) all.push_back({input.blocks->block_indices, input.blocks->num_blocks});
  return all;
}

void check_borrowed(const PyPlan& plan) {
  if (!plan.borrowed) return;
  Arguments call;
  PyPlanInput::Views now;
  plan.borrowed->view(call, now);
  const auto& then = *std::static_pointer_cast<const BorrowedIds>(plan.borrowed_memory);
  const std::vector<PageIds> all = page_ids_of(now.input);
  const auto same = [](const PageIds& a, const PageIds& b) {
    return a.ids.data() == b.ids.data() && a.ids.size() == b.ids.size();
  };
  check(std::ranges::equal(all, then.all, same), ErrorCode::invalid_argument,
        "plan: the page ids that it borrows have moved or changed their number since it was made; plan anew, or leave "
        "borrow_page_ids out");
  for (const PageIds& pages : all)
    for (const int32_t id : pages.ids)
      check(id >= 0 && id < pages.num_pages, ErrorCode::invalid_page,
            "plan: among the page ids that it borrows is {} now; allowed are 0 to {}: leave them as they are until the "
            "plan is uploaded",
            id, pages.num_pages - 1);
}

void PyPlanInput::view(Arguments& call, Views& to) const {
  PlanInput& all = to.input;
  all.num_qo_heads = num_qo_heads;
  all.num_kv_heads = num_kv_heads;
  all.qo_indptr = call.ints("qo_indptr", qo_indptr);
  if (pages) all.pages = call.pages("pages", *pages);
  if (blocks) {
    to.blocks = blocks->view(call);
    all.blocks = &to.blocks;
  }
  all.kv_indptr = call.ints("kv_indptr", kv_indptr);
  all.kv_len = call.ints("kv_len", kv_len);
  all.max_kv_len = max_kv_len;
  all.num_workers = num_workers;
  all.mode = mode;
  all.fixed_split_size = fixed_split_size;
  all.request_order = call.ints("request_order", request_order);
  all.mask_indptr = call.longs("mask_indptr", mask_indptr);
  all.scalars = scalars.list;
  if (bounds) all.bounds = &*bounds;
  all.spare_pages = spare_pages;
  all.borrow_page_ids = borrow_page_ids;
  for (const PyLevel& level : levels.list)
    to.levels.push_back({call.ints("levels.qo_indptr", level.qo_indptr), call.pages("levels.pages", level.pages)});
  all.levels = to.levels;
  if (levels.shared) all = levels.shared->levels.apply(all);
}

std::unique_ptr<PyPlan> make_plan(const AttentionKernel& kernel, const PyPlanInput& input) {
  Arguments call;
  PyPlanInput::Views views;
  input.view(call, views);
  auto made = std::make_unique<PyPlan>();
  made->plan = call.run([&] { return kernel.plan(views.input); });
  keep_borrowed(*made, input, views.input, call);
  return made;
}

void define_plans(nb::module_& m) {
  define_input(m);
  define_plan(m);
}

}  // namespace weft::python
