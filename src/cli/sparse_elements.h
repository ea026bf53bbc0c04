// Elements of a file of a matrix or a tensor for `weft sparse`: each place once, or what is said of those that are
// twice.
#pragma once

#include <string>
#include <string_view>

#include "weft/error.h"
#include "weft/sparse_files.h"

namespace weft::cli {

// One element for each place, in the order of places, with the sum of its values if there are any.
void sum_duplicates(sparse::MatrixData& data);
void sum_duplicates(sparse::TensorData& data);

// Throws Error(invalid_argument), naming the line, for the first element of the file that stands where one before it
// does; nothing where there is none. `text` is what the file holds, unpacked.
void refuse_duplicates(const std::string& path, std::string_view text, const sparse::Coo& coo);
void refuse_duplicates(const std::string& path, std::string_view text, const sparse::CooTensor& coo);

// What `convert` gives; where it throws, elements that stand twice are named first.
template <class List, class Convert>
auto naming_duplicates(const std::string& path, std::string_view text, const List& coo, const Convert& convert) {
  try {
    return convert();
  } catch (const Error&) {
    refuse_duplicates(path, text, coo);
    throw;
  }
}

}  // namespace weft::cli
