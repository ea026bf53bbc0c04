// SpMM and SDDMM in blocks, ready to run: sparse attention's band and butterfly, and pruned weights.
//
//   const BlockWork work(block_case("longformer"), DType::bf16);
//   work.spmm(stream);
#pragma once

#include <string>

#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::bench {

struct BlockCase {
  std::string name;
  sparse::Structure structure;  // of block rows and columns
  int64_t block = 32, heads = 12, feat = 64;
};
// "longformer": a band of 256 tokens, 128 to either side, of 4,096; "butterfly", of as many; "pruned": 4,096 x 4,096
// weights, a tenth of their blocks stored, at random. `quick`: two heads, or a sixteenth of the weights. `feat`: of
// each row; 0: 64 a head, or 512 of weights.
BlockCase block_case(const std::string& pattern, bool quick = false, int64_t feat = 0);

class BlockWork {
 public:
  BlockWork(BlockCase blocks, DType dtype, Device device = Device::cpu());
  void spmm(Stream stream) const;
  void sddmm(Stream stream) const;
  double flops() const;  // of either
  double bytes() const;  // of all three tensors
  const BlockCase& blocks() const { return blocks_; }
  DType dtype() const { return dtype_; }

 private:
  struct Tensor {
    Workspace memory = {};
    TensorView view = {};
  };
  Tensor tensor(std::vector<int64_t> shape) const;

  BlockCase blocks_;
  DType dtype_;
  Device device_;
  Tensor stored_, rows_, cols_;
};

}  // namespace weft::bench
