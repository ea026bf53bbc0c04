// Sparse convolution: which input meets which output at which offset of the kernel; then RGMS.
#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"

namespace weft::sparse {
namespace {

using Place = std::array<int32_t, 3>;

int32_t floor_divided(int32_t a, int32_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void check_sizes(const Place& kernel, const Place& stride) {
  for (size_t d = 0; d < 3; ++d) {
    check(kernel[d] >= 1 && kernel[d] <= 15, ErrorCode::invalid_argument,
          "kernel: is {} wide in dimension {}; 1 to 15 are allowed", kernel[d], d);
    check(stride[d] >= 1 && stride[d] <= 15, ErrorCode::invalid_argument,
          "stride: is {} in dimension {}; 1 to 15 are allowed", stride[d], d);
  }
}

// The number of each place; every place once.
std::map<Place, int32_t> numbered(const std::vector<Place>& places) {
  std::map<Place, int32_t> numbers;
  for (size_t v = 0; v < places.size(); ++v) {
    const Place& p = places[v];
    check(std::all_of(p.begin(), p.end(), [](int32_t x) { return x >= -(1 << 24) && x <= 1 << 24; }),
          ErrorCode::invalid_argument, "coordinates: voxel {} is at ({}, {}, {}); 24 bits are allowed", v, p[0], p[1],
          p[2]);
    const bool is_new = numbers.emplace(p, static_cast<int32_t>(v)).second;
    check(is_new, ErrorCode::invalid_argument, "coordinates: voxel {} at ({}, {}, {}) stands twice", v, p[0], p[1],
          p[2]);
  }
  return numbers;
}

std::vector<Place> outputs_of(const std::vector<Place>& inputs, const Place& stride) {
  if (stride == Place{1, 1, 1}) return inputs;
  std::vector<Place> outputs;
  for (const Place& p : inputs)
    outputs.push_back({floor_divided(p[0], stride[0]), floor_divided(p[1], stride[1]), floor_divided(p[2], stride[2])});
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  return outputs;
}

}  // namespace

KernelMap kernel_map(const std::vector<Place>& coordinates, Place kernel, Place stride) {
  check_sizes(kernel, stride);
  check(coordinates.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
        "coordinates: {} voxels do not fit indices of 32 bits", coordinates.size());
  const std::map<Place, int32_t> inputs = numbered(coordinates);
  KernelMap map{.outputs = outputs_of(coordinates, stride)};
  CooTensor& edges = map.edges;
  edges.extents = {int64_t{kernel[0]} * kernel[1] * kernel[2], static_cast<int64_t>(map.outputs.size()),
                   static_cast<int64_t>(coordinates.size())};
  edges.coordinates.resize(3);
  int32_t offset = 0;
  for (int32_t a = 0; a < kernel[0]; ++a)
    for (int32_t b = 0; b < kernel[1]; ++b)
      for (int32_t c = 0; c < kernel[2]; ++c, ++offset)
        for (size_t u = 0; u < map.outputs.size(); ++u) {
          const Place& out = map.outputs[u];
          const auto met =
              inputs.find({out[0] * stride[0] + a - (kernel[0] - 1) / 2, out[1] * stride[1] + b - (kernel[1] - 1) / 2,
                           out[2] * stride[2] + c - (kernel[2] - 1) / 2});
          if (met == inputs.end()) continue;
          edges.coordinates[0].push_back(offset);
          edges.coordinates[1].push_back(static_cast<int32_t>(u));
          edges.coordinates[2].push_back(met->second);
        }
  map.structure = relational_from_coo(edges).structure;
  return map;
}

void sparse_convolution(const KernelMap& map, const TensorView& x, const TensorView& w, const TensorView& y,
                        Stream stream) {
  rgms(map.structure, {}, x, w, y, stream);
}

}  // namespace weft::sparse
