#include "cli/sparse_tune.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/arguments.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/packed_file.h"
#include "cli/sparse_elements.h"
#include "cli/sparse_matrix.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/stage1/parse.h"
#include "weft/sparse_files.h"

namespace weft::cli {
namespace {

// As examples/sparse/rgms.txt writes it.
constexpr const char* kRgmsProgram = R"(program rgms(relations, m, n, pairs, rows, nnz, feat_in, feat_out):
  O = dense_fixed(1)
  R = sparse_variable(O, relations, pairs, indptr=r_indptr, indices=r_indices)
  I = sparse_variable(R, m, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  N = dense_fixed(n)
  R_ = dense_fixed(relations)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  A = buffer(O, R, I, J): fp32
  X = buffer(N, L): fp32
  W = buffer(R_, L, K): fp32
  Y = buffer(M, K): fp32
  iterate clear(M, K) "SS" as (x, y):
    Y[x, y] = 0.0
  iterate rgms(O, R, I, J, L, K) "RRSRRS" as (o, r, i, j, l, k):
    Y[i, k] = Y[i, k] + A[o, r, i, j] * X[j, l] * W[r, l, k]
)";

int64_t width(const SparseTune& tune, const std::string& name) {
  const auto found = tune.set.find(name);
  if (found == tune.set.end()) throw UsageError(fmt::format("--tune: give the width of rows, --set {}=64", name));
  return parse_number<int64_t>("--set " + name, found->second,
                               {"1 to 65536", [](double n) { return n >= 1 && n <= 65536; }});
}

sparse::Structure read_csr(const SparseTune& tune, const std::string& path, int64_t feat) {
  const sparse::Stage1 program = sparse::parse_program(sparse::kSpmmProgram).stage1;
  return read_matrix_option(
             program, "J", path,
             {.sum_duplicates = tune.sum_duplicates, .places_alone = true, .set = {{"feat", feat}}, .is_run = true})
      .structure;
}

Stream stream_of(const SparseTune& tune) {
  return tune.device == Device::cpu() ? Stream() : Stream::cuda(nullptr, tune.device.index);
}

sparse::Tuned tune_spmm(const SparseTune& tune, const std::string& path) {
  const int64_t feat = width(tune, "feat");
  return sparse::tune_spmm(read_csr(tune, path, feat), feat, {.seconds = tune.seconds, .values_unchanged = true},
                           stream_of(tune));
}

sparse::Tuned tune_sddmm(const SparseTune& tune, const std::string& path) {
  const int64_t feat = width(tune, "feat");
  return sparse::tune_sddmm(read_csr(tune, path, feat), feat, {.seconds = tune.seconds, .values_unchanged = true},
                            stream_of(tune));
}

sparse::Tuned tune_rgms(const SparseTune& tune, const std::string& path) {
  check(sparse::is_tensor_file(path), ErrorCode::invalid_argument,
        "--matrix: '{}' is a matrix; RGMS takes triples (.csv) or a .tns", path);
  const std::string text = read_packed_file(path);
  sparse::TensorData edges = sparse::parse_tensor(path, text);
  if (tune.sum_duplicates) sum_duplicates(edges);
  return naming_duplicates(path, text, edges.coo, [&]() -> sparse::Tuned {
    return sparse::tune_rgms(edges.coo, width(tune, "feat_in"), width(tune, "feat_out"), {.seconds = tune.seconds},
                             stream_of(tune));
  });
}

const struct {
  const char* text;
  sparse::Tuned (*search)(const SparseTune& tune, const std::string& path);
} kSearches[] = {{sparse::kSpmmProgram, tune_spmm}, {sparse::kSddmmProgram, tune_sddmm}, {kRgmsProgram, tune_rgms}};

}  // namespace

void tune_sparse(const SparseTune& tune, const sparse::Program& program, const Context& context) {
  const sparse::Stage1 given = sparse::parse_program(program.text()).stage1;
  const auto search = std::find_if(std::begin(kSearches), std::end(kSearches), [&](const auto& ready) {
    return sparse::parse_program(ready.text).stage1 == given;
  });
  check(search != std::end(kSearches), ErrorCode::unsupported,
        "--tune: '{}': required: a search for its formats; supported: SpMM, SDDMM and RGMS, as spmm_hyb.txt, sddmm.txt "
        "and rgms.txt of examples/sparse write them",
        tune.file);
  if (tune.matrices.size() != 1 || !tune.matrices.contains("J"))
    throw UsageError("--tune: give the one structure, --matrix J=FILE");
  const sparse::Tuned tuned = search->search(tune, tune.matrices.at("J"));
  if (context.json)
    return print_json({{"event", "done"},
                       {"choice", tuned.choice},
                       {"run_ms", tuned.seconds * 1e3},
                       {"likely_choice", tuned.likely_choice},
                       {"likely_ms", tuned.likely_seconds * 1e3},
                       {"tried", tuned.num_tried},
                       {"left", tuned.num_left}});
  print_out("{}: {:.3f} ms; without a search {}: {:.3f} ms; {} candidates measured now, {} left\n", tuned.choice,
            tuned.seconds * 1e3, tuned.likely_choice, tuned.likely_seconds * 1e3, tuned.num_tried, tuned.num_left);
}

}  // namespace weft::cli
