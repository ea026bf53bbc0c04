#include "bench/sparse/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/clock.h"
#include "sparse/operators/gather_schedules.h"

namespace weft::bench {

Floats::Floats(std::vector<int64_t> shape, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  memory = Workspace(Device::cpu(), static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float));
  const std::vector<float> block = random_floats(size_t{1} << 16, seed);
  auto* at = static_cast<float*>(memory.data());
  for (int64_t i = 0; i < count; ++i) at[i] = block[static_cast<size_t>(i) % block.size()];
  view = TensorView(at, DType::fp32, shape);
}

Candidate candidate_of(std::string name, CandidateProgram program, sparse::RunArguments arguments) {
  arguments.values_unchanged = true;
  const auto op = std::make_shared<std::optional<sparse::Operator>>();
  const auto run = [op, program = std::move(program), arguments = std::move(arguments)](Stream stream) {
    if (!*op)
      *op = sparse::compile(sparse::parse(program.text), program.schedule, Device::cpu(),
                            {.set = program.set, .skip = program.skip});
    (*op)->run(arguments, stream);
  };
  return {.name = std::move(name), .run = run};
}

namespace {

constexpr int kConversions = 3;

}  // namespace

Conversion::Conversion(const std::string& format)
    : op_(sparse::compile(sparse::parse(sparse::kSpmmProgram),
                          fmt::format("decompose_format(csrmm, A, {})\nlower()\nparallel(csrmm.i)\n", format),
                          Device::cpu(), {.set = {{"feat", 0}}})) {}

void Conversion::run(const SparseCase& a, const sparse::Structure& structure, Stream stream) const {
  float nothing = 0;
  op_.run({.structures = {{"J", structure}},
           .buffers = {{"A", {a.values.data(), DType::fp32, {a.nnz()}}},
                       {"B", {&nothing, DType::fp32, {a.cols, 0}}},
                       {"C", {&nothing, DType::fp32, {a.rows, 0}}}}},
          stream);
}

double Conversion::seconds(const SparseCase& a, Stream stream) const {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kConversions; ++i) {
    const sparse::Structure anew = sparse::csr(a.rows, a.cols, a.indptr, a.indices);
    least = std::min(least, seconds_of([&] { run(a, anew, stream); }));
  }
  return least;
}

double Conversion::copy_seconds(const SparseCase& a, Stream stream) const {
  run(a, a.structure, stream);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kConversions; ++i) least = std::min(least, seconds_of([&] { run(a, a.structure, stream); }));
  return least;
}

namespace {

Ablation of_case(std::string name, const SparseCase& a, int64_t feat) {
  Ablation ablation{
      .name = std::move(name), .flops = 2. * static_cast<double>(a.nnz() * feat), .gathers = &a, .feat = feat};
  ablation.bytes = static_cast<double>(a.nnz() * 8 + (a.rows + 1) * 4 + (a.rows + a.touched_cols()) * feat * 4);
  return ablation;
}

}  // namespace

Ablation spmm_ablation(std::string name, const SparseCase& a, int64_t feat) {
  Ablation ablation = of_case(std::move(name), a, feat);
  ablation.x = std::make_shared<Floats>(std::vector<int64_t>{a.cols, feat}, 1);
  ablation.out = std::make_shared<Floats>(std::vector<int64_t>{a.rows, feat}, 2);
  return ablation;
}

Ablation sddmm_ablation(std::string name, const SparseCase& a, int64_t feat) {
  Ablation ablation = of_case(std::move(name), a, feat);
  ablation.bytes += static_cast<double>(a.nnz() * 4);
  ablation.x = std::make_shared<Floats>(std::vector<int64_t>{a.rows, feat}, 1);
  ablation.y = std::make_shared<Floats>(std::vector<int64_t>{a.cols, feat}, 2);
  ablation.out = std::make_shared<Floats>(std::vector<int64_t>{a.nnz()}, 3);
  return ablation;
}

sparse::RunArguments arguments_of(const Ablation& ablation) {
  const SparseCase& a = *ablation.gathers;
  sparse::RunArguments arguments{.structures = {{"J", a.structure}}};
  arguments.buffers["A"] = {a.values.data(), DType::fp32, {a.nnz()}};
  if (ablation.y) {
    arguments.buffers["X"] = ablation.x->view;
    arguments.buffers["Y"] = ablation.y->view;
    arguments.buffers["O"] = ablation.out->view;
  } else {
    arguments.buffers["B"] = ablation.x->view;
    arguments.buffers["C"] = ablation.out->view;
  }
  return arguments;
}

double Stored::padding() const {
  return values.empty() ? 0 : 1 - static_cast<double>(num_elements) / static_cast<double>(values.size());
}

std::shared_ptr<const Stored> stored(const sparse::Converted& made, const std::vector<float>& values) {
  auto result = std::make_shared<Stored>();
  result->structure = made.structure;
  result->num_elements = static_cast<int64_t>(values.size());
  result->values.reserve(made.order.size());
  for (const int64_t e : made.order) result->values.push_back(e < 0 ? 0.f : values[static_cast<size_t>(e)]);
  return result;
}

}  // namespace weft::bench
