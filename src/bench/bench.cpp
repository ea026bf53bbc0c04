#include "bench/bench.h"

#include "bench/measure.h"

namespace weft::bench {
namespace {

constexpr Bench kBenches[] = {
    {"ceilings", "what this machine, or a card, can read and multiply at most", measure_ceilings},
    {"attention", "decode, prefill and append against the machine's ceilings", measure_attention},
    {"model", "prefill and decode of a model file, or of a shape", measure_model},
    {"decode", "on a card: what kernels of whole models are made of, by themselves", measure_decode_studies},
    {"serve", "a server that speaks OpenAI's completions, under the load of a trace", measure_serve},
    {"gemm", "matrix products of every weight type and precision", measure_gemm},
    {"sampling", "tokens drawn from rows of logits", measure_sampling},
    {"sparse", "sparse operators against the rows that they gather, and plain loops", measure_sparse},
    {"sparse-tune", "what searching for an SpMM finds and takes, and compiling one", measure_sparse_tune},
    {"plan", "planning time and balance", measure_plan},
    {"jit", "from a variant's text to callable code", measure_jit},
    {"threads", "fork, join and barrier of the worker team, quiet and with a busy neighbour", measure_threads},
};

}  // namespace

std::span<const Bench> benches() { return kBenches; }

}  // namespace weft::bench
