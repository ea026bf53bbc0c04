// The benches: each in the file of its name.
#pragma once

#include "bench/bench.h"

namespace weft::bench {

void measure_ceilings(const BenchOptions& options, BenchReport& report);
void measure_ceilings_on_card(const BenchOptions& options, BenchReport& report);
void measure_threads(const BenchOptions& options, BenchReport& report);
void measure_jit(const BenchOptions& options, BenchReport& report);
void measure_jit_on_card(const BenchOptions& options, BenchReport& report);
void measure_plan(const BenchOptions& options, BenchReport& report);
void measure_plan_on_card(const BenchOptions& options, BenchReport& report);
void measure_plan_fit(const BenchOptions& options, BenchReport& report);
void measure_attention(const BenchOptions& options, BenchReport& report);
void measure_attention_on_card(const BenchOptions& options, BenchReport& report);
void measure_gemm(const BenchOptions& options, BenchReport& report);
void measure_sampling(const BenchOptions& options, BenchReport& report);
void measure_sparse(const BenchOptions& options, BenchReport& report);
void measure_sparse_on_card(const BenchOptions& options, BenchReport& report);
void measure_sparse_tune(const BenchOptions& options, BenchReport& report);
void measure_serve(const BenchOptions& options, BenchReport& report);
void measure_model(const BenchOptions& options, BenchReport& report);
void measure_decode_studies(const BenchOptions& options, BenchReport& report);
void measure_model_on_card(const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
