#include <optional>

#include "bad_calls.h"
#include "models/byte_source.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft::testing {
namespace {

std::string tiny_model_bytes() {
  return random_model({.num_layers = 1,
                       .hidden_size = 32,
                       .intermediate_size = 32,
                       .num_qo_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 8})
      .bytes();
}

class ModelCalls : public CallFamily {
  const char* name() const override { return "model files"; }
  std::vector<std::string_view> arguments() const override { return {"damaged", "tokenizer."}; }
  void call(Dice& dice) override {
    std::string bytes = bytes_;
    // The header is where one byte means much; the weights begin behind it.
    std::string header = bytes.substr(0, bytes.size() / 4), rest = bytes.substr(header.size());
    if (!dice.once_in(8)) dice.spoil(dice.once_in(4) ? rest : header);
    bytes = header + rest;
    if (dice.once_in(8)) bytes.resize(static_cast<size_t>(dice.below(static_cast<int>(bytes.size()))));
    const ModelFile file = open_model(open_memory("damaged", bytes));
    const Tokenizer tokenizer(file);
    tokenizer.encode("a b", {});
    ForwardPass forward(file, {.max_tokens = 16, .page_size = 4, .team = &team_});
    const std::vector<int32_t> ids = {1, 2};
    forward.run({{.sequence = forward.add_sequence(), .tokens = ids}});
  }
  std::string bytes_ = tiny_model_bytes();
  WorkerTeam team_{1};
};

class TokenizerCalls : public CallFamily {
  const char* name() const override { return "tokenizer, chat template"; }
  std::vector<std::string_view> arguments() const override {
    return {"id ", "token", "template", "line", "JSON", "context", "chat"};
  }
  void call(Dice& dice) override {
    const Tokenizer& tokenizer = *tokenizer_;
    switch (dice.below(5)) {
      case 0: {
        const std::string text = dice.bytes(60);
        for (const int32_t id : tokenizer.encode(text, {dice.once_in(2), dice.once_in(2)}))
          if (id < 0 || id >= tokenizer.vocab_size()) throw InternalError("an id outside the vocabulary");
        break;
      }
      case 1: {
        std::vector<int32_t> ids(static_cast<size_t>(dice.below(8)));
        for (int32_t& id : ids) id = dice.once_in(8) ? dice.odd_int() : dice.below(tokenizer.vocab_size());
        tokenizer.decode(ids, dice.once_in(2));
        break;
      }
      case 2: tokenizer.piece(dice.odd_int(), dice.once_in(2)); break;
      case 3: {
        const std::string text = dice.bytes(8);
        tokenizer.token(text);
        tokenizer.is_end(dice.odd_int());
        break;
      }
      default: {
        std::string source =
            "{% for m in messages %}{{ m['role'] + ': ' + m.content|trim }}{% if loop.last %}!{% endif "
            "%}{% endfor %}{{ x[1:2] }}";
        std::string context = R"({"messages": [{"role": "user", "content": " hi "}], "x": [1, 2.5, null]})";
        if (!dice.once_in(4)) dice.spoil(source);
        if (dice.once_in(2)) dice.spoil(context);
        ChatTemplate(source).render(context);
      }
    }
  }
  const std::string bytes_ = tiny_model_bytes();
  const std::optional<Tokenizer> tokenizer_{open_model(open_memory("tiny", bytes_))};
};

class ForwardCalls : public CallFamily {
  const char* name() const override { return "forward pass"; }
  std::vector<std::string_view> arguments() const override {
    return {"sequence", "tokens",           "token ", "page_size", "max_tokens", "max_sequences", "precision",
            "kv_dtype", "fixed_split_size", "inputs", "request",   "plan_mode",  "mode",          "input"};
  }
  void call(Dice& dice) override {
    if (!forward_ || dice.once_in(16)) {
      ForwardOptions options{.max_tokens = 24, .max_sequences = 3, .page_size = 4, .team = &team_};
      for (int count = dice.below(2); count > 0; --count) switch (dice.below(7)) {
          case 0: options.precision = static_cast<Precision>(dice.below(5)); break;
          case 1: options.max_tokens = dice.once_in(2) ? -dice.below(3) : INT64_MIN; break;
          case 2: options.max_sequences = -dice.below(3); break;
          case 3: options.page_size = dice.odd_int(); break;
          case 4: options.kv_dtype = dice.dtype(); break;
          case 5: options.plan_mode = static_cast<PlanMode>(dice.below(6)); break;
          default: options.fixed_split_size = dice.odd_int(); break;
        }
      sequences_.clear();
      forward_.emplace(file_, options);
    }
    const auto sequence = [&]() -> int64_t {
      return dice.once_in(6) || sequences_.empty() ? dice.odd_long() : dice.pick(sequences_);
    };
    switch (dice.below(8)) {
      case 0:
      case 1: sequences_.push_back(forward_->add_sequence()); break;
      case 2:
        sequences_.push_back(forward_->fork(sequence(), dice.once_in(3) ? dice.odd_long() : dice.below(10)));
        break;
      case 3: forward_->truncate(sequence(), dice.once_in(3) ? dice.odd_long() : dice.below(10)); break;
      case 4: forward_->release(sequence()); break;
      case 5: forward_->length(sequence()); break;
      default: {
        std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(dice.below(4)));
        std::vector<ForwardPass::Input> inputs;
        for (std::vector<int32_t>& ids : tokens) {
          ids.resize(static_cast<size_t>(dice.below(6)));
          for (int32_t& id : ids) id = dice.once_in(20) ? dice.odd_int() : dice.below(100);
          inputs.push_back(
              {.sequence = sequence(), .tokens = ids, .logit_rows = dice.once_in(2) ? ForwardPass::kAllRows : 1});
        }
        forward_->run(inputs);
      }
    }
  }
  const std::string bytes_ = tiny_model_bytes();
  const ModelFile file_ = open_model(open_memory("tiny", bytes_));
  WorkerTeam team_{1};
  std::optional<ForwardPass> forward_;
  std::vector<int64_t> sequences_;
};

}  // namespace

void add_model_calls(CallFamilies& families) {
  families.push_back(std::make_unique<ModelCalls>());
  families.push_back(std::make_unique<TokenizerCalls>());
  families.push_back(std::make_unique<ForwardCalls>());
}

}  // namespace weft::testing
