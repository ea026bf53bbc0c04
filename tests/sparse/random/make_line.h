// Random lines of schedules, of names that exist: mostly such as a primitive may take, sometimes any.
//
//   LineMaker maker(random);
//   Line line = maker.stage2_line(compilation.compute2);     // {"split", "x1, x2 = split(f0.k, 4)"}
#pragma once

#include <string>
#include <vector>

#include "sparse/stage2/stage2.h"
#include "tests/support/random_cases.h"

namespace weft::sparse::random {

using testing::Random;

struct Line {
  std::string primitive, text;
  bool prepares = false;  // for another primitive, which the lines behind try
};

class LineMaker {
 public:
  explicit LineMaker(Random& random) : random_(random) {}
  // None where the stage has nothing that the drawn primitive could take.
  Line stage1_line(const Stage1& program);
  Line stage2_line(const Stage2& stage);
  static const std::vector<std::string>& primitives();
  // A primitive of stage II that the next lines lead to; "": any.
  void want(const std::string& primitive) { wanted_ = primitive; }

 private:
  Random& random_;
  int num_results_ = 0;  // loops that lines have named
  std::string wanted_ = {};
};

}  // namespace weft::sparse::random
