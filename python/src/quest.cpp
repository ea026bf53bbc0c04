// Quest (weft/quest.h): attention over the pages that may matter most.
#include "weft/quest.h"

#include <string>

#include "module.h"
#include "objects.h"

namespace weft::python {
namespace {

constexpr const char* kPlannedDoc =
    " Writes page ids, positions and lengths into the plan of pages_to_set in the workspace: kv_len int32 [batch] and "
    "page_table int32 [batch, most pages of a request] lie beside it. On a card nothing of it is of the host: what is "
    "out of range is clamped, and Stream.synchronize() raises Error(invalid_page); a CPU raises it at once.";

void define_planned(nb::module_& m) {
  m.def("choose_pages_bytes", &choose_pages_bytes, nb::arg("batch"), nb::arg("num_kv_heads"), nb::arg("most_pages"),
        "Bytes of choose_planned_pages' scratch.");
  m.def(
      "choose_planned_pages",
      [](const AttentionKernel& kernel, PyWorkspace& workspace, const ArrayLike& q, const ArrayLike& min,
         const ArrayLike& max, const ArrayLike& kv_len, const ArrayLike& page_table, int64_t num_pages,
         PyWorkspace& scratch, int qo_len, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("q", q);
        const PageSummaries summaries{call.read("min", min), call.read("max", max)};
        DeviceBatch batch;
        batch.kv_len = call.read("kv_len", kv_len);
        batch.page_table = call.read("page_table", page_table);
        batch.num_pages = num_pages;
        batch.qo_len = qo_len;
        const Workspace &plan = call.workspace(workspace), &memory = call.workspace(scratch);
        call.run([&] { choose_pages(from, summaries, batch, kernel.planned_pages(plan), memory, call.stream()); });
      },
      nb::arg("kernel"), nb::arg("workspace"), nb::arg("q"), nb::arg("min"), nb::arg("max"), nb::kw_only(),
      nb::arg("kv_len"), nb::arg("page_table"), nb::arg("num_pages"), nb::arg("scratch"), nb::arg("qo_len") = 1,
      nb::arg("stream") = nb::none(), (std::string("What choose_pages chooses.") + kPlannedDoc).c_str());
  m.def(
      "set_planned_pages",
      [](const AttentionKernel& kernel, PyWorkspace& workspace, const ArrayLike& selected, const ArrayLike& kv_len,
         const ArrayLike& page_table, int64_t num_pages, int qo_len, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("selected", selected);
        DeviceBatch batch;
        batch.kv_len = call.read("kv_len", kv_len);
        batch.page_table = call.read("page_table", page_table);
        batch.num_pages = num_pages;
        batch.qo_len = qo_len;
        const Workspace& plan = call.workspace(workspace);
        call.run([&] { set_pages(from, batch, kernel.planned_pages(plan), call.stream()); });
      },
      nb::arg("kernel"), nb::arg("workspace"), nb::arg("selected"), nb::kw_only(), nb::arg("kv_len"),
      nb::arg("page_table"), nb::arg("num_pages"), nb::arg("qo_len") = 1, nb::arg("stream") = nb::none(),
      (std::string("A choice made elsewhere: selected int32 [batch, num_kv_heads, budget], places in each request's "
                   "page table, ascending; -1 ends a shorter choice.") +
       kPlannedDoc)
          .c_str());
}

}  // namespace

void define_quest(nb::module_& m) {
  define_planned(m);
  m.def(
      "update_page_summaries",
      [](const ArrayLike& keys, const IntsLike& append_indptr, const PyPages& pages, Layout layout,
         const ArrayLike& min, const ArrayLike& max, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("keys", keys);
        const std::span<const int32_t> indptr = call.ints("append_indptr", append_indptr);
        const PageTableView table = call.pages("pages", pages);
        const PageSummaries to{call.write("min", min.object), call.write("max", max.object)};
        call.check_apart();
        call.run([&] { update_page_summaries(from, indptr, table, layout, to, call.stream()); });
      },
      nb::arg("keys"), nb::arg("append_indptr"), nb::arg("pages"), nb::arg("layout"), nb::arg("min"), nb::arg("max"),
      nb::arg("stream") = nb::none(),
      "Makes anew the summaries (least and largest element of each channel of the keys; min, max fp32 or bf16 [pages, "
      "num_kv_heads, head_dim]) of every page that holds one of the last append_indptr[r + 1] - append_indptr[r] "
      "tokens "
      "of request r. keys: the cache's, fp32, fp16 or bf16.");
  m.def(
      "update_page_summaries_at",
      [](const ArrayLike& keys, const ArrayLike& places, Layout layout, const ArrayLike& min, const ArrayLike& max,
         const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("keys", keys), at = call.read("places", places);
        const PageSummaries to{call.write("min", min.object), call.write("max", max.object)};
        call.check_apart();
        call.run([&] { update_page_summaries(from, at, layout, to, call.stream()); });
      },
      nb::arg("keys"), nb::arg("places"), nb::arg("layout"), nb::arg("min"), nb::arg("max"),
      nb::arg("stream") = nb::none(),
      "The same of rows that went to page places[i, 0], slot places[i, 1] (int32 [nnz, 2] beside the keys; "
      "AttentionKernel.locate_rows writes them): a page's last row says how many of its slots hold keys.");
  m.def(
      "choose_pages",
      [](const ArrayLike& q, const ArrayLike& min, const ArrayLike& max, const IntsLike& qo_indptr,
         const PyPages& pages, int num_kv_heads, int budget, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("q", q);
        const PageSummaries summaries{call.read("min", min), call.read("max", max)};
        const std::span<const int32_t> indptr = call.ints("qo_indptr", qo_indptr);
        const PageTableView table = call.pages("pages", pages);
        return call.run(
            [&] { return choose_pages(from, summaries, indptr, table, num_kv_heads, budget, call.stream()); });
      },
      nb::arg("q"), nb::arg("min"), nb::arg("max"), nb::arg("qo_indptr"), nb::arg("pages"), nb::arg("num_kv_heads"),
      nb::arg("budget"), nb::arg("stream") = nb::none(),
      "The `budget` pages of each request and KV head with the largest bound of q . k, those of the query tokens "
      "always among them: [batch * num_kv_heads * budget] places in the request's page table, ascending; -1 ends a "
      "shorter choice (select_pages takes them). q [nnz_qo, num_qo_heads, head_dim] fp32, fp16 or bf16.");
}

}  // namespace weft::python
