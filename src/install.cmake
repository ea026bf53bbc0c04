# What `cmake --install` puts in place: two libraries, headers, the program, and how to find them.
include(CMakePackageConfigHelpers)

weft_library(core FOLDERS base device_cpu device_cuda device jit loop attention_text attention sparse_compiler sparse_files sparse ops)
weft_library(model FOLDERS models_template models decode serve LIBRARIES weft_core ${WEFT_PCRE2})
if(WEFT_LINK_STATIC)
  return()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# For kernel code of one's own: -I<prefix>/include/weft, then #include "tile/...".
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/tile DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft FILES_MATCHING PATTERN "*.h")
# All that is installed and has to be built first.
add_custom_target(weft_installed DEPENDS weft_core weft_model)
if(TARGET weft)
  install(TARGETS weft RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  add_dependencies(weft_installed weft)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft NAMESPACE weft:: FILE weftTargets.cmake DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  DESTINATION ${package_folder})
file(RELATIVE_PATH include_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
