// Items as kernels on cards read them: what the other sections say of an item, in one place.
#include "attention/plan/plan_builder.h"

namespace weft::planner {

using namespace attention;

namespace {

class Records {
 public:
  explicit Records(char* base)
      : plan_(*reinterpret_cast<const PlanHeader*>(base)),
        items_(section<WorkItem>(base, plan_.items)),
        units_(section<Unit>(base, plan_.units)),
        lists_(section<PageList>(base, plan_.page_lists)),
        rows_(section<PlanRow>(base, plan_.rows)),
        partials_(section<Partial>(base, plan_.partials)),
        groups_(section<MergeGroup>(base, plan_.merge_groups)),
        sources_(section<MergeSource>(base, plan_.merge_sources)),
        qo_len_(section<int>(base, plan_.qo_len)),
        kv_len_(section<int>(base, plan_.kv_len)) {}

  ItemRecord of(int index, int next) {
    const WorkItem& item = items_[index];
    const Unit& unit = units_[item.unit];
    // Units of several KV heads, and chunks, have rows and pages in common.
    if (page_list_ != unit.page_list || rows_of_unit_.row_begin != unit.row_begin ||
        rows_of_unit_.num_rows != unit.row_end - unit.row_begin) {
      page_list_ = unit.page_list;
      rows_of_unit_ = of_rows(unit);
    }
    ItemRecord record = rows_of_unit_;
    record.next = next;
    record.tile_kind = unit.tile_kind;
    record.kv_head_begin = unit.kv_head_begin;
    record.kv_head_end = unit.kv_head_end;
    record.kv_begin = item.kv_begin;
    record.kv_end = item.kv_end;
    record.merge_begin = unit.merge_begin;
    record.merge_rows = unit.merge_rows;
    record.merge_heads = unit.merge_heads;
    if (item.partial >= 0) add_partial(item, unit, record);
    return record;
  }

 private:
  // What items of the same rows and pages have in common; the rest as of one that is alone.
  ItemRecord of_rows(const Unit& unit) const {
    const PageList& list = lists_[unit.page_list];
    const PlanRow& first = rows_[unit.row_begin];
    // Tokens of one request follow each other in q; block-sparse rows have positions of their own.
    const bool together =
        plan_.block_rows == 0 && first.request == list.request && first.request == rows_[unit.row_end - 1].request;
    ItemRecord record = {};
    record.row_begin = unit.row_begin;
    record.num_rows = unit.row_end - unit.row_begin;
    record.q_row = together ? first.q_row : -1;
    record.block_row = unit.row_begin - list.row_begin;
    record.request = list.request;
    record.idx = together ? first.idx : 0;
    record.qo_len = together ? qo_len_[first.request] : 0;
    record.first_pos = list.first_pos;
    record.first = list.first;
    record.partial = -1;
    record.num_chunks = 1;
    record.num_page_ids = num_page_ids(list);
    return record;
  }
  int num_page_ids(const PageList& list) const {
    if (plan_.page_size == 0) return 0;
    const int64_t len = list.len >= 0 ? list.len : int64_t{kv_len_[list.request]} - list.first_pos;
    return static_cast<int>(ceil_div(len, plan_.page_size));
  }
  void add_partial(const WorkItem& item, const Unit& unit, ItemRecord& record) const {
    record.partial = partials_[item.partial].offset;
    if (plan_.num_levels > 1) return;
    const MergeGroup& group = groups_[unit.merge_begin];
    record.chunk = item.partial - sources_[group.source_begin].partial;
    record.num_chunks = group.expected;
  }

  const PlanHeader& plan_;
  const WorkItem* const items_;
  const Unit* const units_;
  const PageList* const lists_;
  const PlanRow* const rows_;
  const Partial* const partials_;
  const MergeGroup* const groups_;
  const MergeSource* const sources_;
  const int *const qo_len_, *const kv_len_;
  int page_list_ = -1;  // of rows_of_unit_
  ItemRecord rows_of_unit_ = {};
};

}  // namespace

void write_records(Plan::Impl& impl) {
  const PlanHeader& plan = impl.header();
  if (plan.records.count == 0) return;
  char* base = impl.bytes.data();
  Records records(base);
  ItemRecord* const to = section<ItemRecord>(base, plan.records);
  const int* const indptr = section<int>(base, plan.worker_indptr);
  int rest = plan.num_workers;  // where items that are not a worker's first go
  for (int w = 0; w < plan.num_workers; ++w) {
    if (indptr[w] == indptr[w + 1]) {
      to[w] = {};
      to[w].next = -1;
    }
    for (int i = indptr[w], at = w; i < indptr[w + 1]; ++i) {
      const int next = i + 1 < indptr[w + 1] ? rest++ : -1;
      to[at] = records.of(i, next);
      at = next;
    }
  }
}

}  // namespace weft::planner
