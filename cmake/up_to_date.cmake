# cmake -DBUILD=folder -DTARGET=name -DGENERATOR=name -P: fails unless the target is built from the sources as they are.
# Ninja says so; of other generators, which only say it while they build, the target is built.
set(build ${CMAKE_COMMAND} --build ${BUILD} --target ${TARGET})
if(GENERATOR MATCHES Ninja)
  execute_process(COMMAND ${build} -- -n -d explain RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "no work to do")
    message(FATAL_ERROR "${TARGET} is not built from the sources as they are. First:  cmake --build ${BUILD}\n${output}")
  endif()
else()
  execute_process(COMMAND ${build} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${TARGET} cannot be built from the sources as they are")
  endif()
endif()
