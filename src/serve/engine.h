// An engine over any model, for those that bring their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/limits_met.h"
#include "serve/model_runner.h"
#include "weft/serve.h"

namespace weft::serve {

// What the engine asks of a tokenizer.
struct Vocabulary {
  // The bytes of a token; at the start of a text some lose a space. `special`: control tokens have their names.
  std::function<std::string(int32_t id, bool at_start, bool special)> text;
  std::vector<int32_t> ends;  // tokens that end an answer, ascending
};
Vocabulary vocabulary_of(const Tokenizer& tokenizer);

using Now = std::function<Clock::time_point()>;

class EngineMaker {
 public:
  // What waits, takes too long or costs a step does so by the time that `now` says.
  static Engine make(std::unique_ptr<ModelRunner> model, Vocabulary vocabulary, const EngineOptions& options,
                     Now now = Clock::now);
  // As long as the engine; what is in front of it counts there, too.
  static LimitsMet& limits_met(Engine& engine);
};

}  // namespace weft::serve
