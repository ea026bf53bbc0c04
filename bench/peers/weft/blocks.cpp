// SpMM and SDDMM in blocks: a band, a butterfly, pruned weights.
#include "bench/block_work.h"
#include "contestants.h"

namespace contest {

Reading weft_blocks(const json& row) {
  using namespace weft;
  const DType dtype = row.at("dtype") == "bf16" ? DType::bf16 : DType::fp32;
  const auto team = std::make_shared<WorkerTeam>(row.at("threads").get<int>());
  const auto work = std::make_shared<bench::BlockWork>(bench::block_case(row.at("pattern")), dtype);
  const bool is_spmm = row.at("op") == "spmm";
  const auto run = [=] { is_spmm ? work->spmm(Stream::cpu(*team)) : work->sddmm(Stream::cpu(*team)); };
  run();
  return [run] { return mean_seconds(run); };
}

}  // namespace contest
