// Files of matrices, tensors and arrays: whatever they hold, reading ends, in data that keep what is promised or in
// weft::Error. The first byte says which format the rest is taken for.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weft/error.h"
#include "weft/sparse_files.h"

namespace {

using namespace weft::sparse;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_as_matrix(std::string_view name, std::string_view text) {
  const MatrixData data = parse_matrix(name, text);
  require(data.coo.rows.size() == data.coo.cols.size());
  require(data.values.empty() || data.values.size() == data.coo.rows.size());
  for (size_t e = 0; e < data.coo.rows.size(); ++e) {
    require(data.coo.rows[e] >= 0 && data.coo.rows[e] < data.coo.num_rows);
    require(data.coo.cols[e] >= 0 && data.coo.cols[e] < data.coo.num_cols);
  }
}

void read_as_tensor(std::string_view name, std::string_view text) {
  const TensorData data = parse_tensor(name, text);
  require(data.coo.extents.size() == data.coo.coordinates.size() && data.coo.extents.size() <= 6);
  for (size_t d = 0; d < data.coo.extents.size(); ++d) {
    require(data.values.empty() || data.values.size() == data.coo.coordinates[d].size());
    for (const int32_t x : data.coo.coordinates[d]) require(x >= 0 && x < data.coo.extents[d]);
  }
}

void read_as_array(std::string_view text) {
  const Array array = parse_npy("a.npy", text);
  require(array.view().size() * weft::bits_of(array.dtype()) / 8 == static_cast<int64_t>(array.bytes().size()));
  require(array.bytes().size() <= text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 'm': read_as_matrix("a.mtx", text); break;
      case 'p': parse_places("a.mtx", text); break;
      case 's': read_as_matrix("a.smtx", text); break;
      case 'c': read_as_matrix("a.csv", text); break;
      case 'r': read_as_tensor("a.csv", text); break;
      case 't': read_as_tensor("a.tns", text); break;
      case 'f': read_as_matrix("a.tns", text); break;
      default: read_as_array(text);
    }
  } catch (const weft::Error&) {
  }
  return 0;
}
