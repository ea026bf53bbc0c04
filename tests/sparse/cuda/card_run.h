// Operators on a card, or on the host machine in its place, with tensors of the host, against the interpreter.
//
//   CardRun run(op, host_arguments);              // copies of the tensors on the card; what is written begins as NaN
//   op.run(run.arguments, stream);
//   run.fetch("C");                               // waits for the card
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/sparse/ready_programs.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::sparse::test {

// A tensor of the host, copied to the card.
class OnCard {
 public:
  explicit OnCard(const TensorView& host);
  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }  // NOLINT: it is what operators take
  // Bytes of the card, as the host's memory of the tensor has them from now on.
  void fetch() const;
  // The other way.
  void send() const;

 private:
  TensorView host_, view_;
  Workspace memory_;
};

class CardRun {
 public:
  CardRun(const Operator& op, const RunArguments& host);
  std::vector<double> fetch(const std::string& buffer) const;
  const OnCard& tensor(const std::string& buffer) const { return tensors_.at(buffer); }

  RunArguments arguments = {};  // of the card

 private:
  std::map<std::string, std::vector<char>> bytes_ = {};  // of the host, of what is written
  std::map<std::string, OnCard> tensors_ = {};
};

// Places of a matrix with rows of none, a few and all elements: what operators are run on here.
Matrix few_places();
// The structure, and how many features there are where the program leaves that open.
RunArguments arguments_of(const Operator& op, const std::string& axis, const Structure& structure, int64_t feat);
// Calls of the ready operators with tensors of the card give what the same calls give on the CPU: with so many
// features, and with the first of them also in these formats.
void expect_calls_as_on_the_cpu(const std::vector<int64_t>& features, const std::vector<std::string>& formats);
// SDDMM with so many elements that some CTAs have as many as they take.
void expect_edges_as_on_the_cpu(DType dtype, int64_t feat);
// SpMM of a matrix with rows that are cut into pieces, some of them, where rows have 1024 features, too long for a CTA.
void expect_long_rows_as_on_the_cpu(DType dtype, int64_t feat);
// Gradients that are sums of such rows, or columns.
void expect_long_gradients_as_on_the_cpu(int64_t feat);
// RGMS of rows with no edge, one and several of a relation, in more than one tile and group of tensor cores' rows: with
// values, without, and with at most one edge of a relation in a row; held against fp64. So many features go in and out.
enum class Edges : uint8_t { weighted, plain, single };
void expect_relations_as_computed(Edges edges, DType dtype, int64_t feat_in, int64_t feat_out);
// The case's program on the card computes what the interpreter computes of it without its schedule.
void expect_as_interpreted(const ReadyCase& c);

}  // namespace weft::sparse::test
