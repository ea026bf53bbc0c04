// Quest (weft/quest.h): attention over the pages that may matter most.
#include "weft/quest.h"

#include "module.h"
#include "objects.h"

namespace weft::python {

void define_quest(nb::module_& m) {
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
      "Makes anew the summaries (least and largest element of each channel of the keys; min, max fp32 [pages, "
      "num_kv_heads, head_dim]) of every page that holds one of the last append_indptr[r + 1] - append_indptr[r] "
      "tokens "
      "of request r. keys: the cache's, fp32, fp16 or bf16.");
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
      "shorter choice (select_pages takes them). q [nnz_qo, num_qo_heads, head_dim] fp32.");
}

}  // namespace weft::python
