#include "sparse/cuda/grid.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "loop/product.h"
#include "loop/threads.h"
#include "loop/threads/fragments.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 256;  // of a CTA: as many as any kernel's registers allow
// Of a loop whose extent only the kernel knows: as long as rows of sparse matrices tend to be.
constexpr int64_t kVaryingThreads = 128;
constexpr int64_t kParallelThreads = 64;  // each with an iteration: small CTAs share a small loop evenly
constexpr int64_t kProductThreads = 128;
constexpr int64_t kCtasOfMultiprocessor = 8;  // where their number varies
constexpr int64_t kMostCtasX = std::numeric_limits<int>::max(), kMostCtas = 65535;

constexpr const char* kAxes[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"};

int64_t next_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

int64_t whole_warps(int64_t threads) { return (threads + kWarp - 1) / kWarp * kWarp; }

}  // namespace

BoundGrid::BoundGrid(const loop::Function& function, const loop::Phase& phase, const loop::Body& thread)
    : shared_bytes_(static_cast<int>(loop::shared_bytes(thread))) {
  const bool is_apart = phase.is_side_by_side();
  for (size_t s = 0; s < phase.body.size(); ++s) {
    const bool is_beside = is_apart && s > 0;
    if (is_beside) beside_.emplace_back();
    add_loops(function, {phase.body[s]}, is_beside ? beside_.back() : axes_[kCtaX]);
  }
  loop::visit(thread, [&](const loop::Stmt& stmt) {
    has_sums_ |= stmt.kind == loop::Stmt::Kind::thread_sum;
    has_products_ |= stmt.kind == loop::Stmt::Kind::loop && loop::has_annotation(stmt, loop::kTogether);
  });
}

void BoundGrid::add_loops(const loop::Function& function, const loop::Body& body, Axis& ctas_x) {
  loop::visit(body, [&](const loop::Stmt& stmt) {
    has_fragments_ |= loop::is_fragment_memory(stmt);
    if (stmt.kind != loop::Stmt::Kind::loop) return;
    if (stmt.loop == loop::LoopKind::parallel) add(function, parallel_, stmt.value);
    if (stmt.loop != loop::LoopKind::bind) return;
    const auto axis = std::find(std::begin(kAxes), std::end(kAxes), stmt.thread) - std::begin(kAxes);
    add(function, axis == kCtaX ? ctas_x : axes_[static_cast<size_t>(axis)], stmt.value);
  });
}

void BoundGrid::add(const loop::Function& function, Axis& axis, const loop::Expr& extent) {
  axis.is_bound = true;
  bool is_known = true;
  loop::visit(extent, [&](const loop::Expr& e) {
    is_known &= e->op != loop::Op::load && !loop::is_search(e->op);
    if (e->op == loop::Op::variable)
      is_known &= std::find(function.scalars.begin(), function.scalars.end(), e->name) != function.scalars.end();
  });
  axis.varies |= !is_known;
  if (is_known) axis.extents.push_back(extent);
}

int64_t BoundGrid::Axis::extent(const loop::Memory& numbers, int64_t otherwise) const {
  if (!is_bound) return 1;
  int64_t most = varies ? otherwise : 1;
  for (const loop::Expr& e : extents) most = std::max(most, evaluate(e, numbers));
  return most;
}

// Whole warps. Sums over threads want a power of two up to a warp along x, or whole warps where nothing else is bound
// to threads.
std::array<int, 3> BoundGrid::threads(const loop::Memory& numbers) const {
  if (parallel_.is_bound) return {static_cast<int>(kParallelThreads), 1, 1};
  if (has_fragments_) return {static_cast<int>(loop::kFragmentThreads), 1, 1};
  const bool is_alone = !axes_[kThreadY].is_bound && !axes_[kThreadZ].is_bound;
  int64_t x = axes_[kThreadX].extent(numbers, is_alone ? kVaryingThreads : kWarp);
  if (!axes_[kThreadX].is_bound && is_alone) x = has_products_ ? kProductThreads : kWarp;
  x = x < kWarp ? next_power_of_two(x) : whole_warps(x);
  x = std::min(x, has_sums_ && !is_alone ? kWarp : kMostThreads);
  if (is_alone) x = whole_warps(x);
  int64_t y = std::min(axes_[kThreadY].extent(numbers, kMostThreads), kMostThreads / x);
  if (axes_[kThreadY].is_bound) y = whole_warps(x * y) / x;
  int64_t z = std::min(axes_[kThreadZ].extent(numbers, kMostThreads), kMostThreads / (x * y));
  if (axes_[kThreadZ].is_bound) z = whole_warps(x * y * z) / (x * y);
  // A CTA has no more along z.
  return {static_cast<int>(x), static_cast<int>(y), static_cast<int>(std::min<int64_t>(z, 64))};
}

std::array<int, 3> BoundGrid::fixed_threads() const {
  int64_t extent = 0;
  for (const size_t axis : {kThreadX, kThreadY, kThreadZ})
    for (const loop::Expr& e : axes_[axis].extents)
      if (!loop::is_integer(e, &extent)) return {};
  return threads({});
}

cuda::Grid BoundGrid::grid(const loop::Memory& numbers, int num_multiprocessors) const {
  cuda::Grid grid{.shared_bytes = shared_bytes_};
  const auto [x, y, z] = threads(numbers);
  grid.threads = x;
  grid.threads_y = y;
  grid.threads_z = z;
  if (parallel_.is_bound) {
    const int64_t extent = parallel_.extent(numbers, kCtasOfMultiprocessor * kParallelThreads * num_multiprocessors);
    grid.ctas = static_cast<int>(std::min((extent + kParallelThreads - 1) / kParallelThreads, kMostCtasX));
    return grid;
  }
  const int64_t otherwise = kCtasOfMultiprocessor * num_multiprocessors;
  int64_t ctas = axes_[kCtaX].extent(numbers, otherwise);
  for (const Axis& nest : beside_) ctas += nest.extent(numbers, otherwise);
  // Texts of fixed launches take one iteration a CTA there.
  check(ctas <= kMostCtasX || fixed_threads()[0] == 0, ErrorCode::unsupported,
        "a loop bound to blockIdx.x has {} iterations; supported: {}, or split it", ctas, kMostCtasX);
  grid.ctas = static_cast<int>(std::min(ctas, kMostCtasX));
  grid.ctas_y = static_cast<int>(std::min(axes_[kCtaY].extent(numbers, otherwise), kMostCtas));
  grid.ctas_z = static_cast<int>(std::min(axes_[kCtaZ].extent(numbers, otherwise), kMostCtas));
  return grid;
}

}  // namespace weft::sparse
