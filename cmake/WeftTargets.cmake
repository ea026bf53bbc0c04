# One target per folder: weft_folder(base SOURCES ... DEPENDS ...). Folders are static libraries; src/CMakeLists.txt
# gathers them into the libraries that are installed.

include(GNUInstallDirs)

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES undefined)
    # Null pointers and overrun objects end in AddressSanitizer anyway, and there are next to no classes to take for one
    # another: a fifth of the build's time.
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=null,vptr,object-size)
    # GCC looks at the alignment of each access in a branch of its own, another fifth. It does so in texts that the JIT
    # compiles, and Clang in the fuzzers' build, which has what reads files, programs and requests. What GCC guesses of the
    # code between checks is no error: its warnings count in builds without them.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fno-sanitize=alignment -Wno-maybe-uninitialized -Wno-error)
    endif()
  endif()
endif()

# What a fuzzer is to find its way through tells it which branches it took.
if(WEFT_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Headers that most sources include, parsed once. The preset dev does without, so that a missing include shows.
set(WEFT_HOST_HEADERS <algorithm> <cmath> <functional> <memory> <span> <string> <vector> <fmt/format.h>)

# GCC 12 guesses wrongly about moves of std::string (its bugs 105329 and 105651); it keeps that to itself in system
# headers, unless they are precompiled.
set(WEFT_GUESSED_WARNINGS -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                          -Wno-stringop-overread)
# In a unit of several files none is the main one, whose classes may hold what has no name outside.
set(WEFT_UNIT_WARNINGS -Wno-subobject-linkage)

# weft_precompile(TARGET HEADERS header...) or weft_precompile(TARGET FROM target that has them)
function(weft_precompile target)
  cmake_parse_arguments(ARG "" "FROM" "HEADERS" ${ARGN})
  if(NOT WEFT_PRECOMPILE)
    return()
  elseif(ARG_HEADERS)
    target_precompile_headers(${target} PRIVATE ${WEFT_HOST_HEADERS} ${ARG_HEADERS})
  elseif(NOT target STREQUAL ARG_FROM)
    target_precompile_headers(${target} REUSE_FROM ${ARG_FROM})
  else()
    target_precompile_headers(${target} PRIVATE ${WEFT_HOST_HEADERS})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE ${WEFT_GUESSED_WARNINGS} ${WEFT_UNIT_WARNINGS})
  else()
    # What one file of a unit has in an unnamed namespace is shadowed by members of the next one's headers.
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()

# weft_folder(NAME [COLD] [FUZZED] SOURCES file... [DEPENDS folder...] [LIBRARIES target...] [PRECOMPILE header...]):
# Eight files in the order of the list are one unit of the compiler, but for the preset dev: half of the compile time goes
# into templates that they share. So no two of them may have a name of their own in common, and files that say
# `using namespace` come last. COLD: nothing in it takes long to run; optimised lightly, which compiles in two thirds of
# the time. FUZZED: the fuzzers run it, and Clang watches the scopes of its variables; GCC's AddressSanitizer, which takes a
# third of its compile time for them, leaves them out. PRECOMPILE: headers that most of its files include, precompiled with
# the common ones.
function(weft_folder name)
  cmake_parse_arguments(ARG "COLD;FUZZED" "" "SOURCES;DEPENDS;LIBRARIES;PRECOMPILE" ${ARGN})
  add_library(weft_${name} STATIC ${ARG_SOURCES})
  if(WEFT_PRECOMPILE)
    set_target_properties(weft_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_include_directories(weft_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>)
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(weft_${name} PUBLIC ${WEFT_FMT} Threads::Threads ${ARG_DEPENDS} ${ARG_LIBRARIES})
  # Kernels in such a folder have flags of their own, which come later.
  if(ARG_COLD)
    target_compile_options(weft_${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()
  if(ARG_FUZZED AND NOT WEFT_FUZZ AND WEFT_SANITIZE MATCHES address)
    target_compile_options(weft_${name} PRIVATE -fno-sanitize-address-use-after-scope)
  endif()
  if(ARG_PRECOMPILE)
    weft_precompile(weft_${name} HEADERS ${ARG_PRECOMPILE})
  else()
    weft_precompile(weft_${name} FROM weft_base)
  endif()
endfunction()

# weft_library(core FOLDERS folder... [LIBRARIES target...]): the installed static library libweft_core.a, made of the
# folders' objects; its target is weft_core here and weft::core in both build and installed trees.
function(weft_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;LIBRARIES" ${ARGN})
  set(objects)
  foreach(folder ${ARG_FOLDERS})
    list(APPEND objects $<TARGET_OBJECTS:weft_${folder}>)
  endforeach()
  add_library(weft_${name} STATIC ${objects})
  add_library(weft::${name} ALIAS weft_${name})
  set_target_properties(weft_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_compile_features(weft_${name} PUBLIC cxx_std_20)
  target_include_directories(weft_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(weft_${name} PUBLIC ${WEFT_FMT} Threads::Threads ${CMAKE_DL_LIBS} ${ARG_LIBRARIES})
  if(NOT WEFT_LINK_STATIC)
    install(TARGETS weft_${name} EXPORT weft ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# What kernels are compiled for; plain is always there. Of the two AVX-512 sets a sanitizer watches the better one that
# this machine can run, if any: their sources differ in how a few of their words are made.
set(known_isas plain)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND known_isas avx2 avx512 avx512_bf16)
endif()
set(default_isas ${known_isas})
if(WEFT_SANITIZE)
  file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags" LIMIT_COUNT 1)
  if(cpu_flags MATCHES "avx512_bf16")
    list(REMOVE_ITEM default_isas avx512)
  elseif(cpu_flags MATCHES "avx512_vnni")
    list(REMOVE_ITEM default_isas avx512_bf16)
  else()
    list(REMOVE_ITEM default_isas avx512 avx512_bf16)
  endif()
  # Threads share work and hand results over alike on each: one of threads watches plain and the best.
  list(LENGTH default_isas count)
  if(WEFT_SANITIZE STREQUAL thread AND count GREATER 2)
    list(REMOVE_ITEM default_isas avx2)
  endif()
endif()
set(WEFT_ISAS "${default_isas}" CACHE STRING "Instruction sets to compile kernels for, plain among them: ${known_isas}")
foreach(isa ${WEFT_ISAS})
  if(NOT isa IN_LIST known_isas)
    message(FATAL_ERROR "WEFT_ISAS: '${isa}' is not known here; known are ${known_isas}")
  endif()
endforeach()
if(NOT "plain" IN_LIST WEFT_ISAS)
  message(FATAL_ERROR "WEFT_ISAS: '${WEFT_ISAS}' lacks plain, which every machine falls back to")
endif()
set(WEFT_BUILT_ISAS)
foreach(isa ${known_isas})
  if(isa IN_LIST WEFT_ISAS)
    string(APPEND WEFT_DECLARE_PER_ISA " namespace ${isa} { extern __VA_ARGS__; }")
    string(APPEND WEFT_RETURN_PER_ISA " case ::weft::Isa::${isa}: return ${isa}::name;")
    list(APPEND WEFT_BUILT_ISAS "::weft::Isa::${isa}")
  endif()
endforeach()
list(JOIN WEFT_BUILT_ISAS ", " WEFT_BUILT_ISAS)
configure_file(${PROJECT_SOURCE_DIR}/src/device/cpu/built_isas.h.in
               ${PROJECT_BINARY_DIR}/generated/device/cpu/built_isas.h @ONLY)

# Flags of an instruction set, the same list as src/device/cpu/cpuid.cpp.
set(WEFT_FLAGS_plain "")
set(WEFT_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(WEFT_FLAGS_avx512 ${WEFT_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512)
set(WEFT_FLAGS_avx512_bf16 ${WEFT_FLAGS_avx512} -mavx512bf16)

# Kernels are optimised in every build type. With sanitizers only lightly and without the checks of undefined
# behaviour, whose branches in unrolled tiles cost minutes of compile time a file. AddressSanitizer checks accesses by
# calls instead of branches, and leaves the scopes of inlined functions alone, for the same reason.
set(WEFT_KERNEL_FLAGS -O3 -fno-trapping-math -fno-math-errno -ffp-contract=fast)
if(WEFT_SANITIZE)
  list(REMOVE_ITEM WEFT_KERNEL_FLAGS -O3)
  list(APPEND WEFT_KERNEL_FLAGS -fno-sanitize=undefined)
endif()
if(WEFT_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND WEFT_KERNEL_FLAGS -fno-sanitize-address-use-after-scope --param=asan-instrumentation-with-call-threshold=0)
endif()

foreach(isa ${WEFT_ISAS})
  set(WEFT_KERNEL_FLAGS_${isa} ${WEFT_FLAGS_${isa}} ${WEFT_KERNEL_FLAGS})
endforeach()

# weft_isa_sources(OUT file.cpp): the same source once per ISA, with WEFT_ISA_NAME=<isa> defined and its flags.
# Such a source must not define inline functions of std headers: it includes none but the tile vocabulary.
function(weft_isa_sources out file)
  set(result)
  get_filename_component(stem ${file} NAME_WE)
  foreach(isa ${WEFT_ISAS})
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/${stem}_${isa}.cpp)
    file(WRITE ${copy}.in "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\"\n")
    configure_file(${copy}.in ${copy} COPYONLY)
    set_source_files_properties(${copy} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
      COMPILE_OPTIONS "${WEFT_KERNEL_FLAGS_${isa}}"
      COMPILE_DEFINITIONS "WEFT_ISA_NAME=${isa};WEFT_ISA_${isa}=1")
    list(APPEND result ${copy})
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# weft_kernel_texts(OUT NAME name=file...): a source that holds the complete texts of kernels, under the names in
# weft::text; files are written from src/ on, or, those of tests, from the top on.
function(weft_kernel_texts out name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  add_custom_command(OUTPUT ${source}
    COMMAND weft_flatten ${source} ${source}.d ${PROJECT_SOURCE_DIR}/src,${PROJECT_SOURCE_DIR} ${ARGN}
    DEPENDS weft_flatten DEPFILE ${source}.d VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} ${source} PARENT_SCOPE)
endfunction()

# Tests are compiled more often than they run, and most of what they run is Weft. UndefinedBehaviorSanitizer watches Weft,
# not its tests: half of their compile time went into their assertions' checks, and a quarter of the rest into the scopes
# of their temporaries. What a sanitizer reports lies in Weft, whose lines it knows; of a test its name is enough.
set(WEFT_TEST_FLAGS -O0)
if(WEFT_SANITIZE)
  list(APPEND WEFT_TEST_FLAGS -fno-sanitize=undefined -g0 -DWEFT_UNDER_SANITIZER=1)
endif()
if(WEFT_SANITIZE STREQUAL thread)
  list(APPEND WEFT_TEST_FLAGS -DWEFT_UNDER_THREAD_SANITIZER=1)
endif()
if(WEFT_SANITIZE MATCHES address)
  list(APPEND WEFT_TEST_FLAGS -fno-sanitize-address-use-after-scope)
endif()

function(weft_compile_as_test target)
  # Like the owner of their precompiled headers.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE ${WEFT_TEST_FLAGS})
  # Most of a test's compile time goes into templates of fmt, GoogleTest and RapidCheck, the same ones in every file:
  # ten files together share them. Not with the preset dev, where one file changes and all names must stand alone.
  if(WEFT_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM weft_test_headers)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE ${WEFT_GUESSED_WARNINGS})
    endif()
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE WEFT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    WEFT_TEST_KERNELS="${PROJECT_BINARY_DIR}/test_kernels")
endfunction()

# weft_test_part(NAME SOURCES file... DEPENDS folder...): what several test programs share; they depend on NAME. Built where
# one of them is.
function(weft_test_part name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(weft_${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  weft_compile_as_test(weft_${name})
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(weft_${name} PUBLIC GTest::gtest fmt::fmt ${ARG_DEPENDS})
endfunction()

# weft_test(NAME [NO_THREADS] [LONG] SOURCES file... [ALONE file...] DEPENDS folder... [LIBRARIES target...]
# [DEFINITIONS NAME=VALUE...] [LABELS label...]): a GoogleTest program, one CTest entry a case. NO_THREADS: no case starts a
# thread, so there is nothing in it for a thread sanitizer; ALONE: nor is there in these of its sources, or nothing that
# its other ones lack. LONG: some cases take long, and begin before those of other programs, so that no processor waits
# for them in the end.
function(weft_test name)
  cmake_parse_arguments(ARG "NO_THREADS;LONG" "" "SOURCES;ALONE;DEPENDS;LIBRARIES;DEFINITIONS;LABELS" ${ARGN})
  # Sanitizers run the fast tests.
  if((ARG_NO_THREADS AND WEFT_SANITIZE STREQUAL thread) OR (WEFT_SANITIZE AND ARG_LABELS AND NOT fast IN_LIST ARG_LABELS))
    return()
  endif()
  foreach(file ${ARG_ALONE})
    if(NOT file IN_LIST ARG_SOURCES)
      message(FATAL_ERROR "${name}: '${file}' of ALONE is none of its SOURCES")
    endif()
  endforeach()
  if(ARG_ALONE AND WEFT_SANITIZE STREQUAL thread)
    list(REMOVE_ITEM ARG_SOURCES ${ARG_ALONE})
  endif()
  add_executable(${name} $<TARGET_OBJECTS:weft_standard_library> ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/cache_folder.cpp)
  weft_compile_as_test(${name})
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINITIONS})
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main fmt::fmt ${ARG_DEPENDS})
  set(labels fast)
  if(ARG_LABELS)
    set(labels ${ARG_LABELS})
  endif()
  set(cost 0)
  if(ARG_LONG)
    set(cost 1000)
  endif()
  weft_up_to_date(${name})
  # Without values: those that gtest cannot print are addresses, other ones in every run.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${labels}" FIXTURES_REQUIRED build.${name} COST ${cost})
endfunction()

# weft_card_test(NAME SOURCES file... [DEPENDS folder...] [LIBRARIES target...] [FILTER of GoogleTest]): the
# program NAME_test, which runs on a card. A single entry, as a program that is asked for its tests looks for no card; where
# there is none it is skipped, and says so.
function(weft_card_test name)
  cmake_parse_arguments(ARG "" "FILTER" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/device/cuda/needs_card.cpp
    ${PROJECT_SOURCE_DIR}/tests/support/cache_folder.cpp)
  weft_compile_as_test(${name}_test)
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} ${ARG_LIBRARIES} GTest::gtest_main fmt::fmt)
  weft_up_to_date(${name}_test)
  if(NOT ARG_FILTER)
    set(ARG_FILTER *)
  endif()
  weft_card_entry(${name} ${name}_test ${ARG_FILTER} fast)
endfunction()

# weft_card_entry(NAME PROGRAM FILTER LABEL): the tests of a program on a card that the filter names.
function(weft_card_entry name program filter label)
  add_test(NAME ${name} COMMAND ${program} "--gtest_filter=${filter}")
  set_tests_properties(${name} PROPERTIES LABELS ${label} FIXTURES_REQUIRED build.${program}
    SKIP_REGULAR_EXPRESSION "no card here|no NVRTC here|needs a model" TIMEOUT 1500)
endfunction()
