#include <weft/sparse_files.h>

int main() {
  using namespace weft::sparse;
  const MatrixData graph = read_matrix("examples/data/graph.mtx");
  const Converted a = csr_from_coo(graph.coo);
  const Array values = values_at(graph.values, a.order), b = read_npy("examples/data/b.npy");
  Array c(weft::DType::fp32, {a.structure.num_rows(), b.shape()[1]});
  spmm(a.structure, values, b, c);
  write_npy("c.npy", c);
}
