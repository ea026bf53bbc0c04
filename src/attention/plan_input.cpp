// Every check of what the caller gave to plan, and the resolution of named scalars in intervals.
#include <cmath>
#include <limits>

#include "attention/plan_draft.h"
#include "base/check.h"

namespace weft::planner {
namespace {

using attention::BoundTerm;
using attention::kMaxTerms;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
// Lengths stay clear of kOpenEnd and of int32 sums with constants of intervals.
constexpr int64_t kMaxKvLen = int64_t{1} << 30;

void check_traits(const KernelTraits& traits) {
  const size_t n = traits.classes.size();
  ensure(n >= 1 && n <= attention::kMaxTileClasses, "a kernel has {} tile classes", n);
  ensure(traits.granule >= 1, "a kernel has the granule {}", traits.granule);
  ensure(traits.intervals.size() <= 2, "a kernel has {} intervals", traits.intervals.size());
  for (size_t i = 0; i < n; ++i)
    ensure(traits.classes[i].rows >= 1 && (i == 0 || traits.classes[i - 1].rows < traits.classes[i].rows),
           "a kernel's tile classes are not in ascending order");
}

// Starts at 0, never decreases.
void check_indptr(const char* name, std::span<const int32_t> indptr) {
  check(!indptr.empty(), ErrorCode::invalid_indptr, "{}: is empty; give [batch + 1] entries, the first one 0", name);
  check(indptr[0] == 0, ErrorCode::invalid_indptr, "{}[0] = {}; an indptr starts at 0", name, indptr[0]);
  int32_t smallest_step = 0;
  for (size_t i = 1; i < indptr.size(); ++i) {
    const auto step = static_cast<int32_t>(static_cast<uint32_t>(indptr[i]) - static_cast<uint32_t>(indptr[i - 1]));
    smallest_step = step < smallest_step ? step : smallest_step;
  }
  if (smallest_step >= 0) [[likely]]
    return;
  for (size_t i = 1; i < indptr.size(); ++i)
    check(indptr[i] >= indptr[i - 1], ErrorCode::invalid_indptr,
          "{}[{}] = {} after {}; an indptr never decreases: give running sums of lengths", name, i, indptr[i],
          indptr[i - 1]);
}

void check_page_ids(std::span<const int32_t> ids, int64_t num_pages) {
  // The sign of an id, or of what it lacks to the largest one, shows either mistake: three operations an id.
  const auto largest = static_cast<uint32_t>(num_pages - 1);
  uint32_t wrong = 0;
  for (const int32_t id : ids) wrong |= static_cast<uint32_t>(id) | (largest - static_cast<uint32_t>(id));
  if (ids.empty() || (num_pages > 0 && (wrong >> 31) == 0)) [[likely]]
    return;
  for (size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < num_pages, ErrorCode::invalid_page,
          "kv_page_indices[{}] = {}; allowed are 0 to {}, the pool has {} pages", i, ids[i], num_pages - 1, num_pages);
}

void check_pages(const PageTableView& pages, size_t batch, Draft& draft) {
  check(!pages.kv_page_indptr.empty(), ErrorCode::invalid_argument,
        "pages: is missing; this kernel reads a paged cache: give a PageTableView");
  check(pages.page_size >= 1, ErrorCode::invalid_argument, "pages.page_size = {}; allowed are 1 and more",
        pages.page_size);
  check(pages.num_pages >= 0 && pages.num_pages <= kMaxInt, ErrorCode::invalid_argument,
        "pages.num_pages = {}; allowed are 0 to {}", pages.num_pages, kMaxInt);
  check_indptr("kv_page_indptr", pages.kv_page_indptr);
  check(pages.kv_page_indptr.size() == batch + 1, ErrorCode::invalid_indptr,
        "kv_page_indptr: has {} entries, qo_indptr has {}; both have [batch + 1]", pages.kv_page_indptr.size(),
        batch + 1);
  check(pages.kv_last_page_len.size() == batch, ErrorCode::invalid_argument,
        "kv_last_page_len: has {} entries; it needs one for each of {} requests", pages.kv_last_page_len.size(), batch);
  check(static_cast<size_t>(pages.kv_page_indptr[batch]) == pages.kv_page_indices.size(), ErrorCode::invalid_indptr,
        "kv_page_indptr[{}] = {}, but kv_page_indices has {} entries; the last entry is their number", batch,
        pages.kv_page_indptr[batch], pages.kv_page_indices.size());
  for (size_t r = 0; r < batch; ++r) {
    const int64_t n = pages.kv_page_indptr[r + 1] - pages.kv_page_indptr[r];
    const int last = pages.kv_last_page_len[r];
    if (n == 0)
      check(last == 0, ErrorCode::invalid_page, "kv_last_page_len[{}] = {}; it is 0 for a request without pages", r,
            last);
    else
      check(last >= 1 && last <= pages.page_size, ErrorCode::invalid_page,
            "kv_last_page_len[{}] = {}; allowed are 1 to the page size {}", r, last, pages.page_size);
    const int64_t len = n == 0 ? 0 : (n - 1) * pages.page_size + last;
    check(len <= kMaxKvLen, ErrorCode::invalid_argument, "request {}: {} tokens of KV; at most {} are allowed", r, len,
          kMaxKvLen);
    draft.kv_len[r] = static_cast<int>(len);
  }
  if (!pages.ids_checked) check_page_ids(pages.kv_page_indices, pages.num_pages);
}

void check_kv(const KernelTraits& traits, const PlanInput& input, Problem& p, Draft& draft) {
  const auto batch = static_cast<size_t>(p.num_requests);
  const bool paged = traits.kv_form == KvForm::paged;
  const bool ragged = traits.kv_form == KvForm::ragged;
  const bool padded = traits.kv_form == KvForm::padded;
  check(paged || ragged || padded, ErrorCode::unsupported,
        "kv_form: required block_sparse or latent; supported padded, ragged, paged; missing: units of their own");
  const bool has_pages =
      !p.pages.kv_page_indptr.empty() || !p.pages.kv_page_indices.empty() || !p.pages.kv_last_page_len.empty();
  check(paged || !has_pages, ErrorCode::invalid_argument, "pages: this kernel reads a {} cache; leave pages empty",
        ragged ? "ragged" : "padded");
  check(ragged || input.kv_indptr.empty(), ErrorCode::invalid_argument,
        "kv_indptr: this kernel reads a {} cache; leave kv_indptr empty", paged ? "paged" : "padded");
  check(padded || input.kv_len.empty(), ErrorCode::invalid_argument,
        "kv_len: this kernel reads a {} cache; leave kv_len empty", paged ? "paged" : "ragged");
  check(padded || input.max_kv_len == 0, ErrorCode::invalid_argument,
        "max_kv_len = {}: only a padded cache has it; leave it 0", input.max_kv_len);
  draft.kv_len.resize(batch);
  if (paged) {
    check_pages(p.pages, batch, draft);
    p.page_size = p.pages.page_size;
    p.num_pool_pages = p.pages.num_pages;
  } else if (ragged) {
    check_indptr("kv_indptr", input.kv_indptr);
    check(input.kv_indptr.size() == batch + 1, ErrorCode::invalid_indptr,
          "kv_indptr: has {} entries, qo_indptr has {}; both have [batch + 1]", input.kv_indptr.size(), batch + 1);
    p.kv_indptr = input.kv_indptr;
    p.num_pool_pages = input.kv_indptr[batch];
    for (size_t r = 0; r < batch; ++r) {
      draft.kv_len[r] = input.kv_indptr[r + 1] - input.kv_indptr[r];
      check(draft.kv_len[r] <= kMaxKvLen, ErrorCode::invalid_argument,
            "request {}: {} tokens of KV; at most {} are allowed", r, draft.kv_len[r], kMaxKvLen);
    }
  } else {
    check(input.kv_len.size() == batch, ErrorCode::invalid_argument,
          "kv_len: has {} entries; it needs one for each of {} requests", input.kv_len.size(), batch);
    check(input.max_kv_len >= 0 && input.max_kv_len <= kMaxKvLen, ErrorCode::invalid_argument,
          "max_kv_len = {}; allowed are 0 to {}", input.max_kv_len, kMaxKvLen);
    p.max_kv_len = input.max_kv_len;
    p.num_pool_pages = static_cast<int64_t>(batch) * input.max_kv_len;
    for (size_t r = 0; r < batch; ++r) {
      draft.kv_len[r] = input.kv_len[r];
      check(input.kv_len[r] >= 0 && input.kv_len[r] <= input.max_kv_len, ErrorCode::invalid_argument,
            "kv_len[{}] = {}; allowed are 0 to max_kv_len = {}", r, input.kv_len[r], input.max_kv_len);
    }
  }
}

// ---------------------------------------------------------------- intervals

const ScalarArg* find(std::span<const ScalarArg> scalars, const std::string& name) {
  const ScalarArg* found = nullptr;
  for (const ScalarArg& scalar : scalars) {
    if (scalar.name != name) continue;
    check(found == nullptr, ErrorCode::invalid_argument, "scalar {}: is given twice; give it once", name);
    found = &scalar;
  }
  return found;
}

int resolve(const std::vector<Bound>& bounds, std::span<const ScalarArg> scalars, BoundTerm* terms) {
  int n = 0;
  for (const Bound& bound : bounds) {
    int64_t constant = bound.constant;
    if (!bound.scalar.empty()) {
      const ScalarArg* scalar = find(scalars, bound.scalar);
      check(scalar != nullptr, ErrorCode::invalid_argument,
            "scalar {}: is missing; this kernel's mask needs it at plan: add {{\"{}\", value}} to PlanInput::scalars",
            bound.scalar, bound.scalar);
      const double value = scalar->value;
      check(value == std::floor(value) && std::abs(value) <= static_cast<double>(kMaxKvLen),
            ErrorCode::invalid_argument, "scalar {} = {}; allowed are whole numbers from {} to {}, -1 for none",
            bound.scalar, value, -kMaxKvLen, kMaxKvLen);
      if (value == -1) continue;  // switched off
      constant += (bound.scalar_sign < 0 ? -1 : 1) * static_cast<int64_t>(value);
    }
    check(constant >= -kMaxInt && constant <= kMaxInt, ErrorCode::invalid_argument,
          "an interval's bound is {}; allowed are {} to {}", constant, -kMaxInt, kMaxInt);
    check(n < kMaxTerms, ErrorCode::unsupported,
          "interval: required {} bounds on one side; supported {}; missing: room for more", bounds.size(), kMaxTerms);
    terms[n++] = {bound.q_pos, bound.kv_len, static_cast<int>(constant)};
  }
  return n;
}

bool names(const Interval& interval, const std::string& name) {
  for (const Bound& bound : interval.lower)
    if (bound.scalar == name) return true;
  for (const Bound& bound : interval.upper)
    if (bound.scalar == name) return true;
  return false;
}

void resolve_intervals(const KernelTraits& traits, const PlanInput& input, Problem& p) {
  for (const Interval& interval : traits.intervals) {
    ResolvedInterval& resolved = p.intervals[p.num_intervals++];
    resolved.num_lower = resolve(interval.lower, input.scalars, resolved.lower);
    resolved.num_upper = resolve(interval.upper, input.scalars, resolved.upper);
  }
  for (const ScalarArg& scalar : input.scalars) {
    bool known = false;
    for (const Interval& interval : traits.intervals) known = known || names(interval, scalar.name);
    check(known, ErrorCode::invalid_argument,
          "scalar {}: no interval of this kernel names it; give plan only those, and the others to run", scalar.name);
  }
}

bool same(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// One level is the plain plan; what it says replaces the input's own fields.
void take_level(const PlanInput& input, Problem& p) {
  check(input.levels.size() <= 1, ErrorCode::unsupported,
        "levels: required {}; supported 0 or 1; missing: several levels in one plan", input.levels.size());
  p.qo_indptr = input.qo_indptr;
  p.pages = input.pages;
  if (input.levels.empty()) return;
  const Level& level = input.levels[0];
  check(input.qo_indptr.empty() || same(input.qo_indptr, level.qo_indptr), ErrorCode::invalid_argument,
        "levels[0].qo_indptr: differs from qo_indptr; leave one of them empty, or make them equal");
  const PageTableView& own = input.pages;
  check(own.kv_page_indptr.empty() ||
            (own.page_size == level.pages.page_size && same(own.kv_page_indptr, level.pages.kv_page_indptr) &&
             same(own.kv_page_indices, level.pages.kv_page_indices) &&
             same(own.kv_last_page_len, level.pages.kv_last_page_len)),
        ErrorCode::invalid_argument, "levels[0].pages: differ from pages; leave one of them empty, or make them equal");
  p.qo_indptr = level.qo_indptr;
  p.pages = level.pages;
}

void check_mode(const KernelTraits& traits, const PlanInput& input) {
  check(static_cast<int>(input.mode) <= static_cast<int>(PlanMode::no_split), ErrorCode::invalid_argument,
        "mode: the value {} names no mode; allowed are balanced, paper, fixed_split, no_split",
        static_cast<int>(input.mode));
  if (input.mode == PlanMode::fixed_split)
    check(input.fixed_split_size > 0 && input.fixed_split_size % traits.granule == 0, ErrorCode::invalid_argument,
          "fixed_split_size = {}; allowed are positive multiples of this kernel's granule {}", input.fixed_split_size,
          traits.granule);
  else
    check(input.fixed_split_size == 0, ErrorCode::invalid_argument,
          "fixed_split_size = {} with mode {}; leave it 0, or use PlanMode::fixed_split", input.fixed_split_size,
          to_string(input.mode));
}

}  // namespace

Problem check_input(const KernelTraits& traits, const PlanInput& input, Draft& draft) {
  check_traits(traits);
  Problem p;
  p.traits = &traits;
  check(input.num_kv_heads >= 1 && input.num_qo_heads >= 1, ErrorCode::invalid_argument,
        "num_qo_heads = {}, num_kv_heads = {}; both are at least 1", input.num_qo_heads, input.num_kv_heads);
  check(input.num_qo_heads <= 65536 && input.num_qo_heads % input.num_kv_heads == 0, ErrorCode::invalid_argument,
        "num_qo_heads = {} with num_kv_heads = {}; it is a multiple of them, at most 65536", input.num_qo_heads,
        input.num_kv_heads);
  check(input.num_workers >= 0 && input.num_workers <= kMaxWorkers, ErrorCode::invalid_argument,
        "num_workers = {}; allowed are 1 to {}, or 0 for the shared team's", input.num_workers, kMaxWorkers);
  check_mode(traits, input);
  p.num_qo_heads = input.num_qo_heads;
  p.num_kv_heads = input.num_kv_heads;
  p.group = input.num_qo_heads / input.num_kv_heads;
  p.num_workers = input.num_workers != 0 ? input.num_workers : WorkerTeam::shared().num_workers();
  p.mode = input.mode;
  p.fixed_split_size = input.fixed_split_size;
  p.bounds = input.bounds;
  p.borrow_page_ids = input.borrow_page_ids;
  take_level(input, p);
  check_indptr("qo_indptr", p.qo_indptr);
  p.num_requests = static_cast<int>(p.qo_indptr.size()) - 1;
  p.num_rows = p.qo_indptr.back();
  check_kv(traits, input, p, draft);
  resolve_intervals(traits, input, p);
  if (p.bounds != nullptr) check_within(p, draft);
  return p;
}

}  // namespace weft::planner
