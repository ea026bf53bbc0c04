#include "bench/sparse/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "base/check.h"
#include "bench/stop.h"
#include "sparse/formats/structure.h"

namespace weft::bench {
namespace {

// "32k", "1.5M", "900"
std::string rounded(int64_t count) {
  if (count >= 1000000) return fmt::format("{:.3g}M", static_cast<double>(count) / 1e6);
  return count >= 1000 ? fmt::format("{}k", count % 1024 == 0 ? count / 1024 : count / 1000) : fmt::format("{}", count);
}

}  // namespace

int64_t SparseCase::touched_cols() const {
  std::vector<char> touched(static_cast<size_t>(cols), 0);
  for (const int32_t j : indices) touched[static_cast<size_t>(j)] = 1;
  return std::count(touched.begin(), touched.end(), 1);
}

std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  return numbers;
}

void finish(SparseCase& a) {
  a.values = random_floats(a.indices.size(), 7);
  a.structure = sparse::csr(a.rows, a.cols, a.indptr, a.indices);
}

MeanGraph mean_graph(const SparseCase& graph, int64_t rows) {
  MeanGraph made;
  std::vector<int32_t> indptr = graph.indptr;
  indptr.resize(static_cast<size_t>(rows) + 1, graph.indptr.back());
  made.structure = sparse::csr(rows, rows, indptr, graph.indices);
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    const auto length = static_cast<size_t>(indptr[i + 1] - indptr[i]);
    made.values.insert(made.values.end(), length, 1.f / static_cast<float>(length));
  }
  const sparse::Transposed turned = sparse::transposed(made.structure);
  made.turned = turned.structure;
  for (const int32_t p : turned.order) made.turned_values.push_back(made.values[static_cast<size_t>(p)]);
  return made;
}

SparseCase uniform_case(int64_t rows, int64_t degree) {
  SparseCase a{.name = fmt::format("uniform {} degree {}", rounded(rows), degree), .rows = rows, .cols = rows};
  std::mt19937_64 random(1);
  std::vector<int32_t> row;
  for (int64_t i = 0; i < rows; ++i) {
    row.clear();
    while (static_cast<int64_t>(row.size()) < degree) {
      const auto j = static_cast<int32_t>(random() % static_cast<uint64_t>(rows));
      if (std::find(row.begin(), row.end(), j) == row.end()) row.push_back(j);
    }
    std::sort(row.begin(), row.end());
    a.indices.insert(a.indices.end(), row.begin(), row.end());
    a.indptr.push_back(static_cast<int32_t>(a.indices.size()));
  }
  finish(a);
  return a;
}

SparseCase power_law_case(int64_t rows, int64_t nnz) {
  std::mt19937_64 random(1);
  std::vector<double> sums(static_cast<size_t>(rows));
  double sum = 0;
  for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] = sum += std::pow(static_cast<double>(rank + 1), -0.6);
  std::vector<int64_t> row_of(sums.size()), col_of(sums.size());
  for (std::vector<int64_t>* order : {&row_of, &col_of}) {
    std::iota(order->begin(), order->end(), 0);
    std::shuffle(order->begin(), order->end(), random);
  }
  const auto draw = [&](const std::vector<int64_t>& order) {
    const double at = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
    return order[static_cast<size_t>(std::lower_bound(sums.begin(), sums.end() - 1, at) - sums.begin())];
  };
  std::vector<int64_t> elements;
  while (static_cast<int64_t>(elements.size()) < nnz) {
    while (static_cast<int64_t>(elements.size()) < nnz + nnz / 8) {
      const int64_t row = draw(row_of);
      elements.push_back(row * rows + draw(col_of));
    }
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }
  std::shuffle(elements.begin(), elements.end(), random);
  elements.resize(static_cast<size_t>(nnz));
  sparse::Coo coo{.num_rows = rows, .num_cols = rows};
  for (const int64_t e : elements) {
    coo.rows.push_back(static_cast<int32_t>(e / rows));
    coo.cols.push_back(static_cast<int32_t>(e % rows));
  }
  return coo_case(fmt::format("power law {} nnz {}", rounded(rows), rounded(nnz)), coo);
}

std::span<const KnownGraph> known_graphs() {
  static constexpr KnownGraph kGraphs[] = {
      {"cora", 2708, 10556},
      {"citeseer", 3327, 9228},
      {"pubmed", 19717, 88651},
      {"ppi", 44906, 1271274},
      {"ogbn-arxiv", 169343, 1166243},
      {"ogbn-proteins", 132534, 39561252, 8, true},
      {"reddit", 232965, 114615892, 16},
  };
  return kGraphs;
}

SparseCase synthetic_case(const KnownGraph& graph) {
  const int64_t nodes = graph.nodes / graph.share, edges = graph.edges / graph.share;
  SparseCase a = graph.is_even ? uniform_case(nodes, edges / nodes) : power_law_case(nodes, edges);
  a.name = graph.share == 1 ? fmt::format("synthetic {}", graph.name)
                            : fmt::format("synthetic {} 1/{}", graph.name, graph.share);
  return a;
}

SparseCase coo_case(std::string name, const sparse::Coo& coo) {
  SparseCase a{.name = std::move(name), .rows = coo.num_rows, .cols = coo.num_cols};
  std::vector<size_t> order(coo.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return std::pair(coo.rows[x], coo.cols[x]) < std::pair(coo.rows[y], coo.cols[y]);
  });
  a.indptr.assign(static_cast<size_t>(a.rows) + 1, 0);
  for (const size_t e : order) {
    ++a.indptr[static_cast<size_t>(coo.rows[e]) + 1];
    a.indices.push_back(coo.cols[e]);
  }
  std::partial_sum(a.indptr.begin(), a.indptr.end(), a.indptr.begin());
  finish(a);
  return a;
}

SparseCase read_case(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  int64_t sizes[3] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  SparseCase a{.name = path, .rows = sizes[0], .cols = sizes[1]};
  a.indptr.resize(static_cast<size_t>(a.rows) + 1);
  a.indices.resize(static_cast<size_t>(sizes[2]));
  file.read(reinterpret_cast<char*>(a.indptr.data()), static_cast<std::streamsize>(a.indptr.size() * 4));
  file.read(reinterpret_cast<char*>(a.indices.data()), static_cast<std::streamsize>(a.indices.size() * 4));
  check(file.good(), ErrorCode::io_error, "matrix: '{}' cannot be read", path);
  finish(a);
  return a;
}

std::vector<MatrixFile> files_of(const BenchOptions& options, const std::vector<std::string>& endings) {
  if (options.data.empty()) return {};
  check(std::filesystem::is_directory(options.data), ErrorCode::io_error, "data: '{}' is no folder that can be read",
        options.data);
  std::vector<MatrixFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.data)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".gz")) name.resize(name.size() - 3);
    for (const std::string& ending : endings)
      if (name.ends_with(ending)) files.push_back({name.substr(0, name.size() - ending.size()), entry.path().string()});
  }
  std::sort(files.begin(), files.end(), [](const MatrixFile& a, const MatrixFile& b) { return a.path < b.path; });
  return files;
}

std::vector<MatrixFile> matrix_files_of(const BenchOptions& options) { return files_of(options, {".mtx", ".smtx"}); }

SparseCase file_case(const BenchOptions& options, const MatrixFile& file) {
  stop_if_asked();
  return coo_case(file.name, options.read_matrix(file.path));
}

std::string Hyb::text() const { return fmt::format("hyb({}, {})", c, k); }

double padding_of(const SparseCase& a, const Hyb& format) {
  const sparse::MatrixAxes axes{.row = "I", .col = "J", .num_rows = a.rows, .num_cols = a.cols};
  size_t places = 0;
  for (const sparse::FormatArrays& bucket :
       sparse::take_all(sparse::hyb_rules(axes, format.c, format.k), sparse::coordinates_of(*a.structure.data())))
    for (const auto& [name, array] : bucket.arrays) places += name.starts_with("J_") ? array.size() : 0;
  return 1 - static_cast<double>(a.nnz()) / static_cast<double>(std::max<size_t>(places, 1));
}

int64_t middle_k(const SparseCase& a) {
  const double mean = static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(a.rows, 1));
  return static_cast<int64_t>(std::ceil(std::log2(std::max(mean, 1.))));
}

}  // namespace weft::bench
