// Functions of std::string as optimised code has them. Of a function that Weft's objects and those of tests both hold the
// linker keeps the first it meets; those of tests, which are not optimised, would make the tools of the compilers that are
// tested several times as slow. This file's come first.
#include <string>

template class std::basic_string<char>;
