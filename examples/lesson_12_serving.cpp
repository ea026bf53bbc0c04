// Lesson 12: many requests at once, without HTTP.
//
// An engine takes requests, steps, and says what each step drew. Prompts that begin alike are computed once: the second
// wave finds its beginnings cached, and answers the same.
//
//   lesson_12_serving model.gguf
#include <cstdio>
#include <string>
#include <vector>

#include "weft/model.h"
#include "weft/serve.h"

using namespace weft;

struct Answer {
  std::string text;
  int64_t cached_tokens = 0;
};

std::vector<Answer> ask(serve::Engine& engine, const Tokenizer& tokenizer, const std::vector<std::string>& prompts) {
  std::vector<Answer> answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    serve::Request request;
    request.prompt = tokenizer.encode(prompts[i]);
    request.max_tokens = 40;
    request.sampling.temperature = 0.f;
    engine.submit(request, [&answer = answers[i]](const serve::Update& update) {
      answer.text += update.text;  // a token of one choice: there is one here
      if (update.last) answer.cached_tokens = update.cached_tokens;
    });
  }
  while (engine.step()) {
  }
  return answers;
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s model.gguf\n", argv[0]), 2;
  const ModelFile file(argv[1]);
  const Tokenizer tokenizer(file);
  serve::EngineOptions options;
  options.context = 256;     // of a sequence; the model's own would need a pool of as many tokens
  options.kv_tokens = 4096;  // of all
  options.forward.precision = Precision::exact;
  serve::Engine engine(file, tokenizer, options);

  const std::string beginning = "Once upon a time, there was a little girl named Lily. She loved to play with her ";
  const std::vector<std::string> prompts = {beginning + "dog", beginning + "ball", beginning + "friend Tom"};
  const std::vector<Answer> first = ask(engine, tokenizer, prompts), second = ask(engine, tokenizer, prompts);

  bool right = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::printf("%s\n  ...%s\n  %lld, then %lld tokens of the prompt were cached\n", prompts[i].c_str(),
                first[i].text.c_str(), static_cast<long long>(first[i].cached_tokens),
                static_cast<long long>(second[i].cached_tokens));
    right = right && first[i].text == second[i].text && second[i].cached_tokens > 0 &&
            (i == 0 || first[i].cached_tokens > 0);
  }
  const serve::EngineStats stats = engine.stats();
  std::printf(
      "%llu prompt tokens, %llu computed, in %llu steps\n", static_cast<unsigned long long>(stats.prompt_tokens),
      static_cast<unsigned long long>(stats.prompt_tokens_computed), static_cast<unsigned long long>(stats.steps));
  return right ? 0 : 1;
}
