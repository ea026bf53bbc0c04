#include "bench/sparse_probe.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "bench/sparse_loops.h"

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
    shares.push_back({a.indptr.data(), a.indices.data(), a.values.data(), begin, w + 1 == workers ? a.rows : end});
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
  Probe best;
  double most = 0;
  for (const int64_t ahead : {0, 1, 2, 4, 8, 16, 32, 64}) {
    Probe probe = probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().gather(rows, y, feat, ahead); });
    probe();
    const double rate = std::max({probe(), probe(), probe()});
    if (rate > most) most = rate, best = std::move(probe);
  }
  return best;
}

Probe probe_plain_spmm(WorkerTeam& team, const SparseCase& a, const float* y, float* c, int64_t feat) {
  return probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().spmm(rows, y, c, feat); });
}

Probe probe_plain_sddmm(WorkerTeam& team, const SparseCase& a, const float* x, const float* y, float* out,
                        int64_t feat) {
  return probe_rows(team, a, feat, [=](const CsrRows& rows) { loops().sddmm(rows, x, y, out, feat); });
}

}  // namespace weft::bench
