#include "cli/ragged_call.h"

#include <algorithm>
#include <cstring>

#include "attention/spec.h"
#include "base/check.h"

namespace weft::cli {
namespace {

using namespace attention;

// The tokens [first_pos, first_pos + len) of a page list.
int length_of(const PageList& list, const int* kv_len) {
  return list.len >= 0 ? list.len : kv_len[list.request] - list.first_pos;
}

// Copies one request's part of a page list to `to`, [tokens][heads][dim] from the request's first token on.
class Gather {
 public:
  // `group`: tokens that share a row of the cache.
  Gather(const AttentionSpec& spec, const PlanHeader& plan, const TensorView& cache, int group)
      : spec_(spec),
        plan_(plan),
        cache_(cache),
        group_(group),
        token_axis_((ragged() ? 0 : 1) + (nhd() ? 0 : 1)),
        head_axis_((ragged() ? 0 : 1) + (nhd() ? 1 : 0)) {}

  void operator()(const PageList& list, int len, char* to) const {
    const int64_t row_bytes = cache_.shape(cache_.rank() - 1) * bits_of(cache_.dtype()) / 8;
    for (int t = 0; t < len; ++t)
      for (int64_t head = 0; head < plan_.num_kv_heads; ++head)
        std::memcpy(to + ((list.first_pos + t) * plan_.num_kv_heads + head) * row_bytes, row(list, t, head),
                    static_cast<size_t>(row_bytes));
  }

 private:
  bool ragged() const { return spec_.kv_form == KvForm::ragged; }
  bool nhd() const { return spec_.layout == Layout::nhd || spec_.kv_form == KvForm::latent; }
  const char* row(const PageList& list, int t, int64_t head) const {
    int64_t outer = 0, slot = list.first + t;
    if (has_page_table(spec_.kv_form)) {
      outer = section<int>(&plan_, plan_.page_indices)[list.first + t / plan_.page_size];
      slot = t % plan_.page_size;
    } else if (!ragged()) {
      const int64_t slots = plan_.num_pool_pages / std::max(plan_.num_requests, 1);  // of the padded cache
      outer = slot / slots;
      slot %= slots;
    }
    const int64_t element = (ragged() ? 0 : outer * cache_.stride(0)) + slot / group_ * cache_.stride(token_axis_) +
                            head * cache_.stride(head_axis_);
    return cache_.as<char>() + element * bits_of(cache_.dtype()) / 8;
  }

  const AttentionSpec& spec_;
  const PlanHeader& plan_;
  const TensorView cache_;
  const int group_;
  const int token_axis_, head_axis_;
};

// A latent cache as keys and values of one head: views of `memory`, where each token has its whole row.
KvCache whole_rows(const AttentionSpec& spec, const KvCache& kv, std::vector<char>& memory) {
  const int64_t bytes = bits_of(spec.kv_dtype) / 8, row = spec.head_dim_qk * bytes;
  const int64_t tokens = kv.k.shape(0) * kv.k.shape(1);
  memory.resize(static_cast<size_t>(tokens * row));
  const auto place = [&](const TensorView& part, int64_t at) {  // recorded tensors are row-major
    const int64_t width = part.shape(2) * bytes;
    for (int64_t t = 0; t < tokens; ++t)
      std::memcpy(memory.data() + t * row + at, part.as<char>() + t * width, static_cast<size_t>(width));
    return width;
  };
  const int64_t first = place(kv.k, 0);
  if (kv.v) place(kv.v, first);
  const TensorView keys(memory.data(), spec.kv_dtype, {kv.k.shape(0), kv.k.shape(1), 1, spec.head_dim_qk});
  return {keys, keys.slice(3, 0, spec.head_dim_vo)};
}

}  // namespace

RaggedCall::RaggedCall(const RecordedCall& call, const PlanHeader& plan)
    : spec_(call.spec),
      tensors_(call.tensors()),
      scalars_(plan_scalars(combined_intervals(call.spec), plan)),
      mask_indptr_(section<int64_t>(&plan, plan.mask_indptr), static_cast<size_t>(plan.mask_indptr.count)),
      num_qo_heads_(plan.num_qo_heads),
      num_kv_heads_(plan.num_kv_heads) {
  const int* qo_len = section<int>(&plan, plan.qo_len);
  const int* kv_len = section<int>(&plan, plan.kv_len);
  for (int r = 0; r < plan.num_requests; ++r) {
    qo_indptr_.push_back(qo_indptr_.back() + qo_len[r]);
    kv_indptr_.push_back(kv_indptr_.back() + kv_len[r]);
  }
  spec_.kv_form = KvForm::ragged;
  spec_.layout = Layout::nhd;

  const int64_t tokens = kv_indptr_.back();
  const auto gather = [&](TensorView& cache, int dim, int group, std::vector<char>& to) {
    const int64_t token_bytes = int64_t{plan.num_kv_heads} * dim * bits_of(cache.dtype()) / 8;
    to.resize(static_cast<size_t>(tokens * token_bytes));
    const Gather copy(call.spec, plan, cache, group);
    const PlanRow* rows = section<PlanRow>(&plan, plan.rows);
    const Unit* units = section<Unit>(&plan, plan.units);
    const PageList* lists = section<PageList>(&plan, plan.page_lists);
    for (int64_t u = 0; u < plan.units.count; ++u) {
      const PageList& list = lists[units[u].page_list];
      for (int row = units[u].row_begin; row < units[u].row_end; ++row) {
        if (row > units[u].row_begin && rows[row].request == rows[row - 1].request) continue;
        copy(list, length_of(list, kv_len),
             to.data() + kv_indptr_[static_cast<size_t>(rows[row].request)] * token_bytes);
      }
    }
    cache = TensorView(to.data(), cache.dtype(), {tokens, plan.num_kv_heads, dim});
  };
  if (call.spec.kv_form == KvForm::latent) tensors_.kv = whole_rows(call.spec, tensors_.kv, latent_);
  gather(tensors_.kv.k, spec_.head_dim_qk, 1, k_);
  gather(tensors_.kv.v, spec_.head_dim_vo, 1, v_);
  if (spec_.kv_scales >= KvScales::token) {
    gather(tensors_.kv.k_scale, 1, std::max(spec_.kv_scale_group, 1), k_scale_);
    gather(tensors_.kv.v_scale, 1, std::max(spec_.kv_scale_group, 1), v_scale_);
    spec_.kv_scales = KvScales::token;
    spec_.kv_scale_group = 0;
  } else if (spec_.kv_scales != KvScales::none) {
    for (TensorView* scale : {&tensors_.kv.k_scale, &tensors_.kv.v_scale})
      *scale = TensorView(scale->data(), DType::fp32, {1, scale->size(), 1});
  }
}

MeasuredReference RaggedCall::reference(const attention::Rounding& rounding, const ReferenceScope& scope) const {
  PlanInput input;
  input.num_qo_heads = num_qo_heads_;
  input.num_kv_heads = num_kv_heads_;
  input.qo_indptr = qo_indptr_;
  input.kv_indptr = kv_indptr_;
  input.mask_indptr = mask_indptr_;
  input.scalars = scalars_;
  return measured_reference(spec_, input, tensors_, rounding, scope);
}

}  // namespace weft::cli
