// Models whose tensors lie in several files, as gguf-split writes them: NAME-00001-of-00003.gguf and so on. The first
// has the metadata, each of them a header for its own tensors.
//
//   GgufFile file = read_parts("model-00001-of-00003.gguf", open_file);   // or any other of the three
#pragma once

#include <memory>
#include <string>

#include "models/byte_source.h"
#include "models/gguf_reader.h"

namespace weft {

// One file, or the parts of one behind each other: offsets of tensors count from the start of the first.
struct GgufFile {
  std::unique_ptr<ByteSource> source;
  Gguf gguf;
};

// The file of that name and, where it is a part of several, all the others, whose names follow from its own. Parts are
// held against each other: number, count, tensors in all, and metadata that more than one has. Throws
// Error(invalid_file), naming the part, and what `open` and read_gguf throw.
GgufFile read_parts(const std::string& name, const OpenSource& open);

}  // namespace weft
