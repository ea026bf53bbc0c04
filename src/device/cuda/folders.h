// Where CUDA's libraries may lie. Nothing of CUDA is linked: a program runs with and without it.
#pragma once

#include <string>
#include <vector>

namespace weft::cuda {

// In the order in which they are looked into: those of WEFT_CUDA_LIBS, of the loader, of a toolkit, of Python's packages.
// Empty where WEFT_CUDA_LIBS is none.
std::vector<std::string> library_folders();

}  // namespace weft::cuda
