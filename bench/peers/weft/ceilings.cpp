// What a row costs at least: every byte read once, every product at the machine's rate for its type.
#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

#include "bench/block_work.h"
#include "bench/probe.h"
#include "contestants.h"
#include "weft/model.h"

namespace contest {
namespace {

using weft::WorkerTeam;
using weft::bench::Instruction;

struct Work {
  double bytes = 0, span = 0;  // read at least once; over how much memory the reads of a row go
  double int8_ops = 0, bf16_ops = 0, fp32_ops = 0;
};

// Operations a second; 0 where the machine has no such instruction.
double rate(WorkerTeam& team, Instruction instruction) {
  const weft::bench::Probe probe = weft::bench::probe_ops(team, instruction);
  return probe ? weft::bench::best_of(probe) : 0;
}
double fp32_rate(WorkerTeam& team) { return rate(team, Instruction::fp32_multiply_add); }
// The narrower type is not the faster one on every machine; a row may be computed in the wider one then.
double bf16_rate(WorkerTeam& team) { return std::max(rate(team, Instruction::bf16_dot), fp32_rate(team)); }
double int8_rate(WorkerTeam& team) { return std::max(rate(team, Instruction::int8_dot), bf16_rate(team)); }

double read_rate(WorkerTeam& team, size_t bytes) {
  const weft::Workspace memory = weft::bench::memory_to_read(team, bytes);
  return weft::bench::best_of(weft::bench::probe_read(team, static_cast<const char*>(memory.data()), bytes, bytes));
}

double seconds(const Work& work, int threads) {
  WorkerTeam team(threads);
  const double reading = work.bytes / read_rate(team, static_cast<size_t>(std::max(work.span, 64. * (1 << 20))));
  double computing = 0;
  if (work.int8_ops > 0) computing += work.int8_ops / int8_rate(team);
  if (work.bf16_ops > 0) computing += work.bf16_ops / bf16_rate(team);
  if (work.fp32_ops > 0) computing += work.fp32_ops / fp32_rate(team);
  return std::max(reading, computing);
}

Work attention_work(const json& row) {
  const double batch = row.at("batch"), qo_len = row.at("qo_len"), kv_len = row.at("kv_len");
  const double qo_heads = row.at("qo_heads"), kv_heads = row.at("kv_heads"), head_dim = row.at("head_dim");
  const bool bf16 = row.at("dtype") == "bf16";
  Work work;
  work.bytes = 2 * batch * kv_len * kv_heads * head_dim * (bf16 ? 2 : 4);
  work.span = work.bytes * row.at("copies").get<double>();
  const double seen = qo_len > 1 ? qo_len * (kv_len - (qo_len - 1) / 2) : kv_len;
  (bf16 ? work.bf16_ops : work.fp32_ops) = 4 * batch * qo_heads * head_dim * seen;
  return work;
}

Work linear_work(const json& row) {
  const double weights = row.at("rows").get<double>() * row.at("cols").get<double>();
  const bool bf16 = row.at("weights") == "bf16";
  Work work;
  work.bytes = weights * (bf16 ? 2 : 4.5 / 8);  // 4 bits, and a scale of 16 for 32 weights
  work.span = work.bytes * row.at("copies").get<double>();
  (bf16 ? work.bf16_ops : work.int8_ops) = 2 * weights * row.at("m").get<double>();
  return work;
}

// Keys and values of 16 bits, products with weights at the rate of int8, attention at that of bf16.
Work model_work(const json& row) {
  const weft::ModelFile file(row.at("model").get<std::string>());
  const weft::ModelConfig& config = file.config();
  double weight_bytes = 0, layer_weights = 0, head_weights = 0;
  for (const weft::WeightInfo& weight : file.weights()) {
    const bool embedding = weight.name == "token_embd.weight";
    if (!embedding || config.tied_embeddings) weight_bytes += static_cast<double>(weight.bytes);
    const auto elements = static_cast<double>(weight.rows * weight.cols);
    if (weight.name.starts_with("blk.")) layer_weights += elements;
    if (weight.name == (config.tied_embeddings ? "token_embd.weight" : "output.weight")) head_weights = elements;
  }
  const double prompt = row.at("prompt"), steps = row.value("steps", 0), sequences = row.value("sequences", 1);
  const double kv_bytes = 4. * config.num_layers * config.num_kv_heads * config.head_dim;
  const double pair_ops = 4. * config.num_layers * config.num_qo_heads * config.head_dim;  // of a query and a key
  Work work;
  if (row.at("kind") == "prefill") {
    work.bytes = work.span = weight_bytes;
    work.int8_ops = 2 * (layer_weights * prompt + head_weights);
    work.bf16_ops = pair_ops * prompt * (prompt + 1) / 2;
    return work;
  }
  const double prefixes = row.value("shared", false) ? 1 : sequences;
  work.span = weight_bytes + kv_bytes * (prefixes * prompt + sequences * steps / 2);
  work.bytes = steps * work.span;
  work.int8_ops = 2 * steps * sequences * (layer_weights + head_weights);
  work.bf16_ops = steps * sequences * pair_ops * (prompt + steps / 2);
  return work;
}

Work block_work(const json& row) {
  const bool bf16 = row.at("dtype") == "bf16";
  const weft::bench::BlockWork blocks(weft::bench::block_case(row.at("pattern")), weft::DType::bf16);
  Work work;
  work.bytes = work.span = blocks.bytes() * (bf16 ? 1 : 2);
  (bf16 ? work.bf16_ops : work.fp32_ops) = blocks.flops();
  return work;
}

// Sums of a row's inputs by relation, each multiplied once; inputs, weights and outputs pass once.
Work rgms_work(const json& row) {
  const weft::sparse::CooTensor edges = read_edges(row.at("edges"));
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t e = 0; e < edges.coordinates[0].size(); ++e)
    pairs.emplace(edges.coordinates[0][e], edges.coordinates[1][e]);
  const double feat_in = row.at("feat_in"), feat_out = row.at("feat_out");
  Work work;
  work.fp32_ops = 2 * static_cast<double>(pairs.size()) * feat_in * feat_out;
  work.bytes = work.span =
      4 * (static_cast<double>(edges.extents[2]) * feat_in + static_cast<double>(edges.extents[1]) * feat_out +
           static_cast<double>(edges.extents[0]) * feat_in * feat_out);
  return work;
}

// Of each layer the products with both of its weights, forward and in the gradient of the weights; of the second one in
// that of its inputs, too. Features pass twice.
Work graphsage_work(const json& row) {
  int64_t nodes = 0;
  std::ifstream(row.at("matrix").get<std::string>(), std::ios::binary).read(reinterpret_cast<char*>(&nodes), 8);
  const double n = static_cast<double>(nodes), feat = row.at("feat"), hidden = row.at("hidden");
  const double classes = row.at("classes");
  Work work;
  work.fp32_ops = 2 * n * 2 * (2 * feat * hidden + 3 * hidden * classes);
  work.bytes = work.span = 2 * 4 * n * feat;
  return work;
}

Work work_of(const json& row) {
  const std::string kind = row.at("kind");
  if (kind == "attention") return attention_work(row);
  if (kind == "linear") return linear_work(row);
  if (kind == "blocks") return block_work(row);
  if (kind == "rgms") return rgms_work(row);
  if (kind == "graphsage") return graphsage_work(row);
  return model_work(row);
}

}  // namespace

Reading ceiling(const json& row) {
  if (row.at("kind") == "spmm") return gather_ceiling(row);
  const Work work = work_of(row);
  const int threads = row.at("threads");
  return [work, threads] { return seconds(work, threads); };
}

}  // namespace contest
