// Cuts text into the words within which byte-level BPE merges, by the Unicode pattern that the model was trained with.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Thread-safe after construction.
class Pretokenizer {
 public:
  // Throws Error(unsupported) for a name that is not known, naming those that are.
  explicit Pretokenizer(std::string_view name);
  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;

  // Appends the words of the text in order; together they are the text. A run of bytes that are not UTF-8 is a word.
  // Ends early where `words` holds more than `at_most`.
  void split(std::string_view text, std::vector<std::string_view>& words,
             size_t at_most = std::numeric_limits<size_t>::max()) const;
  // A word that is itself a token is taken whole, whatever its merges.
  bool takes_whole_words() const { return takes_whole_words_; }

 private:
  struct Pattern;
  void split_by(size_t pattern, std::string_view text, std::vector<std::string_view>& words, size_t at_most) const;
  std::vector<Pattern> patterns_;
  bool takes_whole_words_ = false;
};

// Whether models with this pre-tokenizer want BOS when their file does not say.
bool pretokenizer_adds_bos(std::string_view name);

}  // namespace weft
