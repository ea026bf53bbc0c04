// What a search keeps is for every later process: a test begins with nothing.
#pragma once

#include <stdlib.h>

#include "tests/support/temp_folder.h"

namespace weft::sparse::test {

class OwnResults {
 public:
  OwnResults() { setenv("WEFT_CACHE_DIR", folder_.path().c_str(), 1); }
  ~OwnResults() { setenv("WEFT_CACHE_DIR", WEFT_TEST_KERNELS, 1); }

 private:
  const testing::TempFolder folder_;
};

}  // namespace weft::sparse::test
