// weft.PageTable, weft.PageTableView, weft.BlockSparse and what makes them.
#include <nanobind/stl/pair.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "module.h"
#include "objects.h"

namespace weft::python {
namespace {

using RequestIds = std::vector<PageTable::RequestId>;

// A change of the table: views made before it are no more.
template <class Change>
auto change(PyPageTable& self, const Change& make) {
  const auto lock = locked(self.mutex);
  ++self.changes;
  return make(self.table);
}

std::vector<int32_t> copy(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

PyPages view_of(std::shared_ptr<PyPageTable> self, const RequestIds& requests) {
  PyPages pages;
  const auto lock = locked(self->mutex);
  pages.of_table = self->table.view(requests);
  pages.changes = ++self->changes;
  pages.page_size = pages.of_table.page_size;
  pages.num_pages = pages.of_table.num_pages;
  pages.table = std::move(self);
  return pages;
}

// What a view of a table shows as its arrays: copies, which stay.
std::vector<int32_t> shown(const PyPages& self, std::span<const int32_t> PageTableView::*member,
                           const std::optional<IntsLike> PyPages::*given, const char* name) {
  Arguments call;
  if (!self.table) return copy(call.ints(name, self.*given));
  const auto lock = locked(self.table->mutex);
  return copy(self.view("pages", call).*member);
}

void define_page_table(nb::module_& m) {
  nb::class_<PageTable::Fork>(m, "Fork", "What PageTable.fork made, and what the caller has to copy.")
      .def_ro("request", &PageTable::Fork::request)
      .def_ro("source_page", &PageTable::Fork::source_page)
      .def_ro("target_page", &PageTable::Fork::target_page)
      .def_ro("copied_slots", &PageTable::Fork::copied_slots);

  nb::class_<PyPageTable>(m, "PageTable",
                          "The owner of a pool's pages: hands them out, shares prefixes, takes them back. Requests are "
                          "named by int handles.")
      .def(nb::init<int, int64_t>(), nb::arg("page_size"), nb::arg("num_pages"))
      .def(
          "add",
          [](PyPageTable& self, const std::optional<IntsLike>& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            return change(self, [&](PageTable& table) { return pages ? table.add(ids) : table.add(); });
          },
          nb::arg("pages") = nb::none(),
          "A new request: empty, or one that begins with these pages, all of them full. Raises Error(invalid_argument) "
          "for a page that is free.")
      .def(
          "fork",
          [](PyPageTable& self, PageTable::RequestId other, int64_t tokens) {
            return change(self, [&](PageTable& table) { return table.fork(other, tokens); });
          },
          nb::arg("other"), nb::arg("tokens"),
          "A new request that begins with the first `tokens` tokens of `other`: full pages are shared; `copied_slots` "
          "slots of `source_page` have to be copied to `target_page` (-1: none).")
      .def(
          "append",
          [](PyPageTable& self, PageTable::RequestId request, int64_t tokens) {
            change(self, [&](PageTable& table) { table.append(request, tokens); });
          },
          nb::arg("request"), nb::arg("tokens"),
          "Makes room for `tokens` more. Raises Error(context_full), and changes nothing, when the pool is too small.")
      .def(
          "truncate",
          [](PyPageTable& self, PageTable::RequestId request, int64_t tokens) {
            change(self, [&](PageTable& table) { table.truncate(request, tokens); });
          },
          nb::arg("request"), nb::arg("tokens"), "Keeps the first `tokens` tokens.")
      .def(
          "release",
          [](PyPageTable& self, PageTable::RequestId request) {
            change(self, [&](PageTable& table) { table.release(request); });
          },
          nb::arg("request"), "Ends the request; pages that nobody else holds are free.")
      .def(
          "hold",
          [](PyPageTable& self, const IntsLike& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            change(self, [&](PageTable& table) { table.hold(ids); });
          },
          nb::arg("pages"), "One more holder of each page, beside requests.")
      .def(
          "unhold",
          [](PyPageTable& self, const IntsLike& pages) {
            Arguments call;
            const std::span<const int32_t> ids = call.ints("pages", pages);
            change(self, [&](PageTable& table) { table.unhold(ids); });
          },
          nb::arg("pages"),
          "One holder of each page fewer. Raises Error(invalid_argument), and changes nothing, for a page that was not "
          "held so.")
      .def(
          "num_holders",
          [](PyPageTable& self, int32_t page) {
            const auto lock = locked(self.mutex);
            return self.table.num_holders(page);
          },
          nb::arg("page"), "Requests, and holds beside them.")
      .def(
          "length",
          [](PyPageTable& self, PageTable::RequestId request) {
            const auto lock = locked(self.mutex);
            return self.table.length(request);
          },
          nb::arg("request"), "In tokens.")
      .def(
          "pages",
          [](PyPageTable& self, PageTable::RequestId request) {
            const auto lock = locked(self.mutex);
            return copy(self.table.pages(request));
          },
          nb::arg("request"), "Ids of its pages, in order.")
      .def_prop_ro("page_size", [](const PyPageTable& self) { return self.table.page_size(); })
      .def_prop_ro("num_pages", [](const PyPageTable& self) { return self.table.num_pages(); })
      .def_prop_ro("num_free_pages",
                   [](PyPageTable& self) {
                     const auto lock = locked(self.mutex);
                     return self.table.num_free_pages();
                   })
      .def(
          "view", &view_of, nb::arg("requests"),
          "The table of these requests, in this order. No copy: it is refused once the table has changed, or was asked "
          "for another view.");

  nb::class_<PyPages>(m, "PageTableView",
                      "Which pages hold which request's tokens: token t of request r lies in page "
                      "kv_page_indices[kv_page_indptr[r] + t // page_size], slot t % page_size.")
      .def(
          "__init__",
          [](PyPages* self, int page_size, int64_t num_pages, const IntsLike& kv_page_indptr,
             const IntsLike& kv_page_indices, const IntsLike& kv_last_page_len) {
            new (self) PyPages{page_size, num_pages, kv_page_indptr, kv_page_indices, kv_last_page_len};
          },
          nb::arg("page_size"), nb::arg("num_pages"), nb::arg("kv_page_indptr"), nb::arg("kv_page_indices"),
          nb::arg("kv_last_page_len"),
          "int32 arrays: kv_page_indptr [batch + 1], kv_page_indices [kv_page_indptr[batch]], each below num_pages, "
          "and "
          "kv_last_page_len [batch], 1 to page_size, 0 for a request without pages. They are read by each call that "
          "takes the view.")
      .def_ro("page_size", &PyPages::page_size)
      .def_ro("num_pages", &PyPages::num_pages)
      .def_prop_ro("kv_page_indptr",
                   [](const PyPages& self) {
                     return shown(self, &PageTableView::kv_page_indptr, &PyPages::kv_page_indptr, "kv_page_indptr");
                   })
      .def_prop_ro("kv_page_indices",
                   [](const PyPages& self) {
                     return shown(self, &PageTableView::kv_page_indices, &PyPages::kv_page_indices, "kv_page_indices");
                   })
      .def_prop_ro("kv_last_page_len", [](const PyPages& self) {
        return shown(self, &PageTableView::kv_last_page_len, &PyPages::kv_last_page_len, "kv_last_page_len");
      });
}

PyBlocks blocks_of(BlockLists lists) {
  PyBlocks blocks;
  blocks.lists = std::make_shared<const BlockLists>(std::move(lists));
  blocks.block_rows = blocks.lists->block_rows;
  blocks.block_cols = blocks.lists->block_cols;
  blocks.num_blocks = blocks.lists->num_blocks;
  return blocks;
}

void define_block_sparse(nb::module_& m) {
  nb::class_<PyBlocks>(m, "BlockSparse",
                       "Which blocks of a pool each block of query tokens attends: for kernels with kv_form = "
                       "KvForm.block_sparse.")
      .def(
          "__init__",
          [](PyBlocks* self, int block_rows, int block_cols, int64_t num_blocks, const IntsLike& block_indptr,
             const IntsLike& block_indices, std::optional<IntsLike> last_block_len,
             std::optional<IntsLike> kv_positions, std::optional<IntsLike> q_positions,
             std::optional<IntsLike> bits_index, std::optional<IntsLike> bits) {
            new (self) PyBlocks{block_rows,     block_cols,   num_blocks,  block_indptr, block_indices,
                                last_block_len, kv_positions, q_positions, bits_index,   bits};
          },
          nb::arg("block_rows"), nb::arg("block_cols"), nb::arg("num_blocks"), nb::arg("block_indptr"),
          nb::arg("block_indices"), nb::arg("last_block_len") = nb::none(), nb::arg("kv_positions") = nb::none(),
          nb::arg("q_positions") = nb::none(), nb::arg("bits_index") = nb::none(), nb::arg("bits") = nb::none(),
          "int32 arrays: block_indptr [row blocks + 1], or [num_kv_heads * row blocks + 1], head after head; "
          "block_indices, each below num_blocks; last_block_len [lists], keys of a list's last block; kv_positions "
          "[listed blocks] of each one's first key, or [listed blocks * block_cols] of every key; q_positions [query "
          "tokens]; bits_index [listed blocks], -1: every row sees the whole block, else which block_rows x block_cols "
          "bits of `bits` (uint8) say what its rows see.")
      .def_ro("block_rows", &PyBlocks::block_rows)
      .def_ro("block_cols", &PyBlocks::block_cols)
      .def_ro("num_blocks", &PyBlocks::num_blocks);

  m.def(
      "blocks_from_page_table",
      [](const PyPages& pages, const IntsLike& qo_indptr) {
        Arguments call;
        const PageTableView view = call.pages("pages", pages);
        return blocks_of(blocks_from_page_table(view, call.ints("qo_indptr", qo_indptr)));
      },
      nb::arg("pages"), nb::arg("qo_indptr"), "Every page of every request: what a paged kernel attends.");
  m.def(
      "select_pages",
      [](const PyPages& pages, const IntsLike& qo_indptr, int num_kv_heads, const IntsLike& selected, int budget) {
        Arguments call;
        const PageTableView view = call.pages("pages", pages);
        const std::span<const int32_t> rows = call.ints("qo_indptr", qo_indptr),
                                       chosen = call.ints("selected", selected);
        return blocks_of(select_pages(view, rows, num_kv_heads, chosen, budget));
      },
      nb::arg("pages"), nb::arg("qo_indptr"), nb::arg("num_kv_heads"), nb::arg("selected"), nb::arg("budget"),
      "Pages chosen for each request and KV head (Quest): `selected` int32 [batch, num_kv_heads, budget] holds places "
      "in the request's page table, ascending; -1 ends a shorter choice. It holds the request's last page.");
  m.def(
      "pages_to_set",
      [](int batch, int page_size, int64_t num_pages, int num_kv_heads, int budget, int qo_len) {
        return blocks_of(pages_to_set({batch, qo_len, page_size, num_pages, num_kv_heads, budget}));
      },
      nb::kw_only(), nb::arg("batch"), nb::arg("page_size"), nb::arg("num_pages"), nb::arg("num_kv_heads"),
      nb::arg("budget"), nb::arg("qo_len") = 1,
      "What select_pages makes of a choice, for one that choose_planned_pages and set_planned_pages write into the "
      "uploaded plan, again for every step: `budget` pages for each request and KV head.");
  m.def(
      "blocks_from_importance",
      [](const PyPages& pages, const IntsLike& qo_indptr, int block_rows, const IntsLike& mask) {
        Arguments call;
        const PageTableView view = call.pages("pages", pages);
        const std::span<const int32_t> rows = call.ints("qo_indptr", qo_indptr);
        return blocks_of(blocks_from_importance(view, rows, block_rows, call.bytes("mask", mask)));
      },
      nb::arg("pages"), nb::arg("qo_indptr"), nb::arg("block_rows"), nb::arg("mask"),
      "Column blocks whose importance is not 0: `mask` (bool or uint8) holds, request after request, ceil(qo_len / "
      "block_rows) x pages bytes, row-major.");
  m.def(
      "blocks_from_tree",
      [](const PyPages& pages, const IntsLike& qo_indptr, const IntsLike& parent) {
        Arguments call;
        const PageTableView view = call.pages("pages", pages);
        const std::span<const int32_t> rows = call.ints("qo_indptr", qo_indptr);
        return blocks_of(blocks_from_tree(view, rows, call.ints("parent", parent)));
      },
      nb::arg("pages"), nb::arg("qo_indptr"), nb::arg("parent"),
      "Speculative decoding: the last query tokens of each request are a tree; `parent` int32 [query tokens] is an "
      "index within the request, before its own; -1: a root. A token sees the context before the tree, its ancestors "
      "and itself.");
}

}  // namespace

PageTableView PyPages::view(std::string_view name, Arguments& call) const {
  if (table) {
    check(table->changes == changes, ErrorCode::invalid_argument,
          "{}: this view is of the table before it changed, or was asked for another view: ask for it anew", name);
    return of_table;
  }
  PageTableView all;
  all.page_size = page_size;
  all.num_pages = num_pages;
  all.kv_page_indptr = call.ints("kv_page_indptr", kv_page_indptr);
  all.kv_page_indices = call.ints("kv_page_indices", kv_page_indices);
  all.kv_last_page_len = call.ints("kv_last_page_len", kv_last_page_len);
  return all;
}

BlockSparse PyBlocks::view(Arguments& call) const {
  if (lists) return lists->view();
  BlockSparse all;
  all.block_rows = block_rows;
  all.block_cols = block_cols;
  all.num_blocks = num_blocks;
  all.block_indptr = call.ints("block_indptr", block_indptr);
  all.block_indices = call.ints("block_indices", block_indices);
  all.last_block_len = call.ints("last_block_len", last_block_len);
  all.kv_positions = call.ints("kv_positions", kv_positions);
  all.q_positions = call.ints("q_positions", q_positions);
  all.bits_index = call.ints("bits_index", bits_index);
  all.bits = call.bytes("bits", bits);
  return all;
}

void define_pages(nb::module_& m) {
  define_page_table(m);
  define_block_sparse(m);
}

}  // namespace weft::python
