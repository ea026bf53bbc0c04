#include "bench/bench.h"

#include "bench/measure.h"

namespace weft::bench {
namespace {

constexpr Bench kBenches[] = {
    {"ceilings", "what this machine can read and multiply at most", measure_ceilings},
    {"attention", "decode, prefill and append against the machine's ceilings; --numerics: errors against fp64",
     measure_attention},
    {"model", "prefill and decode of a model file", measure_model},
    {"serve", "a server that speaks OpenAI's completions, under the load of a trace; needs --url", measure_serve},
    {"gemm", "matrix products of every weight type and precision", measure_gemm},
    {"sparse", "sparse operators against the rows that they gather, and plain loops", measure_sparse},
    {"plan", "planning time and balance", measure_plan},
    {"jit", "from a variant's text to callable code", measure_jit},
    {"threads", "fork, join and barrier of the worker team, quiet and with a busy neighbour", measure_threads},
};

}  // namespace

std::span<const Bench> benches() { return kBenches; }

}  // namespace weft::bench
