# Installs BUILD below WORK, moves the tree, and builds SOURCE against it twice: with CMake and with pkg-config.
function(run expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${ARGN}\nended with ${status}, expected '${expected}' in:\n${output}")
  endif()
endfunction()

# `make` builds the target weft_installed before it installs: all that has to be built is part of it.
if(GENERATOR MATCHES Ninja)
  foreach(file "bin/weft" "libweft_core\\.a" "libweft_model\\.a")
    run("${file}\n" ninja -C ${BUILD} -t query src/weft_installed)
  endforeach()
endif()

file(REMOVE_RECURSE ${WORK})
run("" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/moved)
set(prefix ${WORK}/moved)
file(GLOB_RECURSE package ${prefix}/*/weftConfig.cmake)
if(NOT package)
  message(FATAL_ERROR "no weftConfig.cmake was installed")
endif()

run("" ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/cmake -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release)
run("" ${CMAKE_COMMAND} --build ${WORK}/cmake)
run("^0\\.100\n$" ${WORK}/cmake/attend)
run("stories\\.gguf" ${WORK}/cmake/tell)

file(GLOB_RECURSE pc ${prefix}/*/weft.pc)
get_filename_component(pc_folder ${pc} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pc_folder})
execute_process(COMMAND pkg-config --cflags --libs weft OUTPUT_VARIABLE flags RESULT_VARIABLE status
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "pkg-config does not find weft in ${pc_folder}")
endif()
separate_arguments(flags)
run("" ${COMPILER} -std=c++20 -O1 ${SOURCE}/attend.cpp ${flags} -o ${WORK}/attend_pc)
run("^0\\.100\n$" ${WORK}/attend_pc)

run("^weft " ${prefix}/bin/weft --version)
