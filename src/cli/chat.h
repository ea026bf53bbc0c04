// The chat of `weft run`: messages, answers, and commands that begin with a slash.
#pragma once

#include "base/clock.h"
#include "cli/run_options.h"
#include "weft/model.h"

namespace weft::cli {

// Until the end of input. Ctrl-C stops an answer; where no answer runs and nothing is typed, it throws Interrupted.
void chat(const RunOptions& options, const ModelFile& file, const Tokenizer& tokenizer,
          const ChatTemplate& chat_template, Clock::time_point start, const Context& context);

}  // namespace weft::cli
