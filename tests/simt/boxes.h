// Boxes that are copied in the host machine and on a card: dimensions, swizzles, corners outside of the tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>

#include "tests/simt/kernels/args.h"

namespace weft::simt {

struct BoxCase {
  const char* name;
  int dims, element_bytes;
  unsigned long long sizes[5];
  int padding;  // bytes between rows, and as many between what is larger
  int box[5];
  abi::Swizzle swizzle;
  int from_at[5], to_at[5];

  abi::TensorLayout layout(void* data) const {
    abi::TensorLayout made = {};
    made.data = data, made.dims = dims, made.element_bytes = element_bytes, made.swizzle = swizzle;
    unsigned long long stride = static_cast<unsigned long long>(element_bytes);
    for (int i = 0; i < dims; ++i) {
      made.sizes[i] = sizes[i], made.box[i] = box[i], made.strides[i] = stride;
      stride = (stride * sizes[i] + static_cast<unsigned long long>(padding) + 15) / 16 * 16;
    }
    return made;
  }
  size_t tensor_bytes() const {
    const abi::TensorLayout made = layout(nullptr);
    return made.strides[dims - 1] * made.sizes[dims - 1];
  }
  BoxArgs args(void* from, void* to, unsigned* shared) const {
    BoxArgs made = {};
    made.from.layout = layout(from), made.to.layout = layout(to), made.shared = shared;
    made.prefetches = made.stores = true;
    std::copy_n(from_at, 5, made.from_at);
    std::copy_n(to_at, 5, made.to_at);
    return made;
  }
  friend std::ostream& operator<<(std::ostream& out, const BoxCase& test) { return out << test.name; }
};

// A matrix of 16-bit elements, of which a box is the tile.
inline abi::TensorLayout layout_of(void* data, int rows, int columns, const abi::MatrixTile& tile) {
  abi::TensorLayout made = {};
  made.data = data, made.dims = 2, made.element_bytes = 2, made.swizzle = tile.swizzle;
  made.sizes[0] = static_cast<unsigned long long>(columns), made.sizes[1] = static_cast<unsigned long long>(rows);
  made.strides[0] = 2, made.strides[1] = 2 * made.sizes[0];
  made.box[0] = tile.columns, made.box[1] = tile.rows;
  return made;
}

// Matrices that follow each other; a box is a tile of one of them. The third dimension counts its panels.
inline abi::TensorLayout panels_of(void* data, int matrices, int rows, int columns, const abi::MatrixTile& tile) {
  abi::TensorLayout made = layout_of(data, rows, columns, tile);
  made.dims = 4, made.sizes[0] = static_cast<unsigned long long>(tile.panel_columns());
  made.sizes[2] = static_cast<unsigned long long>(columns / tile.panel_columns());
  made.sizes[3] = static_cast<unsigned long long>(matrices);
  made.strides[2] = static_cast<unsigned long long>(tile.span());
  made.strides[3] = made.strides[1] * made.sizes[1];
  made.box[0] = tile.panel_columns(), made.box[2] = tile.panels(), made.box[3] = 1;
  return made;
}

struct AttendTensors {
  void *q, *k, *v;
  float *o, *lse;
};
// Of `rows` queries and n keys of each head.
inline WarpgroupAttendArgs args_of(const AttendShape& shape, const AttendTensors& of, int heads, int rows, int n,
                                   bool causal) {
  WarpgroupAttendArgs args = {};
  args.q.layout = panels_of(of.q, heads, rows, shape.dim_qk, shape.queries());
  args.k.layout = panels_of(of.k, heads, n, shape.dim_qk, shape.keys_tile());
  args.v.layout = panels_of(of.v, heads, n, shape.dim_vo, shape.values());
  args.o = of.o, args.lse = of.lse, args.num_heads = heads, args.num_queries = rows, args.n = n;
  args.causal = causal, args.sm_scale = 0.125f;
  return args;
}

using enum abi::Swizzle;
inline const BoxCase kBoxCases[] = {
    {"a run", 1, 4, {100}, 0, {64}, none, {20}, {36}},
    {"a run across both ends", 1, 2, {50}, 0, {128}, none, {-8}, {32}},
    {"a tile of keys", 2, 2, {128, 100}, 0, {64, 64}, bytes_128, {64, 30}, {0, 5}},
    {"a tile across the last key", 2, 2, {64, 50}, 32, {64, 64}, bytes_128, {0, 20}, {0, 40}},
    {"rows of 64 bytes", 2, 2, {96, 40}, 0, {32, 24}, bytes_64, {64, 3}, {32, 25}},
    {"rows of 32 bytes", 2, 2, {80, 40}, 16, {16, 40}, bytes_32, {48, 8}, {72, 0}},
    {"columns beyond the last", 2, 2, {72, 20}, 0, {64, 16}, bytes_128, {16, 0}, {40, 4}},
    {"panels of one tile", 3, 2, {64, 40, 3}, 0, {64, 32, 3}, bytes_128, {0, 5, 0}, {0, 16, 1}},
    {"bytes", 2, 1, {64, 30}, 0, {64, 32}, bytes_64, {0, -1}, {0, 2}},
    {"pages", 4, 2, {64, 4, 16, 5}, 64, {64, 1, 16, 2}, bytes_128, {0, 2, 0, 3}, {0, 3, 0, 4}},
    {"five dimensions", 5, 8, {6, 5, 4, 3, 3}, 0, {4, 3, 3, 2, 2}, none, {2, 1, 1, -1, 2}, {4, 3, 0, 1, 0}},
};

}  // namespace weft::simt
