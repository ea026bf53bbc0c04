// What a row costs at least: every byte read once, every product at the machine's rate for its type.
#include <algorithm>
#include <stdexcept>

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

}  // namespace

Reading ceiling(const json& row) {
  const std::string kind = row.at("kind");
  if (kind == "spmm") return gather_ceiling(row);
  const Work work = kind == "attention" ? attention_work(row) : kind == "linear" ? linear_work(row) : model_work(row);
  const int threads = row.at("threads");
  return [work, threads] { return seconds(work, threads); };
}

}  // namespace contest
