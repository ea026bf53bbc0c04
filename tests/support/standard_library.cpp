// Functions of std::string as optimised code has them. Of a function that objects of Weft and of tests both hold the
// linker keeps the first it meets. Those of tests, which are not optimised, would make the compilers that are tested
// several times as slow. This file's come first.
#include <string>

template class std::basic_string<char>;
