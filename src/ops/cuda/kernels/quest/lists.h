// Lists of an uploaded plan, of a request and a KV head each, which kernels of Quest set.
#pragma once

#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/quest_args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::ops {

// A request's tokens and pages; those without query tokens compete.
struct RequestPages {
  int request, tokens, pages, competing;
};
// tokens / page_size, exactly: the first quotient is at most one too small.
WEFT_INLINE int pages_in(const CardRequests& args, int tokens) {
  const u32 n = static_cast<u32>(tokens), size = static_cast<u32>(args.page_size);
  const u32 quotient = static_cast<u32>(static_cast<u64>(n) * args.page_reciprocal >> 32);
  return static_cast<int>(quotient + (n - quotient * size >= size ? 1 : 0));
}
WEFT_INLINE RequestPages pages_of(const CardRequests& args, int request) {
  const int given = args.kv_len[request], tokens = clamped(given, args.most_tokens + 1);
  if (tokens != given) ptx::atomic_or(args.clamped, 1);
  const int before = tokens - args.qo_len;
  return {request, tokens, pages_in(args, tokens + args.page_size - 1), before > 0 ? pages_in(args, before) : 0};
}
WEFT_INLINE int page_id(const CardRequests& args, int request, int page) {
  const int given = args.page_table[request * args.table_stride + page], id = clamped(given, args.num_pages);
  if (id != given) ptx::atomic_or(args.clamped, 1);
  return id;
}

// One list of the plan.
struct List {
  const CardRequests& requests;
  const CardLists& to;
  RequestPages of;
  i64 first;  // among page ids

  WEFT_INLINE List(const CardRequests& all, const CardLists& lists, int request, int kv_head)
      : requests(all),
        to(lists),
        of(pages_of(all, request)),
        first((static_cast<i64>(kv_head) * all.batch + request) * lists.budget) {}

  WEFT_INLINE void put(int place, int page) const {
    to.page_ids[first + place] = page_id(requests, of.request, page);
    to.positions[first + place] = page * requests.page_size;
  }
  // What stands there is hidden: a page that exists.
  WEFT_INLINE void leave_out(int place) const {
    to.page_ids[first + place] = of.pages > 0 ? page_id(requests, of.request, of.pages - 1) : 0;
    to.positions[first + place] = to.hidden_position;
  }
  // What the request's lists have in common, by the lanes of a warp.
  WEFT_INLINE void put_lengths() const {
    if (ptx::lane() == 0) to.kv_len[of.request] = of.tokens;
    for (int i = ptx::lane(); i < requests.qo_len; i += 32)
      to.q_positions[(static_cast<i64>(of.request) * requests.qo_len + i) * to.q_position_stride] =
          of.tokens - requests.qo_len + i;
  }
};

// Of the queries of a list's group, query token by query token.
template <class Query>
WEFT_INLINE const Query* query_of(const ChooseArgs& args, const List& list, int kv_head, int row) {
  const i64 token = static_cast<i64>(list.of.request) * args.requests.qo_len + row / args.group;
  const int head = kv_head * args.group + row % args.group;
  return static_cast<const Query*>(args.q) + token * args.q_row_stride + head * args.q_head_stride;
}

}  // namespace weft::ops
