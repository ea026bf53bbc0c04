// Where CUDA's libraries and programs may lie. Nothing of CUDA is linked: a program runs with and without it.
#pragma once

#include <string>
#include <vector>

namespace weft::cuda {

// In the order in which they are looked into: those of WEFT_CUDA_LIBS, of the loader, of a toolkit, of Python's
// packages. Empty where WEFT_CUDA_LIBS is none.
std::vector<std::string> library_folders();
// Where its programs may lie beside PATH: those of a toolkit, and those that Python's package triton brings.
std::vector<std::string> program_folders();

}  // namespace weft::cuda
