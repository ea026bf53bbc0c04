// Finished states leave for the output tensors.
#include "attention/cpu/kernels/output.h"

#include "attention/cpu/kernels/dense.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

void write_output(const AttendArgs& args, const OutputStates& x) {
  const int group = args.group_size, dim = args.head_dim_vo;
  const int num_states = x.num_kv_heads * x.num_rows * group;
  const bool new_lse = args.lse && args.leaf->lse;
  if (args.leaf->output || new_lse) {
    int state = 0;
    for (int head = 0; head < x.num_kv_heads; ++head)
      for (int r = 0; r < x.num_rows; ++r)
        for (int g = 0; g < group; ++g, ++state)
          x.vectors[state] = {x.rows[r].request, x.rows[r].idx, x.rows[r].pos, (x.first_kv_head + head) * group + g,
                              x.lse[state]};
  }
  for (int state = 0; args.leaf->output && state < num_states; ++state) {
    float* o = x.o + state * x.ld;
    __builtin_memcpy(x.vector_scratch, o, static_cast<unsigned long>(dim) * sizeof(float));
    const auto* from = reinterpret_cast<const char*>(x.vector_scratch);
    const abi::VectorTile tile = {args.params, x.vectors + state, 1, dim, &from, 0, o, x.ld};
    args.leaf->output(&tile);
  }
  if (new_lse) args.leaf->lse(args.params, x.vectors, num_states);
  int state = 0;
  for (int head = 0; head < x.num_kv_heads; ++head)
    for (int r = 0; r < x.num_rows; ++r)
      for (int g = 0; g < group; ++g, ++state) {
        const long long row = x.rows[r].q_row;
        const int qo_head = (x.first_kv_head + head) * group + g;
        convert_from_f32(x.o + state * x.ld, dim, args.o.data + row * args.o.row_stride + qo_head * args.o.head_stride,
                         args.o.element);
        if (args.lse)
          args.lse[row * args.lse_row_stride + qo_head * args.lse_head_stride] =
              new_lse ? static_cast<float>(x.vectors[state].lse) : x.lse[state];
      }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
