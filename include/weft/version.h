// The version of these headers. CMake, pkg-config and `weft --version` take it from here.
//
//   #if WEFT_VERSION_MAJOR == 0 && WEFT_VERSION_MINOR < 2
#pragma once

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION_STRING "0.1.0"

static_assert(WEFT_VERSION_STRING[0] == '0' + WEFT_VERSION_MAJOR &&
                  WEFT_VERSION_STRING[2] == '0' + WEFT_VERSION_MINOR &&
                  WEFT_VERSION_STRING[4] == '0' + WEFT_VERSION_PATCH,
              "the string says the same as the numbers");
