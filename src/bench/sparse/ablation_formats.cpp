// Formats: hyb(c, k) beside CSR, DBSR beside BSR where block rows are empty, SR-BCRS beside BSR over density.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "bench/sparse/candidates.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/vector_unit.h"

namespace weft::bench {
namespace {

// Elements at random with that density, in those rows of blocks that are not empty.
sparse::CooTensor random_elements(int64_t rows, int64_t cols, double density) {
  sparse::CooTensor coo{.extents = {rows, cols}, .coordinates = {{}, {}}};
  std::mt19937_64 random(3);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      if (static_cast<double>(random() >> 11) * 0x1p-53 < density) {
        coo.coordinates[0].push_back(static_cast<int32_t>(i));
        coo.coordinates[1].push_back(static_cast<int32_t>(j));
      }
  return coo;
}

sparse::Coo matrix(const sparse::CooTensor& elements) {
  return {.num_rows = elements.extents[0],
          .num_cols = elements.extents[1],
          .rows = elements.coordinates[0],
          .cols = elements.coordinates[1]};
}

// Of elements that are listed; values, the rows of x that they gather and all results once.
Ablation of_elements(std::string name, sparse::CooTensor elements, int64_t feat) {
  const size_t count = elements.coordinates[0].size();
  const int64_t rows = elements.extents[0], cols = elements.extents[1];
  std::vector<char> is_gathered(static_cast<size_t>(cols), 0);
  for (const int32_t col : elements.coordinates[1]) is_gathered[static_cast<size_t>(col)] = 1;
  const int64_t gathered = std::count(is_gathered.begin(), is_gathered.end(), 1);
  Ablation ablation{.name = std::move(name), .feat = feat};
  ablation.flops = 2. * static_cast<double>(count) * static_cast<double>(feat);
  ablation.bytes = 4. * static_cast<double>(count) + static_cast<double>((rows + gathered) * feat * 4);
  ablation.x = std::make_shared<Floats>(std::vector<int64_t>{cols, feat}, 1);
  ablation.out = std::make_shared<Floats>(std::vector<int64_t>{rows, feat}, 2);
  ablation.elements = std::move(elements);
  ablation.values = std::make_shared<std::vector<float>>(random_floats(count, 7));
  return ablation;
}

void add_candidate(Ablation& ablation, std::string name, const std::shared_ptr<const Stored>& a,
                   const std::function<void(const Stored& a, Stream stream)>& run) {
  ablation.candidates.push_back(
      {.name = std::move(name), .run = [a, run](Stream stream) { run(*a, stream); }, .padding = a->padding()});
}

}  // namespace

Ablation formats_of_spmm(const SparseCase& a, int64_t feat, const std::vector<Hyb>& formats) {
  Ablation ablation = spmm_ablation(fmt::format("ablation formats of spmm {} F{}", a.name, feat), a, feat);
  const sparse::VectorUnit unit = sparse::vector_unit(current_isa());
  const auto add = [&](const std::string& name, const std::string& format) {
    const std::string schedule =
        sparse::spmm_schedule(feat, sparse::parse_formats(format), unit, sparse::default_prefetch(feat));
    ablation.candidates.push_back(
        candidate_of(name, {sparse::kSpmmProgram, schedule, {{"feat", feat}}}, arguments_of(ablation)));
  };
  add("csr", "csr");
  for (const Hyb& format : formats) {
    add(format.text(), format.text());
    ablation.candidates.back().padding = padding_of(a, format);
  }
  return ablation;
}

Ablation empty_block_rows(const EmptyBlockRows& shape, int64_t feat) {
  const int64_t size = shape.size, block = shape.block;
  const double density = shape.density, empty = shape.empty;
  check(block >= 2 && block <= 256 && size >= block && size % block == 0, ErrorCode::invalid_argument,
        "size: is {} in blocks of {}; whole blocks of 2 to 256 are allowed", size, block);
  check(density > 0 && density <= 1 && empty >= 0 && empty <= 1, ErrorCode::invalid_argument,
        "density: is {} with {} of the rows empty; above 0 to 1, and 0 to 1 are allowed", density, empty);
  // The first rows of a random order are empty.
  const int64_t blocks = size / block;
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::mt19937_64 random(5);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<char> is_empty(order.size(), 0);
  const auto num_empty = static_cast<size_t>(std::llround(empty * static_cast<double>(blocks)));
  for (size_t i = 0; i < num_empty; ++i) is_empty[static_cast<size_t>(order[i])] = 1;
  const sparse::CooTensor kept = random_elements(blocks, blocks, density);
  sparse::CooTensor elements{.extents = {size, size}, .coordinates = {{}, {}}};
  for (size_t b = 0; b < kept.coordinates[0].size(); ++b) {
    const int64_t row = kept.coordinates[0][b], col = kept.coordinates[1][b];
    if (is_empty[static_cast<size_t>(row)] != 0) continue;
    for (int64_t e = 0; e < block * block; ++e) {
      elements.coordinates[0].push_back(static_cast<int32_t>(row * block + e / block));
      elements.coordinates[1].push_back(static_cast<int32_t>(col * block + e % block));
    }
  }
  Ablation ablation =
      of_elements(fmt::format("ablation empty rows of blocks, {0} x {0} block {1} density {2:g}, {3:g} % empty F{4}",
                              size, block, density, 100 * empty, feat),
                  std::move(elements), feat);
  const sparse::Coo coo = matrix(ablation.elements);
  const TensorView x = ablation.x->view, out = ablation.out->view;
  const auto in_blocks = [block](const Stored& a) {
    return a.view({static_cast<int64_t>(a.values.size()) / (block * block), block, block});
  };
  add_candidate(ablation, fmt::format("bsr({})", block), stored(sparse::bsr_from_coo(coo, block), *ablation.values),
                [=](const Stored& a, Stream stream) { sparse::block_spmm(a.structure, in_blocks(a), x, out, stream); });
  add_candidate(ablation, fmt::format("dbsr({})", block), stored(sparse::dbsr_from_coo(coo, block), *ablation.values),
                [=](const Stored& a, Stream stream) { sparse::dbsr_spmm(a.structure, in_blocks(a), x, out, stream); });
  return ablation;
}

Ablation pruned_weights(const PrunedWeights& shape, int64_t feat) {
  constexpr int64_t kBlock = 32, kRows = 8, kGroup = 32;
  const int64_t rows = shape.rows, cols = shape.cols;
  const double density = shape.density;
  check(rows > 0 && cols > 0 && rows % kBlock == 0 && cols % kBlock == 0, ErrorCode::invalid_argument,
        "rows: there are {}, and {} columns; multiples of {} are allowed", rows, cols, kBlock);
  check(density > 0 && density <= 1, ErrorCode::invalid_argument, "density: is {}; above 0 to 1 is allowed", density);
  Ablation ablation =
      of_elements(fmt::format("ablation pruned weights {} x {} density 1/{:g} F{}", rows, cols, 1 / density, feat),
                  random_elements(rows, cols, density), feat);
  const sparse::Coo coo = matrix(ablation.elements);
  const TensorView x = ablation.x->view, out = ablation.out->view;
  const auto count = [](const Stored& a) { return static_cast<int64_t>(a.values.size()); };
  add_candidate(
      ablation, "bsr(32)", stored(sparse::bsr_from_coo(coo, kBlock), *ablation.values),
      [=](const Stored& a, Stream stream) {
        sparse::block_spmm(a.structure, a.view({count(a) / (kBlock * kBlock), kBlock, kBlock}), x, out, stream);
      });
  add_candidate(
      ablation, "sr-bcrs(8, 32)", stored(sparse::sr_bcrs_from_coo(coo, kRows, kGroup), *ablation.values),
      [=](const Stored& a, Stream stream) {
        sparse::sr_bcrs_spmm(a.structure, a.view({count(a) / (kGroup * kRows), kGroup, kRows}), x, out, stream);
      });
  add_candidate(ablation, "csr", stored(sparse::csr_from_coo(coo), *ablation.values),
                [=](const Stored& a, Stream stream) {
                  sparse::spmm(a.structure, a.view({count(a)}), x, out, {.format = "csr"}, stream);
                });
  return ablation;
}

}  // namespace weft::bench
