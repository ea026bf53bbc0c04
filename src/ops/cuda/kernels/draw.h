// Draws a token from each row of logits, or of probabilities, by the rule of tile/abi/draw.h. A row is a cluster's, cut
// among its CTAs.
//
//   largest logit -> bins by exponent -> the bin where filters end
//     few tokens down to its end:  these, ordered by comparing each with each, and one of them drawn
//     many:                        the bin's last key, 8 bits of it a pass over the row
//                                  kept weights of slices of the row -> the slice -> its slices -> ... -> the token
//
// Nothing is sorted, and sums are of integers: their order is the scheduler's, their value is not.
#pragma once

#include "ops/cuda/kernels/draw_row.h"
#include "tile/cuda/greatest.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::ops {

// The last token that filters keep: of those with this key the first `ties` in order of ids, and all with larger keys.
struct LastToken {
  u32 key = 0;
  u64 ties = 0;
};
// A bin, and what lies before it. Behind all bins: all of them.
struct FoundBin {
  int bin;
  u64 count, sum;
};
struct Weighed {
  int weight;
  bool ties;  // with the last token
};
enum class Wanted : u8 { count, weight };

// How numbers weigh: by a measure that falls nowhere as they rise. Bins are of measures that weigh.
struct Logits {
  static constexpr bool kAreProbabilities = false;
  static_assert(-tile::kLeastExponent * 48.f + 1.f < kDrawBins);
  WEFT_INLINE static float measure(float x, float largest, float scale) {
    return tile::draw_exponent<CardMath>(x, largest, scale);
  }
  WEFT_INLINE static int weight(float measure) { return tile::draw_weight<CardMath>(measure); }
  WEFT_INLINE static int bin(float measure) { return static_cast<int>(ptx::product(measure, -48.f)); }
};
struct Probabilities {
  static constexpr bool kAreProbabilities = true;
  static constexpr int kStep = 18;  // 32 bins of a share that is half as large
  static_assert(30 * (1 << (23 - kStep)) < kDrawBins);
  WEFT_INLINE static float measure(float x, float largest, float scale) {
    return tile::draw_share<CardMath>(x, largest, scale);
  }
  WEFT_INLINE static int weight(float measure) { return tile::share_weight<CardMath>(measure); }
  WEFT_INLINE static int bin(float measure) { return tile::steps_below_one<CardMath, kStep>(measure); }
};

template <class Of>
class DrawOfRow {
 public:
  WEFT_INLINE DrawOfRow(const DrawArgs& args, const DrawRow& row, DrawShared& shared, int index)
      : args_(args),
        row_(row),
        mask_(row.mask),
        scale_(row.rule.scale),
        shared_(shared),
        index_(index),
        logits_(args.logits + row.row * args.stride),
        begin_(static_cast<int>(static_cast<i64>(args.columns) * row_rank() / row_ctas())),
        end_(static_cast<int>(static_cast<i64>(args.columns) * (row_rank() + 1) / row_ctas())) {}

  WEFT_INLINE void run() {
    change();
    tile::Greatest greatest = find_greatest();
    if (Of::kAreProbabilities && !(greatest.value > 0.f && greatest.value <= kMostFinite)) greatest.index = -1;
    if (greatest.index < 0 || row_.rule.is_greedy()) {
      if (row_rank() == 0 && ptx::thread_index() == 0) {
        args_.ids[index_] = greatest.index;
        if (greatest.index < 0 && args_.flag != nullptr) ptx::atomic_or(args_.flag, args_.flag_bit);
      }
      return;
    }
    largest_ = greatest.value;
    if constexpr (Of::kAreProbabilities) scale_ = tile::scale_of_shares(largest_);
    if (row_.rule.top_k == 0 && !row_.rule.has_share()) return draw_down_to(with_least({}));
    fill_bins();
    filter();
  }

 private:
  using Rule = tile::DrawRule;
  static constexpr float kMostFinite = 3.402823466e38f;

  // ------------------------------------------------------------ the row

  WEFT_INLINE float logit(int i) const {
    const bool is_allowed = mask_ == nullptr || (mask_[i / 32] >> (i % 32) & 1u) != 0;
    return is_allowed ? logits_[i] : ptx::from_bits(0xff800000u);
  }
  WEFT_INLINE float measure_of(float x) const { return Of::measure(x, largest_, scale_); }
  // Of each token that has the key.
  WEFT_INLINE int weight_of_key(u32 key) const { return Of::weight(measure_of(logit_of(key))); }

  WEFT_INLINE u64 drawn_below(u64 total) const { return tile::scaled_below(row_.bits, total); }
  // The weight that filters ask for of all tokens, which weigh `sum`.
  WEFT_INLINE u64 share_of_all(u64 sum) const {
    const u64 whole = Of::kAreProbabilities && row_.rule.joint ? tile::weight_of_one(scale_) : sum;
    const u64 share = tile::weight_of_share(whole, row_.rule.share);
    return share < sum ? share : sum;
  }
  // Probabilities of at least a share of the largest one, if this is sooner behind the last one.
  WEFT_INLINE LastToken with_least(LastToken last) const {
    if constexpr (Of::kAreProbabilities) {
      const float least = ptx::product(row_.rule.least_share, largest_);
      const u32 key = least > 0.f ? key_of(least) - 1 : 0;
      if (key >= last.key) last = {key, 0};
    }
    return last;
  }

  // take(i, logit) of some of [begin, end), those of this thread. Loads are ahead of what is done with them.
  template <class Take>
  WEFT_INLINE void for_each(int begin, int end, int thread, int threads, const Take& take) const {
    constexpr int kAhead = 4;
    for (int at = begin + thread; at < end; at += kAhead * threads) {
      float x[kAhead];
      WEFT_UNROLL
      for (int j = 0; j < kAhead; ++j)
        if (at + j * threads < end) x[j] = logit(at + j * threads);
      WEFT_UNROLL
      for (int j = 0; j < kAhead; ++j)
        if (at + j * threads < end) take(at + j * threads, x[j]);
    }
  }
  template <class Take>
  WEFT_INLINE void for_part(const Take& take) const {
    for_each(begin_, end_, ptx::thread_index(), kDrawThreads, take);
  }

  WEFT_INLINE void change() const {
    for (int i = ptx::thread_index(); i < row_.num_changes; i += kDrawThreads) {
      const tile::LogitChange of = args_.changes[row_.first_change + i];
      if (of.id >= begin_ && of.id < end_)
        logits_[of.id] = tile::changed_logit<CardMath>(logits_[of.id], row_.penalties, of);
    }
    ptx::cta_sync();
  }

  WEFT_INLINE static u64 packed(const tile::Greatest& x) {
    return static_cast<u64>(ptx::to_bits(x.value)) << 32 | static_cast<u32>(x.index);
  }
  WEFT_INLINE static tile::Greatest unpacked(u64 x) {
    tile::Greatest greatest;
    greatest.value = ptx::from_bits(static_cast<u32>(x >> 32));
    greatest.index = static_cast<int>(static_cast<u32>(x));
    return greatest;
  }
  WEFT_INLINE tile::Greatest find_greatest() {
    tile::Greatest own;
    // Of probabilities a NaN is no less than inf: neither is drawn from.
    for_part([&](int i, float x) { own.take(Of::kAreProbabilities && x != x ? ptx::from_bits(0x7f800000u) : x, i); });
    own = tile::lane_greatest(own);
    if (ptx::lane() == 0) shared_.greatest[ptx::warp()] = packed(own);
    ptx::cta_sync();
    if (ptx::thread_index() == 0) {
      for (int warp = 1; warp < kDrawWarps; ++warp) own.take(unpacked(shared_.greatest[warp]));
      shared_.greatest[kDrawWarps] = packed(own);
    }
    row_sync();
    tile::Greatest all;
    for (int rank = 0; rank < row_ctas(); ++rank) all.take(unpacked(row_shared(shared_.greatest, rank)[kDrawWarps]));
    return all;
  }

  // ------------------------------------------------------------ bins

  WEFT_INLINE void clear_own(int bins) {
    for (int i = ptx::thread_index(); i < bins; i += kDrawThreads)
      shared_.own.count[i] = shared_.own.low[i] = shared_.own.high[i] = 0;
    ptx::cta_sync();
  }
  // Of all CTAs, of which none changes its own before all have them.
  template <int kBins, class Bins>
  WEFT_INLINE void join(Bins& bins) {
    row_sync();
    for (int i = ptx::thread_index(); i < kBins; i += kDrawThreads) {
      bins.count[i] = 0;
      bins.sum[i] = 0;
      for (int rank = 0; rank < row_ctas(); ++rank) {
        const auto* const other = row_shared(&shared_.own, rank);
        bins.count[i] += other->count[i];
        bins.sum[i] += static_cast<u64>(other->high[i]) << 32 | other->low[i];
      }
    }
    row_sync();
  }
  WEFT_INLINE void fill_bins() {
    clear_own(kDrawBins);
    for_part([&](int, float x) {
      const float measure = measure_of(x);
      const int weight = Of::weight(measure);
      if (weight > 0) add_to_bin(shared_.own, Of::bin(measure), static_cast<u32>(weight));
    });
    join<kDrawBins>(shared_.bins);
  }

  // The bin with which the first ones reach what is wanted.
  template <int kBins, class Bins>
  WEFT_INLINE FoundBin find(const Bins& bins, Wanted by, u64 wanted) {
    constexpr int kEach = kBins < kDrawThreads ? 1 : kBins / kDrawThreads;
    const int first = ptx::thread_index() * kEach;
    u64 count = 0, sum = 0;
    for (int i = first; i < first + kEach && i < kBins; ++i) count += bins.count[i], sum += bins.sum[i];
    const u64 counts = running_lane_sum(count), sums = running_lane_sum(sum);
    if (ptx::lane() == 31) shared_.warp_counts[ptx::warp()] = counts, shared_.warp_sums[ptx::warp()] = sums;
    if (ptx::thread_index() == 0) shared_.found = kBins;
    ptx::cta_sync();
    FoundBin at{first, counts - count, sums - sum};
    for (int warp = 0; warp < ptx::warp(); ++warp)
      at.count += shared_.warp_counts[warp], at.sum += shared_.warp_sums[warp];
    for (; at.bin < first + kEach && at.bin < kBins; ++at.bin) {
      const u64 before = by == Wanted::count ? at.count : at.sum;
      const u64 own = by == Wanted::count ? bins.count[at.bin] : bins.sum[at.bin];
      if (before < wanted && wanted <= before + own) {
        shared_.found = at.bin;
        shared_.found_count = static_cast<u32>(at.count);
        shared_.found_sum = at.sum;
      }
      at.count += bins.count[at.bin], at.sum += bins.sum[at.bin];
    }
    ptx::cta_sync();
    FoundBin found{shared_.found, shared_.found_count, shared_.found_sum};
    if (found.bin == kBins) {
      found.count = found.sum = 0;
      for (int warp = 0; warp < kDrawWarps; ++warp)
        found.count += shared_.warp_counts[warp], found.sum += shared_.warp_sums[warp];
    }
    ptx::cta_sync();  // what is shared is free again
    return found;
  }
  WEFT_INLINE FoundBin find_all() { return find<kDrawBins>(shared_.bins, Wanted::count, ~0ull); }

  // The last of those of the bin that reach what is wanted, and the weight of all up to it.
  WEFT_INLINE LastToken last_of_bin(FoundBin in, Wanted by, u64 wanted, u64& weight) {
    u32 prefix = 0;
    u64 sum = in.sum, count = in.count;
    WEFT_NO_UNROLL
    for (int shift = 24; shift >= 0; shift -= 8) {
      clear_own(kDrawKeyBins);
      for_part([&](int, float x) {
        const float measure = measure_of(x);
        const int weighs = Of::weight(measure);
        const u32 key = key_of(x);
        if (weighs == 0 || Of::bin(measure) != in.bin || (shift < 24 && key >> (shift + 8) != prefix)) return;
        add_to_bin(shared_.own, static_cast<int>(255 - (key >> shift & 255)), static_cast<u32>(weighs));
      });
      join<kDrawKeyBins>(shared_.key_bins);
      const u64 before = by == Wanted::count ? count : sum;
      const FoundBin found = find<kDrawKeyBins>(shared_.key_bins, by, wanted - before);
      prefix = prefix << 8 | static_cast<u32>(255 - found.bin);
      count += found.count;
      sum += found.sum;
    }
    LastToken last;
    last.key = prefix;
    const auto of_key = static_cast<u64>(weight_of_key(prefix));
    last.ties = by == Wanted::count ? wanted - count : (wanted - sum + of_key - 1) / of_key;
    if (row_.rule.keeps_ties) last.ties = shared_.key_bins.count[255 - (prefix & 255)];
    weight = sum + last.ties * of_key;
    return last;
  }

  // ------------------------------------------------------------ where filters end

  WEFT_INLINE void filter() {
    const Rule& rule = row_.rule;
    const FoundBin all = find_all();
    const bool is_cut = rule.top_k > 0 && static_cast<u64>(rule.top_k) < all.count;
    const bool is_share_of_all = rule.has_share() && (rule.joint || !is_cut);
    if (!is_cut && !rule.has_share()) return draw_down_to(with_least({}));
    const u64 share = share_of_all(all.sum);
    FoundBin end = all;
    const FoundBin by_count = find<kDrawBins>(shared_.bins, Wanted::count, static_cast<u64>(rule.top_k));
    if (is_cut) end = by_count;
    const FoundBin by_share = find<kDrawBins>(shared_.bins, Wanted::weight, share);
    if (is_share_of_all && by_share.bin < end.bin) end = by_share;
    if (end.count + shared_.bins.count[end.bin] <= kDrawFew)
      return draw_of_few(end.bin, is_cut, is_share_of_all, share);

    u64 weight = all.sum;
    LastToken last{};
    if (is_cut) last = last_of_bin(by_count, Wanted::count, static_cast<u64>(rule.top_k), weight);
    if (rule.has_share()) {
      const u64 wanted = is_share_of_all ? share : tile::weight_of_share(weight, rule.share);
      const FoundBin found = find<kDrawBins>(shared_.bins, Wanted::weight, wanted);
      const LastToken of_share = last_of_bin(found, Wanted::weight, wanted, weight);
      if (of_share.key > last.key || (of_share.key == last.key && of_share.ties < last.ties)) last = of_share;
    }
    draw_down_to(with_least(last));
  }

  // ------------------------------------------------------------ few tokens

  // All of the first bins, up to `last_bin`, in this CTA's memory.
  WEFT_INLINE int gather(int last_bin) {
    auto& few = shared_.few;
    if (ptx::thread_index() == 0) few.count = 0;
    ptx::cta_sync();
    for_part([&](int i, float x) {
      const float measure = measure_of(x);
      const int weight = Of::weight(measure);
      if (weight == 0 || Of::bin(measure) > last_bin) return;
      const u32 at = ptx::atomic_add_shared(&few.count, 1);
      few.logit[at] = x;
      few.id[at] = i;
      few.weight[at] = weight;
    });
    row_sync();
    u32 count = few.count;
    if (row_rank() == 0)
      for (int rank = 1; rank < row_ctas(); ++rank) {
        const auto* const other = row_shared(&few, rank);
        const u32 more = other->count;
        for (u32 i = static_cast<u32>(ptx::thread_index()); i < more; i += kDrawThreads) {
          few.logit[count + i] = other->logit[i];
          few.id[count + i] = other->id[i];
          few.weight[count + i] = other->weight[i];
        }
        count += more;
      }
    row_sync();
    return static_cast<int>(count);
  }

  // By the first CTA; a token is a thread's, which compares it with all others.
  WEFT_INLINE void draw_of_few(int last_bin, bool is_cut, bool is_share_of_all, u64 share) {
    const int count = gather(last_bin);
    if (row_rank() > 0) return;
    auto& few = shared_.few;
    const int own = ptx::thread_index();
    const bool is_there = own < count;
    const float logit = is_there ? few.logit[own] : 0.f;
    const int id = is_there ? few.id[own] : 0;
    u64 weight = is_there ? static_cast<u64>(few.weight[own]) : 0, before = 0;
    int rank = 0;
    for (int i = 0; is_there && i < count; ++i) {
      const bool is_before = few.logit[i] > logit || (few.logit[i] == logit && few.id[i] < id && !row_.rule.keeps_ties);
      rank += is_before ? 1 : 0;
      before += is_before ? static_cast<u64>(few.weight[i]) : 0;
    }
    if (is_cut && rank >= row_.rule.top_k) weight = 0;
    if (row_.rule.has_share()) {
      if (!is_share_of_all) share = tile::weight_of_share(cta_total(weight, shared_.warp_sums), row_.rule.share);
      if (before >= share) weight = 0;
    }
    if (weight < static_cast<u64>(row_.rule.least_weight)) weight = 0;
    if (Of::kAreProbabilities && logit < ptx::product(row_.rule.least_share, largest_)) weight = 0;
    const u64 total = cta_total(weight, shared_.warp_counts);
    if (is_there) few.weight[own] = static_cast<int>(weight);
    ptx::cta_sync();
    const u64 drawn = drawn_below(total);
    u64 sum = 0;
    for (int i = 0; weight > 0 && i < count; ++i) sum += few.id[i] < id ? static_cast<u64>(few.weight[i]) : 0;
    if (weight > 0 && sum <= drawn && drawn < sum + weight) args_.ids[index_] = id;
  }

  // ------------------------------------------------------------ any number of tokens

  WEFT_INLINE Weighed kept(float x, LastToken last) const {
    const int weight = Of::weight(measure_of(x));
    if (weight < row_.rule.least_weight) return {0, false};
    const u32 key = key_of(x);
    return {key > last.key ? weight : 0, key == last.key};
  }
  // Of [begin, end): a warp's.
  WEFT_INLINE void sum_slice(int begin, int end, LastToken last, u64& sum, u32& ties) const {
    u64 own = 0, tied = 0;
    for_each(begin, end, ptx::lane(), 32, [&](int, float x) {
      const Weighed token = kept(x, last);
      own += static_cast<u64>(token.weight);
      tied += token.ties ? 1 : 0;
    });
    own = lane_total(own);
    tied = lane_total(tied);
    if (ptx::lane() == 0) sum = own, ties = static_cast<u32>(tied);
  }

  // The slice that `left` is in, of slices in order of ids; takes off what lies before it. One warp.
  struct Left {
    u64 weight, ties;  // still to pass; that may be drawn
  };
  WEFT_INLINE int choose_slice(const u64* sums, const u32* ties, int count, int of_tie, Left& left) const {
    for (int at = 0;; at += 32) {
      const int i = at + ptx::lane();
      const u64 sum = i < count ? sums[i] : 0, tied = i < count ? ties[i] : 0;
      const u64 ties_before = running_lane_sum(tied) - tied;
      const u64 room = ties_before < left.ties ? left.ties - ties_before : 0;
      const u64 weight = sum + (tied < room ? tied : room) * static_cast<u64>(of_tie);
      const u64 end = running_lane_sum(weight);
      const int chosen = ptx::least_of_lanes(end > left.weight ? ptx::lane() : 32);
      if (chosen < 32) {
        left.weight -= shuffle_wide(end - weight, chosen);
        left.ties = shuffle_wide(room, chosen);
        return at + chosen;
      }
      left.weight -= shuffle_wide(end, 31);
      const u64 all_ties = shuffle_wide(ties_before + tied, 31);
      left.ties = all_ties < left.ties ? left.ties - all_ties : 0;
    }
  }

  WEFT_INLINE static int slice_begin(int begin, int end, int slice) {
    return begin + static_cast<int>(static_cast<i64>(end - begin) * slice / kDrawWarps);
  }

  // First by all CTAs, a slice a warp; then the one whose slice it is cuts that in slices, until one is a warp's width.
  WEFT_INLINE void draw_down_to(LastToken last) {
    auto& slices = shared_.slices;
    auto& own = shared_.of_warps;
    const int warp = ptx::warp(), num_slices = row_ctas() * kDrawWarps;
    sum_slice(slice_begin(begin_, end_, warp), slice_begin(begin_, end_, warp + 1), last, own.sum[warp],
              own.ties[warp]);
    row_sync();
    for (int i = ptx::thread_index(); i < num_slices; i += kDrawThreads) {
      slices.sum[i] = row_shared(&own, i / kDrawWarps)->sum[i % kDrawWarps];
      slices.ties[i] = row_shared(&own, i / kDrawWarps)->ties[i % kDrawWarps];
    }
    row_sync();
    // A token with the last key weighs as much as any other that has it.
    int of_tie = last.ties > 0 ? weight_of_key(last.key) : 0;
    if (of_tie < row_.rule.least_weight) of_tie = 0;
    Left left{0, last.ties};
    if (warp == 0) {
      u64 total = 0;
      for (int i = ptx::lane(); i < num_slices; i += 32) total += slices.sum[i];
      left.weight = drawn_below(lane_total(total) + last.ties * static_cast<u64>(of_tie));
      const int chosen = choose_slice(slices.sum, slices.ties, num_slices, of_tie, left);
      if (ptx::lane() == 0) shared_.found = chosen;
    }
    ptx::cta_sync();
    const int found = shared_.found;
    if (found / kDrawWarps != row_rank()) return;
    int begin = slice_begin(begin_, end_, found % kDrawWarps), end = slice_begin(begin_, end_, found % kDrawWarps + 1);
    while (end - begin > 32) {
      sum_slice(slice_begin(begin, end, warp), slice_begin(begin, end, warp + 1), last, own.sum[warp], own.ties[warp]);
      ptx::cta_sync();
      if (warp == 0) {
        const int chosen = choose_slice(own.sum, own.ties, kDrawWarps, of_tie, left);
        if (ptx::lane() == 0) shared_.found = chosen;
      }
      ptx::cta_sync();
      const int slice = shared_.found, from = begin;
      begin = slice_begin(from, end, slice);
      end = slice_begin(from, end, slice + 1);
    }
    if (warp == 0) pick(begin, end, last, of_tie, left);
  }

  // Of at most as many tokens as the warp has lanes.
  WEFT_INLINE void pick(int begin, int end, LastToken last, int of_tie, Left left) const {
    const int i = begin + ptx::lane();
    const Weighed token = i < end ? kept(logit(i), last) : Weighed{0, false};
    const u64 tied = token.ties ? 1 : 0, ties_before = running_lane_sum(tied) - tied;
    const u64 weight =
        static_cast<u64>(token.weight) + (token.ties && ties_before < left.ties ? static_cast<u64>(of_tie) : 0);
    const u64 sum = running_lane_sum(weight);
    if (sum > left.weight && sum - weight <= left.weight) args_.ids[index_] = i;
  }

  const DrawArgs& args_;
  const DrawRow& row_;  // in memory; what each token asks for is held
  const unsigned* const mask_;
  float scale_;
  DrawShared& shared_;
  const int index_;  // of the launch's rows
  float* const logits_;
  const int begin_, end_;  // this CTA's part
  float largest_ = 0.f;
};

WEFT_INLINE void draw(const DrawArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const int index = ptx::cta_index() / row_ctas();
  DrawOfRow<Logits>(args, args.rows[index], *reinterpret_cast<DrawShared*>(ptx::shared_memory()), index).run();
  row_sync();  // nobody ends while others read its shared memory
}

WEFT_INLINE void draw_probabilities(const ProbabilityDrawArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  auto& shared = *reinterpret_cast<DrawShared*>(ptx::shared_memory());
  const int index = ptx::cta_index() / row_ctas();
  const i64 row = args.rows != nullptr ? args.rows[index] : index;
  if (row < 0 || row >= args.num_rows) {
    if (row_rank() == 0 && ptx::thread_index() == 0) args.ids[index] = -1;
    return;
  }
  if (ptx::thread_index() == 0) {
    const int top_k = args.top_k != nullptr ? args.top_k[row] : 0;
    const float top_p = args.top_p != nullptr ? args.top_p[row] : 1.f;
    const float min_p = args.min_p != nullptr ? args.min_p[row] : 0.f;
    shared.row = {};
    shared.row.row = row;
    shared.row.bits = args.bits[index];
    shared.row.rule = tile::rule_of_probabilities(top_k, top_p, min_p, args.joint, args.columns);
  }
  ptx::cta_sync();
  DrawArgs of_row{};
  of_row.logits = const_cast<float*>(args.probs);  // which nothing changes
  of_row.stride = args.stride;
  of_row.ids = args.ids;
  of_row.columns = args.columns;
  DrawOfRow<Probabilities>(of_row, shared.row, shared, index).run();
  row_sync();
}

}  // namespace weft::ops

#define WEFT_DRAW(symbol) \
  WEFT_KERNEL(512, 2) void symbol(WEFT_PARAM weft::ops::DrawArgs args) { weft::ops::draw(args); }
#define WEFT_DRAW_PROBABILITIES(symbol)                                             \
  WEFT_KERNEL(512, 2) void symbol(WEFT_PARAM weft::ops::ProbabilityDrawArgs args) { \
    weft::ops::draw_probabilities(args);                                            \
  }
