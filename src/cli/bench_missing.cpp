// Benchmarks whose parts are not in this tree yet.
#include "base/check.h"
#include "cli/bench.h"

namespace weft::cli {
namespace {
[[noreturn]] void missing(const char* name) {
  fail(ErrorCode::unsupported, "bench {}: required {}, supported ceilings and threads, missing {}", name, name, name);
}
}  // namespace


[[gnu::weak]] void bench_gemm(const BenchOptions&, BenchReport&) { missing("gemm"); }
[[gnu::weak]] void bench_model(const BenchOptions&, BenchReport&) { missing("model"); }

}  // namespace weft::cli
