// c = a b for a sparse a in CSR, fp32.
#include "weft/sparse.h"

#include <cstring>
#include <vector>

#include "bench/sparse/cases.h"
#include "bench/sparse/probe.h"
#include "contestants.h"
#include "weft/device.h"

namespace contest {
namespace {

using namespace weft;

struct Spmm {
  bench::SparseCase a;
  int64_t feat = 0;
  WorkerTeam team;
  Workspace b, c;

  explicit Spmm(const json& row) : feat(row.at("feat")), team(row.at("threads").get<int>()) {
    a = bench::read_case(row.at("matrix"));
    b = Workspace(Device::cpu(), static_cast<size_t>(a.cols * feat) * sizeof(float));
    c = Workspace(Device::cpu(), static_cast<size_t>(a.rows * feat) * sizeof(float));
    const std::vector<float> numbers = bench::random_floats(static_cast<size_t>(a.cols * feat), 1);
    std::memcpy(b.data(), numbers.data(), numbers.size() * sizeof(float));
  }
  void run() {
    sparse::spmm(a.structure, {a.values.data(), DType::fp32, {a.nnz()}}, {b.data(), DType::fp32, {a.cols, feat}},
                 {c.data(), DType::fp32, {a.rows, feat}}, {}, Stream::cpu(team));
  }
};

}  // namespace

Reading weft_spmm(const json& row) {
  const auto spmm = std::make_shared<Spmm>(row);
  spmm->run();
  return [spmm] { return mean_seconds([&] { spmm->run(); }); };
}

Reading gather_ceiling(const json& row) {
  const auto spmm = std::make_shared<Spmm>(row);
  const auto gather = bench::probe_gather(spmm->team, spmm->a, static_cast<const float*>(spmm->b.data()), spmm->feat);
  const double flops = 2. * static_cast<double>(spmm->a.nnz() * spmm->feat);
  return [gather, spmm, flops] {
    // A probe runs several loops and gives the rate of the fastest: its own time is not that of one.
    double seconds = 0;
    int runs = 0;
    mean_seconds([&] { seconds += flops / gather(), ++runs; });
    return seconds / runs;
  };
}

}  // namespace contest
