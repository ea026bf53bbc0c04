#include "cli/recorded_plan.h"

#include "attention/backend.h"
#include "attention/cuda/traits.h"
#include "attention/spec.h"

namespace weft::cli {
namespace {

using namespace attention;

// Of the kernel that recorded the call; nothing is built, and no card is needed for a card's.
KernelTraits recorded_traits(const RecordedCall& call) {
  if (call.is_of_a_card()) return cuda::traits(call.spec, cuda::find_architecture(call.target), 1);
  return backend_of(Device::cpu()).traits(call.spec, call.target, Device::cpu());
}

}  // namespace

RecordedPlan::RecordedPlan(const RecordedCall& call) : call_(call) {
  const Plan plan = as_it_was(recorded_traits(call));
  workspace_ = Workspace(Device::cpu(), plan.workspace_bytes());
  plan.upload(workspace_);
}

// Of each request the pages from its first token on, whichever levels they stood in.
std::vector<std::vector<int32_t>> RecordedPlan::pages_of_requests() const {
  const PlanHeader& plan = header();
  std::vector<std::vector<int32_t>> pages(static_cast<size_t>(plan.num_requests));
  for (int r = 0; r < plan.num_requests; ++r)
    pages[static_cast<size_t>(r)].resize(
        static_cast<size_t>((part<int>(plan.kv_len)[r] + plan.page_size - 1) / plan.page_size));
  const PlanRow* rows = part<PlanRow>(plan.rows);
  for (int64_t u = 0; u < plan.units.count; ++u) {
    const Unit& unit = part<Unit>(plan.units)[u];
    const PageList& list = part<PageList>(plan.page_lists)[unit.page_list];
    const int len = list.len >= 0 ? list.len : part<int>(plan.kv_len)[list.request] - list.first_pos;
    for (int row = unit.row_begin; row < unit.row_end; ++row)
      for (int t = 0; t < len; t += plan.page_size)
        pages[static_cast<size_t>(rows[row].request)].at(static_cast<size_t>((list.first_pos + t) / plan.page_size)) =
            part<int>(plan.page_indices)[list.first + t / plan.page_size];
  }
  return pages;
}

Plan RecordedPlan::anew(const AttentionKernel& kernel) const {
  const PlanHeader& plan = header();
  const KvForm form = call_.spec.kv_form;
  const int *qo_len = part<int>(plan.qo_len), *kv_len = part<int>(plan.kv_len);
  std::vector<int32_t> qo_indptr{0}, kv_indptr{0}, page_indptr{0}, page_ids, last_page_len;
  for (int r = 0; r < plan.num_requests; ++r) {
    qo_indptr.push_back(qo_indptr.back() + qo_len[r]);
    kv_indptr.push_back(kv_indptr.back() + kv_len[r]);
  }
  PlanInput input{.num_qo_heads = plan.num_qo_heads, .num_kv_heads = plan.num_kv_heads, .qo_indptr = qo_indptr};
  if (has_page_table(form)) {
    for (const std::vector<int32_t>& pages : pages_of_requests()) {
      const int length = kv_len[last_page_len.size()];
      page_ids.insert(page_ids.end(), pages.begin(), pages.end());
      page_indptr.push_back(static_cast<int32_t>(page_ids.size()));
      last_page_len.push_back(length == 0 ? 0 : (length - 1) % plan.page_size + 1);
    }
    input.pages = {plan.page_size, plan.num_pool_pages, page_indptr, page_ids, last_page_len};
  } else if (form == KvForm::ragged) {
    input.kv_indptr = kv_indptr;
  } else {
    input.kv_len = {kv_len, static_cast<size_t>(plan.num_requests)};
    input.max_kv_len = call_.input("k").shape.at(call_.spec.layout == Layout::nhd ? 1 : 2);
  }
  input.mask_indptr = {part<int64_t>(plan.mask_indptr), static_cast<size_t>(plan.mask_indptr.count)};
  input.scalars = plan_scalars(combined_intervals(call_.spec), plan);
  return kernel.plan(input);
}

}  // namespace weft::cli
