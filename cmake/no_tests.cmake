# cmake -DSOURCE=folder -DBUILD=folder -P: what ctest says where no test is built.
message(FATAL_ERROR "WEFT_BUILD_TESTS is off in ${BUILD}: there is nothing to test. First:  "
  "cmake -S ${SOURCE} -B ${BUILD} -DWEFT_BUILD_TESTS=ON && cmake --build ${BUILD}")
