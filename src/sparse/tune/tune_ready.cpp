// Searches for schedules of operators that have one format. The first candidate of each is what runs without a search.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/clock.h"
#include "sparse/formats/structure.h"
#include "sparse/machine.h"
#include "sparse/operators/searched.h"
#include "sparse/tune/choice.h"
#include "sparse/tune/results.h"
#include "sparse/tune/search.h"

namespace weft::sparse {
namespace {

// On a card a tile is all that schedules differ by.
int num_rgms_candidates(Device device) { return device == Device::cpu() ? 9 : 1; }

void check_feat(const char* name, int64_t feat) {
  check(feat >= 1 && feat <= 65536, ErrorCode::invalid_argument, "{}: is {}; 1 to 65536 are allowed", name, feat);
}

Tuned search_and_keep(const Structure::Data& data, const std::string& call, const std::vector<Candidate>& candidates,
                      const TuneOptions& options, const Stopwatch& stopwatch) {
  const Device device = stopwatch.stream().device();
  const Tuned tuned = search(results_key(data, call, device), candidates, options.seconds, stopwatch);
  keep_candidate(data, call, tuned.choice);
  return tuned;
}

}  // namespace

Tuned tune_block_spmm(const Structure& blocks, int64_t heads, int64_t block, int64_t feat, DType dtype,
                      const TuneOptions& options, Stream stream) {
  check_feat("feat", feat);
  cpu_backend().require(stream.device(), "tune_block_spmm");
  const std::unique_ptr<const Stopwatch> stopwatch = cpu_backend().stopwatch(Device::cpu(), stream);
  check(heads >= 1 && block >= 1 && block <= 256, ErrorCode::invalid_argument,
        "block: {} heads of blocks {} wide; 1 and more heads, and blocks of 1 to 256 are allowed", heads, block);
  check(dtype == DType::fp32 || dtype == DType::bf16, ErrorCode::invalid_dtype,
        "dtype: is {}; allowed are fp32 and bf16", to_string(dtype));
  const Structure::Data& data = data_of(blocks, "blocks");
  check_is_csr(data, "block_spmm");
  const int64_t n = blocks.num_cols() * block, m = blocks.num_rows() * block;
  const Workspace a = ones(heads * blocks.nnz() * block * block), b = ones(heads * n * feat);
  const Workspace c = ones(heads * m * feat);
  const RunArguments arguments{.structures = {{"JO", blocks}},
                               .buffers = {{"A", {a.data(), dtype, {heads, blocks.nnz(), block, block}}},
                                           {"B", {b.data(), dtype, {heads, n, feat}}},
                                           {"C", {c.data(), dtype, {heads, m, feat}}}}};
  std::vector<Candidate> candidates;
  for (const int64_t dots : {1, 0}) {
    if (dots == 0 && !(dtype == DType::bf16 && machine().prefers_bf16_dots)) continue;
    for (const int64_t rows : {0, 16, 8, 4, 2}) {
      if (rows > 0 && block % rows != 0) continue;
      const std::string candidate = fmt::format("rows {} dots {}", rows, dots);
      candidates.push_back({candidate, [&, candidate] {
                              block_spmm_operator(heads, block, feat, dtype, candidate).run(arguments, stream);
                            }});
    }
  }
  return search_and_keep(data, block_spmm_call(heads, block, feat, dtype, stream.team().num_workers()), candidates,
                         options, *stopwatch);
}

Tuned tune_rgms(const Structure& edges, int64_t feat_in, int64_t feat_out, const TuneOptions& options, Stream stream) {
  check_feat("feat_in", feat_in);
  check_feat("feat_out", feat_out);
  const Structure::Data& data = data_of(edges, "edges");
  check(data.levels.size() == 5, ErrorCode::invalid_argument,
        "edges: the structure has {} levels; relational_from_coo makes the one of 5 that is expected",
        data.levels.size());
  const int64_t relations = data.levels[2].length, tile = data.levels[3].length, n = data.levels[4].length;
  const int64_t m = data.levels[1].length * tile;
  const Device device = stream.device();
  const Backend& backend = backend_of(device, "tune_rgms");
  const std::unique_ptr<const Stopwatch> stopwatch = backend.stopwatch(device, stream);
  const Workspace x = ones(n * feat_in, device), w = ones(relations * feat_in * feat_out, device);
  const Workspace y = ones(m * feat_out, device);
  const RunArguments arguments{.buffers = {{"X", {x.data(), DType::fp32, {n, feat_in}, device}},
                                           {"W", {w.data(), DType::fp32, {relations, feat_in, feat_out}, device}},
                                           {"Y", {y.data(), DType::fp32, {m, feat_out}, device}}}};
  std::array<int64_t, 3> prefetches = {0, 8, 32};
  std::swap(prefetches[0], *std::ranges::find(prefetches, likely_rgms_prefetch(feat_in, DType::fp32)));
  std::vector<Candidate> candidates;
  for (const int64_t vectors : {4, 2, 1})
    for (const int64_t ahead : prefetches) {
      if (static_cast<int>(candidates.size()) == num_rgms_candidates(device)) break;
      const std::string candidate = fmt::format("vectors {} prefetch {}", vectors, ahead);
      candidates.push_back({candidate, [&, candidate] { run_rgms(edges, arguments, candidate, stopwatch->stream()); }});
    }
  return search_and_keep(data, rgms_call(false, feat_in, feat_out, DType::fp32, workers_of(device, stream)), candidates,
                         options, *stopwatch);
}

TunedRgms tune_rgms(const CooTensor& edges, int64_t feat_in, int64_t feat_out, const TuneOptions& options,
                    Stream stream) {
  constexpr std::array<int64_t, 5> kTiles = {64, 128, 32, 256, 16};  // the first is what runs without a search
  const auto start = Clock::now();
  TunedRgms best;
  for (size_t t = 0; t < kTiles.size(); ++t) {
    const double left = options.seconds - seconds_since(start);
    if (t > 0 && left <= 0) {
      best.num_left += num_rgms_candidates(stream.device());
      continue;
    }
    TuneOptions share = options;
    if (options.seconds > 0) share.seconds = std::max(left, 0.) / static_cast<double>(kTiles.size() - t);
    const Tuned found = tune_rgms(relational_from_coo(edges, kTiles[t]).structure, feat_in, feat_out, share, stream);
    const auto named = [&](const std::string& candidate) { return fmt::format("tile {} {}", kTiles[t], candidate); };
    best.num_tried += found.num_tried;
    best.num_left += found.num_left;
    if (t == 0) best.likely_choice = named(found.likely_choice), best.likely_seconds = found.likely_seconds;
    if (t > 0 && found.seconds >= best.seconds) continue;
    best.choice = named(found.choice);
    best.seconds = found.seconds;
    best.tile = kTiles[t];
  }
  return best;
}

}  // namespace weft::sparse
