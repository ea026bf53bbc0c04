// y[i] = sum over edges (r, i, j) of x[j] w[r]: a layer over a typed graph, or a sparse convolution.
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bench/sparse/cases.h"
#include "contestants.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace contest {
namespace {

using namespace weft;

struct Rgms {
  int64_t feat_in, feat_out, relations = 0, rows = 0, cols = 0;
  WorkerTeam team;
  sparse::Structure edges;
  Workspace x, w, y;

  explicit Rgms(const json& row)
      : feat_in(row.at("feat_in")), feat_out(row.at("feat_out")), team(row.at("threads").get<int>()) {
    const sparse::CooTensor coo = read_edges(row.at("edges"));
    relations = coo.extents[0], rows = coo.extents[1], cols = coo.extents[2];
    edges = sparse::relational_from_coo(coo).structure;
    x = filled(cols * feat_in, 1), w = filled(relations * feat_in * feat_out, 2), y = filled(rows * feat_out, 3);
  }
  static Workspace filled(int64_t count, uint64_t seed) {
    Workspace memory(Device::cpu(), static_cast<size_t>(count) * sizeof(float));
    const std::vector<float> numbers = bench::random_floats(static_cast<size_t>(count), seed);
    std::memcpy(memory.data(), numbers.data(), numbers.size() * sizeof(float));
    return memory;
  }
  void run() {
    sparse::rgms(edges, {}, {x.data(), DType::fp32, {cols, feat_in}},
                 {w.data(), DType::fp32, {relations, feat_in, feat_out}}, {y.data(), DType::fp32, {rows, feat_out}},
                 Stream::cpu(team));
  }
};

}  // namespace

weft::sparse::CooTensor read_edges(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  int64_t sizes[4] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  sparse::CooTensor coo{.extents = {sizes[0], sizes[1], sizes[2]}, .coordinates = {}};
  for (int d = 0; d < 3 && file; ++d) {
    std::vector<int32_t>& list = coo.coordinates.emplace_back(static_cast<size_t>(sizes[3]));
    file.read(reinterpret_cast<char*>(list.data()), static_cast<std::streamsize>(list.size() * 4));
  }
  if (!file) throw std::runtime_error("the edges cannot be read");
  return coo;
}

Reading weft_rgms(const json& row) {
  const auto rgms = std::make_shared<Rgms>(row);
  note_memory_of([&] { rgms->run(); });
  return [rgms] { return mean_seconds([&] { rgms->run(); }); };
}

}  // namespace contest
