// `weft bench attention --device cuda:0`: decode as a share of a plain read of as many bytes, prefill as a share of
// what warps multiply on registers. Batches lie side by side in memory larger than the card's cache; runs are nodes of
// a graph.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "bench/cuda/batch.h"
#include "bench/cuda/mixed.h"
#include "bench/cuda/quest.h"
#include "bench/measure.h"

namespace weft::bench {
namespace {

std::vector<int> same(int n, int len) { return std::vector<int>(static_cast<size_t>(n), len); }

std::vector<int> zipf(int n, int mean) {
  std::vector<int> lens;
  double harmonic = 0;
  for (int i = 1; i <= n; ++i) harmonic += 1. / i;
  for (int i = 1; i <= n; ++i) lens.push_back(std::max(static_cast<int>(n * mean / harmonic / i), 1));
  std::shuffle(lens.begin(), lens.end(), std::mt19937(3));
  return lens;
}

// From 1 to twice the mean.
std::vector<int> uniform(int n, int mean) {
  std::vector<int> lens;
  std::mt19937 random(5);
  int left = n * mean;
  for (int i = 0; i + 1 < n; i += 2) {
    lens.push_back(1 + static_cast<int>(random() % static_cast<unsigned>(2 * mean - 1)));
    lens.push_back(2 * mean - lens.back());  // so that as many tokens are there as of constant lengths
    left -= 2 * mean;
  }
  if (left > 0) lens.push_back(left);
  return lens;
}

// Lengths that are drawn, of a row whose name says so.
bool is_mixed(const CardCase& row) { return row.name.find(" mean") != row.name.npos && row.mode == PlanMode::balanced; }

// As many requests with as many tokens, all of one length.
std::vector<int> same_total(const std::vector<int>& lens) {
  const int total = std::accumulate(lens.begin(), lens.end(), 0);
  return same(static_cast<int>(lens.size()), total / static_cast<int>(lens.size()));
}

// A row and the same one with another plan, in turns: seconds by the other's.
double seconds_over(CardBench& bench, const Prepared& row, const CardCase& other, Mask mask) {
  const Prepared beside(bench, other, mask);
  const CardBench::Turns turns = bench.time_in_turns(row.runs(), beside.runs());
  return turns.first / turns.second;
}

void measure_decode(CardBench& bench, const BenchOptions& options, BenchReport& report, const CardCase& row) {
  const std::string name = fmt::format("decode {}q/{}kv hd{} page{} {} {}", row.shape.qo_heads, row.shape.kv_heads,
                                       row.shape.head_dim, row.page_size, to_string(row.kv_dtype), row.name);
  if (name.find(options.only) == name.npos) return;
  const Prepared prepared(bench, row, Mask::none);
  const CardBench::Beside taken = bench.time_beside_read(prepared.runs(), static_cast<size_t>(prepared.bytes()));
  report.add({"attention", name, "bandwidth", prepared.bytes() / taken.seconds / 1e9, "GB/s", taken.ceiling / 1e9});
  if (row.kv_lens.size() == 1 || row.prefix > 0) report.add({"attention", name, "time", taken.seconds * 1e6, "us"});
  CardCase other = row;
  if (row.prefix > 0) {
    other.finds_levels = false;
    report.add(
        {"attention", name, "time over the plain plan's", seconds_over(bench, prepared, other, Mask::none), "x"});
  }
  if (row.kv_dtype != DType::bf16) {
    other.kv_dtype = DType::bf16;
    other.kv_scales = KvScales::none;
    report.add({"attention", name, "time over bf16's", seconds_over(bench, prepared, other, Mask::none), "x"});
  }
  if (row.mode == PlanMode::fixed_split) {
    other.mode = PlanMode::balanced;
    report.add({"attention", name, "time over balanced's", seconds_over(bench, prepared, other, Mask::none), "x"});
  }
  if (is_mixed(row)) {
    other.kv_lens = same_total(row.kv_lens);
    report.add(
        {"attention", name, "time over constant lengths'", seconds_over(bench, prepared, other, Mask::none), "x"});
  }
}

// Keys and values of 16 bits, and fewer: fp8 without scales, integers with one of each token and head.
CardCase stored_as(CardCase row, DType type) {
  row.kv_dtype = type;
  if (type == DType::int8 || type == DType::int4) row.kv_scales = KvScales::token;
  return row;
}

std::vector<CardCase> decode_rows() {
  const Shape llama{32, 8, 128};
  std::vector<CardCase> rows;
  for (const auto& [n, len] : {std::pair{1, 1024}, {1, 8192}, {16, 1024}, {16, 8192}, {64, 1024}, {64, 4096}})
    rows.push_back({fmt::format("batch{} kv{}", n, len), llama, same(n, 1), same(n, len)});
  for (const auto& [n, len] : {std::pair{1, 8192}, {16, 1024}, {16, 8192}, {64, 1024}})
    rows.push_back({fmt::format("batch{} kv{}", n, len), {32, 32, 128}, same(n, 1), same(n, len)});
  rows.push_back({"batch16 kv8192 page1", llama, same(16, 1), same(16, 8192), 1});
  rows.push_back({"batch16 kv8192 page64", llama, same(16, 1), same(16, 8192), 64});
  for (const int group : {3, 5, 7, 16})
    rows.push_back({fmt::format("batch16 kv8192 group{}", group), {8 * group, 8, 128}, same(16, 1), same(16, 8192)});
  std::vector<int> mixed = same(32, 1024);
  mixed[0] = 128 << 10;
  rows.push_back({"batch16 zipf mean1024", llama, same(16, 1), zipf(16, 1024)});
  rows.push_back({"batch16 uniform mean1024", llama, same(16, 1), uniform(16, 1024)});
  rows.push_back({"one 128k, 31 kv1024", llama, same(32, 1), mixed});
  rows.push_back({"batch16 kv8192 fixed_split", llama, same(16, 1), same(16, 8192), 16, PlanMode::fixed_split});
  rows.push_back({"batch64 zipf mean2048 fixed_split", llama, same(64, 1), zipf(64, 2048), 16, PlanMode::fixed_split});
  rows.push_back({"batch16 kv8192 hd64", {32, 8, 64}, same(16, 1), same(16, 8192)});
  for (const DType type : {DType::fp8_e4m3, DType::int8, DType::int4}) {
    rows.push_back(stored_as({"batch16 kv8192", llama, same(16, 1), same(16, 8192)}, type));
    rows.push_back(stored_as({"batch1 kv8192", llama, same(1, 1), same(1, 8192)}, type));
  }
  return rows;
}

// Rows of 512 + 64, as many heads as 128 on one card, or 8 of them on a card each.
std::vector<CardCase> latent_rows(bool quick) {
  std::vector<CardCase> rows;
  const auto add = [&](int heads, int n, int len, int page = 64, int tokens = 1) {
    const std::string of_tokens = tokens > 1 ? fmt::format(" {} tokens", tokens) : "";
    rows.push_back({fmt::format("batch{} kv{}{}", n, len, of_tokens), {heads, 1, 576}, same(n, tokens), same(n, len)});
    rows.back().page_size = page;
    rows.back().is_latent = true;
  };
  add(128, 128, 8192);
  add(16, 128, 4096);
  if (quick) return rows;
  add(64, 128, 4096);
  for (const auto& [n, len] : {std::pair{1, 8192}, {16, 1024}, {16, 8192}, {64, 4096}}) add(128, n, len);
  add(16, 1, 8192);
  add(128, 128, 8192, 1);
  add(16, 128, 4096, 1);
  add(16, 128, 4096, 64, 4);
  add(128, 64, 4096, 64, 2);
  return rows;
}

// Reads by a plain read, products by those on registers, and time by the plain family's, in turns.
void measure_latent(CardBench& bench, const BenchOptions& options, BenchReport& report, const CardCase& row) {
  const std::string name =
      fmt::format("decode latent {}q 512+64 page{} bf16 {}", row.shape.qo_heads, row.page_size, row.name);
  if (name.find(options.only) == name.npos) return;
  const Prepared prepared(bench, row, Mask::causal);
  const CardBench::Beside read = bench.time_beside_read(prepared.runs(), static_cast<size_t>(prepared.bytes()));
  report.add({"attention", name, "bandwidth", prepared.bytes() / read.seconds / 1e9, "GB/s", read.ceiling / 1e9});
  double seen = 0;
  for (size_t r = 0; r < row.kv_lens.size(); ++r) seen += row.qo_lens[r] * (row.kv_lens[r] - (row.qo_lens[r] - 1) / 2.);
  const double operations = 2 * seen * row.shape.qo_heads * (row.shape.head_dim + row.value_dim());
  const CardBench::Beside taken = bench.time_beside_products(prepared.runs());
  report.add({"attention", name, "rate", operations / taken.seconds / 1e12, "TFLOP/s", taken.ceiling / 1e12});
  if (row.kv_lens.size() == 1) report.add({"attention", name, "time", taken.seconds * 1e6, "us"});
}

// What the plain family takes, which computes latent rows where this one does not.
void measure_latent_beside_plain(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  CardCase row{"batch16 kv1024", {128, 1, 576}, same(16, 1), same(16, 1024), 64};
  row.is_latent = true;
  const std::string name = "decode latent 128q 512+64 page64 bf16 batch16 kv1024";
  if (name.find(options.only) == name.npos) return;
  const Prepared prepared(bench, row, Mask::causal);
  row.loader = Loader::elements;
  report.add(
      {"attention", name, "time over the plain family's", seconds_over(bench, prepared, row, Mask::causal), "x"});
}

std::vector<CardCase> prefix_rows() {
  std::vector<CardCase> rows;
  for (const auto& [n, prefix] : {std::pair{16, 1024}, {16, 32768}, {64, 32768}, {2, 64}, {4, 256}, {16, 64}}) {
    rows.push_back({fmt::format("batch{} prefix{} kv128", n, prefix), {32, 32, 128}, same(n, 1), same(n, 128)});
    rows.back().prefix = prefix;
  }
  return rows;
}

// Of the pairs of a query and a key that are seen.
double operations_of(const CardCase& row) {
  double seen = 0;
  for (const double n : row.qo_lens) {
    const double window = row.has_window ? std::min<double>(n, kWindow) : n;
    seen += window * (n - window / 2);
  }
  return 4 * seen * row.shape.head_dim * row.shape.qo_heads;
}

std::string name_of_prefill(const CardCase& row) {
  const std::string cache = row.page_size == 0 ? "contiguous" : fmt::format("page{}", row.page_size);
  return fmt::format("prefill causal {}q/{}kv hd{} {} bf16 {}", row.shape.qo_heads, row.shape.kv_heads,
                     row.shape.head_dim, cache, row.name);
}

// Operations a second.
double measure_prefill(CardBench& bench, BenchReport& report, const CardCase& row) {
  const Prepared prepared(bench, row, Mask::causal);
  const CardBench::Beside taken = bench.time_beside_products(prepared.runs());
  const double rate = operations_of(row) / taken.seconds;
  report.add({"attention", name_of_prefill(row), "rate", rate / 1e12, "TFLOP/s", taken.ceiling / 1e12});
  if (!is_mixed(row)) return rate;
  // A longer prompt has more pairs a token: by tokens, and by what is computed for them.
  CardCase constant = row;
  constant.qo_lens = constant.kv_lens = same_total(row.kv_lens);
  const double seconds = seconds_over(bench, prepared, constant, Mask::causal);
  const auto tokens = [](const CardCase& of) { return std::accumulate(of.qo_lens.begin(), of.qo_lens.end(), 0.); };
  report.add({"attention", name_of_prefill(row), "time a token over constant lengths'",
              seconds * tokens(constant) / tokens(row), "x"});
  report.add({"attention", name_of_prefill(row), "rate over constant lengths'",
              operations_of(row) / operations_of(constant) / seconds, "x"});
  return rate;
}

std::vector<CardCase> prefill_rows(bool quick) {
  std::vector<CardCase> rows;
  const auto add = [&](const std::string& name, int head_dim, const std::vector<int>& lens) -> CardCase& {
    return rows.emplace_back(CardCase{name, {16, 16, head_dim}, lens, lens});
  };
  for (const int head_dim : {128, 64})
    for (const int len : {512, 1024, 2048, 4096, 8192, 16384}) {
      const int requests = std::max(16384 / len, 1);
      const bool has_variants = head_dim == 128 && len == 4096;  // and stands beside them
      if (!has_variants && (!quick || len == 1024 || len == 4096))
        add(fmt::format("batch{} n{}", requests, len), head_dim, same(requests, len));
    }
  if (!quick)
    for (const int head_dim : {160, 192, 256}) add("batch4 n4096", head_dim, same(4, 4096));
  add("batch16 zipf mean1024", 128, zipf(16, 1024));
  add("batch16 uniform mean1024", 128, uniform(16, 1024));
  return rows;
}

// A functor as a user would write it: a soft cap without tanh, and a slope for each head.
Variant own_functor() {
  return {.name = "SoftsignAndSlope",
          .text = R"(struct SoftsignAndSlope {
  real logits_transform(P p, Score c, real s) {
    return s / (real(1) + weft::abs(s) / p.cap) + p.slope(c.qo_head) * real(c.kv_pos - c.q_pos);
  }
};
)",
          .scalars = {{"cap"}},
          .tensors = {{"slope"}}};
}

// A soft cap whose author says that weft::fast_tanh is exact enough.
Variant fast_soft_cap() {
  return {.name = "FastSoftCap",
          .text = R"(struct FastSoftCap {
  real logits_transform(P p, Score c, real s) { return p.cap * weft::fast_tanh(s * (1 / p.cap)); }
};
)",
          .scalars = {{"cap"}}};
}

// Plain causal attention over pages of 16, and what differs from it in one thing.
std::vector<CardCase> prefill_variants() {
  const CardCase base{"batch4 n4096", {16, 16, 128}, same(4, 4096), same(4, 4096)};
  std::vector<CardCase> rows(9, base);
  const auto name = [&](int i, const char* what) -> CardCase& {
    rows[static_cast<size_t>(i)].name += what;
    return rows[static_cast<size_t>(i)];
  };
  name(1, " soft-cap").variant = variants::logits_soft_cap();
  name(2, " alibi").variant = variants::alibi();
  name(3, " window").has_window = true;
  name(4, " own functor").variant = own_functor();
  name(5, " fast soft-cap").variant = fast_soft_cap();
  rows[6].page_size = 1;
  rows[7].page_size = 128;
  rows[8].page_size = 0;
  return rows;
}

void measure_prefill_variants(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  std::map<std::string, double> rates;
  const auto rate = [&](const CardCase& row) {
    const auto [known, is_new] = rates.try_emplace(name_of_prefill(row), 0);
    if (is_new) known->second = measure_prefill(bench, report, row);
    return known->second;
  };
  const std::vector<CardCase> rows = prefill_variants();
  const CardCase &plain = rows.front(), &contiguous = rows.back();
  for (const CardCase& row : rows) {
    const std::string name = name_of_prefill(row);
    if (name.find(options.only) == name.npos) continue;
    const double own = rate(row);
    if (row.name != plain.name) report.add({"attention", name, "rate over plain causal", own / rate(plain), "x"});
    if (row.name == plain.name && row.page_size > 0)
      report.add({"attention", name, "rate over contiguous", own / rate(contiguous), "x"});
  }
}

// The loader that a card takes for itself, in turns with the threads that multiply.
void measure_loaders(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  for (const int page_size : {0, 128, 16, 1})
    for (const int len : {1024, 4096, 16384}) {
      if (len != 4096 && (page_size != 0 || options.quick)) continue;
      const std::vector<int> lens = same(16384 / len, len);
      CardCase row{fmt::format("batch{} n{}", 16384 / len, len), {16, 16, 128}, lens, lens, page_size}, own = row;
      const std::string name = name_of_prefill(row);
      if (name.find(options.only) == name.npos) continue;
      own.loader = Loader::cp_async;
      report.add({"attention", name, "time over loader = cp_async",
                  seconds_over(bench, Prepared(bench, row, Mask::causal), own, Mask::causal), "x"});
      if (page_size == 16 || page_size == 1) continue;
      own.loader = Loader::tma;
      report.add({"attention", name, "time over loader = tma",
                  seconds_over(bench, Prepared(bench, row, Mask::causal), own, Mask::causal), "x"});
    }
  for (const DType type : {DType::fp8_e4m3, DType::int8}) {
    const std::vector<int> lens = same(4, 4096);
    CardCase row = stored_as({"batch4 n4096", {16, 16, 128}, lens, lens}, type), warps = row, wide = row;
    const std::string name = fmt::format("{} over {}", name_of_prefill(row), to_string(type));
    if (name.find(options.only) == name.npos) continue;
    warps.loader = Loader::cp_async;
    wide.kv_dtype = DType::bf16, wide.kv_scales = KvScales::none;
    const Prepared prepared(bench, row, Mask::causal);
    report.add(
        {"attention", name, "time over loader = cp_async", seconds_over(bench, prepared, warps, Mask::causal), "x"});
    report.add({"attention", name, "time over bf16's", seconds_over(bench, prepared, wide, Mask::causal), "x"});
  }
}

}  // namespace

void measure_attention_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}, {} multiprocessors; random data, shuffled pages, NHD; each row a node of a graph",
                          to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  report.note(
      "decode: bytes of K and V read once, beside a plain read of as many; prefill: operations of the pairs that are "
      "seen, 2 n^2 d a head, beside products of warps (mma.sync) on registers; latent: both; a row and what it stands "
      "beside take turns");
  for (const CardCase& row : decode_rows()) measure_decode(bench, options, report, row);
  for (const CardCase& row : latent_rows(options.quick)) measure_latent(bench, options, report, row);
  measure_latent_beside_plain(bench, options, report);
  for (const CardCase& row : prefill_rows(options.quick))
    if (name_of_prefill(row).find(options.only) != std::string::npos) measure_prefill(bench, report, row);
  measure_prefill_variants(bench, options, report);
  measure_loaders(bench, options, report);
  for (const CardCase& row : prefix_rows()) measure_decode(bench, options, report, row);
  measure_mixed(bench, options, report);
  measure_quest(bench, options, report);
}

}  // namespace weft::bench
