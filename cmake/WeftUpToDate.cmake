# weft_up_to_date(TARGET): a test build.TARGET, which fails unless the target is built from the sources as they are. A
# test that requires the fixture of that name is not run then: no test passes with what an older build left.
function(weft_up_to_date target)
  add_test(NAME build.${target} COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DTARGET=${target}
    -DGENERATOR=${CMAKE_GENERATOR} -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/up_to_date.cmake)
  set_tests_properties(build.${target} PROPERTIES LABELS build FIXTURES_SETUP build.${target} RESOURCE_LOCK build)
endfunction()
