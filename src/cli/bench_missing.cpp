// Benchmarks whose parts are not in this tree yet.
#include "base/check.h"
#include "cli/bench.h"

namespace weft::cli {
namespace {
[[noreturn]] void missing(const char* name) {
  fail(ErrorCode::unsupported, "bench {}: required {}, supported ceilings and threads, missing {}", name, name, name);
}
}  // namespace


[[gnu::weak]] void bench_jit(const BenchOptions&, BenchReport&) { missing("jit"); }
[[gnu::weak]] void bench_plan(const BenchOptions&, BenchReport&) { missing("plan"); }

}  // namespace weft::cli
