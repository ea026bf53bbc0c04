// Tokens that chat formats put around turns and at the end of a text, known by their text: files often give them the
// type of ordinary words, and then no text has them and no answer ends.
#pragma once

#include <string_view>

#include "models/tokenizer_vocabulary.h"

namespace weft {

// Makes control tokens of those that the vocabulary has, and adds those that end an answer to `ends`.
void mark_turn_tokens(Vocabulary& vocabulary);

}  // namespace weft
