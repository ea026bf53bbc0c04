#include "device/cuda/launch.h"

#include <iterator>
#include <vector>

#include "base/check.h"

namespace weft::cuda {

void launch_with(const Kernel& kernel, const Grid& grid, api::Stream stream, const void* args) {
  Card& card = Card::at(kernel.card->index());
  const bool is_hopper = card.capability_major() >= 9;
  check(grid.cluster == 1 || is_hopper, ErrorCode::unsupported,
        "'{}': required clusters of CTAs, supported from compute capability 9.0 on, missing on cuda:{} ({}, {}.{})",
        kernel.name, card.index(), card.name(), card.capability_major(), card.capability_minor());
  ensure(grid.ctas > 0 && grid.threads_of_cta() > 0 && grid.threads_of_cta() <= kernel.max_threads &&
             grid.cluster > 0 && grid.cluster <= 8 && grid.ctas % grid.cluster == 0,
         "'{}' cannot be launched as {} CTAs of {} threads in clusters of {}", kernel.name, grid.ctas,
         grid.threads_of_cta(), grid.cluster);
  ensure(grid.shared_bytes >= 0 && grid.shared_bytes <= kernel.most_shared_bytes,
         "'{}' cannot be launched with {} bytes of shared memory a CTA: it was loaded for up to {}", kernel.name,
         grid.shared_bytes, kernel.most_shared_bytes);
  api::LaunchAttribute attributes[3] = {};
  api::LaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(grid.ctas);
  config.grid_y = static_cast<unsigned>(grid.ctas_y);
  config.grid_z = static_cast<unsigned>(grid.ctas_z);
  config.block_x = static_cast<unsigned>(grid.threads);
  config.block_y = static_cast<unsigned>(grid.threads_y);
  config.block_z = static_cast<unsigned>(grid.threads_z);
  config.shared_bytes = static_cast<unsigned>(grid.shared_bytes);
  config.stream = stream;
  config.attributes = attributes;
  const auto add = [&](api::LaunchAttributeId id) -> api::LaunchAttributeValue& {
    attributes[config.num_attributes].id = id;
    return attributes[config.num_attributes++].value;
  };
  if (grid.cooperative) add(api::kCooperative).cooperative = 1;
  if (grid.cluster > 1) add(api::kClusterDimension).cluster_dim = {static_cast<unsigned>(grid.cluster), 1, 1};
  if (grid.programmatic_launch && is_hopper)
    add(api::kProgrammaticStreamSerialization).programmatic_stream_serialization = 1;
  auto* const first = static_cast<uint64_t*>(const_cast<void*>(args));
  void* few[64] = {first};  // enough for almost any launch, which then allocates nothing
  std::vector<void*> many;
  void** all = few;
  if (kernel.num_arguments > static_cast<int>(std::size(few)))
    all = (many.resize(static_cast<size_t>(kernel.num_arguments)), many.data());
  for (int i = 0; i < kernel.num_arguments; ++i) all[i] = first + i;
  const Current current(card);
  card.check_launch(card.driver().launch_kernel(&config, kernel.function, all, nullptr), kernel.name);
}

}  // namespace weft::cuda
