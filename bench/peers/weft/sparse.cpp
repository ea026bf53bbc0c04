// c = a b for a sparse a in CSR, fp32.
#include "weft/sparse.h"

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bench/sparse_cases.h"
#include "bench/sparse_probe.h"
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
    std::ifstream file(row.at("matrix").get<std::string>(), std::ios::binary);
    int64_t sizes[3] = {};
    file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
    if (!file) throw std::runtime_error("the matrix cannot be read");
    a.rows = sizes[0], a.cols = sizes[1];
    a.indptr.resize(static_cast<size_t>(a.rows) + 1);
    a.indices.resize(static_cast<size_t>(sizes[2]));
    file.read(reinterpret_cast<char*>(a.indptr.data()), static_cast<std::streamsize>(a.indptr.size() * 4));
    file.read(reinterpret_cast<char*>(a.indices.data()), static_cast<std::streamsize>(a.indices.size() * 4));
    if (!file) throw std::runtime_error("the matrix ends early");
    bench::finish(a);
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
  return [spmm, gather] { return mean_seconds([&] { gather(); }); };
}

}  // namespace contest
