// Every check of what the caller gave to plan, and the resolution of named scalars in intervals.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "attention/plan/plan_builder.h"
#include "base/check.h"
#include "base/index_checks.h"

namespace weft::planner {
namespace {

using attention::BoundTerm;
using attention::kMaxTerms;

void check_traits(const KernelTraits& traits) {
  const size_t n = traits.classes.size();
  ensure(n >= 1 && n <= attention::kMaxTileClasses, "a kernel has {} tile classes", n);
  ensure(traits.granule >= 1, "a kernel has the granule {}", traits.granule);
  ensure(traits.intervals.size() <= attention::kMaxIntervals, "a kernel has {} intervals", traits.intervals.size());
  bool any_for_the_rest = false;
  for (const TileClass& c : traits.classes) {
    ensure(c.rows >= 1, "a kernel's {} class has tiles of {} rows", to_string(c.kind), c.rows);
    ensure(c.default_workers >= 1 && c.default_workers <= kMaxWorkers, "a kernel's {} class has {} workers by default",
           to_string(c.kind), c.default_workers);
    ensure(c.workers_of_fixed_splits >= 0 && c.workers_of_fixed_splits <= kMaxWorkers,
           "a kernel's {} class has {} workers of fixed splits", to_string(c.kind), c.workers_of_fixed_splits);
    any_for_the_rest = any_for_the_rest || (!c.one_tile && c.rows == most_rows(traits));
    for (const TileClass& other : traits.classes)
      ensure(&c == &other || (c.kind != other.kind && (c.rows != other.rows || c.one_tile != other.one_tile)),
             "a kernel's {} and {} classes are of one kind, or serve the same entries", to_string(c.kind),
             to_string(other.kind));
  }
  ensure(any_for_the_rest, "a kernel's class of most rows serves only entries of one tile");
  const PlanThresholds& t = traits.thresholds;
  ensure(t.level_enough >= 1 && t.cut >= 0 && t.dealt_at_once >= 0 && t.least_share >= 0 &&
             t.granules_per_worker >= 1 && t.merge_row >= 0 && t.shared_cost_at_most > 0 && t.least_saving >= 0 &&
             t.prefix_tree_depth >= 1 && t.least_sliver >= 0 && t.few_chunks >= 0,
         "a kernel's thresholds are not all set");
}

// What names an argument of a level in messages; of the input's own pages: nothing.
constexpr const char* kLevelName[] = {"",           "levels[0].", "levels[1].", "levels[2].", "levels[3].",
                                      "levels[4].", "levels[5].", "levels[6].", "levels[7]."};
static_assert(std::size(kLevelName) == kMaxLevels + 1);

// Writes the tokens of each entry.
void check_pages(const char* of, const PageTableView& pages, std::span<int> tokens) {
  const size_t entries = tokens.size();
  check(!pages.kv_page_indptr.empty(), ErrorCode::invalid_argument,
        "{}pages: is missing; this kernel reads a paged cache: give a PageTableView", of);
  check(pages.page_size >= 1, ErrorCode::invalid_argument, "{}pages.page_size = {}; allowed are 1 and more", of,
        pages.page_size);
  check(pages.num_pages >= 0 && pages.num_pages <= kMaxInt, ErrorCode::invalid_argument,
        "{}pages.num_pages = {}; allowed are 0 to {}", of, pages.num_pages, kMaxInt);
  check_indptr(of, "kv_page_indptr", pages.kv_page_indptr);
  check(pages.kv_page_indptr.size() == entries + 1, ErrorCode::invalid_indptr,
        "{}kv_page_indptr: has {} entries, qo_indptr has {}; both have [batch + 1]", of, pages.kv_page_indptr.size(),
        entries + 1);
  check(pages.kv_last_page_len.size() == entries, ErrorCode::invalid_argument,
        "{}kv_last_page_len: has {} entries; it needs one for each of {} requests", of, pages.kv_last_page_len.size(),
        entries);
  check(static_cast<size_t>(pages.kv_page_indptr[entries]) == pages.kv_page_indices.size(), ErrorCode::invalid_indptr,
        "{}kv_page_indptr[{}] = {}, but kv_page_indices has {} entries; the last entry is their number", of, entries,
        pages.kv_page_indptr[entries], pages.kv_page_indices.size());
  for (size_t r = 0; r < entries; ++r) {
    const int64_t n = pages.kv_page_indptr[r + 1] - pages.kv_page_indptr[r];
    const int last = pages.kv_last_page_len[r];
    if (n == 0)
      check(last == 0, ErrorCode::invalid_page, "{}kv_last_page_len[{}] = {}; it is 0 for a request without pages", of,
            r, last);
    else
      check(last >= 1 && last <= pages.page_size, ErrorCode::invalid_page,
            "{}kv_last_page_len[{}] = {}; allowed are 1 to the page size {}", of, r, last, pages.page_size);
    const int64_t len = n == 0 ? 0 : (n - 1) * pages.page_size + last;
    check(len <= kMaxKvLen, ErrorCode::invalid_argument, "{}request {}: {} tokens of KV; at most {} are allowed", of, r,
          len, kMaxKvLen);
    tokens[r] = static_cast<int>(len);
  }
  if (pages.ids_checked.covers(pages.kv_page_indices, pages.num_pages)) return;
  const size_t bad = find_bad_id(pages.kv_page_indices, 0, pages.num_pages);
  if (bad < pages.kv_page_indices.size())
    fail(ErrorCode::invalid_page, "{}kv_page_indices[{}] = {}; allowed are 0 to {}, the pool has {} pages", of, bad,
         pages.kv_page_indices[bad], pages.num_pages - 1, pages.num_pages);
}

// The pages of every level, over one cache.
void check_levels(const PlanInput& input, Problem& p, PlanBuilder& builder) {
  p.page_size = p.levels[0].pages.page_size;
  p.num_pool_pages = p.levels[0].pages.num_pages;
  p.num_page_ids = static_cast<int64_t>(p.levels[0].pages.kv_page_indices.size());
  if (p.plain) return check_pages(kLevelName[input.levels.size()], p.levels[0].pages, builder.kv_len);
  size_t num_entries = 0;
  for (int l = 0; l < p.num_levels; ++l) num_entries += p.levels[l].num_entries();
  builder.entry_len.resize(num_entries);
  num_entries = 0;
  p.num_page_ids = 0;
  for (int l = 0; l < p.num_levels; ++l) {
    LevelInput& level = p.levels[l];
    level.first_entry = num_entries;
    level.first_id = p.num_page_ids;
    num_entries += level.num_entries();
    p.num_page_ids += static_cast<int64_t>(level.pages.kv_page_indices.size());
    check_pages(kLevelName[l + 1], level.pages,
                std::span(builder.entry_len).subspan(level.first_entry, level.num_entries()));
    check(level.pages.page_size == p.page_size && level.pages.num_pages == p.num_pool_pages,
          ErrorCode::invalid_argument,
          "levels[{}].pages: {} pages of {} tokens, and levels[0] has {} of {}; all levels lie in one cache", l,
          level.pages.num_pages, level.pages.page_size, p.num_pool_pages, p.page_size);
  }
  check(p.num_page_ids <= kMaxInt, ErrorCode::invalid_argument, "levels: {} page ids in all; at most {} are allowed",
        p.num_page_ids, kMaxInt);
}

const char* cache_name(KvForm form) {
  switch (form) {
    case KvForm::block_sparse: return "block-sparse";
    case KvForm::ragged: return "ragged";
    case KvForm::padded: return "padded";
    default: return "paged";
  }
}

// What is given is what caches of this form have.
void check_form(KvForm form, const PlanInput& input, const Problem& p) {
  const bool paged = has_page_table(form), blocks = form == KvForm::block_sparse;
  check(form != KvForm::latent || p.num_kv_heads == 1, ErrorCode::invalid_argument,
        "num_kv_heads = {}: a latent cache has one row a token for all query heads; give 1", p.num_kv_heads);
  const PageTableView& pages = p.levels[0].pages;
  const bool has_pages =
      !pages.kv_page_indptr.empty() || !pages.kv_page_indices.empty() || !pages.kv_last_page_len.empty();
  check(paged || !has_pages, ErrorCode::invalid_argument, "pages: this kernel reads a {} cache; leave pages empty",
        cache_name(form));
  check(paged || input.levels.empty(), ErrorCode::invalid_argument,
        "levels: this kernel reads a {} cache; levels share pages: build it for KvForm::paged, or leave them empty",
        cache_name(form));
  check(blocks == (input.blocks != nullptr), ErrorCode::invalid_argument, "blocks: {}",
        blocks ? "are missing; this kernel reads a block-sparse cache"
               : "are for a kernel with kv_form = block_sparse; leave them out");
  check(form == KvForm::ragged || input.kv_indptr.empty(), ErrorCode::invalid_argument,
        "kv_indptr: this kernel reads a {} cache; leave kv_indptr empty", cache_name(form));
  check(form == KvForm::padded || input.kv_len.empty(), ErrorCode::invalid_argument,
        "kv_len: this kernel reads a {} cache; leave kv_len empty", cache_name(form));
  check(form == KvForm::padded || input.max_kv_len == 0, ErrorCode::invalid_argument,
        "max_kv_len = {}: only a padded cache has it; leave it 0", input.max_kv_len);
}

void check_ragged(const PlanInput& input, Problem& p, PlanBuilder& builder) {
  const auto batch = static_cast<size_t>(p.num_requests);
  check_indptr("", "kv_indptr", input.kv_indptr);
  check(input.kv_indptr.size() == batch + 1, ErrorCode::invalid_indptr,
        "kv_indptr: has {} entries, qo_indptr has {}; both have [batch + 1]", input.kv_indptr.size(), batch + 1);
  p.kv_indptr = input.kv_indptr;
  p.num_pool_pages = input.kv_indptr[batch];
  for (size_t r = 0; r < batch; ++r) {
    builder.kv_len[r] = input.kv_indptr[r + 1] - input.kv_indptr[r];
    check(builder.kv_len[r] <= kMaxKvLen, ErrorCode::invalid_argument,
          "request {}: {} tokens of KV; at most {} are allowed", r, builder.kv_len[r], kMaxKvLen);
  }
}

void check_padded(const PlanInput& input, Problem& p, PlanBuilder& builder) {
  const auto batch = static_cast<size_t>(p.num_requests);
  check(input.kv_len.size() == batch, ErrorCode::invalid_argument,
        "kv_len: has {} entries; it needs one for each of {} requests", input.kv_len.size(), batch);
  check(input.max_kv_len >= 0 && input.max_kv_len <= kMaxKvLen, ErrorCode::invalid_argument,
        "max_kv_len = {}; allowed are 0 to {}", input.max_kv_len, kMaxKvLen);
  p.max_kv_len = input.max_kv_len;
  p.num_pool_pages = static_cast<int64_t>(batch) * input.max_kv_len;
  for (size_t r = 0; r < batch; ++r) {
    builder.kv_len[r] = input.kv_len[r];
    check(input.kv_len[r] >= 0 && input.kv_len[r] <= input.max_kv_len, ErrorCode::invalid_argument,
          "kv_len[{}] = {}; allowed are 0 to max_kv_len = {}", r, input.kv_len[r], input.max_kv_len);
  }
}

void check_kv(const KernelTraits& traits, const PlanInput& input, Problem& p, PlanBuilder& builder) {
  check_form(traits.kv_form, input, p);
  builder.kv_len.resize(static_cast<size_t>(p.num_requests));
  switch (traits.kv_form) {
    case KvForm::block_sparse: p.blocks = input.blocks; return check_blocks(p, builder);
    case KvForm::ragged: return check_ragged(input, p, builder);
    case KvForm::padded: return check_padded(input, p, builder);
    default: return check_levels(input, p, builder);
  }
}

// ---------------------------------------------------------------- intervals

const ScalarArg* find(std::span<const ScalarArg> scalars, std::string_view name) {
  const ScalarArg* found = nullptr;
  for (const ScalarArg& scalar : scalars) {
    if (scalar.name != name) continue;
    check(found == nullptr, ErrorCode::invalid_argument, "scalar {}: is given twice; give it once", name);
    found = &scalar;
  }
  return found;
}

int value_of(std::string_view name, const KernelTraits& traits, const PlanInput& input) {
  const ScalarArg* scalar = find(input.scalars, name);
  if (scalar == nullptr) scalar = find(traits.defaults, name);
  check(scalar != nullptr, ErrorCode::invalid_argument,
        "scalar {}: is missing; this kernel's mask needs it at plan: add {{\"{}\", value}} to PlanInput::scalars", name,
        name);
  check(scalar->value == std::floor(scalar->value) && std::abs(scalar->value) <= static_cast<double>(kMaxKvLen),
        ErrorCode::invalid_argument, "scalar {} = {}; allowed are whole numbers from {} to {}, -1 for none", name,
        scalar->value, -kMaxKvLen, kMaxKvLen);
  return static_cast<int>(scalar->value);
}

int resolve(const std::vector<Bound>& bounds, std::span<const std::string_view> names, const int* values,
            BoundTerm* terms) {
  int n = 0;
  for (const Bound& bound : bounds) {
    int64_t constant = bound.constant;
    if (!bound.scalar.empty()) {
      const int value = values[std::find(names.begin(), names.end(), bound.scalar) - names.begin()];
      if (value == -1) continue;  // switched off
      constant += (bound.scalar_sign < 0 ? -1 : 1) * int64_t{value};
    }
    check(constant >= -kMaxInt && constant <= kMaxInt, ErrorCode::invalid_argument,
          "an interval's bound is {}; allowed are {} to {}", constant, -kMaxInt, kMaxInt);
    check(n < kMaxTerms, ErrorCode::unsupported,
          "interval: required {} bounds on one side; supported {}; missing: room for more", bounds.size(), kMaxTerms);
    terms[n++] = {bound.q_pos, bound.kv_len, static_cast<int>(constant)};
  }
  return n;
}

void resolve_intervals(const KernelTraits& traits, const PlanInput& input, Problem& p) {
  const std::vector<std::string_view> names = interval_scalars(traits.intervals);
  ensure(names.size() <= static_cast<size_t>(attention::kMaxScalars), "a kernel's intervals name {} scalars",
         names.size());
  for (size_t i = 0; i < names.size(); ++i) p.scalars[i] = value_of(names[i], traits, input);
  for (const Interval& interval : traits.intervals) {
    ResolvedInterval& resolved = p.intervals[p.num_intervals++];
    resolved.num_lower = resolve(interval.lower, names, p.scalars, resolved.lower);
    resolved.num_upper = resolve(interval.upper, names, p.scalars, resolved.upper);
  }
  for (const ScalarArg& scalar : input.scalars)
    check(std::find(names.begin(), names.end(), scalar.name) != names.end(), ErrorCode::invalid_argument,
          "scalar {}: no interval of this kernel names it; give plan only those, and the others to run", scalar.name);
}

bool same(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void check_order(std::span<const int32_t> order, int num_requests) {
  check(static_cast<int>(order.size()) == num_requests, ErrorCode::invalid_argument,
        "request_order: has {} entries for {} requests; it names each of them once", order.size(), num_requests);
  std::vector<char> named(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    check(order[i] >= 0 && order[i] < num_requests && named[order[i]] == 0, ErrorCode::invalid_argument,
          "request_order[{}] = {}; it names each of {} requests once", i, order[i], num_requests);
    named[order[i]] = 1;
  }
}

// Requests and levels. The input's own pages, or one level of the same rows, are the plain plan.
void take_levels(const PlanInput& input, Problem& p) {
  const std::span<const Level> levels = input.levels;
  check(levels.size() <= kMaxLevels, ErrorCode::unsupported,
        "levels: required {}; supported {}; missing: room for more, join the least shared ones", levels.size(),
        kMaxLevels);
  p.qo_indptr = input.qo_indptr;
  if (levels.empty()) {
    check_indptr("", "qo_indptr", p.qo_indptr);
    check(input.request_order.empty(), ErrorCode::invalid_argument,
          "request_order: has {} entries and levels is empty; it orders the rows of levels",
          input.request_order.size());
    p.levels[0] = {p.qo_indptr, input.pages};
  } else {
    if (p.qo_indptr.empty()) p.qo_indptr = levels.back().qo_indptr;
    check_indptr("", "qo_indptr", p.qo_indptr);
    p.num_levels = static_cast<int>(levels.size());
    for (int l = 0; l < p.num_levels; ++l) {
      p.levels[l] = {levels[l].qo_indptr, levels[l].pages};
      check_indptr(kLevelName[l + 1], "qo_indptr", levels[l].qo_indptr);
      check(
          levels[l].qo_indptr.back() == p.qo_indptr.back(), ErrorCode::invalid_indptr,
          "levels[{}].qo_indptr: ends at {}, qo_indptr at {}; every level holds every query token, in entries without "
          "pages where it adds no key",
          l, levels[l].qo_indptr.back(), p.qo_indptr.back());
    }
    check(input.pages.kv_page_indptr.empty(), ErrorCode::invalid_argument,
          "pages: are given beside levels; leave them empty, levels hold every page");
    p.request_order = input.request_order;
    p.plain = p.num_levels == 1 && p.request_order.empty() && same(p.qo_indptr, levels[0].qo_indptr);
  }
  p.num_requests = static_cast<int>(p.qo_indptr.size()) - 1;
  p.num_rows = p.qo_indptr.back();
  check(p.num_rows <= kMaxRows, ErrorCode::invalid_argument,
        "qo_indptr: ends at {} query tokens; at most {} are planned at once", p.num_rows, kMaxRows);
  if (!p.request_order.empty()) check_order(p.request_order, p.num_requests);
}

void check_mode(const KernelTraits& traits, const PlanInput& input) {
  check(static_cast<int>(input.mode) <= static_cast<int>(PlanMode::even), ErrorCode::invalid_argument,
        "mode: the value {} names no mode; allowed are balanced, paper, fixed_split, no_split, even",
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

Problem check_input(const KernelTraits& traits, const PlanInput& input, PlanBuilder& builder) {
  check_traits(traits);
  Problem p;
  p.traits = &traits;
  check(input.num_kv_heads >= 1 && input.num_qo_heads >= 1, ErrorCode::invalid_argument,
        "num_qo_heads = {}, num_kv_heads = {}; both are at least 1", input.num_qo_heads, input.num_kv_heads);
  check(input.num_qo_heads <= 65536 && input.num_qo_heads % input.num_kv_heads == 0, ErrorCode::invalid_argument,
        "num_qo_heads = {} with num_kv_heads = {}; it is a multiple of them, at most 65536", input.num_qo_heads,
        input.num_kv_heads);
  check(input.num_workers >= 0 && input.num_workers <= kMaxWorkers, ErrorCode::invalid_argument,
        "num_workers = {}; allowed are 1 to {}, or 0 for the kernel's default", input.num_workers, kMaxWorkers);
  check_mode(traits, input);
  p.num_qo_heads = input.num_qo_heads;
  p.num_kv_heads = input.num_kv_heads;
  p.group = input.num_qo_heads / input.num_kv_heads;
  p.num_workers = input.num_workers;
  p.mode = input.mode;
  p.fixed_split_size = input.fixed_split_size;
  p.bounds = input.bounds;
  check(input.spare_pages >= 0 && input.spare_pages <= kMaxInt - p.num_page_ids, ErrorCode::invalid_argument,
        "spare_pages = {}; allowed are 0 to {} beside {} page ids", input.spare_pages, kMaxInt - p.num_page_ids,
        p.num_page_ids);
  p.spare_pages = input.spare_pages;
  p.borrow_page_ids = input.borrow_page_ids;
  p.mask_indptr = input.mask_indptr;
  take_levels(input, p);
  check_kv(traits, input, p, builder);
  check(
      traits.page_size == 0 || p.page_size == traits.page_size, ErrorCode::invalid_argument,
      "page_size = {}: this kernel was built for pages of {}; build it for others, or leave AttentionSpec::page_size 0",
      p.page_size, traits.page_size);
  resolve_intervals(traits, input, p);
  return p;
}

void check_mask(const Problem& p, const PlanBuilder& builder) {
  const std::span<const int64_t> indptr = p.mask_indptr;
  const Mask mask = p.traits->custom_mask;
  if (mask == Mask::none)
    return check(indptr.empty(), ErrorCode::invalid_argument,
                 "mask_indptr: has {} entries; this kernel has no custom mask, leave it empty", indptr.size());
  check(indptr.size() == static_cast<size_t>(p.num_requests) + 1, ErrorCode::invalid_indptr,
        "mask_indptr: has {} entries for {} requests; a custom mask needs [batch + 1]", indptr.size(), p.num_requests);
  check(indptr[0] == 0, ErrorCode::invalid_indptr, "mask_indptr[0] = {}; an indptr starts at 0", indptr[0]);
  for (int r = 0; r < p.num_requests; ++r) {
    const int64_t begin = indptr[r], end = indptr[r + 1], needed = mask_part(mask, p.qo_len(r), builder.kv_len[r]);
    check(begin <= end, ErrorCode::invalid_indptr, "mask_indptr[{}] = {} after {}; an indptr never decreases", r + 1,
          end, begin);
    check(needed <= end - begin, ErrorCode::invalid_indptr,
          "mask_indptr: request {} has {} bytes, from {} to {}; qo_len {} x kv_len {}{} need {}", r, end - begin, begin,
          end, p.qo_len(r), builder.kv_len[r], mask == Mask::custom ? "" : " bits", needed);
  }
}

}  // namespace weft::planner
