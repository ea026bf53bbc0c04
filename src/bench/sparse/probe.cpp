#include "bench/sparse/probe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "bench/sparse/loops.h"

namespace weft::bench {
namespace {

const SparseLoops& loops() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(kSparseLoops)
    default: throw InternalError("an instruction set without loops to time");
  }
}

// Rows of each worker, with an equal share of the elements.
std::vector<CsrRows> shares_of(const SparseCase& a, int workers) {
  std::vector<CsrRows> shares;
  int64_t begin = 0;
  for (int w = 0; w < workers; ++w) {
    const int64_t goal = a.nnz() * (w + 1) / workers;
    const int64_t end = std::lower_bound(a.indptr.begin() + begin, a.indptr.end() - 1, goal) - a.indptr.begin();
    shares.push_back(
        {a.indptr.data(), a.indices.data(), a.values.data(), begin, w + 1 == workers ? a.rows : end, a.nnz()});
    begin = end;
  }
  return shares;
}

// Operations a second of a loop over everybody's rows.
template <class Loop>
Probe probe_rows(WorkerTeam& team, const SparseCase& a, int64_t feat, const Loop& loop) {
  const double flops = 2. * static_cast<double>(a.nnz() * feat);
  return [&team, shares = shares_of(a, team.num_workers()), loop, flops] {
    return flops / seconds_of([&] { team.run([&](int worker) { loop(shares[static_cast<size_t>(worker)]); }); });
  };
}

}  // namespace

Probe probe_gather(WorkerTeam& team, const SparseCase& a, const float* y, int64_t feat) {
  constexpr size_t kKept = 3;  // loops that are fastest in one reading may not be in the next
  std::vector<std::pair<double, Probe>> loops_by_rate;
  const auto add = [&](const GatherLoop& loop) {
    Probe probe = probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().gather(rows, y, feat, loop); });
    probe();
    const double rate = std::max(probe(), probe());
    loops_by_rate.emplace_back(rate, std::move(probe));
  };
  // Tiles as schedules have them: as many features as registers hold, and those that a cache holds of every row.
  for (const auto& [width, by_rows] :
       {std::pair<int64_t, bool>{feat, false}, {64, true}, {256, true}, {128, false}, {256, false}}) {
    const bool is_whole = width == feat && !by_rows;
    if (!is_whole && (width >= feat || feat % width != 0)) continue;
    for (const int64_t ahead : {0, 1, 2, 4, 8, 16, 32, 64, 128})
      if (ahead * width <= 8192 || ahead <= 2) add({.width = width, .by_rows = by_rows, .ahead = ahead});
  }
  std::sort(loops_by_rate.begin(), loops_by_rate.end(),
            [](const auto& x, const auto& other) { return x.first > other.first; });
  std::vector<Probe> kept;
  for (size_t i = 0; i < std::min(kKept, loops_by_rate.size()); ++i) kept.push_back(std::move(loops_by_rate[i].second));
  return [kept] {
    double most = 0;
    for (const Probe& probe : kept) most = std::max(most, probe());
    return most;
  };
}

Probe probe_plain_spmm(WorkerTeam& team, const SparseCase& a, const float* y, float* c, int64_t feat) {
  return probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().spmm(rows, y, c, feat); });
}

Probe probe_plain_sddmm(WorkerTeam& team, const SparseCase& a, const float* x, const float* y, float* out,
                        int64_t feat) {
  return probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().sddmm(rows, x, y, out, feat); });
}

}  // namespace weft::bench
