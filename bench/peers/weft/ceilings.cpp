// What a row costs at least: every byte read once, every product at the machine's rate for its type.
#include <algorithm>
#include <stdexcept>

#include "cli/bench.h"
#include "contestants.h"
#include "weft/model.h"

namespace contest {
namespace {

using weft::cli::measure_bf16_flops;
using weft::cli::measure_fp32_flops;
using weft::cli::measure_int8_ops;
using weft::cli::measure_read_bandwidth;

struct Work {
  double bytes = 0, span = 0;  // read at least once; over how much memory the reads of a row go
  double int8_ops = 0, bf16_ops = 0, fp32_ops = 0;
};

// The narrower type is not the faster one on every machine; a row may be computed in the wider one then.
double bf16_rate(int threads) { return std::max(measure_bf16_flops(threads), measure_fp32_flops(threads)); }
double int8_rate(int threads) { return std::max(measure_int8_ops(threads), bf16_rate(threads)); }

double seconds(const Work& work, int threads) {
  const double reading =
      work.bytes / measure_read_bandwidth(threads, static_cast<size_t>(std::max(work.span, 64. * (1 << 20))));
  double computing = 0;
  if (work.int8_ops > 0) computing += work.int8_ops / int8_rate(threads);
  if (work.bf16_ops > 0) computing += work.bf16_ops / bf16_rate(threads);
  if (work.fp32_ops > 0) computing += work.fp32_ops / measure_fp32_flops(threads);
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
  const Work work = kind == "attention" ? attention_work(row) : kind == "linear" ? linear_work(row) : model_work(row);
  const int threads = row.at("threads");
  return [work, threads] { return seconds(work, threads); };
}

}  // namespace contest
