// The host's compiler for texts of kernels: modules of this process whose accesses the machine watches
// (tests/simt/machine), with twins in the place of tile/cuda/ptx. A program that loads them exports the machine, which
// it does where it links host_machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::simt {

// Loads what the source becomes; it stays. Compiled once for each content of it, of `read`, which it includes, and of
// headers_of_machine(), whichever program asks. Null where it does not compile: `error` is the compiler's first one.
// Thread-safe.
void* compile(const std::string& source, std::string_view read, std::string& error);

// What texts are compiled with beside the product's own: the twins, the machine, the words of sparse programs.
std::vector<std::string> headers_of_machine();

// What is compiled from now on has one place of a header changed, `file` from src/ on, or of a test's from the top on;
// without a file nothing is.
struct Breakage {
  std::string file, from, to;
};
void break_kernels(const Breakage& breakage);

}  // namespace weft::simt
