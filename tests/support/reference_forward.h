// The forward pass of Llama, Qwen and Gemma in double precision, straight from the bytes of a GGUF file: the oracle for
// the product's forward pass. It shares no code with it: own reading, own dequantisation, full attention matrices.
//
//   const std::vector<double> log_probs = reference_log_probabilities("model.gguf", ids);
//   log_probs[position * vocab + token];      // of `token` standing after ids[0..position]
//
// The file is trusted to be well-formed (ModelFile checks that), little endian, of the types of reference_weights.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::testing {

class ReferenceModel {
 public:
  explicit ReferenceModel(const std::string& path);
  ~ReferenceModel();
  int vocab_size() const;

  // Calls visit(position, log_probabilities [vocab]) for every position in order. The positions from `first` on.
  using Visit = std::function<void(int64_t position, std::span<const double> log_probabilities)>;
  void log_probabilities(std::span<const int32_t> ids, int num_threads, const Visit& visit, int64_t first = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All positions at once: [ids.size(), vocab].
std::vector<double> reference_log_probabilities(const std::string& path, std::span<const int32_t> ids,
                                                int num_threads = 2);

}  // namespace weft::testing
