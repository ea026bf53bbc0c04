// Ready operators, compiled once a process for each schedule; what their calls ask of tensors.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/sparse.h"

namespace weft::sparse {

// A program, how it runs fastest, and the parameters that both take as literals.
struct ReadyProgram {
  std::string text = {};
  std::string schedule = {};
  std::map<std::string, int64_t> set = {};
};

// The operator of this program and schedule with these parameters fixed, on a device; compiled by the first who asks.
Operator kept_operator(const ReadyProgram& ready, Device device = {});

// Where a call runs: where its first tensor lies; the operator sees to the others.
Device device_of(const TensorView& tensor);
// An array that is kept with the structure, where the device reads it, for as long as the structure lives.
TensorView kept_array(const Structure::Data& structure, const std::vector<int32_t>& array, Device device);
// How many workers share a call's rows; 0: a card's.
int64_t workers_of(Device device, Stream stream);

// Every `old` in the text becomes `now`.
std::string replaced(std::string text, const std::string& old, const std::string& now);
// The program with that type where its text says DTYPE; temporary buffers and sums stay in fp32.
std::string with_dtype(const std::string& program, DType dtype);
// Throws Error(invalid_dtype) for tensors of another type than the first, or of one that operators don't take.
DType common_dtype(const std::vector<std::pair<const char*, const TensorView*>>& tensors);
void check_rank(const TensorView& tensor, const char* name, int rank, const char* shape);
// b, [.., feat] behind the first.
inline int64_t last_extent(const TensorView& tensor) { return tensor.shape(tensor.rank() - 1); }

}  // namespace weft::sparse
