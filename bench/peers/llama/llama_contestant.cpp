// llama.cpp's part in the comparison: prefill and decode of a model through its C API.
//
//   llama_contestant                                     serves rows (protocol.h)
//   llama_contestant --first-token MODEL PROMPT THREADS  prints the prompt's next token and ends
#include <llama.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "protocol.h"

namespace {

using nlohmann::json;

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

struct Settings {
  std::string model;
  int threads = 2;
  int sequences = 1;
  int tokens = 512;     // of each sequence; of all but the shared ones when `shared`
  bool shared = false;  // all sequences in one buffer, so that they can share a prefix
  bool flash_attention = true;
};

class Session {
 public:
  explicit Session(const Settings& settings) {
    llama_model_params model_params = llama_model_default_params();
    model_.reset(llama_model_load_from_file(settings.model.c_str(), model_params));
    expect(model_ != nullptr, "the model was not loaded");
    llama_context_params params = llama_context_default_params();
    const int each = (settings.tokens + 255) / 256 * 256;  // llama.cpp rounds up to 256 itself
    params.n_ctx = static_cast<uint32_t>(settings.shared ? each : each * settings.sequences);
    params.n_seq_max = static_cast<uint32_t>(settings.sequences);
    params.n_threads = params.n_threads_batch = settings.threads;
    params.flash_attn_type = settings.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.kv_unified = settings.shared;
    params.no_perf = true;
    context_.reset(llama_init_from_model(model_.get(), params));
    expect(context_ != nullptr, "no context was made");
    batch_ = llama_batch_init(static_cast<int32_t>(params.n_batch), 0, 1);
    batch_size_ = static_cast<int>(params.n_batch);
  }
  ~Session() { llama_batch_free(batch_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const llama_vocab* vocab() const { return llama_model_get_vocab(model_.get()); }
  llama_memory_t memory() const { return llama_get_memory(context_.get()); }

  // Appends tokens to one sequence; the most probable next token.
  llama_token append(int sequence, const std::vector<llama_token>& tokens) {
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(batch_size_)) {
      batch_.n_tokens = 0;
      const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(batch_size_));
      for (size_t i = begin; i < end; ++i) add(tokens[i], static_cast<int>(i), sequence, i + 1 == tokens.size());
      decode();
    }
    return best(-1);
  }

  // One token of every sequence at `position`; each becomes the next one.
  void step(std::vector<llama_token>& tokens, int position) {
    batch_.n_tokens = 0;
    for (size_t s = 0; s < tokens.size(); ++s) add(tokens[s], position, static_cast<int>(s), true);
    decode();
    for (size_t s = 0; s < tokens.size(); ++s) tokens[s] = best(static_cast<int>(s));
  }

 private:
  void add(llama_token token, int position, int sequence, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = logits;
  }
  void decode() { expect(llama_decode(context_.get(), batch_) == 0, "llama_decode failed"); }
  llama_token best(int index) const {
    const float* logits = llama_get_logits_ith(context_.get(), index);
    return static_cast<llama_token>(std::max_element(logits, logits + llama_vocab_n_tokens(vocab())) - logits);
  }

  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
  llama_batch batch_{};
  int batch_size_ = 0;
};

contest::Reading prepare(const json& row) {
  const std::string kind = row.at("kind");
  expect(kind == "prefill" || kind == "decode", "llama.cpp is measured with whole models");
  const int prompt = row.at("prompt"), steps = row.value("steps", 0), sequences = row.value("sequences", 1);
  const bool shared = row.value("shared", false);
  const auto session = std::make_shared<Session>(Settings{.model = row.at("model"),
                                                          .threads = row.at("threads"),
                                                          .sequences = sequences,
                                                          .tokens = prompt + steps * (shared ? sequences : 1),
                                                          .shared = shared,
                                                          .flash_attention = row.value("flash_attention", true)});
  const int vocab = llama_vocab_n_tokens(session->vocab());
  const auto prompt_of = [prompt, vocab](int sequence) {
    std::vector<llama_token> tokens;
    for (int i = 0; i < prompt; ++i) tokens.push_back((i * 7919 + sequence * 101 + 13) % vocab);
    return tokens;
  };
  if (kind == "prefill")
    return [session, tokens = prompt_of(0)] {
      llama_memory_clear(session->memory(), false);
      const auto start = contest::Clock::now();
      session->append(0, tokens);
      return contest::seconds_since(start);
    };

  std::vector<llama_token> first;
  for (int s = 0; s < sequences; ++s) {
    if (shared && s > 0)
      llama_memory_seq_cp(session->memory(), 0, s, -1, -1);
    else
      session->append(s, prompt_of(s));
    first.push_back(13 + s);
  }
  return [session, first, prompt, steps] {
    std::vector<llama_token> tokens = first;
    const auto start = contest::Clock::now();
    for (int i = 0; i < steps; ++i) session->step(tokens, prompt + i);
    const double seconds = contest::seconds_since(start);
    for (size_t s = 0; s < tokens.size(); ++s)
      llama_memory_seq_rm(session->memory(), static_cast<llama_seq_id>(s), prompt, -1);
    return seconds;
  };
}

int first_token(const char* model, const char* prompt, int threads) {
  Session session({.model = model, .threads = threads});
  std::vector<llama_token> tokens(512);
  const int count = llama_tokenize(session.vocab(), prompt, static_cast<int32_t>(std::strlen(prompt)), tokens.data(),
                                   static_cast<int32_t>(tokens.size()), true, true);
  expect(count > 0, "the prompt has no tokens, or more than 512");
  tokens.resize(static_cast<size_t>(count));
  char piece[256];
  const int length = llama_token_to_piece(session.vocab(), session.append(0, tokens), piece, sizeof piece, 0, true);
  std::fwrite(piece, 1, static_cast<size_t>(std::max(length, 0)), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  if (argc == 5 && std::strcmp(argv[1], "--first-token") == 0) return first_token(argv[2], argv[3], std::atoi(argv[4]));
  return contest::serve(prepare);
}
